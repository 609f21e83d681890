"""The order of DESIGN §1, one test per step, on run directories made by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.judge import judge_case
from ackproof.plan.cases import cases, load
from ackproof.plan.expectations import ANOMALIES
from ackproof.rundir.clock import RunClock
from ackproof.rundir.documents import (
    AuditFile,
    CaseFile,
    FinalReadFile,
    FinalReadFlaws,
    PartitionRead,
    RecordCounts,
)
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.schema import FINDINGS, SERIES
from ackproof.rundir.timeline import EventKind, Timeline

EXPERIMENT = """\
name: t
topics:
  orders: {{partitions: 1, replication_factor: 3, config: {{min.insync.replicas: {min_insync}}}}}
workload:
  producers: {{{producers}}}
  duration: 1s
faults:
  - kill: {{target: leader(orders/0)}}
    at: 1s
    restart_after: 1s
{expect}
"""

MakeRun = Callable[..., CaseDir]
SECOND = 1_000_000_000
WHOLE = FinalReadFile(
    complete=True,
    partitions=(
        PartitionRead(
            topic="orders", partition=0, start=0, end=100, epoch=1, epoch_after=1, position=100, complete=True
        ),
    ),
)
HEALTHY = (
    EventKind.FAULT_ASKED,
    EventKind.FAULT_CONFIRMED,
    EventKind.FAULT_HEALED,
    EventKind.FAULT_RECOVERED,
    EventKind.END,
)


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A run directory that says PASS unless told otherwise."""

    def make(
        *,
        producers: str = "acks: all",
        min_insync: int = 2,
        expect: str = "",
        events: Iterable[EventKind] = HEALTHY,
        acked_bins: Iterable[int] = (0, 30),
        final: FinalReadFile | None = WHOLE,
        findings: Iterable[dict[str, Any]] = (),
        audit: dict[str, Any] | None = None,
        **counts: int,
    ) -> CaseDir:
        file = tmp_path / "experiment.yaml"
        file.write_text(EXPERIMENT.format(producers=producers, min_insync=min_insync, expect=expect))
        case = cases(load(file))[0]
        run = CaseDir(tmp_path / "run")
        CaseFile(
            run_id="0" * 16,
            case=case.id,
            experiment="t",
            settings=case.settings,
            repeat=1,
            seed=case.seed,
            backend="process",
            replay="ackproof run t.yaml",
            resolved=case.resolved(),
        ).save(run.case_json)
        with Timeline(run.timeline, RunClock.start()) as timeline:
            for number, kind in enumerate(events):
                fault = 1 if kind.value.startswith("fault") else None
                timeline.add(kind, fault=fault, t_ns=SECOND + number * SECOND // 10, reason="because")
        if final is not None:
            final.save(run.final_read)
        rows = [
            {
                "topic": "orders",
                "partition": 0,
                "start_ns": start * 100_000_000,
                "acked": 5,
                "failed": 0,
                "indeterminate": 0,
                "read": 0,
                "p50_ms": 1.0,
                "p99_ms": 1.0,
                "max_ms": 1.0,
                "longest_gap_ms": 1.0,
            }
            for start in acked_bins
        ]
        pq.write_table(pa.Table.from_pylist(rows, schema=SERIES), run.series)
        run.findings.mkdir()
        pq.write_table(pa.Table.from_pylist(list(findings), schema=FINDINGS), run.findings / "part-0.parquet")
        AuditFile(
            **{
                "counts": {anomaly: counts.get(anomaly, 0) for anomaly in ANOMALIES},
                "records": RecordCounts(produced=100, acked=100, consumed_final=100),
                "complete": True,
                **(audit or {}),
            }
        ).save(run.audit_json)
        return run

    return make


def test_nothing_wrong_is_a_pass(make_run: MakeRun) -> None:
    verdict = judge_case(make_run())
    assert verdict.verdict is Verdict.PASS
    assert verdict.reasons == ()
    assert any("predictions" in text for text in verdict.not_judged)
    assert any("explanations" in text for text in verdict.not_judged)


@pytest.mark.parametrize("anomaly", ["lost", "overwritten", "vanished", "conflict"])
def test_loss_is_forbidden_where_acks_all_stands_on_two_replicas(make_run: MakeRun, anomaly: str) -> None:
    assert judge_case(make_run(**{anomaly: 1})).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("producers", "min_insync"), [("acks: 0", 2), ("acks: 1", 2), ("acks: all", 1), ("acks: 1", 1)]
)
@pytest.mark.parametrize("anomaly", ["lost", "overwritten", "vanished", "conflict"])
def test_loss_elsewhere_is_shown_and_not_judged(
    make_run: MakeRun, producers: str, min_insync: int, anomaly: str
) -> None:
    verdict = judge_case(make_run(producers=producers, min_insync=min_insync, **{anomaly: 3}))
    assert verdict.verdict is Verdict.PASS
    (said,) = [c for c in verdict.classes if c.anomaly == anomaly]
    assert said.forbidden is None
    assert "predictions do not exist yet" in said.why


@pytest.mark.parametrize(
    "anomaly", ["resurrected", "phantom", "misrouted", "corrupted", "skipped", "rewound"]
)
def test_some_classes_are_forbidden_always(make_run: MakeRun, anomaly: str) -> None:
    assert judge_case(make_run(producers="acks: 0", min_insync=1, **{anomaly: 1})).verdict is Verdict.FAIL


@pytest.mark.parametrize("anomaly", ["resurrected", "phantom", "misrouted", "corrupted", "conflict"])
def test_a_forbidden_presence_fails_without_full_evidence(make_run: MakeRun, anomaly: str) -> None:
    verdict = judge_case(make_run(events=(), final=None, **{anomaly: 1}))
    assert verdict.verdict is Verdict.FAIL
    assert any("no final read" in reason for reason in verdict.reasons)


@pytest.mark.parametrize("anomaly", ["lost", "overwritten", "vanished", "skipped", "rewound"])
def test_a_forbidden_absence_needs_full_evidence(make_run: MakeRun, anomaly: str) -> None:
    assert judge_case(make_run(events=(), **{anomaly: 1})).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("producers", "expected"),
    [
        ("acks: all", Verdict.PASS),
        ("acks: all, retries: 0", Verdict.FAIL),
        ("acks: all, idempotence: true", Verdict.FAIL),
        ("acks: 1, retries: 3", Verdict.PASS),
    ],
)
@pytest.mark.parametrize("anomaly", ["duplicate"])
def test_duplicates_are_forbidden_where_no_retry_is_possible(
    make_run: MakeRun, producers: str, expected: Verdict, anomaly: str
) -> None:
    assert judge_case(make_run(producers=producers, **{anomaly: 2})).verdict is expected


@pytest.mark.parametrize(
    ("producers", "detail", "expected"),
    [
        ("acks: all, idempotence: true", "", Verdict.FAIL),
        ("acks: all", "both acked", Verdict.PASS),
        ("acks: all, retries: 0", "both acked", Verdict.FAIL),
        ("acks: all, in_flight: 1", "both acked", Verdict.FAIL),
        ("acks: all, in_flight: 1", "one indeterminate", Verdict.PASS),
        ("acks: 0, in_flight: 1", "both acked", Verdict.PASS),
    ],
)
def test_reordering_depends_on_the_producer(
    make_run: MakeRun, producers: str, detail: str, expected: Verdict
) -> None:
    finding = {
        "class": "reordered",
        "topic": "orders",
        "partition": 0,
        "producer": 0,
        "offset": 3,
        "seq": 3,
        "detail": detail,
    }
    assert judge_case(make_run(producers=producers, reordered=1, findings=[finding])).verdict is expected


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"final": None}, "no final read"),
        ({"final": FinalReadFile(complete=False, reasons=("stuck",))}, "stuck"),
        ({"events": HEALTHY[:-1]}, "no end"),
        ({"events": HEALTHY[1:]}, "never injected"),
        ({"events": (HEALTHY[0], *HEALTHY[2:])}, "not confirmed"),
        ({"events": (*HEALTHY[:3], EventKind.END)}, "not confirmed as healed"),
        ({"events": (*HEALTHY[:4], EventKind.FAULT_FAILED, EventKind.END)}, "because"),
        ({"events": (*HEALTHY[:4], EventKind.NODE_DIED, EventKind.END)}, "ended by itself"),
        ({"events": (*HEALTHY[:4], EventKind.CLIENT_DIED, EventKind.END)}, "ended by itself"),
        ({"events": (*HEALTHY[:4], EventKind.ERROR, EventKind.END)}, "did not go through"),
        ({"acked_bins": (30,)}, "before the first fault"),
        ({"acked_bins": (0, 9)}, "after the last fault"),
        ({"acked_bins": (10, 30)}, "before the first fault"),
        ({"audit": {"complete": False, "reasons": ["torn"]}}, "torn"),
        ({"audit": {"final_read": FinalReadFlaws(count=1)}}, "final reader"),
        ({"audit": {"records": RecordCounts(produced=100, acked=49, indeterminate=51)}}, "indeterminate"),
        ({"audit": {"records": RecordCounts()}}, "nothing was produced"),
    ],
)
def test_each_lack_of_evidence_is_inconclusive_and_said(
    make_run: MakeRun, change: dict[str, Any], said: str
) -> None:
    verdict = judge_case(make_run(**change))
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert any(said in reason for reason in verdict.reasons), verdict.reasons


def test_half_indeterminate_is_within_the_bound(make_run: MakeRun) -> None:
    records = RecordCounts(produced=100, acked=50, indeterminate=50)
    assert judge_case(make_run(audit={"records": records})).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("expect", "lost", "expected"),
    [
        ("lost: 0", 0, Verdict.PASS),
        ("lost: 0", 1, Verdict.FAIL),
        ('lost: "<= 2"', 2, Verdict.PASS),
        ('lost: "<= 2"', 3, Verdict.FAIL),
        ('lost: "< 2"', 2, Verdict.FAIL),
        ('lost: "> 0"', 1, Verdict.PASS),
        ('lost: "> 0"', 0, Verdict.INCONCLUSIVE),
        ('lost: ">= 2"', 1, Verdict.INCONCLUSIVE),
        ("lost: 3", 2, Verdict.INCONCLUSIVE),
        ("lost: 3", 4, Verdict.FAIL),
    ],
)
def test_expectations(make_run: MakeRun, expect: str, lost: int, expected: Verdict) -> None:
    run = make_run(producers="acks: 1", expect=f"expect:\n  - {{{expect}}}", lost=lost)
    assert judge_case(run).verdict is expected


def test_an_expected_loss_does_not_hide_a_phantom(make_run: MakeRun) -> None:
    run = make_run(producers="acks: 1", expect='expect:\n  - {lost: "> 0"}', lost=4, phantom=1)
    assert judge_case(run).verdict is Verdict.FAIL


def test_a_broken_upper_bound_of_an_absence_needs_evidence(make_run: MakeRun) -> None:
    run = make_run(producers="acks: 1", expect="expect:\n  - {lost: 0}", lost=4, events=())
    assert judge_case(run).verdict is Verdict.INCONCLUSIVE
