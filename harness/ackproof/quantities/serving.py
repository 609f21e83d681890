"""Quantities of what clients get from each broker, and of the brokers from which live readers fetched."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ackproof.quantities.evidence import Evidence
from ackproof.quantities.over_time import Observations
from ackproof.quantities.quantity import Argument, Ask, State, Unknown, Value, Witness
from ackproof.quantities.viewers import (
    SILENT,
    broker_count,
    broker_state,
    each_place,
    observations_of_rounds,
    rounds_of,
)
from ackproof.rundir.bounds import Window
from ackproof.rundir.observed import BrokerRound, ServedReplica
from ackproof.rundir.partition import TopicPartition

_CORRUPT_MESSAGE: Final = 2
"""Error code CORRUPT_MESSAGE: a leader examined the batch and refused it for its wrong checksum."""


_ASKED: Final[tuple[tuple[str, str, Callable[[ServedReplica], bool], str], ...]] = (
    (
        "served",
        "fetch",
        lambda one: one.fetch == 0 and one.records > 0,
        "How many consumer's Fetches, of one a round and replica, were answered with records.",
    ),
    (
        "served",
        "produce",
        lambda one: one.produce == _CORRUPT_MESSAGE,
        "How many Produces, of one a round and replica, were taken as by a leader: the broker refuses "
        "them for the broken checksum that they have, and for nothing before it looks at that.",
    ),
    (
        "refused",
        "fetch",
        lambda one: one.fetch != 0,
        "How many consumer's Fetches, of one a round and replica, were answered with an error.",
    ),
    (
        "refused",
        "produce",
        lambda one: one.produce != _CORRUPT_MESSAGE,
        "How many Produces, of one a round and replica, were answered with another error than that "
        "of the broken checksum that they have, such as NOT_LEADER_OR_FOLLOWER.",
    ),
)


def _answers(evidence: Evidence, ask: Ask, window: Window) -> list[ServedReplica]:
    """Return the brokers' answers to ListOffsets, Fetch and Produce requests of the harness: one entry per round,
    broker and replica.

    Only rounds that lie wholly in the window count, and only the broker and partition that `ask` names, if any. Raises
    `Unknown` if the run has no rounds, or if the window never came (`Evidence.spans`).
    """
    rounds, spans = rounds_of(evidence), evidence.spans(window)
    return [
        one
        for round_ in rounds
        if any(begin <= round_.t_ns and round_.done_ns < end for begin, end in spans)
        for told in round_.told
        if ask.node in (None, told.viewer)
        for one in told.served
        if ask.place in (None, (one.topic, one.partition))
    ]


def _count(counts: Callable[[ServedReplica], bool], evidence: Evidence, ask: Ask, window: Window) -> Value:
    if answers := _answers(evidence, ask, window):
        return Value.exactly(sum(map(counts, answers)))
    who = f"node {ask.node}" if ask.node else "no broker"
    raise Unknown(f"{who} was not asked, or did not answer, then")


def _beyond(evidence: Evidence, ask: Ask, window: Window) -> Value:
    answers = [one for one in _answers(evidence, ask, window) if one.fetch == 0]
    count = sum(one.beyond for one in answers)
    # A log end is asked before the Fetch: a record that came in between is beyond the mark, too.
    if not count and not any(0 <= one.high_watermark < one.log_end for one in answers):
        raise Unknown("no broker that answered had a record beyond its high watermark then")
    return Value.exactly(count)


def _behind(evidence: Evidence, ask: Ask, place: TopicPartition) -> Observations:
    def number(round_: BrokerRound) -> float | None:
        marks = {
            told.viewer: one.high_watermark
            for told in round_.told
            for one in told.served
            if (one.topic, one.partition) == place and one.fetch == 0 and one.high_watermark >= 0
        }
        return max(marks.values()) - marks[ask.node] if ask.node in marks else None

    return observations_of_rounds(evidence, number)


def _reads(evidence: Evidence, ask: Ask, window: Window) -> Value:
    from ackproof.quantities.sources import count_reads

    spans = evidence.spans(window)
    if not evidence.fetching:
        raise Unknown("no reader told from whom it fetched; it takes observe: {brokers: true}")
    certain, possible = count_reads(evidence, ask.node or 0, ask.place, spans)
    why = "" if certain == possible else "readers did not say at every moment from whom they fetched"
    return Value(certain, possible, why)


_WINDOW: Final = (
    "Unknown where the window never was, and where the node was not asked in it, or never answered."
)
_ALL: Final = "Without node N: at every replica."
QUANTITIES: Final = (
    *(
        broker_count(
            name=name,
            variant=variant,
            definition=f"{definition} {_ALL} Within a window: in rounds that lie whole in it.",
            unknown=_WINDOW,
            optional=(Argument.NODE, Argument.PLACE),
            measure=partial(_count, counts),
        )
        for name, variant, counts, definition in _ASKED
    ),
    broker_count(
        name="beyond",
        definition="How many records a consumer's Fetch was given whose offset was not below the high watermark that "
        "the broker told right after: the one in the answer itself is noted before the records are read. "
        f"{_ALL} Within a window: in rounds that lie whole in it.",
        unknown="Unknown where no broker that was asked had a record beyond its high watermark: an absence would say "
        "nothing.",
        optional=(Argument.NODE, Argument.PLACE),
        measure=_beyond,
    ),
    broker_state(
        name="behind",
        definition="By how much the high watermark that node N tells consumers is below the highest that any broker "
        "tells at the same time. Without t/p: of every partition.",
        unknown=f"Unknown while it does not answer. {SILENT}",
        required=(Argument.NODE,),
        optional=(Argument.PLACE,),
        state=State(among=partial(each_place, _behind)),
    ),
    broker_count(
        name="reads",
        definition="How many records live readers were handed that they had fetched from node N, as their client "
        "library says five times a second: the only broker that it named from a second before until just after.",
        unknown="At most those, too, around which it named others, or was silent for more than a second.",
        required=(Argument.NODE,),
        optional=(Argument.PLACE,),
        source="ledger/consumed, clients/r*/served.jsonl",
        needs=Witness.SOURCES,
        measure=_reads,
    ),
)
