"""What each broker, and in ZooKeeper mode the znodes, say of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Final

from ackproof.quantities.evidence import Evidence
from ackproof.quantities.over_time import HOLE_NS, Looks
from ackproof.quantities.quantity import Argument, Ask, Quantity, State, Witness
from ackproof.quantities.value import Value
from ackproof.rundir.bounds import Unit, Window
from ackproof.rundir.brokers import PartitionTold, Round, Told
from ackproof.rundir.partition import TopicPartition

NOT_ASKED: Final = "nobody asked each broker; it takes observe: {brokers: true}"


def _told(round_: Round, viewer: int | None) -> Told | None:
    return next((one for one in round_.told if one.viewer == viewer), None)


def _row(told: Told, place: TopicPartition) -> PartitionTold | None:
    return next((one for one in told.partitions if (one.topic, one.partition) == place), None)


def places_of(evidence: Evidence, ask: Ask) -> list[TopicPartition]:
    """The partitions that some viewer spoke of, and that are asked for."""
    found = {
        TopicPartition(one.topic, one.partition)
        for round_ in evidence.rounds
        for told in round_.told
        for one in told.partitions
    }
    return [place for place in sorted(found) if ask.place in (None, place)]


def each_place(
    looks: Callable[[Evidence, Ask, TopicPartition], Looks], evidence: Evidence, ask: Ask
) -> Mapping[str, Looks] | str:
    """The looks at each partition that is asked for."""
    if not evidence.rounds:
        return NOT_ASKED
    found = {
        str(replace(ask, place=place)): looks(evidence, ask, place) for place in places_of(evidence, ask)
    }
    return found or f"nobody spoke of {ask.place or 'any partition'}"


def of_rounds(evidence: Evidence, of: Callable[[Round], float | None]) -> Looks:
    """Those rounds that tell it."""
    known = [(one.t_ns, number) for one in evidence.rounds if (number := of(one)) is not None]
    return Looks([time for time, _ in known], [number for _, number in known])


def _said(of: Callable[[PartitionTold], float], evidence: Evidence, ask: Ask, place: TopicPartition) -> Looks:
    def number(round_: Round) -> float | None:
        told = _told(round_, ask.viewer)
        row = None if told is None else _row(told, place)
        return None if row is None else of(row)

    return of_rounds(evidence, number)


def _members(evidence: Evidence, ask: Ask) -> Mapping[str, Looks] | str:
    def number(round_: Round) -> float | None:
        told = _told(round_, ask.viewer)
        return None if told is None else len(told.brokers)

    return {str(ask): of_rounds(evidence, number)} if evidence.rounds else NOT_ASKED


def _controller(evidence: Evidence, ask: Ask) -> Mapping[str, Looks] | str:
    looks = of_rounds(evidence, lambda round_: round_.controller)
    return {str(ask): looks} if evidence.rounds else NOT_ASKED


def _different(place: TopicPartition, round_: Round) -> int | None:
    """How many different things are said of a partition; None where somebody did not answer, or nobody spoke of it."""
    rows = {row for told in round_.told if (row := _row(told, place)) is not None}
    return None if round_.silent or not rows else len(rows)


def _views(evidence: Evidence, _: Ask, place: TopicPartition) -> Looks:
    return of_rounds(evidence, partial(_different, place))


def _disagreement(evidence: Evidence, ask: Ask, _: Window) -> Value:
    """Between rounds that show agreement a longer disagreement may be hidden than any that was seen."""
    found = each_place(_views, evidence, ask)
    if isinstance(found, str):
        return Value.unknown(found)
    least, most, why = 0.0, 0.0, ""
    for name, looks in found.items():
        inside = list(looks.inside(evidence.load_begins, evidence.load_ends))
        if not inside:
            return Value.unknown(f"{name}: nobody spoke of it under load")
        last: float = inside[0][0]
        for agree, group in groupby(inside, key=lambda look: look[1] <= 1):
            times = [time for time, _ in group]
            if agree:
                edges = [last, *times]
                most = max(most, *(two - one for one, two in zip(edges, times, strict=False)))
            else:
                least = max(least, times[-1] - times[0])
            last = times[-1] if agree else last
        most = max(most, evidence.load_ends - last)
        if hole := looks.hole(inside[0][0], evidence.load_ends):
            why = f"{name}: {hole}"
    return Value(least / 1e9, max(least, most) / 1e9, why or "between two rounds")


_FROM: Final = "observed/brokers.jsonl"
_SILENT: Final = f"An absence holds where no two answers are further apart than {HOLE_NS / 1e9:.0f} s."
_SAID: Final[tuple[tuple[str, Callable[[PartitionTold], float], str], ...]] = (
    (
        "leader",
        lambda row: row.leader,
        "The leader of a partition as this viewer itself says; below 0 where it says none.",
    ),
    ("isr", lambda row: len(row.isr), "The size of the in-sync replica set as this viewer itself says."),
    ("leader epoch", lambda row: row.leader_epoch, "The leader epoch as this viewer itself says."),
)

QUANTITIES: Final = (
    *(
        Quantity(
            name="said",
            variant=variant,
            unit=Unit.NUMBER,
            definition=f"{definition} V is `node N`, or `znodes` in ZooKeeper mode. Without t/p: of every partition.",
            source=_FROM,
            unknown=f"Unknown while V does not answer. {_SILENT}",
            required=(Argument.VIEWER,),
            optional=(Argument.PLACE,),
            needs=Witness.BROKERS,
            windows=True,
            takes_time=False,
            state=State(among=partial(each_place, partial(_said, of))),
        )
        for variant, of, definition in _SAID
    ),
    Quantity(
        name="said",
        variant="members",
        unit=Unit.NUMBER,
        definition="How many brokers are members as this viewer itself says: those that a broker names to clients, "
        "those that have a znode. V as above.",
        source=_FROM,
        unknown=f"Unknown while V does not answer. {_SILENT}",
        required=(Argument.VIEWER,),
        needs=Witness.BROKERS,
        windows=True,
        takes_time=False,
        state=State(among=_members),
    ),
    Quantity(
        name="controller",
        variant="",
        unit=Unit.NUMBER,
        definition="The id of the active controller as the metadata quorum itself says; below 0 where it says none.",
        source=_FROM,
        unknown=f"Unknown while the quorum does not answer. {_SILENT}",
        needs=Witness.BROKERS,
        windows=True,
        takes_time=False,
        state=State(among=_controller),
    ),
    Quantity(
        name="views",
        variant="",
        unit=Unit.NUMBER,
        definition="How many different things viewers that answer say of a partition at the same time: of its leader, "
        "epoch, ISR or replicas. 1: all agree. Without t/p: of every partition.",
        source=_FROM,
        unknown=f"Unknown where one that runs does not answer. {_SILENT}",
        optional=(Argument.PLACE,),
        needs=Witness.BROKERS,
        windows=True,
        takes_time=False,
        state=State(among=partial(each_place, _views)),
    ),
    Quantity(
        name="disagreement",
        variant="",
        unit=Unit.SECONDS,
        definition="The longest time under load, since the first round, in which viewers did not all say the same of a "
        "partition (`views` above 1); of all partitions the longest.",
        source=f"{_FROM}, timeline.jsonl",
        unknown="Between rounds: at least from the first that shows it to the last, at most as long as none shows "
        "agreement.",
        optional=(Argument.PLACE,),
        needs=Witness.BROKERS,
        takes_time=True,
        measure=_disagreement,
    ),
)
