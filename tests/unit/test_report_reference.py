"""The report's section "Kafka against the reference": the compared numbers, and the differences that it marks."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.batch import BatchCase
from ackproof.rundir.documents import AuditFile, FinalReadFile, PartitionRead, RecordCounts, VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import (
    ConformanceFile,
    ElectionSeen,
    PredictedClass,
    PredictionFile,
    SimulatedSpread,
    SimulationFile,
)
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.timeline import Event, EventKind
from ackproof_reports.loading import CaseView
from ackproof_reports.reference import Reference, reference_of
from synthetic_batch import CALM

MS = 1_000_000


def event(at_ms: int, kind: EventKind, **detail: object) -> Event:
    return Event.model_validate(
        {"t_ns": at_ms * MS, "wall_ns": 0, "kind": kind, "topic": "t", "partition": 0, "detail": detail}
    )


EVENTS = (
    event(0, EventKind.ISR, isr=[1, 2, 3]),
    event(1000, EventKind.FAULT_ASKED),
    event(4000, EventKind.LEADER, leader=2, epoch=1),
    event(4100, EventKind.ISR, isr=[2, 3]),
    event(9000, EventKind.ISR, isr=[1, 2, 3]),
)


def spread(name: str, least: float, middle: float, most: float) -> SimulatedSpread:
    return SimulatedSpread(
        name=name, runs=50, seen=50 if most else 0, least=least, p05=least, p50=middle, p95=most, most=most,
        mean=middle, mean_low=least, mean_high=most, share_low=0, share_high=1,
    )  # fmt: skip


SIMULATED = SimulationFile(
    case="c#1",
    runs=50,
    linger_ms=100,
    spreads=(spread("lost", 2000, 3000, 4000), spread("new_leader_ms", 2800, 3100, 3600)),
)


READ = PartitionRead(
    topic="t", partition=0, start=0, end=9, epoch=1, epoch_after=1, position=9, complete=True
)


def compared(lost: int, judged: VerdictFile | None = None, **documents: object) -> Reference:
    view = CaseView(
        0,
        BatchCase(case="c#1", settings={}, repeat=1, run="c"),
        CaseDir(Path("c")),
        None,
        AuditFile(counts={"lost": lost, "duplicate": 0}, records=RecordCounts(), complete=True),
        judged,
        FinalReadFile(complete=True, partitions=(READ,)),
        EVENTS,
        True,
        (),
        **documents,  # type: ignore[arg-type]
    )
    found = reference_of(view, 3000.0)
    assert found is not None
    return found


def row(found: Reference, what: str) -> tuple[str, str, str, str]:
    one = next(one for one in found.rows if one.what == what)
    return one.predicted, one.simulated, one.observed, one.differs


def test_nothing_to_compare_with_is_no_section() -> None:
    entry = BatchCase(case="c#1", settings={}, repeat=1, run="c")
    view = CaseView(0, entry, CaseDir(Path("c")), None, None, None, None, (), True, ())
    assert reference_of(view, None) is None


@pytest.mark.parametrize(
    ("lost", "differs"),
    [(3100, ""), (4001, "more than in any simulated run"), (0, "less than in any simulated run")],
)
def test_counts_stand_beside_the_range_of_the_simulated_runs(lost: int, differs: str) -> None:
    found = compared(lost, simulation=SIMULATED)
    assert row(found, "lost") == ("—", "3,000 (2,000 – 4,000)", f"{lost:,}", differs)


@pytest.mark.parametrize(("lost", "marked"), [(4500, False), (4501, True), (1500, False), (1499, True)])
def test_counts_are_compared_as_coarsely_as_the_model_counts(lost: int, marked: bool) -> None:
    found = compared(lost, simulation=SIMULATED.model_copy(update={"coarseness": 500.0}))
    assert bool(row(found, "lost")[3]) is marked


def test_what_was_predicted_impossible_and_seen_is_marked() -> None:
    prediction = PredictionFile(classes=(PredictedClass(anomaly="lost", chance=Chance.IMPOSSIBLE, why="w"),))
    assert row(compared(1, prediction=prediction), "lost") == (
        "impossible", "—", "1", "predicted impossible, and seen",
    )  # fmt: skip
    assert row(compared(0, prediction=prediction), "lost")[3] == ""
    assert row(compared(0, prediction=prediction, simulation=SIMULATED), "lost")[3].endswith(
        "predicted impossible, and simulated"
    )


def test_times_count_from_the_first_fault() -> None:
    found = compared(3000, simulation=SIMULATED)
    assert row(found, "time to a new leader") == ("—", "3.1 s (2.8 s – 3.6 s)", "3.0 s", "")
    assert row(found, "time until an ISR shrank")[2] == "3.1 s"
    assert row(found, "time until all ISRs were full")[2] == "8.0 s"
    assert row(found, "who was elected")[2] == "broker 2"


def test_times_of_a_starved_run_are_not_compared() -> None:
    starved = CALM.model_copy(update={"starved": ("the harness stood still",)})
    slow = SIMULATED.model_copy(update={"spreads": (spread("new_leader_ms", 10, 20, 30),)})
    for calm, differs in ((CALM, "later than in any"), (starved, "")):
        verdict = VerdictFile(verdict=Verdict.PASS, reasons=(), calm=calm)
        found = compared(0, simulation=slow, judged=verdict)
        assert row(found, "time to a new leader")[3].startswith(differs)
        assert bool(row(found, "time to a new leader")[3]) is bool(differs)
        assert any("starved" in note for note in found.notes) is not bool(differs)


def test_another_leader_than_the_reference_names_is_marked() -> None:
    seen = ElectionSeen(topic="t", partition=0, leader_epoch=1, observed=2, reference=3, cause="fenced")
    said = row(compared(0, conformance=ConformanceFile(elections=(seen,))), "who was elected")
    assert said == ("broker 3", "—", "broker 2", "t/0 epoch 1: the reference names broker 3, Kafka broker 2")
