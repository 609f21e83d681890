"""A partition as text."""

from __future__ import annotations

import pytest

from ackproof.rundir.partition import TopicPartition


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
