"""States of a partition over time, and its elections."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from ackproof.quantities.evidence import Evidence
from ackproof.quantities.over_time import Looks
from ackproof.quantities.quantity import Argument, Ask, Quantity, State, Witness
from ackproof.quantities.value import Value
from ackproof.rundir.bounds import Unit, Window
from ackproof.rundir.metadata import (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    LogEnded,
    MetadataRecord,
)
from ackproof.rundir.observed import Sample
from ackproof.rundir.partition import internal


def _lag(sample: Sample) -> float | None:
    if sample.high_watermark < 0 or sample.leader not in sample.log_ends:
        return None
    return max(0, sample.log_ends[sample.leader] - sample.high_watermark)


def _isr_lag(sample: Sample) -> float | None:
    told = [sample.log_ends[node] for node in {sample.leader, *sample.isr} if node in sample.log_ends]
    if sample.leader not in sample.log_ends or len(told) < len({sample.leader, *sample.isr}):
        return None
    return max(0, sample.log_ends[sample.leader] - min(told))


def _log_end(sample: Sample) -> float | None:
    return sample.log_ends.get(sample.leader)


def _withheld(sample: Sample) -> float | None:
    told = min(sample.high_watermark, sample.last_stable) >= 0
    return max(0, sample.high_watermark - sample.last_stable) if told else None


def _uncommitted(evidence: Evidence, ask: Ask) -> dict[str, Looks] | str:
    """Of each partition that is asked for, of the node's own log."""

    def of(sample: Sample) -> float | None:
        end = sample.log_ends.get(ask.node or 0)
        return None if end is None or sample.high_watermark < 0 else max(0, end - sample.high_watermark)

    places = [place for place in sorted(evidence.samples_of) if ask.place in (None, place)]
    return {
        str(replace(ask, place=place)): Looks.of(evidence, State(of), place) for place in places
    } or f"nobody looked at {ask.place or 'any partition'}"


def _high_watermark(sample: Sample) -> float | None:
    return sample.high_watermark if sample.high_watermark >= 0 else None


_SAMPLES: Final = "observed/partitions.jsonl"
_BOTH: Final = f"{_SAMPLES}, observed/metadata.jsonl"
_UNSEEN: Final = "Unknown while nobody answers"
_STATES: Final = (
    (
        "isr",
        State(lambda sample: len(sample.isr), lambda record: len(record.isr)),
        "The size of the in-sync replica set.",
        _BOTH,
    ),
    (
        "leader",
        State(lambda sample: sample.leader, lambda record: record.leader),
        "The id of the leader; below 0 where there is none.",
        _BOTH,
    ),
    (
        "leader_epoch",
        State(lambda sample: sample.leader_epoch, lambda record: record.leader_epoch),
        "The leader epoch.",
        _BOTH,
    ),
    (
        "lag",
        State(_lag),
        "The leader's log end − its high watermark, in offsets.",
        _SAMPLES,
    ),
    (
        "isr_lag",
        State(_isr_lag),
        "The leader's log end − that of the in-sync replica which is furthest behind, in offsets.",
        _SAMPLES,
    ),
    ("high_watermark", State(_high_watermark), "The high watermark, asked at the leader.", _SAMPLES),
    ("log_end", State(_log_end), "The leader's log end.", _SAMPLES),
    (
        "withheld",
        State(_withheld),
        "The high watermark − the last stable offset, asked at the leader: what is committed, and kept from readers at "
        "read_committed as long as a transaction before it is open.",
        _SAMPLES,
    ),
    (
        "uncommitted",
        State(among=_uncommitted),
        "Node N's log end − the high watermark, in offsets: what it has appended, and the leader does not count yet.",
        _SAMPLES,
    ),
)

LIVE: Final[Mapping[str, Callable[[Sample], float | None]]] = {
    name: state.of_sample for name, state, *_ in _STATES if state.among is None
}
"""What a single look tells of a partition, by name: triggers wait for these. None: that look does not tell it."""


def _elections(kind: str, evidence: Evidence, ask: Ask) -> Value:
    log = evidence.metadata_log
    # A reader's group has Kafka make a topic of its own, led by whoever it may be.
    places = [place for place in log.states if place == ask.place or not (ask.place or internal(place.topic))]
    wanted = {"": (True, False, None), "clean": (True,), "unclean": (False,)}[kind]
    count = sum(clean in wanted for place in places for _, clean in log.elections(place))
    hole = log.hole or ("" if places else f"the metadata log says nothing of {ask.place or 'any partition'}")
    return Value(count, math.inf, hole) if hole else Value.exactly(count)


def _registrations(kind: str, evidence: Evidence, ask: Ask, _: Window) -> Value:
    log = evidence.metadata_log
    count = sum(
        _befell(record, zookeeper=evidence.zookeeper) == (kind, ask.node or getattr(record, "node", 0))
        for record in log.records
    )
    return Value(count, math.inf, log.hole) if log.hole else Value.exactly(count)


def _controllers(evidence: Evidence, _: Ask, __: Window) -> Value:
    epochs = {record.epoch for record in evidence.metadata_log.records if not isinstance(record, LogEnded)}
    hole = evidence.metadata_log.hole or ("" if epochs else "the metadata log has no record")
    return Value(max(0, len(epochs) - 1), math.inf, hole) if hole else Value.exactly(len(epochs) - 1)


def _befell(record: MetadataRecord, *, zookeeper: bool) -> tuple[str, int] | None:
    """What a record does to the registration of which broker; None: nothing. With ZooKeeper that is its znode, whose
    end is written as a fencing."""
    match record:
        case BrokerRegistered():
            return "made", record.node
        case BrokerChanged(fenced=True):
            return "gone" if zookeeper else "fenced", record.node
        case BrokerUnregistered():
            return "gone", record.node
    return None


def _of(kind: str) -> Quantity:  # pragma: no mutate block, makes constants of the module
    def measure(evidence: Evidence, ask: Ask, _: Window) -> Value:
        return _elections(kind, evidence, ask)

    whom = {
        "": "",
        "clean": " that was in the ISR, or an eligible leader replica (KIP-966), until then",
        "unclean": " that was neither in the ISR nor an eligible leader replica (KIP-966) until then",
    }[kind]
    return Quantity(
        name="elections",
        variant=kind,
        unit=Unit.COUNT,
        definition=f"How often a leader{whom} was named in a new leader epoch; that of a topic's creation does not "
        "count. Without t/p: on all partitions but those of Kafka's own topics (`__consumer_offsets`, …).",
        source="observed/metadata.jsonl",
        unknown="At least as many as are seen where the metadata log has a hole"
        + ("." if not kind else "; what the leader was is not seen where that lies just before."),
        optional=(Argument.PLACE,),
        needs=Witness.METADATA_LOG,
        takes_time=False,
        measure=measure,
    )


_REGISTRATIONS: Final = {
    "made": "a broker was registered; with ZooKeeper: its znode made",
    "fenced": "a broker that was registered was fenced, its registration kept; with ZooKeeper never",
    "gone": "the registration of a broker was removed; with ZooKeeper: its znode, which its session ends with",
}
QUANTITIES: Final = (
    *(
        Quantity(
            name=name,
            variant="",
            unit=Unit.NUMBER,
            definition=f"{definition} Without t/p: of every partition.",
            source=source,
            unknown=f"{_UNSEEN}"
            + (
                ": an absence over the whole run holds by the metadata log, if that is whole, else where no two looks "
                "are further apart than 1 s."
                if state.of_record is not None
                else ": an absence holds where no two looks that tell it are further apart than 1 s."
            ),
            required=(Argument.NODE,) if state.among is not None else (),
            optional=(Argument.PLACE,),
            windows=True,
            takes_time=False,
            state=state,
        )
        for name, state, definition, source in _STATES
    ),
    *map(_of, ("", "clean", "unclean")),
    Quantity(
        name="controller_changes",
        variant="",
        unit=Unit.COUNT,
        definition="How many controllers of a later epoch wrote something into the metadata log.",
        source="observed/metadata.jsonl",
        unknown="At least as many as are seen where the metadata log has a hole.",
        needs=Witness.QUORUM,
        takes_time=False,
        measure=_controllers,
    ),
    *(
        Quantity(
            name="registrations",
            variant=kind,
            unit=Unit.COUNT,
            definition=f"How often {what}. Without node N: of any broker.",
            source="observed/metadata.jsonl",
            unknown="At least as many as are seen where the metadata log has a hole.",
            optional=(Argument.NODE,),
            needs=Witness.METADATA_LOG,
            takes_time=False,
            measure=partial(_registrations, kind),
        )
        for kind, what in _REGISTRATIONS.items()
    ),
)
