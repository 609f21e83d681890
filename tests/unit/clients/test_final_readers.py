"""Tests of how the partitions of a final read are divided among processes, and how their results are combined."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import ackproof.clients.final_read as final_read
import ackproof.clients.final_readers as readers
from ackproof.clients.final_readers import FinalReadOrder, ReadOutcome
from ackproof.rundir.partition import TopicPartition


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
    assert readers.deal(sizes, processes) == groups


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


GROUPS = ((0, 2), (1,))


def _part(positions: tuple[int, ...], records: tuple[int, ...], where: str = "") -> ReadOutcome:
    return ReadOutcome(
        positions, {where: "stuck"} if where else {}, [f"reason {where}"] if where else [], records
    )


def test_each_share_has_its_own_places() -> None:
    first, second = _part((10, 30), (1, 3), "t/2"), _part((20,), (2,), "t/1")
    assert readers._combine([first, second], GROUPS, 3) == ReadOutcome(
        (10, 20, 30), {"t/2": "stuck", "t/1": "stuck"}, ["reason t/2", "reason t/1"], (1, 2, 3)
    )


def test_where_one_share_did_not_count_nobody_knows_the_sum() -> None:
    assert readers._combine([_part((10, 30), (1, 3)), _part((20,), ())], GROUPS, 3).records == ()


@pytest.mark.parametrize(
    ("status", "reasons", "positions"),
    [
        (readers.EXIT_CLEAN, [], (7, 9)),
        (readers.EXIT_CLEAN + 1, ["the final reader ended with status 1: last words"], ()),
        (-9, ["the final reader ended with status -9: last words"], ()),
        (None, ["waited 0.1 s for the final read to end"], ()),
    ],
    ids=["well", "badly", "killed", "never"],
)
def test_only_who_ended_well_is_believed(
    tmp_path: Path, status: int | None, reasons: list[str], positions: tuple[int, ...]
) -> None:
    """The result file exists in each case: the exit status decides whether it counts."""
    (tmp_path / "result.json").write_text('{"positions": [7, 9], "problems": {}, "records": [1, 2]}')
    child = SimpleNamespace(poll=lambda: status)
    handle = SimpleNamespace(settings=None, child=child, folder=tmp_path, tail=lambda: "last words")
    found = readers._outcome(cast(Any, handle), 0.1, None)
    assert (found.positions, found.records) == (positions, (1, 2) if positions else ())
    assert [one[: len(words)] for one, words in zip(found.reasons, reasons, strict=True)] == reasons


@pytest.mark.parametrize(
    ("changes", "again"),
    [
        pytest.param({}, True, id="an offset without a record"),
        pytest.param({"records": (9, 4)}, True, id="in one of two partitions"),
        pytest.param({"records": (10, 5)}, False, id="all were read"),
        pytest.param({"positions": (8, 5)}, False, id="the first reader did not come to the end"),
        pytest.param({"order": {"compacted": frozenset({"t"})}}, False, id="compaction removes records"),
        pytest.param({"order": {"transactions": True}}, False, id="markers are no records"),
        pytest.param({"records": ()}, False, id="nobody counted"),
    ],
)
def test_partitions_with_offsets_without_a_record_are_read_again(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], again: bool
) -> None:
    places = (TopicPartition("t", 0), TopicPartition("t", 1))
    order = FinalReadOrder(places, {"t": 3}, 9, "127.0.0.1:1", **changes.get("order", {}))
    first = ReadOutcome(changes.get("positions", (10, 5)), {}, [], changes.get("records", (9, 5)))
    asked: list[FinalReadOrder] = []

    def read(order: FinalReadOrder, starts: Any, goals: Any, *_: object) -> list[ReadOutcome]:
        asked.append(order)
        return [ReadOutcome(goals[0], {}, [], tuple(7 for _ in starts))]

    monkeypatch.setattr(final_read, "read_by_processes", read)
    found = final_read._read_again(order, (0, 0), (10, 5), first, cast(Any, None), cast(Any, None), None)
    assert (bool(found), bool(asked)) == (again, again)
    for one in asked:
        assert (one.second, found) == (True, dict.fromkeys(one.places, 7))
