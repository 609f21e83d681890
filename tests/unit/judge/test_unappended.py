"""Losses that were acknowledged without an offset: what the verdict says of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.judge.checks.classes import unappended
from ackproof.judge.facts import Facts
from ackproof.rundir.replicas import BATCHES, ReplicasFile

from .conftest import MakeRun

DUPLICATES = "; 2 of them were acknowledged without an offset, as duplicates are"


def _lost(*offsets: int) -> list[dict[str, Any]]:
    row = {"class": "lost", "topic": "orders", "partition": 0, "producer": 0, "detail": ""}
    return [{**row, "offset": offset, "seq": seq} for seq, offset in enumerate(offsets)]


def _batch(first: int, who: int, sequence: int, epoch: int) -> dict[str, Any]:
    numbers = dict.fromkeys(("records", "max_timestamp_ms", "crc", "content", "bytes", "producer_epoch"), 1)
    flags = {"control": False, "transactional": False, "sound": True}
    where = {"node": 1, "topic": "orders", "partition": 0, "first_offset": first, "last_offset": first + 9}
    return {**where, **numbers, **flags, "producer_id": who, "base_sequence": sequence, "leader_epoch": epoch}


@pytest.mark.parametrize(
    ("offsets", "batches", "said"),
    [
        (
            [-1, -1, 7],
            [(0, 8, 0, 0), (10, 9, 50, 1)],
            ", and orders/0 has producer id 9 from sequence 50 on, at offset 10",
        ),
        ([-1, -1, 7], [(0, 9, 0, 0), (10, 9, 50, 1)], ""),
        ([-1, -1, 7], [(10, 9, 50, 0)], ""),
        ([-1, -1, 7], [(10, -1, 50, 1)], ""),
        ([-1, -1, 7], None, ""),
    ],
    ids=["begun late", "whole", "by the first leader", "of no producer id", "no log seen"],
)
def test_a_log_that_has_a_producer_from_its_middle_on(
    make_run: MakeRun, offsets: list[int], batches: list[tuple[int, int, int, int]] | None, said: str
) -> None:
    run = make_run(findings=_lost(*offsets), lost=len(offsets))
    if batches is not None:
        ReplicasFile(replicas=()).save(run.replicas)
        rows = [_batch(*one) for one in batches]
        pq.write_table(pa.Table.from_pylist(rows, schema=BATCHES), run.replica_batches)
    found = unappended(Facts.read(run))
    assert found.startswith(DUPLICATES + said)
    assert (found == DUPLICATES) == (said == "")


@pytest.mark.parametrize(("offsets", "producers"), [([3, 4], "acks: all"), ([-1, -1], "acks: 0")])
def test_where_an_ack_names_an_offset_or_never_does_nothing_is_said(
    make_run: MakeRun, offsets: list[int], producers: str
) -> None:
    assert unappended(Facts.read(make_run(findings=_lost(*offsets), lost=2, producers=producers))) == ""
