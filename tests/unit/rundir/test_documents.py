"""Tests of `PartitionRead`, of the text form of a partition, and of documents that are no valid text."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.base.errors import BadInput
from ackproof.rundir.document import read_lines
from ackproof.rundir.documents import FinalReadFile, PartitionRead
from ackproof.rundir.metadata import read_metadata
from ackproof.rundir.observed import OffsetCommit
from ackproof.rundir.partition import TopicPartition


def _read(position: int, *, start: int = 5, end: int = 9, complete: bool = False) -> PartitionRead:
    return PartitionRead(
        topic="t",
        partition=0,
        start=start,
        end=end,
        epoch=1,
        epoch_after=1,
        position=position,
        complete=complete,
    )


@pytest.mark.parametrize(
    ("partitions", "read_out"),
    [
        ((), False),
        ((_read(9),), True),
        ((_read(10),), True),
        ((_read(8),), False),
        ((_read(8, complete=True),), True),
        ((_read(5, end=5),), False),
        ((_read(5, end=5, complete=True),), True),
        ((_read(9), _read(8)), False),
    ],
    ids=["none", "to its end", "beyond", "short of it", "complete", "nothing seen", "empty", "one of two"],
)
def test_a_read_that_came_to_the_end_of_every_partition(
    partitions: tuple[PartitionRead, ...], read_out: bool
) -> None:
    assert FinalReadFile(complete=False, partitions=partitions).read_out is read_out


def test_text_and_back() -> None:
    partition = TopicPartition.parse("orders.v-2_x/12")
    assert partition == ("orders.v-2_x", 12)
    assert str(partition) == "orders.v-2_x/12"


@pytest.mark.parametrize(
    "text", ["", "orders", "orders/", "/1", "or ders/1", "orders/-1", "orders/1\n", "a/1/2"]
)
def test_what_is_no_partition_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="expected a partition such as orders/0"):
        TopicPartition.parse(text)


def test_lines_that_are_no_text_are_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"t_ns": 1, "text": "\xff"}\n{}\n')
    with pytest.raises(BadInput, match=r"lines\.jsonl:1"):
        list(read_lines(path, OffsetCommit))
    with pytest.raises(BadInput, match=r"lines\.jsonl:1"):
        list(read_metadata(path))
