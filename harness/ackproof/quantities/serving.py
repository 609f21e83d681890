"""What clients get from each broker, and which of them live readers fetched from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from ackproof.quantities.evidence import Evidence
from ackproof.quantities.over_time import Looks
from ackproof.quantities.quantity import Argument, Ask, State, Value, Witness
from ackproof.quantities.viewers import NOT_ASKED, SILENT, each_place, of_brokers, of_rounds
from ackproof.rundir.bounds import Window
from ackproof.rundir.observed import BrokerRound, ServedReplica
from ackproof.rundir.partition import TopicPartition

if TYPE_CHECKING:
    from ackproof.quantities.sources import Sources

_CORRUPT_MESSAGE: Final = 2
"""So a leader refuses a batch whose checksum is broken: it has looked at it."""


def _gave_records(one: ServedReplica) -> bool:
    return one.fetch == 0 and one.records > 0


def _took(one: ServedReplica) -> bool:
    return one.produce == _CORRUPT_MESSAGE


_ASKED: Final[dict[tuple[str, str], Callable[[ServedReplica], bool]]] = {
    ("served", "fetch"): _gave_records,
    ("served", "produce"): _took,
    ("refused", "fetch"): lambda one: one.fetch != 0,
    ("refused", "produce"): lambda one: not _took(one),
}


def _answers(evidence: Evidence, ask: Ask, window: Window) -> Iterator[ServedReplica] | str:
    """Return the answers of brokers within a window; a reason, if they are unknown."""
    spans = evidence.spans(window)
    if not evidence.rounds or isinstance(spans, str):
        return NOT_ASKED if not evidence.rounds else str(spans)
    return (
        one
        for round_ in evidence.rounds
        if any(begin <= round_.t_ns and round_.done_ns < end for begin, end in spans)
        for told in round_.told
        if ask.node in (None, told.viewer)
        for one in told.served
        if ask.place in (None, (one.topic, one.partition))
    )


def _count(counts: Callable[[ServedReplica], bool], evidence: Evidence, ask: Ask, window: Window) -> Value:
    found = _answers(evidence, ask, window)
    if isinstance(found, str):
        return Value.unknown(found)
    answers = list(found)
    if not answers:
        return Value.unknown(
            f"{f'node {ask.node}' if ask.node else 'no broker'} was not asked, or did not answer, then"
        )
    return Value.exactly(sum(map(counts, answers)))


def _beyond(evidence: Evidence, ask: Ask, window: Window) -> Value:
    found = _answers(evidence, ask, window)
    if isinstance(found, str):
        return Value.unknown(found)
    answers = [one for one in found if one.fetch == 0]
    count = sum(one.beyond for one in answers)
    # A log end is asked before the Fetch: a record that came in between is beyond the mark, too.
    if not count and not any(0 <= one.high_watermark < one.log_end for one in answers):
        return Value.unknown("no broker that answered had a record beyond its high watermark then")
    return Value.exactly(count)


def _behind(evidence: Evidence, ask: Ask, place: TopicPartition) -> Looks:
    def number(round_: BrokerRound) -> float | None:
        marks = {
            told.viewer: one.high_watermark
            for told in round_.told
            for one in told.served
            if (one.topic, one.partition) == place and one.fetch == 0 and one.high_watermark >= 0
        }
        return max(marks.values()) - marks[ask.node] if ask.node in marks else None

    return of_rounds(evidence, number)


def _reads(evidence: Evidence, ask: Ask, window: Window) -> Value:
    from ackproof.quantities.sources import Sources

    spans = evidence.spans(window)
    if isinstance(spans, str):
        return Value.unknown(spans)
    if not evidence.fetching:
        return Value.unknown("no reader told from whom it fetched; it takes observe: {brokers: true}")
    return _sum(Sources.read(evidence), ask, spans)


def _sum(sources: Sources, ask: Ask, spans: tuple[tuple[float, float], ...]) -> Value:
    certain, possible = sources.reads(ask.node or 0, ask.place, spans)
    why = "" if certain == possible else "readers did not say at every moment from whom they fetched"
    return Value(certain, possible, why)


_WINDOW: Final = (
    "Unknown where the window never was, and where the node was not asked in it, or never answered."
)
_DEFINED: Final = {
    (
        "served",
        "fetch",
    ): "How many consumer's Fetches, of one a round and replica, were answered with records.",
    (
        "served",
        "produce",
    ): "How many Produces, of one a round and replica, were taken as by a leader: the broker refuses "
    "them for the broken checksum that they have, and for nothing before it looks at that.",
    (
        "refused",
        "fetch",
    ): "How many consumer's Fetches, of one a round and replica, were answered with an error.",
    (
        "refused",
        "produce",
    ): "How many Produces, of one a round and replica, were answered with another error than that "
    "of the broken checksum that they have, such as NOT_LEADER_OR_FOLLOWER.",
}
_ALL: Final = "Without node N: at every replica."


QUANTITIES: Final = (
    *(
        of_brokers(
            name,
            variant,
            f"{_DEFINED[name, variant]} {_ALL} Within a window: in rounds that lie whole in it.",
            _WINDOW,
            optional=(Argument.NODE, Argument.PLACE),
            measure=partial(_count, counts),
        )
        for (name, variant), counts in _ASKED.items()
    ),
    of_brokers(
        "beyond",
        "",
        "How many records a consumer's Fetch was given whose offset was not below the high watermark that the broker "
        "told right after: the one in the answer itself is noted before the records are read. "
        f"{_ALL} Within a window: in rounds that lie whole in it.",
        "Unknown where no broker that was asked had a record beyond its high watermark: an absence would say nothing.",
        optional=(Argument.NODE, Argument.PLACE),
        measure=_beyond,
    ),
    of_brokers(
        "behind",
        "",
        "By how much the high watermark that node N tells consumers is below the highest that any broker tells at the "
        "same time. Without t/p: of every partition.",
        f"Unknown while it does not answer. {SILENT}",
        required=(Argument.NODE,),
        optional=(Argument.PLACE,),
        state=State(among=partial(each_place, _behind)),
    ),
    of_brokers(
        "reads",
        "",
        "How many records live readers were handed that they had fetched from node N, as their client library says "
        "five times a second: the only broker that it named from a second before until just after.",
        "At most those, too, around which it named others, or was silent for more than a second.",
        required=(Argument.NODE,),
        optional=(Argument.PLACE,),
        source="ledger/consumed, clients/r*/served.jsonl",
        needs=Witness.SOURCES,
        measure=_reads,
    ),
)
