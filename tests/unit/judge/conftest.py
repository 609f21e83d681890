"""Run directories made by hand, that say PASS unless told otherwise."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.experiment.case import Case
from ackproof.plan.cases import case_to_json, cases, load
from ackproof.reference.predict.answers import USUAL_STATES
from ackproof.reference.predict.prediction import predict_run
from ackproof.rundir import timeline as events_of_runs
from ackproof.rundir.anomalies import TABLE
from ackproof.rundir.clock import RunClock
from ackproof.rundir.conformance import ConformanceFile
from ackproof.rundir.documents import AuditFile, CaseFile, FinalReadFile, PartitionRead, RecordCounts
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.prediction import Chance, PredictedClass, PredictionFile
from ackproof.rundir.schema import FINDINGS, PRODUCED, SERIES
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


@pytest.fixture
def prediction() -> Predicted:
    """What is predicted in a test: nothing, unless it says so. Thus the rules of the settings are what decides."""
    return Predicted()


@pytest.fixture
def replay() -> Replayed:
    """What the replay of a run says in a test: nothing, unless it is told to."""
    return Replayed()


class Replayed:
    """A replay made by hand."""

    def __init__(self) -> None:
        self.file = ConformanceFile(not_replayed=("nothing in this test",))


class Predicted:
    """A prediction made by hand."""

    def __init__(self) -> None:
        self.file = PredictionFile(not_predicted=("none in this test",))
        self.further: PredictionFile | None = None
        """The answer when more states are looked at, if it is another one."""
        self.bounds: list[int] = []

    def asked(self, _case: Case, _run: CaseDir, max_states: int) -> PredictionFile:
        """Instead of the exploration."""
        self.bounds.append(max_states)
        return self.further if self.further and max_states > USUAL_STATES else self.file

    def says(self, **chances: Chance) -> None:
        """These classes, as if the exploration had answered."""
        self.file = PredictionFile(
            classes=tuple(
                PredictedClass(anomaly=anomaly, chance=chance, why="as planted")
                for anomaly, chance in chances.items()
            ),
            observed=True,
        )


MakeRun = Callable[..., CaseDir]
Happening = EventKind | tuple[EventKind, int | None, float]
"""A kind of event; or one with the number of its fault and the second in which it happens."""
SECOND = 1_000_000_000
OF_KIND = {what.KIND: what for what in events_of_runs.Happening.__subclasses__()}
HEALTHY = (
    EventKind.FAULT_ASKED,
    EventKind.FAULT_CONFIRMED,
    EventKind.FAULT_HEALED,
    EventKind.FAULT_RECOVERED,
    EventKind.END,
)
WHOLE = FinalReadFile(
    complete=True,
    partitions=(
        PartitionRead(
            topic="orders", partition=0, start=0, end=100, epoch=1, epoch_after=1, position=100, complete=True
        ),
    ),
)


def life(fault: int, asked: float, recovered: float) -> list[Happening]:
    """The events of a fault that did what it should, by their seconds."""
    return [
        (EventKind.FAULT_ASKED, fault, asked),
        (EventKind.FAULT_CONFIRMED, fault, asked),
        (EventKind.FAULT_HEALED, fault, recovered),
        (EventKind.FAULT_RECOVERED, fault, recovered),
    ]


def finding(anomaly: str, topic: str = "orders", detail: str = "") -> dict[str, Any]:
    """A row of `findings/`."""
    return {
        "class": anomaly,
        "topic": topic,
        "partition": 0,
        "producer": 0,
        "offset": 3,
        "seq": 3,
        "detail": detail,
    }


def attempt(
    seq: int, done_s: float, *, outcome: int = 0, topic: str = "orders", partition: int = 0
) -> dict[str, Any]:
    """A row of `ledger/produced`; `done_s` below 0: no report came."""
    return {
        "producer": 0,
        "seq": seq,
        "topic": topic,
        "partition": partition,
        "outcome": outcome,
        "error": 0,
        "offset": seq,
        "sent_ns": 0,
        "done_ns": round(done_s * SECOND) if done_s >= 0 else -1,
        "txn": -1,
    }


@cache
def _case(experiment: str) -> Case:
    """Reading an experiment takes longer than judging it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "experiment.yaml"
        file.write_text(experiment, encoding="utf-8")
        return cases(load(file))[0]


def _series(bins: Iterable[int] | Mapping[TopicPartition, Iterable[int]], acked: int) -> pa.Table:
    by_place = bins if isinstance(bins, Mapping) else {("orders", 0): bins}
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "start_ns": start * SECOND // 10,
            "acked": acked,
            "failed": 0,
            "indeterminate": 0,
            "read": 0,
            "p50_ms": 1.0,
            "p99_ms": 1.0,
            "max_ms": 1.0,
            "longest_gap_ms": 1.0,
        }
        for (topic, partition), starts in by_place.items()
        for start in starts
    ]
    return pa.Table.from_pylist(rows, schema=SERIES)


def _whole(case: Case) -> FinalReadFile:
    """A final read that says of every partition that it is complete."""
    (one,) = WHOLE.partitions
    return FinalReadFile(
        complete=True,
        partitions=tuple(
            one.model_copy(update={"topic": name, "partition": number})
            for name, topic in case.experiment.topics.items()
            for number in range(topic.partitions)
        ),
    )


@pytest.fixture
def make_run(tmp_path: Path, prediction: Predicted, replay: Replayed) -> MakeRun:
    """Writes a run directory with all facts in it, as `prediction` and `replay` say when it is made.

    `experiment` replaces the whole file; `acked_bins` count tenths of a second.
    """

    def make(
        *,
        experiment: str | None = None,
        producers: str = "acks: all",
        min_insync: int = 2,
        expect: str = "",
        events: Iterable[Happening] = HEALTHY,
        acked_bins: Iterable[int] | Mapping[TopicPartition, Iterable[int]] = (0, 30),
        acked_in_bin: int = 5,
        attempts: Iterable[dict[str, Any]] = (),
        final: FinalReadFile | str | None = "whole",
        findings: Iterable[dict[str, Any]] = (),
        audit: dict[str, Any] | None = None,
        **counts: int,
    ) -> CaseDir:
        case = _case(
            experiment or EXPERIMENT.format(producers=producers, min_insync=min_insync, expect=expect)
        )
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
            resolved=case_to_json(case),
        ).save(run.case_json)
        with Timeline(run.timeline, RunClock.start()) as timeline:
            for number, event in enumerate(events):
                if isinstance(event, tuple):
                    kind, fault, seconds = event
                else:
                    kind, fault, seconds = (
                        event,
                        1 if event.value.startswith("fault") else None,
                        1 + number / 10,
                    )
                what = OF_KIND[kind].model_validate({"reason": "because"})
                timeline.add(what, fault=fault, t_ns=round(seconds * SECOND))
        if final is not None:
            (_whole(case) if isinstance(final, str) else final).save(run.final_read)
        pq.write_table(_series(acked_bins, acked_in_bin), run.series)
        rows = list(attempts)
        if rows:
            folder = run.produced / "client=p0"
            folder.mkdir(parents=True)
            pq.write_table(pa.Table.from_pylist(rows, schema=PRODUCED), folder / "part-000000.parquet")
        run.findings.mkdir()
        pq.write_table(pa.Table.from_pylist(list(findings), schema=FINDINGS), run.findings / "part-0.parquet")
        AuditFile(
            **{
                "counts": {anomaly: counts.get(anomaly, 0) for anomaly in TABLE},
                "records": RecordCounts(produced=100, acked=100, consumed_final=100),
                "complete": True,
                **(audit or {}),
            }
        ).save(run.audit_json)
        replay.file.save(run.conformance_json)
        seen = {anomaly for anomaly, count in counts.items() if count}
        predict_run(case, run, seen, explore=prediction.asked).save(run.prediction_json)
        return run

    return make
