"""Tests of the time from which an election, an end or a fault of a leader can have removed records in flight."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from ackproof.experiment.roles import Role, RoleKind
from ackproof.experiment.triggers import TimeTrigger
from ackproof.faults.disks.slow_disk import SlowDisk
from ackproof.faults.processes import Kill
from ackproof.rundir.lifelines import FaultLife
from ackproof.rundir.observed import Sample
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Event, EventKind
from ackproof_model.explain import intervals
from ackproof_model.explain.epochs import LeaderEpoch
from ackproof_model.explain.intervals import _appended_ns, _elections, _ends, _faults
from ackproof_model.replay.observed import Observed
from observed_run import MS, sample

S = 1000 * MS
FIRST = LeaderEpoch(epoch=0, leader=1, begin_ns=S, end_ns=5 * S, clean=True, cause="", offset=0)
SECOND = LeaderEpoch(epoch=1, leader=2, begin_ns=5 * S, end_ns=20 * S, clean=True, cause="", offset=1)
LOOKS = [sample(ms, 1, 0, 0, n1=end, n2=999) for ms, end in ((2000, 10), (2100, 20), (2200, 30), (2300, 30))]


@pytest.mark.parametrize(
    ("samples", "until_ms", "start", "surely_ms"),
    [
        (LOOKS, 4000, None, 2000),
        (LOOKS[:2], 4000, None, 1000),
        (LOOKS, 2150, None, 1000),
        (LOOKS, 4000, 29, 1000),
        (LOOKS, 4000, 30, 2000),
        ([sample(500, 1, 0, 0, n1=5), *LOOKS], 4000, None, 2000),
        ([*LOOKS, sample(2400, 1, 0, 0, n2=7)], 4000, None, 2000),
        ([], 4000, None, 1000),
    ],
    ids=[
        *("grown twice", "grown once", "until then", "below an offset", "up to it", "before its reign"),
        *("of another broker", "never seen"),
    ],
)
def test_until_when_a_leader_had_surely_appended(
    samples: Sequence[Sample], until_ms: int, start: int | None, surely_ms: int
) -> None:
    """A sample may be as old as the sample before it. So growth is certain only since the sample before the first one
    with the lower log end."""
    assert _appended_ns(samples, FIRST, until_ms * MS, start) == surely_ms * MS


@pytest.mark.parametrize(
    ("stamped", "sent_ms", "since_ms"),
    [(True, 1200, 1200), (True, 2600, 2000), (False, 1200, 2000), (True, None, 2000)],
    ids=["in its queues for long", "at once", "stamped when appended", "the next leader has nothing"],
)
def test_what_waits_in_the_queues_of_a_leader_goes_with_it(
    stamped: bool, sent_ms: int | None, since_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log grew until 2.3 s, by records that may have waited in queues. The send time of the last record that the
    next leader has limits how long."""
    stamps = np.array([] if sent_ms is None else [1000, 500 + sent_ms, 9000], np.int64)
    monkeypatch.setattr(intervals, "timestamps", lambda *_: (np.array([28, 29, 30][: len(stamps)]), stamps))
    observed: Any = SimpleNamespace(
        stamped_when_sent=lambda _: stamped, final_rows=None, stamps_from_ns=500 * MS
    )
    log: Any = SimpleNamespace(starts=[SimpleNamespace(epoch=1, start=30)], log_end=40)
    (found,) = _elections(observed, TopicPartition("orders", 0), [FIRST, SECOND], LOOKS, log, 0)
    assert found.since_ns == since_ms * MS


@pytest.mark.parametrize(
    ("stalls", "longest_s"), [((), 0.0), ((0.5,), 0.5), ((0.5, 2.0, 1.0), 2.0)], ids=["none", "one", "three"]
)
def test_disks_stood_still_for_the_longest_of_their_stalls(stalls: Sequence[float], longest_s: float) -> None:
    target = Role(RoleKind.BROKER)
    slow = [SlowDisk(number=1, trigger=TimeTrigger(0.0), target=target, stall=stall) for stall in stalls]
    case = SimpleNamespace(faults=[Kill(number=9, trigger=TimeTrigger(0.0), target=target), *slow])
    found = Observed.__dict__["stall_ns"].func(SimpleNamespace(case=case))
    assert found == longest_s * S


def _event(kind: EventKind, ms: int, **what: Any) -> Event:
    return Event(t_ns=ms * MS, wall_ns=0, kind=kind, **{"detail": {}, **what})


@pytest.mark.parametrize(
    ("kind", "ms", "node", "since_ms"),
    [
        (EventKind.NODE_ENDED, 4000, 1, 2000),
        (EventKind.NODE_DIED, 4000, 1, 2000),
        (EventKind.NODE_ENDED, 5900, 1, 2000),
        (EventKind.NODE_ENDED, 6001, 1, None),
        (EventKind.NODE_ENDED, 3999, 2, None),
        (EventKind.NODE_STARTED, 4000, 1, None),
    ],
    ids=["ended", "died", "a little later", "led no more", "did not lead yet", "started"],
)
def test_a_leader_that_ends_takes_what_it_had_not_appended(
    kind: EventKind, ms: int, node: int, since_ms: int | None
) -> None:
    ends = Observed.__dict__["node_ends"].func(SimpleNamespace(events=[_event(kind, ms, node=node)]))
    found = list(_ends(ends, [FIRST, SECOND], LOOKS))
    expected = [] if since_ms is None else [(since_ms * MS, *[ms * MS] * 3, f"node {node} ended")]
    assert [one[:5] for one in found] == expected


@pytest.mark.parametrize(
    ("nodes", "ms", "since_ms"),
    [
        ((1,), (3000, 3500), 2000),
        ((2,), (3000, 3500), None),
        ((2, 1), (3000, 3500), 2000),
        ((2,), (3000, 4000), 2000),
        ((), (3000, 3500), 2000),
        ((1,), (30_000, 31_000), 30_000),
    ],
    ids=["its own", "another's", "one of two", "of the next leader", "nobody's", "nobody led"],
)
def test_a_fault_of_a_leader_takes_what_it_had_not_appended(
    nodes: tuple[int, ...], ms: tuple[int, int], since_ms: int | None
) -> None:
    asked, until = (one * MS for one in ms)
    observed = SimpleNamespace(
        case=SimpleNamespace(faults=()),
        faults={1: FaultLife(asked, "pause", nodes)},
        fault_times={1: (asked, until)},
    )
    found = list(_faults(cast(Any, observed), [FIRST, SECOND], LOOKS))
    expected = [] if since_ms is None else [(since_ms * MS, asked, until, until, "fault 1 (pause)")]
    assert [one[:5] for one in found] == expected
