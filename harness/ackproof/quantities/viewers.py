"""Quantities of the cluster's state as each broker reports it, and in ZooKeeper mode as the znodes have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from ackproof.quantities.evidence import Evidence
from ackproof.quantities.over_time import HOLE_NS, Observations
from ackproof.quantities.quantity import Argument, Ask, Quantity, State, Unknown, Value, Witness
from ackproof.rundir.bounds import Unit, Window
from ackproof.rundir.observed import BrokerRound, PartitionView, ViewerAnswer
from ackproof.rundir.partition import TopicPartition


def rounds_of(evidence: Evidence) -> Sequence[BrokerRound]:
    """Return the run's rounds of requests. In each round the harness asks every running broker, and with ZooKeeper the
    znodes, for its own view of the cluster. Raises `Unknown` if the run has no rounds."""
    if not evidence.rounds:
        raise Unknown("nobody asked each broker; it takes observe: {brokers: true}")
    return evidence.rounds


def _answer_of(round_: BrokerRound, viewer: int | None) -> ViewerAnswer | None:
    return next((one for one in round_.told if one.viewer == viewer), None)


def _row(told: ViewerAnswer, place: TopicPartition) -> PartitionView | None:
    return next((one for one in told.partitions if (one.topic, one.partition) == place), None)


def each_place(
    observe: Callable[[Evidence, Ask, TopicPartition], Observations], evidence: Evidence, ask: Ask
) -> Mapping[str, Observations]:
    """Return the observations of each partition that a broker described or that the case has.

    The keys are texts of `ask` with the partition, such as `isr(orders/0)`. If `ask` names a partition, only that
    partition is included. `observe` returns the observations of one partition. Raises `Unknown` if there is no
    partition, or no round of requests.
    """
    described = {
        TopicPartition(one.topic, one.partition)
        for round_ in rounds_of(evidence)
        for told in round_.told
        for one in told.partitions
    }
    places = [place for place in sorted({*described, *evidence.planned}) if ask.place in (None, place)]
    if not places:
        raise Unknown(f"nobody spoke of {ask.place or 'any partition'}")
    return {str(replace(ask, place=place)): observe(evidence, ask, place) for place in places}


def observations_of_rounds(evidence: Evidence, number: Callable[[BrokerRound], float | None]) -> Observations:
    """Return one observation per round of requests to the brokers: the number that `number` returns for the round.
    Rounds for which it returns None are left out. Raises `Unknown` if the run has no rounds."""
    return Observations.from_pairs((one.t_ns, number(one)) for one in rounds_of(evidence))


def _viewer_observations(
    of: Callable[[PartitionView], float], evidence: Evidence, ask: Ask, place: TopicPartition
) -> Observations:
    def number(round_: BrokerRound) -> float | None:
        told = _answer_of(round_, ask.viewer)
        row = None if told is None else _row(told, place)
        return None if row is None else of(row)

    return observations_of_rounds(evidence, number)


def _members(evidence: Evidence, ask: Ask) -> Mapping[str, Observations]:
    def number(round_: BrokerRound) -> float | None:
        told = _answer_of(round_, ask.viewer)
        return None if told is None else len(told.brokers)

    return {str(ask): observations_of_rounds(evidence, number)}


def _controller(evidence: Evidence, ask: Ask) -> Mapping[str, Observations]:
    return {str(ask): observations_of_rounds(evidence, lambda round_: round_.controller)}


def _views(evidence: Evidence, _: Ask, place: TopicPartition) -> Observations:
    """Return the number of different descriptions of a partition, one number per round. Viewers are the running brokers
    and, with ZooKeeper, the znodes. A round counts if all viewers answered and at least one described the partition."""

    def different(round_: BrokerRound) -> int | None:
        rows = {row for told in round_.told if (row := _row(told, place)) is not None}
        return None if round_.silent or not rows else len(rows)

    return observations_of_rounds(evidence, different)


def _disagreement(evidence: Evidence, ask: Ask, _: Window) -> Value:
    """Measure the longest time under load for which viewers (brokers, and with ZooKeeper the znodes) described a
    partition differently. Without a partition in `ask`, measure the longest of all partitions.

    The lower bound is the longest time that the rounds show. The upper bound is higher, because viewers may have
    differed from one round that shows agreement to the next. Raises `Unknown` if there is no round, or if a partition
    has no round under load that counts (`_views`).
    """
    found = each_place(_views, evidence, ask)
    done = {one.t_ns: one.done_ns for one in evidence.rounds}
    least, most, why = 0.0, 0.0, ""
    for name, observed in found.items():
        inside = [
            (at, done[at], number > 1)
            for at, number in observed.inside(evidence.load_begins, evidence.load_ends)
        ]
        if not inside:
            raise Unknown(f"{name}: nobody spoke of it under load")
        least, most = max(least, _apart_ns(inside)), max(most, _apart_at_most_ns(inside, evidence.load_ends))
        if hole := observed.hole(inside[0][0], evidence.load_ends):
            why = f"{name}: {hole}"
    return Value(least / 1e9, max(least, most) / 1e9, why or "between two rounds")


def _apart_ns(rounds: Sequence[tuple[int, int, bool]]) -> int:
    """Return the longest disagreement, in ns, that successive rounds without a hole show.

    A round is (requested, answered, True if viewers differed). The disagreement lasts from the last answer of
    its first round to the requests of its last.
    """
    longest, begun, before = 0, None, rounds[0][0]
    for asked, answered, differed in rounds:
        if not differed or asked - before > HOLE_NS:
            begun = None
        if differed:
            begun = answered if begun is None else begun
            longest = max(longest, asked - begun)
        before = asked
    return longest


def _apart_at_most_ns(rounds: Sequence[tuple[int, int, bool]], end: int) -> int:
    """Return the longest time, in ns, without a round in which viewers agreed, from the first round until `end`.
    A round is (requested, answered, True if viewers differed)."""
    longest, since = 0, rounds[0][0]
    for asked, answered, differed in rounds:
        if not differed:
            longest, since = max(longest, answered - since), asked
    return max(longest, end - since)


_FROM: Final = "observed/brokers.jsonl"
SILENT: Final = f"An absence holds where no two answers are further apart than {HOLE_NS / 1e9:.0f} s."
_SAID: Final[tuple[tuple[str, Callable[[PartitionView], float], str], ...]] = (
    (
        "leader",
        lambda row: row.leader,
        "The leader of a partition as this viewer itself says; below 0 where it says none.",
    ),
    ("isr", lambda row: len(row.isr), "The size of the in-sync replica set as this viewer itself says."),
    ("leader epoch", lambda row: row.leader_epoch, "The leader epoch as this viewer itself says."),
)


_of_brokers = partial(Quantity, source=_FROM, needs=Witness.BROKERS, windows=True, takes_time=False)
broker_count = partial(_of_brokers, unit=Unit.COUNT)
broker_state = partial(_of_brokers, unit=Unit.NUMBER)
QUANTITIES: Final = (
    *(
        broker_state(
            name="said",
            variant=variant,
            definition=f"{definition} V is `node N`, or `znodes` in ZooKeeper mode. Without t/p: of every partition.",
            unknown=f"Unknown while V does not answer. {SILENT}",
            required=(Argument.VIEWER,),
            optional=(Argument.PLACE,),
            state=State(among=partial(each_place, partial(_viewer_observations, number))),
        )
        for variant, number, definition in _SAID
    ),
    broker_state(
        name="said",
        variant="members",
        definition="How many brokers are members as this viewer itself says: those that a broker names to clients, "
        "those that have a znode. V as above.",
        unknown=f"Unknown while V does not answer. {SILENT}",
        required=(Argument.VIEWER,),
        state=State(among=_members),
    ),
    broker_state(
        name="controller",
        definition="The id of the active controller as the metadata quorum itself says; below 0 where it says none.",
        unknown=f"Unknown while the quorum does not answer. {SILENT}",
        state=State(among=_controller),
    ),
    broker_state(
        name="views",
        definition="How many different things viewers that answer say of a partition at the same time: of its leader, "
        "epoch, ISR or replicas. 1: all agree. Without t/p: of every partition.",
        unknown=f"Unknown where one that runs does not answer. {SILENT}",
        optional=(Argument.PLACE,),
        state=State(among=partial(each_place, _views)),
    ),
    Quantity(
        name="disagreement",
        unit=Unit.SECONDS,
        definition="The longest time under load, since the first round, in which viewers did not all say the same of a "
        "partition (`views` above 1); of all partitions the longest.",
        source=f"{_FROM}, timeline.jsonl",
        unknown="Between rounds: at least from the first that shows it to the last, if no two are further apart than "
        "1 s, at most as long as none shows agreement.",
        optional=(Argument.PLACE,),
        needs=Witness.BROKERS,
        measure=_disagreement,
    ),
)
