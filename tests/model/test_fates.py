"""Tests of `possible_fates` against a slow implementation that decides row by row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackproof.rundir.timeline import Event, NodeDied, NodeEnded
from ackproof_model.explain.epochs import (
    NEVER,
    AckedRows,
    KeptLog,
    LeaderEpoch,
    leader_epochs,
    may_have_appended,
    possible_fates,
)
from ackproof_model.replay.account import PRESENT
from ackproof_model.replay.observed import SLACK_NS, Moment
from ackproof_reference.log import EpochEntry
from ackproof_reference.metadata import Partition

MS = 1_000_000


def log_of(
    batches: list[tuple[int, int, int]], log_start: int, log_end: int, more: tuple[EpochEntry, ...] = ()
) -> KeptLog:
    first, last, epoch = (
        (np.array(column, np.int64) for column in zip(*batches, strict=True))
        if batches
        else (np.empty(0, np.int64),) * 3
    )
    starts: dict[int, int] = {entry.epoch: entry.start for entry in more}
    for begin, _, number in batches:
        starts.setdefault(number, begin)
    return KeptLog(
        first, last, epoch, tuple(EpochEntry(*item) for item in sorted(starts.items())), log_start, log_end
    )


def led(epoch: int, begin_ms: int, end_ms: int | None, leader: int = 1) -> LeaderEpoch:
    end = NEVER if end_ms is None else end_ms * MS
    return LeaderEpoch(epoch, leader, begin_ms * MS, end, clean=True, cause="", offset=0)


def rows_of(found: list[tuple[int, int, int]]) -> AckedRows:
    """Return acknowledged rows from (offset, time sent, time acknowledged), with times in ms."""
    count = len(found)
    offset, sent, done = (np.array([row[n] for row in found], np.int64) for n in range(3))
    return AckedRows(
        np.zeros(count, np.int64),
        np.arange(count, dtype=np.int64),
        offset,
        sent * MS,
        done * MS,
        np.full(count, PRESENT, np.int8),
    )


@dataclass
class Scene:
    batches: list[tuple[int, int, int]]
    log_start: int
    log_end: int
    of: list[LeaderEpoch]
    rows: list[tuple[int, int, int]]
    before: list[tuple[bool, bool]] | None
    ended: bool


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    batches, at, epoch = [], draw(st.integers(0, 3)), draw(st.integers(0, 2))
    for length, gap, newer in draw(
        st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(0, 2)), max_size=5)
    ):
        at, epoch = at + gap, epoch + newer
        batches.append((at, at + length - 1, epoch))
        at += length
    epochs = sorted(draw(st.sets(st.integers(0, 8), max_size=4)))
    of = [
        led(one, draw(st.integers(0, 300)), draw(st.one_of(st.none(), st.integers(0, 400)))) for one in epochs
    ]
    count = draw(st.integers(1, 8))
    rows = [
        (draw(st.integers(0, at + 2)), sent := draw(st.integers(0, 400)), sent + draw(st.integers(0, 60)))
        for _ in range(count)
    ]
    either = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=count, max_size=count)
    before = draw(st.one_of(st.none(), either))
    log_start = draw(st.integers(0, at))
    return Scene(batches, log_start, at + draw(st.integers(0, 2)), of, rows, before, draw(st.booleans()))


@given(scenes())
def test_each_row_is_told_as_in_plain_words(scene: Scene) -> None:
    log, rows = log_of(scene.batches, scene.log_start, scene.log_end), rows_of(scene.rows)
    before = None
    if scene.before is not None:
        can, gone = (np.array([row[n] for row in scene.before], np.bool_) for n in (0, 1))
        before = can, gone
    told = possible_fates(log, scene.of, rows, ended=scene.ended, before=before)
    newest = max([one.epoch for one in scene.of] + [epoch for _, _, epoch in scene.batches], default=-1)
    for at, (offset, sent, done) in enumerate(scene.rows):
        held = next((epoch for first, last, epoch in scene.batches if first <= offset <= last), None)
        can_be = [
            one.epoch
            for one in scene.of
            if done * MS >= one.begin_ns - SLACK_NS
            and (one.end_ns == NEVER or sent * MS <= one.end_ns + SLACK_NS)
        ]
        expired = offset < scene.log_start
        missing_inside = held is None and offset < scene.log_end
        cut = [
            epoch
            for epoch in can_be
            if epoch < newest and epoch != held and not expired and not missing_inside
        ]
        went_before = scene.before is not None and scene.before[at][1]
        may_be_older = scene.before is not None and scene.before[at][0]
        gone = bool(cut) or went_before
        kept = held in can_be
        if not scene.ended and not gone and held is not None:
            kept = kept or bool(can_be) or not may_be_older
        below = [epoch for epoch in cut if held is None or epoch < held]
        old = (below[-1] if below else cut[0]) if cut else -1
        assert bool(told.expired[at]) == expired
        assert bool(told.timely[at]) == bool(can_be)
        assert bool(told.gone[at]) == gone
        assert bool(told.kept[at]) == kept
        assert int(told.old_epoch[at]) == old


@pytest.mark.parametrize(
    ("begin", "end", "sent", "done", "can"),
    [
        (100, 200, 0, 79, False),
        (100, 200, 0, 80, True),
        (100, 200, 220, 230, True),
        (100, 200, 221, 230, False),
        (100, None, 10**9, 10**9, True),
    ],
)
def test_a_leader_appends_from_its_election_to_its_end_give_or_take_the_clocks(
    begin: int, end: int | None, sent: int, done: int, can: bool
) -> None:
    assert may_have_appended(led(1, begin, end), rows_of([(0, sent, done)])).tolist() == [can]


def test_offsets_between_batches_and_outside_of_all_are_held_in_no_epoch() -> None:
    log = log_of([(3, 5, 1), (8, 9, 2)], 0, 12)
    assert log.epoch_at(np.arange(0, 12)).tolist() == [-1, -1, -1, 1, 1, 1, -1, -1, 2, 2, -1, -1]
    assert log_of([], 0, 0).epoch_at(np.arange(2)).tolist() == [-1, -1]


def test_what_took_over_is_the_next_epoch_that_began_at_or_below() -> None:
    log = log_of([(0, 5, 1), (6, 9, 4), (10, 12, 5)], 0, 13)
    assert log.taken_over(1, 5) is None
    assert log.taken_over(1, 6) == EpochEntry(4, 6)
    assert log.taken_over(0, 11) == EpochEntry(1, 0)
    assert log.taken_over(4, 20) == EpochEntry(5, 10)
    assert log.taken_over(5, 20) is None


# -- until when a leader can have appended ----------------------------------------------------------------------------


def moment(at_ms: int, leader: int, epoch: int, isr: tuple[int, ...], *, clean: bool = True) -> Moment:
    seen = Partition((1, 2, 3), leader, epoch, at_ms, isr)
    return Moment(at_ms * MS, at_ms, seen, f"at {at_ms}", clean)


def ends(history: list[Moment], events: list[Event] | None = None, learns_ms: int = 500) -> list[int]:
    found = leader_epochs(history, events or [], learns_ms * MS)
    return [one.end_ns if one.end_ns == NEVER else one.end_ns // MS for one in found]


ONE = moment(100, 1, 0, (1, 2, 3))


def gone(node: int, at_ms: int, kind: type[NodeEnded | NodeDied] = NodeEnded) -> Event:
    what = kind(status=-9)
    return Event(t_ns=at_ms * MS, wall_ns=0, kind=what.KIND, node=node, detail=what.detail())


@pytest.mark.parametrize(
    ("later", "events", "expected"),
    [
        pytest.param([], [], [NEVER], id="it leads to the end"),
        pytest.param([moment(300, 1, 0, (1, 2))], [], [NEVER], id="its ISR shrinks, and it leads on"),
        pytest.param([], [gone(1, 250)], [250], id="it ended"),
        pytest.param([], [gone(1, 250, NodeDied)], [250], id="it died"),
        pytest.param([], [gone(1, 250), gone(1, 400)], [250], id="the first time counts"),
        pytest.param([], [gone(1, 90)], [NEVER], id="before it led"),
        pytest.param([], [gone(2, 250)], [NEVER], id="another ended"),
        pytest.param(
            [moment(300, 2, 1, (1, 2, 3))], [], [800, NEVER], id="deposed in the ISR, it hears of it in time"
        ),
        pytest.param(
            [moment(300, 2, 1, (2, 3))], [], [NEVER, NEVER], id="out of the ISR it may never hear of it"
        ),
        pytest.param(
            [moment(300, 2, 1, (2, 3)), moment(900, 2, 1, (2, 3, 1))],
            [],
            [900, NEVER],
            id="until it joins again",
        ),
        pytest.param(
            [moment(300, 2, 1, (2, 3)), moment(900, 1, 2, (1, 2, 3))],
            [],
            [1400, 1400, NEVER],
            id="or leads again",
        ),
        pytest.param(
            [moment(300, 2, 1, (2, 3)), moment(900, 2, 1, (2, 3, 1))],
            [gone(1, 250)],
            [250, NEVER],
            id="whichever is earlier",
        ),
        pytest.param(
            [moment(300, -1, 1, (1,)), moment(400, 2, 2, (2,))],
            [],
            [NEVER, NEVER],
            id="nobody led in between",
        ),
    ],
)
def test_until_when_a_leader_can_have_appended(
    later: list[Moment], events: list[Event], expected: list[int]
) -> None:
    assert ends([ONE, *later], events) == expected


def test_each_leader_epoch_is_told_once_with_the_state_before_it() -> None:
    history = [ONE, moment(200, 1, 0, (1, 2)), moment(300, -1, 1, (1,)), moment(400, 2, 2, (2,), clean=False)]
    found = leader_epochs(history, [], 0)
    assert [
        (one.epoch, one.leader, one.begin_ns // MS, one.clean, one.cause, one.offset) for one in found
    ] == [
        (0, 1, 100, True, "at 100", 100),
        (2, 2, 400, False, "at 400", 400),
    ]
    assert found[0].before == ""
    assert found[1].before.startswith("leader -1 in epoch 1, partition epoch 300")
