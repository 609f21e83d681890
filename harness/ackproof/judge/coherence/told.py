"""Leaders and ISRs as the timeline tells them, beside the samples: the sampler writes both at one look."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from math import inf
from typing import NamedTuple, TypeAlias

from ackproof.experiment.backends import BACKENDS
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts
from ackproof.rundir.observed import Sample
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import EventKind, IsrChanged, LeaderChanged, seconds


class _State(NamedTuple):
    """Who leads in which epoch, or who is in sync; from when on, and (of what samples show) before when it was told."""

    words: str
    since_ns: int
    before_ns: float


_Kinds: TypeAlias = dict[tuple[TopicPartition, EventKind], list[_State]]


def check(facts: Facts) -> Iterator[Opinion]:
    """Each change that the samples show is told once, at that look, and no other is.

    The model tells what its controller did, between two looks too. The last look of a run that broke off may be torn.
    """
    if (
        BACKENDS[facts.backend].simulated
        or not facts.events
        or facts.events[-1].kind is not EventKind.END
        or not facts.samples
    ):
        return
    seen, told = _seen(facts.samples), _told(facts)
    for place, kind in sorted({*told, *seen}):
        yield from map(
            contradicts, _differing(place, kind, seen.get((place, kind), ()), told.get((place, kind), ()))
        )


def _differing(
    place: TopicPartition, kind: EventKind, seen: Sequence[_State], told: Sequence[_State]
) -> Iterator[str]:
    """The first of them that is not the same in both."""
    for one, other in zip_longest(seen, told):
        if other is None:
            yield f"{place}: {one.words} was sampled at {seconds(one.since_ns)}, and the timeline does not tell of it"
        elif one is None or one.words != other.words:
            sampled = (
                "nothing new was sampled"
                if one is None
                else f"{one.words} was sampled at {seconds(one.since_ns)}"
            )
            yield f"{place}: the timeline tells of {other.words} at {seconds(other.since_ns)}, and {sampled}"
        elif not one.since_ns <= other.since_ns <= one.before_ns:
            yield (
                f"{place}: the timeline tells of {other.words} at {seconds(other.since_ns)}, and it was sampled "
                f"first at {seconds(one.since_ns)}"
            )
        else:
            continue
        return


def _seen(samples: Sequence[Sample]) -> _Kinds:
    by_place: dict[TopicPartition, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_place[TopicPartition(sample.topic, sample.partition)].append(sample)
    found: _Kinds = defaultdict(list)
    for place, mine in by_place.items():
        untils = [*(later.t_ns for later in mine[1:]), inf]
        for sample, until in zip(mine, untils, strict=True):
            for kind, words in (
                (EventKind.LEADER, f"leader {sample.leader} in epoch {sample.leader_epoch}"),
                (EventKind.ISR, f"ISR {sorted(sample.isr)}"),
            ):
                states = found[place, kind]
                if not states or states[-1].words != words:
                    states.append(_State(words, sample.t_ns, until))
    return found


def _told(facts: Facts) -> _Kinds:
    found: _Kinds = defaultdict(list)
    for event in facts.events:
        if event.topic is None or event.partition is None:
            continue
        place = TopicPartition(event.topic, event.partition)
        if isinstance(event.what, LeaderChanged):
            words = f"leader {event.what.leader} in epoch {event.what.epoch}"
            found[place, event.kind].append(_State(words, event.t_ns, event.t_ns))
        elif isinstance(event.what, IsrChanged):
            found[place, event.kind].append(_State(f"ISR {sorted(event.what.isr)}", event.t_ns, event.t_ns))
    return found
