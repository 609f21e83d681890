"""What each broker said when it was asked by itself, and what readers committed, beside the order in which that was
asked and answered, the timeline and the case."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from ackproof.judge.coherence.scrapes import alive
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts
from ackproof.rundir.observed import ZNODES, BrokerRound, OffsetCommit
from ackproof.rundir.timeline import seconds


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions about rounds and commits."""
    if facts.rounds and not facts.case.experiment.observe.brokers:
        yield contradicts("each broker was asked, and the experiment does not ask for that")
    yield from map(contradicts, _asked(facts.rounds))
    yield from map(contradicts, _dead(facts))
    for reader, told in sorted(facts.commits.items()):
        if facts.case.experiment.workload.consumers.commit_every is None:
            yield contradicts(f"{reader} committed offsets, and the experiment's readers do not")
        yield from map(contradicts, _committed(reader, told))


def _asked(rounds: Sequence[BrokerRound]) -> Iterator[str]:
    """One round is over before the next begins; in each a viewer answers once, or is silent."""
    for one, two in pairwise([*rounds, None]):
        assert one is not None
        if not one.t_ns <= one.done_ns <= (math.inf if two is None else two.t_ns):
            then = "" if two is None else f", and the next began at {seconds(two.t_ns)}"
            yield f"brokers were asked at {seconds(one.t_ns)}, which ended at {seconds(one.done_ns)}{then}"
            return
        viewers = [*(told.viewer for told in one.told), *one.silent]
        twice = next((viewer for viewer in viewers if viewers.count(viewer) > 1), None)
        if twice is not None:
            yield f"node {twice} stands twice in the round at {seconds(one.t_ns)}"
            return


def _dead(facts: Facts) -> Iterator[str]:
    """Who has no process does not answer."""
    nodes = {told.viewer for one in facts.rounds for told in one.told} - {ZNODES}
    lived = {node: facts.lifelines.node(node).spans for node in nodes}
    for one in facts.rounds:
        for node in sorted({told.viewer for told in one.told} & nodes):
            if not alive(lived[node], one.t_ns, one.done_ns):
                yield f"node {node} answered the round at {seconds(one.t_ns)}, when it was dead"
                return


def _committed(reader: str, told: Sequence[OffsetCommit]) -> Iterator[str]:
    """A reader waits for the answer to one commit before it asks for the next."""
    for one, two in pairwise([*told, None]):
        assert one is not None
        end = max(one.begun_ns, one.done_ns)
        if 0 <= one.done_ns < one.begun_ns or (two is not None and two.begun_ns < end):
            then = "" if two is None else f", and its next at {seconds(two.begun_ns)}"
            yield (
                f"{reader} asked for a commit at {seconds(one.begun_ns)}, which was answered at "
                f"{seconds(one.done_ns)}{then}"
            )
            return
