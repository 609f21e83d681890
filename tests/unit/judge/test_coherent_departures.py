"""Tests of coherence of the clients' ends, and of the logs on disk: copies of a batch, leader epochs, totals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.faults.clients.client import ClientSelector, KillClient
from ackproof.judge.coherence import clients, logs
from ackproof.judge.coherence.logs import check_disks
from ackproof.judge.facts import Facts
from ackproof.judge.written import not_as_written
from ackproof.rundir.documents import AuditFile, Client
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.metadata import TopicCreated
from ackproof.rundir.outcome import Says
from ackproof.rundir.parts import mark_end
from ackproof.rundir.payload import UNKNOWN_CONTENT
from ackproof.rundir.replicas import Replica, ReplicasFile
from ackproof.rundir.schema import SERIES
from ackproof.rundir.seal import seal
from ackproof.rundir.timeline import (
    ClientDied,
    ClientEnded,
    ClientReset,
    ClientStarted,
    Event,
    FaultAsked,
    FaultConfirmed,
    FaultFailed,
    RunEnded,
)
from judged_run import WHOLE, MakeRun, event, texts
from run_directory import write_run

# -- clients --------------------------------------------------------------------------------------------------------


def _course(facts: Facts, *events: Event, end: bool = True, killed: bool = False) -> Facts:
    if end:
        mark_end(facts.run.produced / client_folder("p0"))
    client = Client(id="p0", kind="producer", producer=0, killed=killed)
    return replace(facts, clients=(client,), events=(*events, event(RunEnded(), 9.0)))


BORN = event(ClientStarted(pid=5), 0.0, client="p0")


def _ended(status: int) -> Event:
    return event(ClientEnded(status=status), 1.0, client="p0")


@pytest.mark.parametrize(
    ("events", "end", "words"),
    [
        ([BORN, _ended(0)], True, None),
        ([BORN, event(ClientDied(status=1), 1.0, client="p0")], False, None),
        ([BORN, _ended(-9)], False, None),
        ([BORN, event(ClientReset(reason="fatal"), 0.9, client="p0"), _ended(3)], True, None),
        ([BORN], True, "client p0 ended 0 times, and the run has its end"),
        ([BORN, _ended(0), _ended(0)], True, "client p0 ended 2 times"),
        ([BORN, BORN, _ended(0)], True, "client p0 started 2 times"),
        ([BORN, _ended(1)], False, "ended with status 1 at 1.000 s, as it should"),
        ([BORN, _ended(0)], False, "and its ledger does not say that it closed"),
        ([BORN, _ended(-9)], True, "no fault killed it, and its ledger says that it closed"),
        ([BORN, _ended(3)], True, "which is after a fatal error, and the timeline has none"),
    ],
)
def test_a_client_ends_once_and_leaves_what_such_an_end_leaves(
    facts: Facts, events: list[Event], end: bool, words: str | None
) -> None:
    facts = _course(facts, *events, end=end)
    found = texts(clients.check_departures(facts))
    assert (found == []) if words is None else [words in text for text in found] == [True], found
    assert texts(clients.check_departures(replace(facts, backend="model"))) == []
    assert texts(clients.check_departures(replace(facts, events=facts.events[:-1]))) == []


def _killing(facts: Facts, killed: dict[str, int] | None, ended_s: float, *, failed: bool = False) -> Facts:
    fault = KillClient(
        number=1, trigger=facts.case.faults[0].trigger, client=ClientSelector.parse("producer(0)")
    )
    experiment = facts.case.experiment.model_copy(update={"faults": (fault,)})
    done = FaultConfirmed(did="SIGKILL to p0 (pid 5)", witness="/proc", killed=killed)
    says = FaultFailed(reason="x") if failed else done
    facts = _course(
        facts,
        BORN,
        event(FaultAsked(kind="kill_client"), 1.0, fault=1),
        event(ClientEnded(status=-9), ended_s, client="p0"),
        event(says, 1.5, fault=1),
        end=False,
        killed=True,
    )
    return replace(facts, case=replace(facts.case, experiment=experiment))


@pytest.mark.parametrize(
    ("killed", "ended_s", "failed", "words"),
    [
        ({"p0": 5}, 1.2, False, []),
        ({"p0": 6}, 1.2, False, ["killed pid 6 for client p0, which was started as [5]"]),
        ({"p0": 5}, 1.6, False, ["client p0, which it killed, did not end then"]),
        ({"p0": 5}, 0.9, False, ["client p0, which it killed, did not end then"]),
        ({}, 1.2, False, ["does not say whom it killed: SIGKILL to p0", "client p0, and no fault says so"]),
        ({"p0": 5}, 1.2, True, []),
    ],
)
def test_whom_a_fault_killed_ended_then(
    facts: Facts, killed: dict[str, int], ended_s: float, failed: bool, words: list[str]
) -> None:
    found = texts(clients.check_departures(_killing(facts, killed, ended_s, failed=failed)))
    assert [word in text for word, text in zip(words, found, strict=True)] == [True] * len(words), found


@pytest.mark.parametrize("ended_s", [1.2, 1.6])
def test_a_timeline_that_does_not_state_whom_a_fault_killed_contradicts_nothing(
    facts: Facts, ended_s: float
) -> None:
    (one,) = clients.check_departures(_killing(facts, None, ended_s))
    assert one.kind is Says.NOT_JUDGED and "which its timeline does not state" in one.text


# -- copies of a batch ------------------------------------------------------------------------------------------------

BATCH: dict[str, Any] = {
    "topic": "orders", "partition": 0, "first_offset": 0, "last_offset": 99, "leader_epoch": 1, "records": 100,
    "control": False, "transactional": False, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0,
    "max_timestamp_ms": 5, "crc": 11, "sound": True, "content": 3, "bytes": 900, "timestamp_type": 0,
}  # fmt: skip


def _logs(facts: Facts, *batches: dict[str, Any], **changes: Any) -> Facts:
    rows = [{**BATCH, "node": node, **batch} for node, batch in enumerate(batches, start=1)]
    replicas = [
        Replica(node=node, topic="orders", partition=0, folder="o", log_start=0, log_end=100, records=100)
        for node in range(1, len(rows) + 1)
    ]
    file = ReplicasFile(replicas=tuple(one.model_copy(update=changes) for one in replicas))
    write_run(facts.run.path, replicas=file, replica_batches=rows)
    return replace(facts)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({}, None),
        ({"content": 4}, "with one checksum, and content 3 and 4 (1 such batches)"),
        ({"producer_epoch": 1}, "with one checksum, and producer_epoch 0 and 1"),
        ({"max_timestamp_ms": 6}, "with one checksum, and max_timestamp_ms 5 and 6"),
        ({"crc": 12}, "with all else alike, and crc 11 and 12"),
        ({"crc": 12, "content": 4}, None),
        ({"crc": 12, "max_timestamp_ms": 6}, None),
        ({"content": UNKNOWN_CONTENT}, None),
        ({"content": 4, "sound": False}, None),
        ({"leader_epoch": 2}, None),
    ],
)
def test_copies_of_a_batch_are_alike(facts: Facts, other: dict[str, Any], words: str | None) -> None:
    found = texts(logs.check_disks(_logs(facts, {}, other)))
    assert (found == []) if words is None else any(words in text for text in found), found


# -- leader epochs of rows --------------------------------------------------------------------------------------------


def _handed(facts: Facts, *epochs: int) -> Facts:
    rows = [
        {
            "phase": 1, "read_seq": at, "topic": "orders", "offset": at, "leader_epoch": epoch, "seq": at,
            "origin_topic": "orders",
        }
        for at, epoch in enumerate(epochs)
    ]  # fmt: skip
    write_run(facts.run.path, consumed={"f0": rows})
    return facts


@pytest.mark.parametrize(
    ("epochs", "log", "words"),
    [
        ((1, 1), {}, None),
        ((-1, 1), {}, None),
        ((1, 2), {}, "of leader epoch 2 from offset 1 to 1, and the log on disk does not have that epoch"),
        ((1, 2), {"log_start": 1}, None),
        ((1, 2), {"reason": "torn"}, None),
        ((1, 2), {"node": 9}, None),
    ],
)
def test_rows_are_of_the_epochs_of_their_batches(
    facts: Facts, epochs: tuple[int, ...], log: dict[str, Any], words: str | None
) -> None:
    found = texts(logs.check_reader_epochs(_handed(_logs(facts, {}, **log), *epochs)))
    assert (found == []) if words is None else [words in text for text in found] == [True], found


def test_an_epoch_is_where_the_log_has_it(facts: Facts) -> None:
    facts = _handed(_logs(facts, {"last_offset": 0, "records": 1}), 1, 1)
    assert (
        "records of leader epoch 1 from offset 0 to 1, and the log on disk has that from 0 to 0"
        in "".join(texts(logs.check_reader_epochs(facts)))
    )
    assert WHOLE.complete


# -- what the audit counted -------------------------------------------------------------------------------------------


def _series(**sums: int) -> Callable[[pa.Table], pa.Table]:
    row = {field.name: 0 for field in SERIES} | {"topic": "orders", **sums}
    return lambda _: pa.Table.from_pylist([row], schema=SERIES)


@pytest.mark.parametrize(
    ("change", "records", "words"),
    [
        (_series(acked=100), {}, None),
        (_series(acked=99), {}, "audit.json counts 100 acked, and series.parquet 99"),
        (_series(acked=100, failed=1), {}, "audit.json counts 0 failed, and series.parquet 1"),
        (_series(acked=100, read=7), {}, "audit.json counts 0 read, and series.parquet 7"),
    ],
)
def test_the_series_has_every_attempt(
    make_run: MakeRun, change: Callable[[pa.Table], pa.Table], records: dict[str, int], words: str | None
) -> None:
    run = make_run()
    pq.write_table(change(pq.read_table(run.series)), run.series)
    audit = AuditFile.load(run.audit_json)
    audit.model_copy(update={"complete": False, "reasons": ("x",), **records}).save(run.audit_json)
    seal(run, "0" * 16)
    found = not_as_written(run)
    assert (found == ()) if words is None else [words in text for text in found] == [True], found


@pytest.mark.parametrize(("final", "lost", "words"), [(100, 0, False), (99, 1, False), (99, 0, True)])
def test_what_is_not_lost_was_read(make_run: MakeRun, final: int, lost: int, words: bool) -> None:
    finding = {
        "class": "lost",
        "topic": "orders",
        "partition": 0,
        "producer": 0,
        "offset": 3,
        "seq": 3,
        "detail": "",
    }
    run = make_run(lost=lost, findings=[finding] * lost)
    audit = AuditFile.load(run.audit_json)
    records = audit.records.model_copy(update={"consumed_final": final})
    audit.model_copy(update={"records": records}).save(run.audit_json)
    seal(run, "0" * 16)
    assert any("acked records that are not lost" in text for text in not_as_written(run)) is words


LOG = Replica(
    node=1, topic="orders", partition=0, folder="orders-0", log_start=0, log_end=10, records=9, topic_id="a"
)


def _batch(**changes: Any) -> dict[str, Any]:
    return {"node": 1, "topic": "orders", "content": 0, **changes}


WHOLE_LOG = (_batch(last_offset=8, records=9), _batch(first_offset=9, last_offset=9, records=1, control=True))


def _said(run: CaseDir, replicas: tuple[Replica, ...], batches: tuple[dict[str, Any], ...]) -> list[str]:
    created = TopicCreated(offset=1, epoch=1, timestamp_ms=0, topic="orders", topic_id="a")
    write_run(
        run.path, replicas=ReplicasFile(replicas=replicas), replica_batches=batches, metadata_log=[created]
    )
    return [opinion.text for opinion in check_disks(Facts.read(run))]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"log_end": 11}, "ends at 11, and its last batch at 9"),
        ({"log_end": 3}, "ends at 3, and its last batch at 9"),
        ({"records": 10}, "has 10 records, and its batches 9"),
        ({"log_start": 12}, "begins at 12 and ends at 10"),
        ({"topic_id": "b"}, "is of topic b, which the metadata log does not know"),
        ({"topic_id": ""}, None),
        ({"reason": "torn", "log_end": 3}, None),
    ],
)
def test_a_log_beside_its_batches(make_run: MakeRun, changes: dict[str, Any], words: str | None) -> None:
    found = _said(make_run(), (LOG.model_copy(update=changes),), WHOLE_LOG)
    assert found == ([] if words is None else [f"orders/0: the log of node 1 {words}"])


def test_a_log_without_batches(make_run: MakeRun) -> None:
    run = make_run()
    assert _said(run, (LOG,), ()) == [
        "orders/0: the log of node 1 has 9 records, and no batch of it was written down"
    ]
    empty = LOG.model_copy(update={"log_end": 0, "records": 0})
    assert _said(run, (empty,), ()) == []


def test_one_log_is_told_of_once(make_run: MakeRun) -> None:
    run = make_run()
    assert _said(run, (LOG, LOG), WHOLE_LOG) == ["observed/replicas.json lists orders-0 on node 1 2 times"]
    other_dir = LOG.model_copy(update={"folder": "b/orders-0", "log_end": 4, "records": 4})
    assert _said(run, (LOG, other_dir), WHOLE_LOG) == []
