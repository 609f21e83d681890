"""Coherence of nodes: their processes, registrations, leaderships, metrics and answers, and the readers' offset
commits."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from operator import attrgetter
from typing import Final

from ackproof.experiment.backends import BACKENDS
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts
from ackproof.quantities.scrapes import scraped
from ackproof.rundir.metadata import BrokerRegistered
from ackproof.rundir.metrics import METRICS
from ackproof.rundir.observed import ZNODES, BrokerRound, OffsetCommit
from ackproof.rundir.timeline import NodeDied, NodeEnded, NodeStarted, seconds

_LATE_NS: Final = 2_000_000_000
"""Greatest delay between the begin of a process and its start event, on a machine that is not starved."""
_LONG_NS: Final = 10_000_000_000
"""Time in which sampler and scraper both observe many times, so that a delay between them does not matter."""


# -- processes ------------------------------------------------------------------------------------------------------


def check_processes(facts: Facts) -> Iterator[Opinion]:
    """Yield a `contradicts` opinion (files disagree) where starts and ends of a node do not alternate. In KRaft mode,
    yield one, too, where they do not fit its registrations or leaderships. Nothing is yielded for simulated and
    attached clusters."""
    row = BACKENDS[facts.backend]
    if row.simulated or row.foreign or not facts.events:
        return  # the harness started no process
    yield from map(contradicts, _out_of_turn(facts))
    if facts.case.experiment.cluster.metadata.registers_once:
        yield from map(contradicts, _too_many_registrations(facts))
        yield from map(contradicts, _kept_leaderships(facts))


def _out_of_turn(facts: Facts) -> Iterator[str]:
    """Yield a sentence for each start of a node that still runs, and for each end of one that does not run."""
    events = [event for life in facts.lifelines.nodes.values() for event in life.events]
    runs: dict[int | None, bool] = {}
    for event in sorted(events, key=lambda event: event.t_ns):
        starts = isinstance(event.what, NodeStarted)
        if starts and runs.get(event.node):
            yield f"node {event.node} is started at {seconds(event.t_ns)}, and did not end before"
        elif not starts and not runs.get(event.node):
            yield f"node {event.node} ends at {seconds(event.t_ns)}, and did not run"
        runs[event.node] = starts


def _too_many_registrations(facts: Facts) -> Iterator[str]:
    """Yield a sentence for each broker that registered more often than its processes were started."""
    registered: dict[int, set[str]] = defaultdict(set)
    for record in facts.metadata:
        if isinstance(record, BrokerRegistered):
            registered[record.node].add(record.incarnation)
    for node, incarnations in sorted(registered.items()):
        starts = len(facts.lifelines.node(node).starts)
        if len(incarnations) > starts:
            yield (
                f"the metadata log has {len(incarnations)} registrations of broker {node}, and the timeline "
                f"{starts} starts of it"
            )


def _kept_leaderships(facts: Facts) -> Iterator[str]:
    """Yield a sentence for each leader that ended and registered again, and still leads in the same leader epoch.

    The controller registers a new incarnation of a broker only after the session of the old one has ended. The end of a
    session takes away the broker's leaderships (org.apache.kafka.controller.ClusterControlManager.registerBroker). This
    does not hold with ZooKeeper: a controller that starts after its brokers finds them all alive.
    """
    ends = [event for event in facts.events if isinstance(event.what, NodeEnded | NodeDied)]
    back = sorted(
        (life.recovered, life.nodes) for life in facts.faults.values() if life.recovered is not None
    )
    for place, samples in sorted(facts.samples_of.items()) if ends else ():
        if not samples or place.topic in facts.removed:
            continue
        last_ns = samples[-1].t_ns
        for event in ends:
            position = bisect_right(samples, event.t_ns, key=attrgetter("t_ns"))
            again = [t_ns for t_ns, nodes in back if event.node in nodes and event.t_ns < t_ns < last_ns]
            before = samples[position - 1] if position else None
            if before is None or before.leader != event.node or not again:
                continue
            if (samples[-1].leader, samples[-1].leader_epoch) == (event.node, before.leader_epoch):
                yield (
                    f"node {event.node} led {place} in leader epoch {before.leader_epoch} when it ended at "
                    f"{seconds(event.t_ns)}, was registered again at {seconds(again[0])}, and leads in that epoch still"
                )


# -- metrics --------------------------------------------------------------------------------------------------------


def check_scrapes(facts: Facts) -> Iterator[Opinion]:
    """Yield a `contradicts` opinion (files disagree) where scrapes of metrics do not fit the case, their order, the
    lives of nodes or the ISRs. Raises `BadInput`, OSError or ArrowException for a broken file."""
    if not facts.scrapes:
        return
    if not facts.case.experiment.observe.metrics:
        yield contradicts("metrics were scraped, and the experiment does not ask for them")
    yield from map(contradicts, _scrape_order(facts))
    dead = (
        f"node {node} answered a scrape at {seconds(scrape.t_ns)}, when it was dead"
        for node, scrapes in sorted(facts.scrapes.items())
        for scrape in scrapes
        if scrape.values is not None and not _may_answer(facts, node, scrape.t_ns, scrape.done_ns)
    )
    yield from map(contradicts, islice(dead, 1))
    yield from map(contradicts, _unseen_shrinks(facts))


def _scrape_order(facts: Facts) -> Iterator[str]:
    """Yield a sentence for the first scrape that overlaps the next of its node, or has a metric that is negative or not
    finite."""
    for node, scrapes in sorted(facts.scrapes.items()):
        for scrape, following in pairwise([*scrapes, None]):
            assert scrape is not None
            wrong = [each for each in (scrape.values or {}).items() if not 0 <= each[1] < math.inf]
            if wrong:
                yield f"node {node}: {wrong[0][0]} is {wrong[0][1]:g} at {seconds(scrape.t_ns)}"
                return
            if not scrape.t_ns <= scrape.done_ns <= (math.inf if following is None else following.t_ns):
                yield f"node {node} was scraped at {seconds(scrape.t_ns)}, and that ended at {seconds(scrape.done_ns)}"
                return


def _may_answer(facts: Facts, node: int, asked_ns: int, answered_ns: int) -> bool:
    spans = facts.lifelines.node(node).spans
    return any(begin - _LATE_NS <= answered_ns and asked_ns <= end for begin, end in spans)


def _unseen_shrinks(facts: Facts) -> Iterator[str]:
    """Yield a sentence for the first partition whose sampled ISR lacked a replica for more than `_LONG_NS`,
    while no scrape showed an under-replicated partition. Only times without a fault at work are examined."""
    found = scraped(facts, METRICS["under_replicated_partitions"], None)
    if isinstance(found, str):
        return
    for place, samples in sorted(facts.samples_of.items()):
        since: float = math.inf
        for sample in samples:
            lacks = sample.leader >= 0 and not set(sample.replicas) <= set(sample.isr)
            since = min(since, sample.t_ns) if lacks else math.inf
            quiet = any(begin <= since and sample.t_ns <= end for begin, end in facts.quiet)
            if sample.t_ns - since <= _LONG_NS or not quiet:
                continue
            rounds = found.inside(since, sample.t_ns)
            if rounds and found.hole(since, sample.t_ns) is None and not any(each.number for each in rounds):
                yield (
                    f"{place}: its ISR lacks replicas from {since / 1e9:.3f} s to {seconds(sample.t_ns)}, and no "
                    "scrape shows a partition that is under-replicated"
                )
                return


# -- answers of each broker, and commits ------------------------------------------------------------------------------


def check_rounds(facts: Facts) -> Iterator[Opinion]:
    """Yield a `contradicts` opinion (files disagree) where rounds of requests to brokers do not fit the case, their
    order or the lives of nodes. Yield one, too, where readers' commits do not fit the case or their order."""
    if facts.rounds and not facts.case.experiment.observe.brokers:
        yield contradicts("each broker was asked, and the experiment does not ask for that")
    yield from map(contradicts, _round_order(facts.rounds))
    dead = (
        f"node {node} answered the round at {seconds(each.t_ns)}, when it was dead"
        for each in facts.rounds
        for node in sorted({view.viewer for view in each.told} - {ZNODES})
        if not _may_answer(facts, node, each.t_ns, each.done_ns)
    )
    yield from map(contradicts, islice(dead, 1))
    for reader, commits in sorted(facts.commits.items()):
        if facts.case.experiment.workload.consumers.commit_every is None:
            yield contradicts(f"{reader} committed offsets, and the experiment's readers do not")
        yield from map(contradicts, _commit_order(reader, commits))


def _round_order(rounds: Sequence[BrokerRound]) -> Iterator[str]:
    """Yield a sentence for the first round that overlaps the next, or in which a viewer (a broker or the znodes)
    answers twice."""
    for each, following in pairwise([*rounds, None]):
        assert each is not None
        if not each.t_ns <= each.done_ns <= (math.inf if following is None else following.t_ns):
            then = "" if following is None else f", and the next began at {seconds(following.t_ns)}"
            yield f"brokers were asked at {seconds(each.t_ns)}, which ended at {seconds(each.done_ns)}{then}"
            return
        viewers = [*(view.viewer for view in each.told), *each.silent]
        twice = next((viewer for viewer in viewers if viewers.count(viewer) > 1), None)
        if twice is not None:
            yield f"node {twice} stands twice in the round at {seconds(each.t_ns)}"
            return


def _commit_order(reader: str, commits: Sequence[OffsetCommit]) -> Iterator[str]:
    """Yield a sentence for the first commit of a reader that was answered before it was requested, or after the next
    was requested."""
    for commit, following in pairwise([*commits, None]):
        assert commit is not None
        end = max(commit.begun_ns, commit.done_ns)
        if 0 <= commit.done_ns < commit.begun_ns or (following is not None and following.begun_ns < end):
            then = "" if following is None else f", and its next at {seconds(following.begun_ns)}"
            yield (
                f"{reader} asked for a commit at {seconds(commit.begun_ns)}, which was answered at "
                f"{seconds(commit.done_ns)}{then}"
            )
            return
