"""Fixtures and helpers that write run directories by hand. Without arguments, the judge passes such a run."""

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
from ackproof.judge.coherence.run import PHASES
from ackproof.judge.facts import Facts, partitions_of
from ackproof.judge.verdict import COHERENCE, judge
from ackproof.plan.cases import case_to_json, cases, load
from ackproof.rundir import timeline as events_of_runs
from ackproof.rundir.anomalies import TABLE
from ackproof.rundir.clock import RunClock
from ackproof.rundir.documents import AuditFile, CaseFile, Client, FinalReadFile, PartitionRead, RecordCounts
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import TxnRow, write_transactions
from ackproof.rundir.metadata import PartitionChanged
from ackproof.rundir.model import Chance, ConformanceFile, PredictedClass, PredictionFile
from ackproof.rundir.observed import Sample
from ackproof.rundir.outcome import Says, TxnOutcome, Verdict
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import FINDINGS, PRODUCED, SERIES
from ackproof.rundir.timeline import ClientStarted, EventKind, NodeEnded, NodeStarted, PhaseBegan, Timeline
from ackproof_model.predict.answers import USUAL_STATES
from ackproof_model.predict.prediction import predict_run

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
    """The prediction of `make_run`. Unless the test changes it, nothing is predicted, so the settings decide."""
    return Predicted()


@pytest.fixture
def replay() -> Replayed:
    """The replay of `make_run`. Unless the test changes it, nothing is replayed."""
    return Replayed()


class Replayed:
    """Replay made by hand. `file`: content of the run's `conformance.json`."""

    def __init__(self) -> None:
        self.file = ConformanceFile(not_replayed=("nothing in this test",))


class Predicted:
    """Prediction made by hand. `file`: answer to every search. `bounds`: limit of states of each search so far."""

    def __init__(self) -> None:
        self.file = PredictionFile(not_predicted=("none in this test",))
        self.further: PredictionFile | None = None
        """Answer to a search of more than `USUAL_STATES` states; None: `file`."""
        self.bounds: list[int] = []

    def asked(self, _case: Case, _run: CaseDir, max_states: int) -> PredictionFile:
        """Return the prediction in place of the exploration, which calls it with the limit of states."""
        self.bounds.append(max_states)
        return self.further if self.further and max_states > USUAL_STATES else self.file

    def says(self, **chances: Chance) -> None:
        """Set the chance of each of these classes, as if an exploration had found it."""
        self.file = PredictionFile(
            classes=tuple(
                PredictedClass(anomaly=anomaly, chance=chance, why="as planted")
                for anomaly, chance in chances.items()
            ),
            observed=True,
        )


def in_sync(topic: str, partition: int) -> Sample:
    """Return a sample of a partition with three replicas in the ISR, taken long after all other events of a run."""
    nodes = (1, 2, 3)
    return Sample(
        t_ns=10**15, topic=topic, partition=partition, leader=1, leader_epoch=1, replicas=nodes, isr=nodes
    )


def _tell(timeline: Timeline, case: Case, events: Iterable[Happening]) -> None:
    """Write these events to the timeline, with all phases, and with the starts and ends of nodes that the case's faults
    cause. An event without a second comes 0.1 s after the one before it; the first comes at 1 s."""
    kinds = {fault.number: fault for fault in case.faults}
    for phase in ("start", "load"):
        timeline.add(PhaseBegan(phase=phase), t_ns=0)
    for node in (1, 2, 3):
        timeline.add(NodeStarted(pid=node), node=node, t_ns=0)
    timeline.add(ClientStarted(pid=5), client="p0", t_ns=0)
    begun = list(PHASES[2:])
    for number, event in enumerate(events):
        own = 1 if not isinstance(event, tuple) and event.value.startswith("fault") else None
        kind, fault, seconds = event if isinstance(event, tuple) else (event, own, 1 + number / 10)
        at = round(seconds * SECOND)
        detail: dict[str, Any] = {"reason": "because"}
        while begun and (kind is EventKind.END or (kind is EventKind.CLIENT_ENDED and begun[0] != "read")):
            # A client is asked to end a second before it does.
            timeline.add(PhaseBegan(phase=begun.pop(0)), t_ns=at - (kind is not EventKind.END) * SECOND)
        spec = kinds.get(fault) if fault is not None else None
        if kind is EventKind.FAULT_ASKED and spec is not None:
            detail |= {"kind": spec.kind, "nodes": (2,)}
        client = None
        if kind is EventKind.CLIENT_ENDED:
            client, detail = "p0", {"status": -9}
        timeline.add(OF_KIND[kind].model_validate(detail), fault=fault, client=client, t_ns=at)
        if spec is not None and spec.ENDS_NODES and kind is EventKind.FAULT_CONFIRMED:
            timeline.add(NodeEnded(pid=2, status="SIGKILL"), node=2, t_ns=at)
        if spec is not None and spec.ENDS_NODES and kind is EventKind.FAULT_HEALED:
            timeline.add(NodeStarted(pid=4), node=2, t_ns=at)


MakeRun = Callable[..., CaseDir]
Happening = EventKind | tuple[EventKind, int | None, float]
"""Kind of an event, or (kind, number of its fault or None, time in seconds)."""
SECOND = 1_000_000_000
OF_KIND = {what.KIND: what for what in events_of_runs.EventDetail.__subclasses__()}
HEALTHY = (
    EventKind.FAULT_ASKED,
    EventKind.FAULT_CONFIRMED,
    EventKind.FAULT_HEALED,
    EventKind.FAULT_RECOVERED,
    EventKind.END,
)
KILLED_LATE = {
    "audit": {"complete": False},
    "events": (*HEALTHY[:4], (EventKind.CLIENT_ENDED, None, 8.0), (EventKind.END, None, 9.0)),
}
"""Arguments of `make_run` for a run that killed producer p0, because it did not end when asked to."""
WHOLE = FinalReadFile(
    complete=True,
    partitions=(
        PartitionRead(
            topic="orders", partition=0, start=0, end=100, epoch=1, epoch_after=1, position=100, complete=True
        ),
    ),
)


def life(fault: int, asked: float, recovered: float) -> list[Happening]:
    """Return the events of a fault that was confirmed at once when it was requested, and healed. `asked`, `recovered`:
    times in seconds."""
    return [
        (EventKind.FAULT_ASKED, fault, asked),
        (EventKind.FAULT_CONFIRMED, fault, asked),
        (EventKind.FAULT_HEALED, fault, recovered),
        (EventKind.FAULT_RECOVERED, fault, recovered),
    ]


def finding(anomaly: str, topic: str = "orders", detail: str = "") -> dict[str, Any]:
    """Return a row of `findings/` about seq 3 of producer 0 in partition 0."""
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
    """Return a row of `ledger/produced` for producer 0, sent at 0 s and reported at `done_s`; below 0: no report."""
    return {
        "producer": 0,
        "seq": seq,
        "topic": topic,
        "partition": partition,
        "outcome": outcome if done_s >= 0 else 2,
        "error": 19 if outcome == 1 else 0,
        "offset": seq if outcome == 0 and done_s >= 0 else -1,
        "sent_ns": 0,
        "done_ns": round(done_s * SECOND) if done_s >= 0 else -1,
        "txn": -1,
    }


@cache
def _case(experiment: str) -> Case:
    """Return the first case of an experiment file with this text. Cached, because reading takes longer than judging."""
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
    """Return a final read that is complete in every partition of the case, with offsets 0 to 99."""
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
    """Return a function that writes a complete run directory, with the prediction and replay of these fixtures.

    `experiment`: text of the experiment file, in place of `EXPERIMENT`. `acked_bins`: tenths of a second with
    `acked_in_bin` acknowledgements each. `final` "whole": a complete read of every partition. Further keywords: number
    of findings by class.
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
            clients=(Client(id="p0", kind="producer", producer=0), Client(id="f0", kind="final", reader=0)),
        ).save(run.case_json)
        with Timeline(run.timeline, RunClock.start()) as timeline:
            _tell(timeline, case, events)
        run.observed.mkdir()
        run.samples.write_text(
            "".join(f"{in_sync(*place).line()}\n" for place in partitions_of(case, case.experiment.topics))
        )
        if final is not None:
            (_whole(case) if isinstance(final, str) else final).save(run.final_read)
        pq.write_table(_series(acked_bins, acked_in_bin), run.series)
        rows = list(attempts)
        if rows:
            folder = run.produced / "client=p0"
            folder.mkdir(parents=True)
            pq.write_table(pa.Table.from_pylist(rows, schema=PRODUCED), folder / "part-000000.parquet")
        if case.experiment.workload.producers.transaction_size is not None:
            committed = TxnRow(0, 0, int(TxnOutcome.COMMITTED), 0, 0, 1, 2)
            write_transactions(run.transactions / "client=p0", [committed])
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
        predict_run(case, run, explore=prediction.asked).save(run.prediction_json)
        return run

    return make


def said(facts: Facts) -> list[str]:
    """Return the texts of the coherence checks that contradict or lack something. Asserts that the verdict is then
    INCONCLUSIVE, and that one of them is among its reasons."""
    opinions = [opinion for check in COHERENCE for opinion in check(facts)]
    found = [one.text for one in opinions if one.kind in (Says.CONTRADICTS, Says.LACKS)]
    verdict = judge(facts)
    assert not found or verdict.verdict is Verdict.INCONCLUSIVE
    assert not found or set(verdict.reasons) & set(found)
    return found


def decided(epoch: int, offset: int = 50) -> PartitionChanged:
    """Return a record of the metadata log that gives orders/0 this leader epoch, with leader 1 and all in sync."""
    return PartitionChanged(
        offset=offset, epoch=1, timestamp_ms=0, topic="orders", partition=0, leader=1, leader_epoch=epoch,
        partition_epoch=epoch, replicas=(1, 2, 3), isr=(1, 2, 3),
    )  # fmt: skip


@pytest.fixture
def facts(make_run: MakeRun) -> Facts:
    """Facts of a run that the judge passes."""
    return Facts.read(make_run())
