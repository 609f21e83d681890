"""Tests of when a consumer group has caught up: nothing is left that its members could commit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ackproof.clients.group_progress import GroupProgress
from ackproof.cluster.queries import PartitionEnds
from ackproof.experiment.group import GroupSpec
from ackproof.rundir.partition import TopicPartition

PLACE = TopicPartition("orders", 0)


def is_behind(
    committed: int | None, begin: int, end: int, group: dict[str, Any], quiet_s: float = 60.0
) -> bool:
    """Return True if the group is behind in a log from `begin` to `end`. `committed`: its offset there; None: it
    committed nothing. `quiet_s`: seconds since its last commit."""
    ends = {PLACE: PartitionEnds(1, 0, begin, end, end, end)}
    cluster: Any = SimpleNamespace(partition_ends=lambda topics: ends)
    spec: Any = SimpleNamespace(
        topics={"orders": SimpleNamespace(partitions=1)},
        input_of=lambda name: ("orders",),
        workload=SimpleNamespace(
            groups={"billing": GroupSpec(**group)}, producers=SimpleNamespace(transaction_size=None)
        ),
    )
    progress = GroupProgress(cluster, spec, "billing", {})
    progress.moved_s -= quiet_s
    progress.offsets = {} if committed is None else {PLACE: committed}
    return bool(progress._behind())


@pytest.mark.parametrize(
    ("committed", "begin", "group", "expected"),
    [
        (100, 0, {}, False),
        (40, 0, {}, True),
        (None, 0, {}, True),
        (None, 0, {"start": "latest"}, False),
        (40, 60, {}, True),
        (40, 100, {}, False),
        (None, 100, {}, False),
        (40, 60, {"reset": "latest"}, False),
        (60, 60, {"reset": "latest"}, True),
        (None, 60, {"reset": "latest"}, True),
    ],
)
def test_retention_leaves_nothing_to_commit(
    committed: int | None, begin: int, group: dict[str, Any], expected: bool
) -> None:
    """A group is not behind for records that retention deleted, or that a reset to the latest offset skips."""
    assert is_behind(committed, begin, 100, group) is expected


def test_a_group_that_goes_on_is_given_time_for_its_reset() -> None:
    """A member may still hold records of its last fetch. Only its next fetch shows it that the log begins later."""
    assert is_behind(40, 60, 100, {"reset": "latest"}, quiet_s=1.0)
    assert is_behind(40, 100, 100, {}, quiet_s=1.0)


def test_a_partition_of_another_topic_that_ends_in_a_marker_is_not_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = TopicPartition("a", 0), TopicPartition("b", 0)
    spec: Any = SimpleNamespace(
        topics={name: SimpleNamespace(partitions=1) for name in "ab"},
        input_of=lambda name: ("a", "b"),
        workload=SimpleNamespace(
            groups={"billing": GroupSpec()}, producers=SimpleNamespace(transaction_size=20)
        ),
    )
    cluster: Any = SimpleNamespace(
        bootstrap="",
        partition_ends=lambda topics: {place: PartitionEnds(1, 0, 0, 100, 100, 100) for place in places},
    )

    def read(
        _: str, left: object, identify: Any, **__: object
    ) -> tuple[list[tuple[int, int, int, int]], str]:
        return [(*identify(SimpleNamespace(topic=lambda: "b")), 0, 98)], ""

    monkeypatch.setattr("ackproof.clients.group_progress.read_output", read)
    progress = GroupProgress(cluster, spec, "billing", {})
    progress.offsets = dict.fromkeys(places, 98)
    assert progress._behind() == {places[1]: 100}
