"""Coherence of samples: with the pulses, the timeline, the metadata log, the final read, and among themselves.

A *round* of the sampler asks for all partitions at once (in code: a look). A *sample* is the state of one partition in
it. A *pulse* is the line that the harness writes once a second. It has the rounds since the previous pulse, and the
records sent and acknowledged so far. *Quiet* times have load and no fault at work.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby, islice, pairwise, zip_longest
from math import inf
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from ackproof.clients.contract import EXIT_CLEAN
from ackproof.experiment.backends import BACKENDS
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, breaks, contradicts, kafka_differs
from ackproof.rundir.metadata import PartitionChanged
from ackproof.rundir.observed import Sample
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import ClientEnded, EventKind, IsrChanged, LeaderChanged, seconds

_HOLE_NS: Final = 3_000_000_000
"""Longest time without a sample that needs no explanation. A healthy cluster answers a sampler within
milliseconds.
"""
_LOOKS: Final = 10
_state = attrgetter("leader", "leader_epoch", "isr")
_ANSWERS_WITHIN_NS: Final = 11_000_000_000
"""Longest time that a round of samples takes, from the request for log ends to the high watermarks, if a broker is
paused meanwhile."""


# -- pulses ---------------------------------------------------------------------------------------------------------


def check_looks(facts: Facts) -> Iterator[Opinion]:
    """Yield a `contradicts` opinion (files disagree) if samples repeat or go back in time, or if `pulse.jsonl` does not
    fit other files. Each line of `pulse.jsonl`, one a second, has the number of the sampler's rounds, which is compared
    with the samples. It also has the numbers of records sent and acknowledged, which are compared with the ledgers."""
    yield from map(contradicts, _sampled_twice(facts))
    if facts.pulses:
        yield from map(contradicts, _more_samples_than_looks(facts))
        yield from map(contradicts, _unsampled(facts))
        yield from map(contradicts, _uncounted_records(facts))


def _sampled_twice(facts: Facts) -> Iterator[str]:
    """Yield a sentence for the first sample that is older than the sample before it, or that repeats time and partition
    of an earlier one."""
    last = -1
    there: set[tuple[str, int]] = set()
    for sample in facts.samples:
        place = (sample.topic, sample.partition)
        if sample.t_ns < last or (sample.t_ns == last and place in there):
            how = "twice" if sample.t_ns == last else f"after a look at {seconds(last)}"
            yield f"{place[0]}/{place[1]} was sampled at {seconds(sample.t_ns)} {how}"
            return
        if sample.t_ns != last:
            there = set()
        there.add(place)
        last = sample.t_ns


def _more_samples_than_looks(facts: Facts) -> Iterator[str]:
    """Yield a sentence for the first line of `pulse.jsonl` by whose time the samples show more rounds than the sampler
    can have made. Samples of one round have the same time.

    A round gets its time before it is counted. So one round is allowed in addition to those that the lines up to the
    next one count.
    """
    times = sorted({sample.t_ns for sample in facts.samples})
    looks = 0
    for before, pulse in pairwise([None, *facts.pulses]):
        looks += pulse.looks if pulse is not None else 0
        if before is not None and (samples := bisect_right(times, before.t_ns)) > looks + 1:
            yield f"{samples} looks were sampled up to {seconds(before.t_ns)}, and the sampler had looked {looks} times"
            return


def _unsampled(facts: Facts) -> Iterator[str]:
    """Yield a sentence for each partition and quiet time in which it has no sample for more than 3 s. Meanwhile the
    sampler must have made at least 10 rounds, and records must have been acknowledged in every second. Deleted topics,
    and partitions that were never sampled, are left out."""
    for place, samples in sorted(facts.samples_of.items()):
        if place.topic in facts.removed or not samples:
            continue  # the check of the final read names a partition that was never sampled
        times = [sample.t_ns for sample in samples]
        for begin, end in facts.quiet:
            inside = times[bisect_left(times, begin) : bisect_right(times, end)]
            for before, after in pairwise([begin, *inside, end]):
                if after - before > _HOLE_NS and (looks := _answered_looks(facts, before, after)) >= _LOOKS:
                    yield (
                        f"{place}: no sample from {before / 1e9:.3f} s to {after / 1e9:.3f} s, while the sampler "
                        f"looked {looks} times, no fault was at work and records were acknowledged"
                    )
                    break


def _answered_looks(facts: Facts, begin: float, end: float) -> int:
    """Return the number of rounds of the sampler between these times (ns), from the lines of `pulse.jsonl` inside, one
    a second. Return 0 if one of these seconds has no round or no acknowledgement, or if no whole second lies between
    them."""
    inside: Sequence[int] = [
        after.looks if after.acked > before.acked else -1
        for before, after in pairwise(facts.pulses)
        if begin <= before.t_ns and after.t_ns <= end
    ]
    return 0 if not inside or min(inside) <= 0 else sum(inside)


def _uncounted_records(facts: Facts) -> Iterator[str]:
    """Yield a sentence for each number (records sent, records acknowledged) in which the last line of `pulse.jsonl` and
    the ledgers differ.

    Yields nothing unless all producers had closed normally by then. The counters of a killed producer are ahead of its
    ledger, whose last part was not written.
    """
    last = facts.pulses[-1]
    producers = {client.id for client in facts.clients if client.kind == "producer"}
    lives = [facts.lifelines.client(client) for client in producers]
    closed = all(
        any(
            end.t_ns <= last.t_ns and isinstance(end.what, ClientEnded) and end.what.status == EXIT_CLEAN
            for end in life.ends
        )
        for life in lives
    )
    starts = sum(start.t_ns <= last.t_ns for life in lives for start in life.starts)
    if not closed or starts > len(lives):
        return
    records = facts.audit.audited
    for word, pulse, ledger in (("sent", last.sent, records.produced), ("acked", last.acked, records.acked)):
        if pulse != ledger:
            yield f"the pulses count {pulse:,} records {word} by {seconds(last.t_ns)}, and the ledgers have {ledger:,}"


# -- high watermarks ------------------------------------------------------------------------------------------------


def check_high_watermarks(facts: Facts) -> Iterator[Opinion]:
    """Yield an opinion where sampled high watermarks and log ends do not fit each other or the logs on disk. Yield one,
    too, for a sampled offset or epoch below -1.

    In a run without a seal, the opinion is `contradicts` (files disagree). A seal's digests prove that the files are
    unchanged. So the opinion in a sealed run is `lacks` (evidence is missing). It is `breaks` (a promise is broken) for
    a high watermark of one leader that certainly fell within one epoch.
    """
    differs = kafka_differs(sealed=facts.sealed)
    ends: dict[TopicPartition, int] = defaultdict(int)
    for place, replicas in facts.replicas_of.items():
        ends[place] = max(0, *(replica.log_end for replica in replicas))
    for read in facts.final_read.partitions if facts.final_read is not None else ():
        ends[read.place] = max(ends[read.place], read.end)
    for place, samples in sorted(facts.samples_of.items()):
        for sample in samples:
            least = min(
                sample.high_watermark, sample.last_stable, sample.leader_epoch, *sample.log_ends.values()
            )
            if least < -1:
                when = seconds(sample.t_ns)
                yield differs(f"{place}: an offset or epoch of {least} was sampled at {when}")
                break
        if place.topic not in facts.removed:
            yield from map(differs, _above_all_logs(facts, place, samples, ends[place]))
            for text, one_leader in _fallen(facts, place, samples):
                yield (breaks if facts.sealed and one_leader else differs)(text, subject=str(place))


def _above_all_logs(
    facts: Facts, place: TopicPartition, samples: Sequence[Sample], log_end: int
) -> Iterator[str]:
    """Yield a sentence for the first sample whose high watermark exceeds all log ends of its partition by more than
    could be appended during the sampling. `log_end`: greatest log end after the load.

    The sampler asks for the log ends first. Each record that was sent meanwhile counts twice: a retry may append it
    again, and a marker may follow it.
    """
    # Many samples share one mapping of log ends: look into each once.
    sampled = {id(sample.log_ends): sample.log_ends for sample in samples}
    end = max([log_end, *(most for log_ends in sampled.values() for most in log_ends.values())])
    for sample in samples:
        mark = sample.high_watermark
        if mark > end and mark > end + 2 * _sent_meanwhile(facts, sample.t_ns):
            yield (
                f"{place}: the high watermark {mark} was sampled at {seconds(sample.t_ns)}, and no log of "
                f"it ever went beyond {end}"
            )
            return


def _sent_meanwhile(facts: Facts, t_ns: int) -> int:
    """Return how many records can have been sent, at most, while the round of samples at `t_ns` asked for log ends and
    high watermarks."""
    before = [pulse.sent for pulse in facts.pulses if pulse.t_ns <= t_ns - _ANSWERS_WITHIN_NS]
    after = [pulse.sent for pulse in facts.pulses if pulse.t_ns >= t_ns]
    return (after[0] if after else facts.audit.audited.produced) - (before[-1] if before else 0)


def _fallen(facts: Facts, place: TopicPartition, samples: Sequence[Sample]) -> Iterator[tuple[str, bool]]:
    """Yield (sentence, certain) for the first fall of the high watermark within a leader epoch, while the leader ran
    and its log was not cut.

    `certain`: a later sample shows the same leader epoch. Then that leader gave both answers, and contradicts itself.
    Otherwise it may have been elected again between the two requests of the sample.
    """
    known = [sample for sample in samples if sample.high_watermark >= 0]
    for number, (before, after) in enumerate(pairwise(known), start=2):
        same_leader = (before.leader, before.leader_epoch) == (after.leader, after.leader_epoch)
        if not same_leader or after.high_watermark >= before.high_watermark:
            continue
        events = facts.lifelines.node(after.leader).events
        if any(before.t_ns <= event.t_ns <= after.t_ns for event in events):
            continue
        if after.log_ends.get(after.leader, sys.maxsize) >= before.log_ends.get(before.leader, -1):
            one_leader = any(later.leader_epoch == after.leader_epoch for later in known[number:])
            text = (
                f"{place}: in leader epoch {after.leader_epoch} the high watermark was {before.high_watermark} at "
                f"{seconds(before.t_ns)} and {after.high_watermark} at {seconds(after.t_ns)}, and the log of its "
                f"leader, node {after.leader}, was not cut"
            )
            yield text, one_leader
            return


# -- leaders and ISRs -----------------------------------------------------------------------------------------------


def check_leader_epochs(facts: Facts) -> Iterator[Opinion]:
    """Yield an opinion for each partition with a sampled leader, leader epoch or ISR that the metadata log does not
    have. Yield one, too, for each final read in a leader epoch that it does not have.

    In a sealed run, whose digests prove its files unchanged, the opinion is `lacks` (evidence is missing), else
    `contradicts` (files disagree). In ZooKeeper mode only leader epochs are compared. Nothing is yielded if the
    metadata log says nothing of any partition.
    """
    if not facts.decided_of:
        return
    differs = kafka_differs(sealed=facts.sealed)
    epochs: dict[tuple[TopicPartition, int], list[PartitionChanged]] = defaultdict(list)
    for place, records in facts.decided_of.items():
        for record in records:
            epochs[place, record.leader_epoch].append(record)
    for place, samples in sorted(facts.samples_of.items()):
        wrong = (
            _undecided(facts, sample, epochs.get((place, sample.leader_epoch), ()))
            for sample in map(samples.__getitem__, _find_changes(samples))
            if sample.leader >= 0
        )
        yield from (differs(f"{place}: {text}") for text in islice(filter(None, wrong), 1))
    for read in facts.final_read.partitions if facts.final_read is not None else ():
        if read.complete and read.place in facts.decided_of and (read.place, read.epoch_after) not in epochs:
            yield differs(
                f"{read.place}: the final read was in leader epoch {read.epoch_after}, unknown to the metadata log"
            )


def _undecided(facts: Facts, sample: Sample, decided: Sequence[PartitionChanged]) -> str:
    """Return how a sample differs from `decided`, the metadata log's records of its leader epoch, in words; '' if it
    agrees. In ZooKeeper mode only the epoch is compared."""
    epoch, when = f"leader epoch {sample.leader_epoch}", f"was seen at {sample.t_ns / 1e9:.1f} s"
    if not decided:
        return f"{epoch} {when}, and the metadata log does not know it"
    if facts.case.experiment.cluster.metadata.broker_controls:
        return ""  # In ZooKeeper mode a leader writes its ISR itself, and brokers hear of it in other ways.
    if sample.leader not in {each.leader for each in decided}:
        return f"leader {sample.leader} {when} in {epoch}, and the metadata log has {decided[0].leader}"
    if set(sample.isr) not in [set(each.isr) for each in decided]:
        return f"the ISR {sorted(sample.isr)} {when} in {epoch}, and the metadata log does not know it"
    return ""


class _Change(NamedTuple):
    """A change of leader or ISR in words. For a sampled change, `since_ns` is the time of the first sample that shows
    it, and `before_ns` that of the next sample (infinite if there is none). For a change in the timeline, both are the
    time of its event."""

    words: str
    since_ns: int
    before_ns: float


_Changes: TypeAlias = dict[tuple[TopicPartition, EventKind], list[_Change]]


def check_changes(facts: Facts) -> Iterator[Opinion]:
    """Yield a `contradicts` opinion (files disagree) for each partition whose sampled changes of leader or ISR differ
    from the changes in the timeline. The timeline must have each once, at the time of its sample.

    Nothing is yielded for runs without samples, and for runs that broke off, whose last round may be incomplete.
    Simulated runs are left out, too: their timeline also has controller decisions between two rounds of samples.
    """
    ended = facts.events and facts.events[-1].kind is EventKind.END
    if BACKENDS[facts.backend].simulated or not ended or not facts.samples:
        return
    sampled, written = _sampled_changes(facts), _written_changes(facts)
    for place, kind in sorted({*written, *sampled}):
        yield from map(contradicts, _first_difference(place, sampled[place, kind], written[place, kind]))


def _first_difference(
    place: TopicPartition, sampled: Sequence[_Change], written: Sequence[_Change]
) -> Iterator[str]:
    for look, event in zip_longest(sampled, written):
        if event is None:
            yield f"{place}: {look.words} was sampled at {seconds(look.since_ns)}, and the timeline does not have it"
        elif look is None or look.words != event.words:
            instead = "nothing new was" if look is None else f"{look.words} was"
            at = "" if look is None else f" at {seconds(look.since_ns)}"
            yield f"{place}: the timeline has {event.words} at {seconds(event.since_ns)}, and {instead} sampled{at}"
        elif not look.since_ns <= event.since_ns <= look.before_ns:
            yield (
                f"{place}: the timeline has {event.words} at {seconds(event.since_ns)}, and it was sampled "
                f"first at {seconds(look.since_ns)}"
            )
        else:
            continue
        return


def _find_changes(samples: Sequence[Sample]) -> Iterator[int]:
    """Yield the index of each sample whose leader, leader epoch or ISR differ from those of the one before."""
    return (next(group) for _, group in groupby(range(len(samples)), lambda number: _state(samples[number])))


def _sampled_changes(facts: Facts) -> _Changes:
    found: _Changes = defaultdict(list)
    for place, mine in facts.every_sample_of.items():
        for number in _find_changes(mine):
            sample, until = mine[number], mine[number + 1].t_ns if number + 1 < len(mine) else inf
            for kind, words in (
                (EventKind.LEADER, f"leader {sample.leader} in epoch {sample.leader_epoch}"),
                (EventKind.ISR, f"ISR {sorted(sample.isr)}"),
            ):
                changes = found[place, kind]
                if not changes or changes[-1].words != words:
                    changes.append(_Change(words, sample.t_ns, until))
    return found


def _written_changes(facts: Facts) -> _Changes:
    found: _Changes = defaultdict(list)
    for event in facts.events:
        if event.topic is None or event.partition is None:
            continue
        place = TopicPartition(event.topic, event.partition)
        if isinstance(event.what, LeaderChanged):
            words = f"leader {event.what.leader} in epoch {event.what.epoch}"
            found[place, event.kind].append(_Change(words, event.t_ns, event.t_ns))
        elif isinstance(event.what, IsrChanged):
            found[place, event.kind].append(_Change(f"ISR {sorted(event.what.isr)}", event.t_ns, event.t_ns))
    return found
