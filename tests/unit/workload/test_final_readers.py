"""How the partitions of a final read are dealt out to processes."""

from __future__ import annotations

import pytest

import ackproof.workload.final_readers as readers


@pytest.mark.parametrize(
    ("sizes", "processes", "groups"),
    [
        ([5, 5, 5, 5], 2, ((0, 2), (1, 3))),
        ([9, 1, 1, 1], 2, ((0,), (1, 2, 3))),
        ([1, 2, 3], 1, ((0, 1, 2),)),
        ([4, 0, 0, 4], 2, ((0, 1), (2, 3))),
        ([7], 4, ((0,),)),
        ([3, 3, 3], 8, ((0,), (1,), (2,))),
    ],
)
def test_partitions_are_dealt_out_by_size(
    sizes: list[int], processes: int, groups: tuple[tuple[int, ...], ...]
) -> None:
    assert readers.dealt(sizes, processes) == groups


@pytest.mark.parametrize(
    ("sizes", "readers_", "processes"),
    [
        ([400_000, 400_000], 1, 1),
        ([500_000, 500_000], 1, 2),
        ([5_000_000] * 8, 1, 4),
        ([5_000_000] * 8, 2, 2),
        ([5_000_000] * 8, 5, 1),
        ([9_000_000, 0, 0], 1, 1),
        ([], 1, 1),
    ],
)
def test_a_process_is_started_where_it_is_worth_it(
    sizes: list[int], readers_: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers.os, "sched_getaffinity", lambda pid: set(range(4)))
    assert readers._processes(sizes, readers_) == processes
