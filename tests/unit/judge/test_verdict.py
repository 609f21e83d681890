"""Tests of the verdict, one for each rule of docs/architecture.md (The verdict), on run directories made by hand."""

from __future__ import annotations

import textwrap
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import SimpleNamespace
from typing import Any

import pytest

from ackproof.experiment.promises import Ruling
from ackproof.judge import checks, coherence, judge_case, verdict
from ackproof.judge.checks.classes import strictest
from ackproof.judge.checks.expectations import judged
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.documents import (
    ClassJudgement,
    FinalReadFile,
    FinalReadFlaws,
    RecordCounts,
    VerdictFile,
)
from ackproof.rundir.model import ConformanceFile, ForbiddenStep
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.timeline import EventKind
from judged_run import HEALTHY, MakeRun, Replayed


def test_nothing_wrong_is_a_pass(make_run: MakeRun) -> None:
    verdict = judge_case(make_run())
    assert verdict.verdict is Verdict.PASS
    assert verdict.reasons == ()
    assert any("predictions" in text for text in verdict.not_judged)
    assert any("explanations" in text for text in verdict.not_judged)


@pytest.mark.parametrize("anomaly", ["lost", "overwritten", "vanished", "conflict", "torn-transaction"])
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
    assert said.predicted == ""


_TRANSACTIONAL = "acks: all, idempotence: true, transaction_size: 10"


@pytest.mark.parametrize(
    ("producers", "count", "forbidden", "why"),
    [
        ("acks: all", 0, True, "not applicable: nothing is written in transactions"),
        ("acks: all", 1, True, "not applicable: nothing is written in transactions"),
        (_TRANSACTIONAL, 0, None, "min.insync.replicas = 1 lets the leader acknowledge alone"),
        (_TRANSACTIONAL, 1, None, "min.insync.replicas = 1 lets the leader acknowledge alone"),
    ],
)
def test_classes_of_transactions_are_impossible_without_any(
    make_run: MakeRun, producers: str, count: int, forbidden: bool | None, why: str
) -> None:
    said = judge_case(make_run(producers=producers, min_insync=1, **{"torn-transaction": count}))
    (torn,) = [c for c in said.classes if c.anomaly == "torn-transaction"]
    assert (torn.forbidden, torn.why) == (forbidden, why)
    assert any("torn-transaction" in reason for reason in said.reasons) is bool(forbidden and count)


def _torn(make_run: MakeRun, fault: str, *, lost: bool) -> tuple[VerdictFile, ClassJudgement]:
    """Judge a run with a torn transaction. Return the verdict and the ruling on the class. `lost`: whether the record
    that the finding names is lost too."""
    experiment = f"""
        name: t
        topics: {{orders: {{partitions: 1, replication_factor: 3, config: {{min.insync.replicas: 2}}}}}}
        workload: {{producers: {{{_TRANSACTIONAL}}}, duration: 1s}}
        faults: [{fault}]
    """
    found = ["torn-transaction", "lost"] if lost else ["torn-transaction"]
    finding = dict.fromkeys(("partition", "producer", "seq", "offset"), 0)
    rows = [{**finding, "class": name, "topic": "orders", "detail": ""} for name in found]
    counts = dict.fromkeys(found, 1)
    said = judge_case(make_run(experiment=textwrap.dedent(experiment), findings=rows, **counts))
    return said, next(one for one in said.classes if one.anomaly == "torn-transaction")


def test_a_transaction_that_lacks_only_lost_records_is_judged_by_their_loss(make_run: MakeRun) -> None:
    said, torn = _torn(make_run, "{kill: leader(orders/0), at: 1s, restart_after: 1s}", lost=True)
    assert (torn.forbidden, torn.why) == (False, "1 of 1 lack only records that count as lost")
    assert [text for text in said.reasons if "lost: 1" in text]


@pytest.mark.parametrize(
    ("fault", "forbidden", "why"),
    [
        (
            "{power_loss: leader(orders/0), at: 1s, restart_after: 1s}",
            None,
            "fault 1 (power_loss) may have taken",
        ),
        (
            "{kill: leader(orders/0), at: 1s, restart_after: 1s}",
            True,
            "acks=all on at least 2 in-sync replicas",
        ),
    ],
)
def test_a_fault_of_a_disk_can_take_a_marker(
    make_run: MakeRun, fault: str, forbidden: bool | None, why: str
) -> None:
    _, torn = _torn(make_run, fault, lost=False)
    assert torn.forbidden is forbidden
    assert torn.why.startswith(why)


def test_a_coordinator_that_says_that_it_skipped_the_marker_is_no_fault_of_a_disk(
    make_run: MakeRun, tmp_path: Path
) -> None:
    log = tmp_path / "run" / "nodes" / "3" / "server.log"
    log.parent.mkdir(parents=True)
    said = "find leader endpoint for partitions Set(a-b-1, orders-0) while trying to send transaction markers for x"
    log.write_text(f"INFO Couldn't {said}, these partitions are likely deleted already\n")
    _, torn = _torn(make_run, "{power_loss: leader(orders/0), at: 1s, restart_after: 1s}", lost=False)
    assert torn.forbidden
    assert "skipped a marker of orders/0" in torn.why


@pytest.mark.parametrize(
    "anomaly",
    [
        *("resurrected", "phantom", "misrouted", "corrupted", "skipped", "rewound"),
        *("aborted-read", "early-read"),
    ],
)
def test_some_classes_are_forbidden_always(make_run: MakeRun, anomaly: str) -> None:
    assert judge_case(make_run(producers="acks: 0", min_insync=1, **{anomaly: 1})).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    "anomaly",
    ["resurrected", "phantom", "misrouted", "corrupted", "conflict", "aborted-read", "early-read"],
)
def test_a_forbidden_presence_fails_without_full_evidence(make_run: MakeRun, anomaly: str) -> None:
    verdict = judge_case(make_run(events=(), final=None, **{anomaly: 1}))
    assert verdict.verdict is Verdict.FAIL
    assert any("no final read" in reason for reason in verdict.reasons)


@pytest.mark.parametrize(
    "anomaly", ["lost", "overwritten", "vanished", "skipped", "rewound", "torn-transaction"]
)
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
        ("acks: all, in_flight: 1", "both acked", Verdict.PASS),
        ("acks: all, retries: 0", "one indeterminate", Verdict.PASS),
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
        ({"events": HEALTHY[1:]}, "no fault-asked before"),
        ({"events": (EventKind.END,)}, "never injected"),
        ({"events": (HEALTHY[0], EventKind.END)}, "not confirmed"),
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


def test_of_several_topics_the_strictest_ruling_is_shown() -> None:
    lax, open_, strict = (
        Ruling(chance, chance) for chance in (Chance.POSSIBLE, Chance.UNKNOWN, Chance.IMPOSSIBLE)
    )
    assert strictest([lax, open_]) is open_
    assert strictest([open_, strict, lax]) is strict


@pytest.mark.parametrize(
    ("replayed", "forbidden", "agrees"),
    [(7, 0, True), (0, 0, False), (7, 2, False)],
    ids=["7", "none", "two bad"],
)
def test_a_replay_agrees_only_where_it_looked_and_found_all_allowed(
    make_run: MakeRun, replay: Replayed, replayed: int, forbidden: int, agrees: bool
) -> None:
    step = ForbiddenStep(rule="r", text="t", state_before="b", source="s") if forbidden else None
    replay.file = ConformanceFile(replayed=replayed, forbidden=step, forbidden_steps=forbidden)
    verdict = judge_case(make_run())
    assert [text for text in verdict.witnesses if "replayed" in text] == (
        ["7 observed steps were replayed; the protocol allows each"] if agrees else []
    )
    assert verdict.reasons == (
        ("a step that the protocol forbids: r: t; s (one of 2 such steps)",) if forbidden else ()
    )


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("certain", [True, False])
@pytest.mark.parametrize("not_replayed", [(), ("1 changes of partitions: the observation jumped over them",)])
def test_a_step_that_its_own_record_shows_proves_itself_in_a_whole_log(
    make_run: MakeRun, replay: Replayed, certain: bool, not_replayed: tuple[str, ...], sealed: bool
) -> None:
    other, step = (
        ForbiddenStep(rule=name, text="t", state_before="b", source="s", certain=certain and name == "r")
        for name in ("q", "r")
    )
    replay.file = ConformanceFile(
        replayed=7, forbidden=other, more_forbidden=(step,), forbidden_steps=2, not_replayed=not_replayed
    )
    run = make_run()
    if sealed:
        run.seal.write_text("{}")
    (found,) = [one for one in judge_case(run).opinions if one.check == "replay" and one.kind == "breaks"]
    assert found.proven is (certain and sealed and not not_replayed)
    assert (": r: " in found.text) is found.proven


def test_every_check_that_there_is_is_asked_once() -> None:
    """A check that the verdict never calls would go unnoticed, because its own tests call it directly."""
    modules = [
        import_module(f"{room.__name__}.{found.name}")
        for room in (checks, coherence)
        for found in iter_modules(room.__path__)
    ]
    there = {
        value
        for module in modules
        for name, value in vars(module).items()
        if name.startswith("check_") and value.__module__ == module.__name__
    }
    coherent = [*verdict.COHERENCE, *verdict.SEALED_COHERENCE]
    asked = [*coherent, *verdict.EVIDENCE, *verdict.AFTER_FINDINGS, *verdict.SEALED_FINDINGS]
    assert len(asked) == len(set(map(verdict.check_name, asked)))
    assert set(asked) == {*there, verdict.check_scope}
    assert {check.__module__ for check in coherent} == {
        f"{coherence.__name__}.{found.name}" for found in iter_modules(coherence.__path__)
    }


def test_a_count_that_no_audit_made_is_unknown() -> None:
    evidence: Any = SimpleNamespace(audit=None)
    case: Any = None
    asked: Any = [("lost", "0", None)]
    (one,) = judged(evidence, case, asked)
    assert (one.seen, one.holds, one.low) == ("unknown", None, None)
