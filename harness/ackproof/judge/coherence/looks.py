"""Samples beside the pulses, which count how often the sampler looked; pulses beside the ledgers, which have what was
sent; and the numbers of each sample."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from ackproof.clients.contract import EXIT_CLEAN
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts
from ackproof.judge.starved import quiet
from ackproof.rundir.timeline import ClientEnded, ClientStarted, seconds

_HOLE_NS: Final = 3_000_000_000
"""Who looks ten times a second hears of a cluster in health within milliseconds, of a busy one in some tenths."""
_LOOKS: Final = 10


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions between samples and pulses."""
    yield from map(contradicts, _one_a_look(facts))
    if facts.pulses:
        yield from map(contradicts, _more_than_looks(facts))
        yield from map(contradicts, _unseen(facts))
        yield from map(contradicts, _records(facts))


def _one_a_look(facts: Facts) -> Iterator[str]:
    """A look has one sample of each partition at most, and one look comes after the other."""
    last = -1
    there: set[tuple[str, int]] = set()
    for sample in facts.samples:
        place = (sample.topic, sample.partition)
        if sample.t_ns < last or (sample.t_ns == last and place in there):
            how = "twice" if sample.t_ns == last else f"after a look at {seconds(last)}"
            yield f"{place[0]}/{place[1]} was sampled at {seconds(sample.t_ns)} {how}"
            return
        there = {place} | (there if sample.t_ns == last else set())
        last = sample.t_ns


def _more_than_looks(facts: Facts) -> Iterator[str]:
    """Each look has one time. They are counted some time before the pulse is written, and after the pulse before it."""
    times = sorted({sample.t_ns for sample in facts.samples})
    looks = 0
    for before, pulse in pairwise([None, *facts.pulses]):
        looks += pulse.looks if pulse is not None else 0
        if before is not None and (samples := bisect_right(times, before.t_ns)) > looks + 1:
            yield f"{samples} looks were sampled up to {seconds(before.t_ns)}, and the sampler had looked {looks} times"
            return


def _unseen(facts: Facts) -> Iterator[str]:
    """While no fault is at work, and records are acknowledged in each second, somebody answers who is looked at."""
    spans, places = quiet(facts), facts.samples_of
    for place, samples in sorted(places.items()):
        if place.topic in facts.removed or not samples:
            continue  # of one that nobody ever looked at the final read's check tells
        times = [sample.t_ns for sample in samples]
        for begin, end in spans:
            inside = times[bisect_left(times, begin) : bisect_right(times, end)]
            for before, after in pairwise([begin, *inside, end]):
                if after - before > _HOLE_NS and (looks := _answered(facts, before, after)) >= _LOOKS:
                    yield (
                        f"{place}: no sample from {before / 1e9:.3f} s to {after / 1e9:.3f} s, while the sampler "
                        f"looked {looks} times, no fault was at work and records were acknowledged"
                    )
                    break


def _records(facts: Facts) -> Iterator[str]:
    """Producers count what they write down: once all have closed, the pulses and the ledgers have the same numbers.

    Of one that was killed the counters know more than its ledger, whose last part was not written.
    """
    last = facts.pulses[-1]
    producers = {client.id for client in facts.clients if client.kind == "producer"}
    told = [event for event in facts.events if event.client in producers and event.t_ns <= last.t_ns]
    closed = {
        event.client
        for event in told
        if isinstance(event.what, ClientEnded) and event.what.status == EXIT_CLEAN
    }
    if closed != producers or sum(isinstance(event.what, ClientStarted) for event in told) > len(producers):
        return
    records = facts.audit.audited
    for word, pulse, ledger in (("sent", last.sent, records.produced), ("acked", last.acked, records.acked)):
        if pulse != ledger:
            yield f"the pulses count {pulse:,} records {word} by {seconds(last.t_ns)}, and the ledgers have {ledger:,}"


def _answered(facts: Facts, begin: float, end: float) -> int:
    """Looks in the seconds that lie within this time; 0 where one of these passed without an acknowledgement."""
    inside: Sequence[int] = [
        after.looks if after.acked > before.acked else -1
        for before, after in pairwise(facts.pulses)
        if begin <= before.t_ns and after.t_ns <= end
    ]
    return 0 if not inside or min(inside) <= 0 else sum(inside)
