"""States of a partition over time, and its elections."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from ackproof.quantities.evidence import Evidence
from ackproof.quantities.over_time import HOLE_NS, Looks
from ackproof.quantities.quantity import Argument, Ask, Quantity, State, Value, Witness
from ackproof.rundir.bounds import Unit, Window
from ackproof.rundir.metadata import (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    LogEnded,
    MetadataRecord,
)
from ackproof.rundir.observed import Sample
from ackproof.rundir.partition import TopicPartition, internal


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
    """Return the looks at the node's own log, for each partition of the question."""

    def lag(sample: Sample) -> float | None:
        end = sample.log_ends.get(ask.node or 0)
        return None if end is None or sample.high_watermark < 0 else max(0, end - sample.high_watermark)

    places = [place for place in sorted(evidence.samples_of) if ask.place in (None, place)]
    return {
        str(replace(ask, place=place)): Looks.read(evidence, State(lag), place) for place in places
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
"""Readers of one sample of a partition, by the name of the state, for triggers. None: the sample does not show it."""


def _elections(kind: str, evidence: Evidence, ask: Ask) -> Value:
    log = evidence.metadata_log
    # A reader's group has Kafka make a topic of its own, with any leader.
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
    """Return the effect of a record on the registration of a broker; None: none.

    With ZooKeeper the registration is a znode, whose end is written as a fencing.
    """
    match record:
        case BrokerRegistered():
            return "made", record.node
        case BrokerChanged(fenced=True):
            return "gone" if zookeeper else "fenced", record.node
        case BrokerUnregistered():
            return "gone", record.node
    return None


def _elections_quantity(kind: str) -> Quantity:  # pragma: no mutate block, makes constants of the module
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
STATES: Final = (
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
    *map(_elections_quantity, ("", "clean", "unclean")),
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


Assignment: TypeAlias = Sequence[int]
"""The brokers of a partition's replicas, the preferred leader first."""
Assigned: TypeAlias = Callable[[Evidence, Collection[Assignment]], Mapping[str, float]]
"""From the replicas of all partitions to a number of each thing, by its name."""


def _first_replica(replicas: Assignment) -> float | None:
    return replicas[0] if replicas else None


def _racks(evidence: Evidence, ask: Ask) -> Mapping[str, Looks] | str:
    """Return the number of racks of each partition's replicas, at looks at brokers whose racks are known."""
    found = {}
    for place, samples in sorted(evidence.samples_of.items()):
        if ask.place in (None, place):
            within = [(one.t_ns, [evidence.racks.get(node, "") for node in one.replicas]) for one in samples]
            known = [(t_ns, len(set(racks))) for t_ns, racks in within if racks and all(racks)]
            found[f"{ask.quantity.key} of {place}"] = _looks(known)
    return found or f"nobody looked at {ask.place or 'any partition'}"


def _on_brokers(evidence: Evidence, assigned: Collection[Assignment]) -> Mapping[str, float]:
    return {_node(node): sum(node in replicas for replicas in assigned) for node in evidence.racks}


def _partners(evidence: Evidence, assigned: Collection[Assignment]) -> Mapping[str, float]:
    together = {
        node: {other for replicas in assigned if node in replicas for other in replicas}
        for node in evidence.racks
    }
    return {_node(node): len(others - {node}) for node, others in together.items()}


def _in_racks(evidence: Evidence, assigned: Collection[Assignment]) -> Mapping[str, float]:
    racks = evidence.racks
    if not all(racks.values()) or any(node not in racks for replicas in assigned for node in replicas):
        return {}
    return {
        f"rack {rack}": sum(racks.get(node) == rack for replicas in assigned for node in replicas)
        for rack in set(racks.values())
    }


def _node(node: int) -> str:
    return f"node {node}"


def _of_all(numbers: Assigned, evidence: Evidence, ask: Ask) -> Mapping[str, Looks] | str:
    """Return numbers over all partitions, at each look that knows all of them."""
    found: dict[str, list[tuple[int, float]]] = {}
    for t_ns, assigned in _whole_looks(evidence):
        for name, number in numbers(evidence, assigned).items():
            if ask.node is None or name == _node(ask.node):
                found.setdefault(name, []).append((t_ns, number))
    each = {f"{ask.quantity.key} of {name}": _looks(known) for name, known in sorted(found.items())}
    whom = "any broker" if ask.node is None else f"broker {ask.node}"
    return each or f"no look tells where all replicas are, or nothing is known of {whom}"


def _whole_looks(evidence: Evidence) -> Iterator[tuple[int, Collection[Assignment]]]:
    """Yield the times at which the replicas of every partition were known, with the assignments."""
    newest: dict[TopicPartition, tuple[int, Assignment]] = {}
    count = len(evidence.samples_of)
    looks = sorted(
        (one.t_ns, place, one.replicas) for place, each in evidence.samples_of.items() for one in each
    )
    for number, (t_ns, place, replicas) in enumerate(looks):
        newest[place] = t_ns, replicas
        ends = number + 1 == len(looks) or looks[number + 1][0] > t_ns
        if ends and len(newest) == count and all(t_ns - since <= HOLE_NS for since, _ in newest.values()):
            yield t_ns, [one for _, one in newest.values()]


def _looks(known: Sequence[tuple[int, float]]) -> Looks:
    return Looks([t_ns for t_ns, _ in known], [number for _, number in known])


_SAMPLED: Final = "observed/partitions.jsonl"
_BROKERS: Final = f"{_SAMPLED}; observed/metadata.jsonl: registrations"
_NOT_SEEN: Final = (
    "Unknown while nobody answers: an absence holds where no two looks are further apart than 1 s."
)
_ALL: Final = "Of all partitions of the experiment together."


def _placement(
    variant: str,
    state: State,
    definition: str,
    *,
    argument: Argument | None = None,
    needs: Witness | None = None,
    unknown: str = "",
) -> Quantity:  # pragma: no mutate block, makes constants of the module
    return Quantity(
        name="placement",
        variant=variant,
        unit=Unit.NUMBER,
        definition=definition,
        source=_SAMPLED if needs is None else _BROKERS,
        unknown=_NOT_SEEN + unknown,
        optional=() if argument is None else (argument,),
        needs=needs,
        windows=True,
        takes_time=False,
        state=state,
    )


_EACH: Final = "Without t/p: of every partition."
_EVERY: Final = f"{_ALL} Without node N: of every broker that ever registered."
_RACKLESS: Final = " Unknown, too, where a broker has no rack."
PLACEMENT: Final = (
    _placement(
        "brokers",
        State(lambda sample: len(set(sample.replicas)), lambda record: len(set(record.replicas))),
        f"On how many different brokers the partition's replicas are; while they move, the new ones too. {_EACH}",
        argument=Argument.PLACE,
    ),
    _placement(
        "first replica",
        State(lambda sample: _first_replica(sample.replicas), lambda record: record.replicas[0]),
        f"The id of the broker of its first replica, which is its preferred leader. {_EACH}",
        argument=Argument.PLACE,
    ),
    _placement(
        "racks",
        State(among=_racks),
        f"In how many different racks the partition's replicas are. {_EACH}",
        argument=Argument.PLACE,
        needs=Witness.RACKS,
        unknown=_RACKLESS,
    ),
    _placement(
        "on a broker",
        State(among=partial(_of_all, _on_brokers)),
        f"How many replicas are on the broker. {_EVERY}",
        argument=Argument.NODE,
        needs=Witness.METADATA_LOG,
    ),
    _placement(
        "partners",
        State(among=partial(_of_all, _partners)),
        f"With how many other brokers the broker shares a partition. {_EVERY}",
        argument=Argument.NODE,
        needs=Witness.METADATA_LOG,
    ),
    _placement(
        "in a rack",
        State(among=partial(_of_all, _in_racks)),
        f"How many replicas are in a rack. {_ALL} Of every rack.",
        needs=Witness.RACKS,
        unknown=_RACKLESS,
    ),
)
