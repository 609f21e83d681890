"""The logs on disk: what replicas.json says of each, beside its batches and the metadata log."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.judge.coherence.logs import check_disks
from ackproof.judge.facts import Facts
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.metadata import TopicCreated, write_metadata
from ackproof.rundir.replicas import BATCHES, Replica, ReplicasFile

from .conftest import MakeRun

LOG = Replica(
    node=1, topic="orders", partition=0, folder="orders-0", log_start=0, log_end=10, records=9, topic_id="a"
)


def _batch(**changes: Any) -> dict[str, Any]:
    zeros: dict[str, Any] = dict.fromkeys(BATCHES.names, 0)
    kind = {"topic": "orders", "control": False, "transactional": False, "sound": True}
    return {**zeros, **kind, "node": 1, **changes}


WHOLE = (_batch(last_offset=8, records=9), _batch(first_offset=9, last_offset=9, records=1, control=True))


def _said(run: CaseDir, replicas: tuple[Replica, ...], batches: tuple[dict[str, Any], ...]) -> list[str]:
    ReplicasFile(replicas=replicas).save(run.replicas)
    pq.write_table(pa.Table.from_pylist(list(batches), schema=BATCHES), run.replica_batches)
    created = TopicCreated(offset=1, epoch=1, timestamp_ms=0, topic="orders", topic_id="a")
    write_metadata(run.metadata_log, [created])
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
    found = _said(make_run(), (LOG.model_copy(update=changes),), WHOLE)
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
    assert _said(run, (LOG, LOG), WHOLE) == ["observed/replicas.json lists orders-0 on node 1 2 times"]
    other_dir = LOG.model_copy(update={"folder": "b/orders-0", "log_end": 4, "records": 4})
    assert _said(run, (LOG, other_dir), WHOLE) == []
