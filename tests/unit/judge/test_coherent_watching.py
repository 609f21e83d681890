"""Tests of coherence of samples with the timeline, `pulse.jsonl` and the logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ackproof.judge.coherence.samples import check_changes, check_high_watermarks, check_looks
from ackproof.judge.facts import Facts
from ackproof.rundir.observed import Sample
from ackproof.rundir.outcome import Says
from ackproof.rundir.timeline import (
    ClientEnded,
    EventDetail,
    EventKind,
    IsrChanged,
    LeaderChanged,
    NodeStarted,
)
from judged_run import SECOND, event, pulse, sampled, texts, watched

# -- the timeline and the samples -------------------------------------------------------------------------------------

LED, SYNCED = LeaderChanged(leader=1, epoch=1), IsrChanged(isr=(1, 2, 3))


def _tells(facts: Facts, *events: tuple[EventDetail, float]) -> Facts:
    mine = [event(what, at_s, topic="orders", partition=0) for what, at_s in events]
    return replace(facts, events=(*mine, *facts.events))


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([(LED, 1.0), (SYNCED, 1.05), (IsrChanged(isr=(2, 1)), 2.0)], None),
        (
            [(LED, 1.0), (SYNCED, 1.0)],
            "ISR [1, 2] was sampled at 2.000 s, and the timeline does not have it",
        ),
        ([(SYNCED, 1.0), (IsrChanged(isr=(1, 2)), 2.0)], "leader 1 in epoch 1 was sampled at 1.000 s"),
        (
            [(LED, 1.0), (SYNCED, 1.0), (IsrChanged(isr=(1, 3)), 2.0)],
            "the timeline has ISR [1, 3] at 2.000 s, and ISR [1, 2] was sampled at 2.000 s",
        ),
        (
            [
                (LED, 1.0),
                (SYNCED, 1.0),
                (IsrChanged(isr=(1, 2)), 2.0),
                (LeaderChanged(leader=2, epoch=2), 3.0),
            ],
            "the timeline has leader 2 in epoch 2 at 3.000 s, and nothing new was sampled",
        ),
        ([(LED, 0.9), (SYNCED, 1.0), (IsrChanged(isr=(1, 2)), 2.0)], "and it was sampled first at 1.000 s"),
        ([(LED, 2.1), (SYNCED, 1.0), (IsrChanged(isr=(1, 2)), 2.0)], "and it was sampled first at 1.000 s"),
    ],
)
def test_the_timeline_tells_what_was_sampled(
    facts: Facts, events: list[tuple[EventDetail, float]], words: str | None
) -> None:
    facts = _tells(
        watched(facts, [sampled(1.0), sampled(2.0, isr=(1, 2)), sampled(3.0, isr=(1, 2))]), *events
    )
    found = texts(check_changes(facts))
    assert (found == []) if words is None else [words in text for text in found] == [True], found
    assert texts(check_changes(replace(facts, backend="model"))) == []
    assert texts(check_changes(replace(facts, events=facts.events[:-1]))) == []


# -- looks ------------------------------------------------------------------------------------------------------------


def test_a_look_has_one_sample_of_a_partition_and_follows_the_one_before(facts: Facts) -> None:
    other = sampled(1.0, partition=1)
    assert texts(check_looks(watched(facts, [sampled(1.0), other, sampled(1.1)]))) == []
    assert texts(check_looks(watched(facts, [sampled(1.0), other, sampled(1.0)]))) == [
        "orders/0 was sampled at 1.000 s twice"
    ]
    assert texts(check_looks(watched(facts, [sampled(1.1), sampled(1.0)]))) == [
        "orders/0 was sampled at 1.000 s after a look at 1.100 s"
    ]


def test_there_are_no_more_samples_than_looks(facts: Facts) -> None:
    three = [sampled(0.1), sampled(0.2), sampled(0.3)]
    assert texts(check_looks(watched(facts, three, [pulse(1, looks=1), pulse(2, looks=1)]))) == []
    assert texts(check_looks(watched(facts, three, [pulse(1, looks=1), pulse(2, looks=0)]))) == [
        "3 looks were sampled up to 1.000 s, and the sampler had looked 1 times"
    ]


@pytest.fixture
def calm(facts: Facts) -> Facts:
    """Facts of a run with load from 0 s to 21 s and no fault."""
    phases = [one for one in facts.events if one.kind is EventKind.PHASE]
    late = {"heal": 21, "drain": 22, "read": 23, "end": 24}
    moved = [
        one.model_copy(update={"t_ns": late.get(str(one.detail["phase"]), 0) * SECOND}) for one in phases
    ]
    return replace(facts, events=(*moved, facts.events[-1].model_copy(update={"t_ns": 25 * SECOND})))


@pytest.mark.parametrize(
    ("hole", "acks", "seen"),
    [(4.6, 10, False), (4.6, 0, True), (2.9, 10, True)],
    ids=["hole", "silent", "short"],
)
def test_who_looks_at_a_cluster_that_acknowledges_sees_it(
    calm: Facts, hole: float, acks: int, seen: bool
) -> None:
    samples = [sampled(at / 10) for at in range(250) if not 8 < at / 10 < 8 + hole]
    pulses = [pulse(at, sent=acks * at) for at in range(26)]
    found = texts(check_looks(watched(calm, samples, pulses)))
    assert (found == []) is seen, found
    assert seen or found[0].startswith("orders/0: no sample from 8.000 s to 12.6")


@pytest.mark.parametrize(
    ("closed", "sent", "words"),
    [
        (ClientEnded(status=0), 100, []),
        (
            ClientEnded(status=0),
            99,
            ["99 records sent by 4.000 s, and the ledgers have 100", "99 records acked"],
        ),
        (ClientEnded(status=-9), 99, []),
        (None, 99, []),
    ],
)
def test_producers_count_what_they_write_down(
    facts: Facts, closed: ClientEnded | None, sent: int, words: list[str]
) -> None:
    ends = (event(closed, 3.0, client="p0"),) if closed else ()
    found = texts(
        check_looks(
            watched(replace(facts, events=(*facts.events, *ends)), [], [pulse(4, looks=0, sent=sent)])
        )
    )
    assert [word in text for word, text in zip(words, found, strict=True)] == [True] * len(words), found


# -- high watermarks --------------------------------------------------------------------------------------------------


def _marks(*values: int, ends: Sequence[int] = (), **changes: Any) -> list[Sample]:
    return [
        sampled(at + 1, high_watermark=mark, log_ends={1: end}, **changes)
        for at, (mark, end) in enumerate(zip(values, ends or [100] * len(values), strict=True))
    ]


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (_marks(10, 20, 20), None),
        (_marks(-1, 20, -1), None),
        (_marks(10, -2), "an offset or epoch of -2 was sampled at 2.000 s"),
        (_marks(10, 20, ends=[10, -5]), "an offset or epoch of -5"),
        (_marks(300, 300), None),
        (
            _marks(301, 301),
            "the high watermark 301 was sampled at 1.000 s, and no log of it ever went beyond 100",
        ),
        (
            _marks(20, 19),
            "the high watermark was 20 at 1.000 s and 19 at 2.000 s, and the log of its leader, node 1",
        ),
        (_marks(20, 19, ends=[20, 19]), None),
        ([*_marks(20), *_marks(19, leader_epoch=2)], None),
    ],
)
def test_high_watermarks_are_where_logs_are(facts: Facts, samples: list[Sample], words: str | None) -> None:
    found = texts(check_high_watermarks(watched(facts, samples)))
    assert (found == []) if words is None else [words in text for text in found] == [True], found


def test_a_leader_that_started_anew_may_know_less(facts: Facts) -> None:
    facts = watched(facts, _marks(20, 19))
    again = event(NodeStarted(pid=7), 1.5, node=1)
    assert texts(check_high_watermarks(replace(facts, events=(again, *facts.events)))) == []


@pytest.mark.parametrize(
    ("sealed", "later", "says"),
    [
        (True, _marks(21, leader_epoch=1), Says.BREAKS),
        (True, _marks(21, leader_epoch=2), Says.LACKS),
        (True, [], Says.LACKS),
        (False, _marks(21, leader_epoch=1), Says.CONTRADICTS),
    ],
)
def test_a_leader_whose_high_watermark_falls_contradicts_itself(
    facts: Facts, sealed: bool, later: list[Sample], says: Says
) -> None:
    """Both answers are known to be from one leader only if a later sample shows the same leader epoch."""
    first = [replace(one, leader_epoch=1) for one in _marks(20, 19)]
    facts = watched(facts, [*first, *(replace(one, t_ns=3 * SECOND) for one in later)])
    if sealed:
        facts.run.seal.write_text("{}")
    else:
        facts.run.seal.unlink(missing_ok=True)
    assert [one.kind for one in check_high_watermarks(facts)] == [says]
