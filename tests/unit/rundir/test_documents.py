"""What documents say of themselves."""

from __future__ import annotations

import pytest

from ackproof.rundir.documents import FinalReadFile, PartitionRead
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
