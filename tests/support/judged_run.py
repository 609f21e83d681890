"""Run directories made by hand, for tests of the judge. Unless a test changes them, the verdict is PASS."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackproof.experiment.case import Case
from ackproof.judge.coherence.run import PHASES
from ackproof.judge.facts import Facts, partitions_of
from ackproof.judge.opinion import Opinion
from ackproof.judge.oracle import add_settings
from ackproof.judge.verdict import COHERENCE, judge
from ackproof.rundir.anomalies import TABLE
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.clock import RunClock
from ackproof.rundir.documents import AuditFile, Client, FinalReadFile, PartitionRead, RecordCounts
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.metadata import PartitionChanged
from ackproof.rundir.model import ConformanceFile, PredictedClass, PredictionFile
from ackproof.rundir.observed import Pulse, Sample
from ackproof.rundir.outcome import Says, TxnOutcome, Verdict
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import (
    ClientStarted,
    Event,
    EventDetail,
    EventKind,
    NodeEnded,
    NodeStarted,
    PhaseBegan,
    Timeline,
)
from run_directory import case_file, read_case, write_run

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
    """Prediction made by hand. `file`: content of the run's `prediction.json`, to which `make_run` adds the settings of
    the case."""

    def __init__(self) -> None:
        self.file = PredictionFile(not_predicted=("none in this test",))

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
    cause. An event without a second comes at 1 s, plus 0.1 s for each event before it in `events`."""
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
"""A kind of event; or one with the number of its fault and the second in which it happens."""
SECOND = 1_000_000_000
OF_KIND = {what.KIND: what for what in EventDetail.__subclasses__()}
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
"""Arguments of `make_run` for a run whose producer was asked to end, did not, and was killed."""
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
    """Return a row of `ledger/produced` for producer 0, sent at 0 s and reported at `done_s`. Below 0: it was never
    reported, so its outcome is indeterminate. `outcome`: value of `Outcome` (0 acknowledged, 1 failed)."""
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


def read_row(offset: int, seq: int, producer: int = 0) -> dict[str, Any]:
    """Return a row of `ledger/consumed`: the final reader got record `seq` of `producer` at `offset` of orders/0."""
    place = {"topic": "orders", "origin_topic": "orders", "read_ns": 2 * SECOND}
    return {**place, "phase": 1, "offset": offset, "seq": seq, "producer": producer}


def batch_row(first: int, last: int, producer_id: int, epoch: int, node: int = 1) -> dict[str, Any]:
    """Return a row of `observed/replicas.parquet`: a batch of orders/0 in the log of `node`, with offsets `first` to
    `last`. `epoch`: its producer epoch."""
    return {
        "node": node, "topic": "orders", "first_offset": first, "last_offset": last, "producer_id": producer_id,
        "producer_epoch": epoch,
    }  # fmt: skip


def texts(opinions: Iterable[Opinion]) -> list[str]:
    return [one.text for one in opinions]


def event(what: EventDetail, at_s: float, **whom: Any) -> Event:
    at = round(at_s * SECOND)
    return Event(t_ns=at, wall_ns=at, kind=what.KIND, detail=what.detail(), **whom)


def sampled(at_s: float, **changes: Any) -> Sample:
    return replace(in_sync("orders", 0), **{"t_ns": round(at_s * SECOND), **changes})


def watched(facts: Facts, samples: Sequence[Sample], pulses: Sequence[Pulse] = ()) -> Facts:
    write_run(facts.run.path, samples=samples, pulse=pulses)
    return replace(facts)


def pulse(at_s: float, looks: int = 10, sent: int = 0) -> Pulse:
    return Pulse(t_ns=round(at_s * SECOND), late_ms=0, looks=looks, sent=sent, acked=sent)


def _series(bins: Iterable[int] | Mapping[TopicPartition, Iterable[int]], acked: int) -> list[dict[str, Any]]:
    by_place = bins if isinstance(bins, Mapping) else {("orders", 0): bins}
    times = dict.fromkeys(("p50_ms", "p99_ms", "max_ms", "longest_gap_ms"), 1.0)
    return [
        {"topic": topic, "partition": partition, "start_ns": start * SECOND // 10, "acked": acked, **times}
        for (topic, partition), starts in by_place.items()
        for start in starts
    ]


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

    `experiment`: text of the experiment file, in place of `EXPERIMENT`. `acked_bins`: tenths of a second, of orders/0
    or by partition, with `acked_in_bin` acknowledgements each. `attempts`: rows of the ledger of producer p0. `final`
    "whole": a complete read of every partition; None: no final read. `audit`: changed fields of `audit.json`. Further
    keywords: number of findings by class.
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
        case = read_case(
            experiment or EXPERIMENT.format(producers=producers, min_insync=min_insync, expect=expect)
        )
        assert counts.keys() <= TABLE.keys(), "no class of the audit"
        rows = list(attempts)
        committed = {"txn": 0, "outcome": int(TxnOutcome.COMMITTED), "commit_ns": 1, "ended_ns": 2}
        transactional = case.experiment.workload.producers.transaction_size is not None
        run = write_run(
            tmp_path / "run",
            case_json=case_file(
                case,
                replay="ackproof run t.yaml",
                clients=(
                    Client(id="p0", kind="producer", producer=0),
                    Client(id="f0", kind="final", reader=0),
                ),
            ),
            samples=[in_sync(*place) for place in partitions_of(case, case.experiment.topics)],
            final_read=_whole(case) if isinstance(final, str) else final,
            series=_series(acked_bins, acked_in_bin),
            produced={"p0": rows} if rows else None,
            transactions={"p0": [committed]} if transactional else None,
            findings=findings,
            audit_json=AuditFile(
                **{
                    "counts": {anomaly: counts.get(anomaly, 0) for anomaly in TABLE},
                    "records": RecordCounts(produced=100, acked=100, consumed_final=100),
                    "complete": True,
                    **(audit or {}),
                }
            ),
            conformance_json=replay.file,
            prediction_json=add_settings(case, prediction.file),
        )
        with Timeline(run.timeline, RunClock.start()) as timeline:
            _tell(timeline, case, events)
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
