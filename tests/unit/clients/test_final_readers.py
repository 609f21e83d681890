"""How the partitions of a final read are dealt out to processes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import ackproof.clients.final_readers as readers
from ackproof.clients.final_readers import ReadOutcome


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
    """A result file is there in each case."""
    (tmp_path / "result.json").write_text('{"positions": [7, 9], "problems": {}, "records": [1, 2]}')
    child = SimpleNamespace(poll=lambda: status)
    handle = SimpleNamespace(settings=None, child=child, folder=tmp_path, tail=lambda: "last words")
    found = readers._outcome(cast(Any, handle), 0.1, None)
    assert (found.positions, found.records) == (positions, (1, 2) if positions else ())
    assert [one[: len(words)] for one, words in zip(found.reasons, reasons, strict=True)] == reasons
