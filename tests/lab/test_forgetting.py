"""Deletion of old windows in a soak with `--keep`: what is deleted and what stays, on fake windows and brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.clients.final_read import End
from ackproof.network.wire import Refused
from ackproof.rundir.clock import RunClock
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import deleted_parts
from ackproof.rundir.schema import PRODUCED
from ackproof.rundir.timeline import Timeline
from ackproof.rundir.windows import WindowFile, WindowRead, WindowTask, read_windows, window_dir, window_json
from ackproof_lab.soak import forgetting
from ackproof_lab.soak.forgetting import Forgetting

PLACE = TopicPartition("orders", 0)
ROWS = 10


@dataclass
class Soak:
    """A soak whose windows have one part of one producer each. `asked`: DeleteRecords requests so far. `leader`: leader
    of the partition. `refuses`: True if brokers refuse to delete."""

    case: CaseDir
    forgetting: Forgetting
    asked: list[tuple[int, Mapping[TopicPartition, int]]] = field(default_factory=list)
    leader: int = 1
    refuses: bool = False

    def window(self, number: int, pinned: Sequence[int] = (), **changes: Any) -> None:
        """Add the audited window with this number, then delete what may be deleted. `pinned`: numbers of the parts that
        a later audit still needs (`WindowFile.pinned`). `changes`: fields of its `WindowFile`."""
        part = self.part(number)
        part.parent.mkdir(parents=True, exist_ok=True)
        nothing = dict.fromkeys(PRODUCED.names, [0] * ROWS)
        rows = nothing | {"topic": ["orders"] * ROWS, "seq": list(range(number * ROWS, number * ROWS + ROWS))}
        pq.write_table(pa.table(rows, schema=PRODUCED), part)
        followed = window_dir(self.case, number).consumed / client_folder("f0")
        followed.mkdir(parents=True)
        (followed / "part-000000.parquet").touch()
        read = (WindowRead(topic="orders", partition=0, start=number * ROWS, end=number * ROWS + ROWS),)
        file = WindowFile(
            number=number, from_ns=0, to_ns=0, read=read, counts=changes.pop("counts", {}), produced=ROWS, acked=ROWS,
            failed=0, indeterminate=0, live=0, followed=ROWS, open=0, late=changes.pop("late", 0),
            pinned={0: tuple(pinned)}, **changes,
        )  # fmt: skip
        file.save(window_json(self.case, number))
        order = WindowTask(
            number=number, from_ns=0, to_ns=0, read=read, chunk_rows=ROWS, stride=1, produced={"p0": (str(part),)},
            producers={"p0": 0}, sent={}, consumed=(), followed=(),
        )  # fmt: skip
        self.forgetting.take(order, file)
        self.forgetting.forget()

    def part(self, number: int) -> Path:
        return self.case.produced / client_folder("p0") / f"part-{number:06d}.parquet"

    @property
    def deleted(self) -> list[int]:
        return [one.number for one in read_windows(self.case) if one.deleted]


@pytest.fixture
def soak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Soak]:
    case = CaseDir(tmp_path)
    timeline = Timeline(case.timeline, RunClock(0, 0))

    def ends(places: Sequence[TopicPartition]) -> dict[TopicPartition, End]:
        return {place: End(soak.leader, 0, (1, 2), 0, 10**6, 10**6, 10**6) for place in places}

    def delete(connection: Any, offsets: Mapping[TopicPartition, int]) -> None:
        if soak.refuses:
            raise Refused("deletion of records", 6)
        soak.asked.append((connection, offsets))

    monkeypatch.setattr(forgetting, "delete_records", delete)
    links: dict[int, Any] = {1: 1, 2: 2}
    soak = Soak(case, Forgetting(2, case, ends, lambda: links, timeline))
    yield soak
    timeline.close()


def test_only_the_newest_windows_stay(soak: Soak) -> None:
    for number in range(5):
        soak.window(number)
    assert soak.deleted == [0, 1, 2]
    assert soak.asked == [(1, {PLACE: 10}), (1, {PLACE: 20}), (1, {PLACE: 30})]
    assert not window_dir(soak.case, 2).ledger.exists()
    assert window_dir(soak.case, 3).ledger.exists()


def test_parts_go_a_window_after_their_records_and_are_written_down(soak: Soak) -> None:
    for number in range(5):
        soak.window(number)
    there = [number for number in range(5) if soak.part(number).exists()]
    assert there == [0, 2, 3, 4], "the first shows what was acknowledged before the first fault"
    (one,) = deleted_parts(soak.part(1).parent)
    assert (one.name, one.rows, one.first, one.last) == ("part-000001.parquet", ROWS, 10, 19)


def test_parts_with_attempts_that_are_open_stay(soak: Soak) -> None:
    for number in range(6):
        soak.window(number, pinned=[1] if number == 4 else ())
        assert soak.part(1).exists() == (0 < number < 5)


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"counts": {"lost": 1}}, "it has findings"), ({"reasons": ("it was cut",)}, "its audit is incomplete")],
)
def test_a_window_in_which_something_was_found_ends_it(soak: Soak, changes: dict[str, Any], why: str) -> None:
    for number in range(8):
        soak.window(number, **(changes if number == 4 else {}))
    assert soak.deleted == [0, 1, 2], "the one before it stays, too"
    assert f"window 4: {why}; no more windows" in soak.case.timeline.read_text(encoding="utf-8")


def test_live_reads_of_earlier_windows_end_it_at_once(soak: Soak) -> None:
    """A late read may be of any window that is still there, and the final audit knows no deleted records."""
    for number in range(8):
        soak.window(number, **({"late": 2} if number == 4 else {}))
    assert soak.deleted == [0, 1]
    told = soak.case.timeline.read_text(encoding="utf-8")
    assert "window 4: 2 live reads of earlier windows; no more windows are deleted" in told


def test_what_no_configuration_forbids_is_nothing_found(soak: Soak) -> None:
    for number in range(4):
        soak.window(number, counts={"surfaced": 3})
    assert soak.deleted == [0, 1]


def test_what_could_not_be_deleted_is_tried_again(soak: Soak) -> None:
    soak.leader = 7
    for number in range(3):
        soak.window(number)
    assert soak.deleted == [], "nobody answers for node 7"
    soak.leader, soak.refuses = 2, True
    soak.window(3)
    assert (soak.deleted, soak.asked) == ([0], []), "some of it may be gone, and that is said"
    assert window_dir(soak.case, 0).ledger.exists()
    soak.refuses = False
    soak.window(4)
    assert soak.deleted == [0, 1, 2]
    assert [(broker, offsets[PLACE]) for broker, offsets in soak.asked] == [(2, 10), (2, 20), (2, 30)]
    told = soak.case.timeline.read_text(encoding="utf-8")
    assert "window 0: not all of its records are deleted yet: orders/0 has no leader that answers" in told
