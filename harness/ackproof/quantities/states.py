"""Quantities of partitions' states over time; elections, controller changes and registrations; placement of
replicas."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from ackproof.quantities.evidence import Evidence
from ackproof.quantities.over_time import HOLE_NS, Observations, places_of
from ackproof.quantities.quantity import Argument, Ask, Quantity, State, Unknown, Value, Witness
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


def _lag(node: int, sample: Sample) -> float | None:
    end = sample.log_ends.get(node)
    return None if end is None or sample.high_watermark < 0 else max(0, end - sample.high_watermark)


def _isr_lag(sample: Sample) -> float | None:
    told = [sample.log_ends[node] for node in {sample.leader, *sample.isr} if node in sample.log_ends]
    if sample.leader not in sample.log_ends or len(told) < len({sample.leader, *sample.isr}):
        return None
    return max(0, sample.log_ends[sample.leader] - min(told))


def _withheld(sample: Sample) -> float | None:
    told = min(sample.high_watermark, sample.last_stable) >= 0
    return max(0, sample.high_watermark - sample.last_stable) if told else None


def _uncommitted(evidence: Evidence, ask: Ask) -> Mapping[str, Observations]:
    """Return, for each partition of the question, by how many offsets the log end of the question's node is above the
    high watermark. Samples that lack one of the two are left out. Raises `Unknown` without such a partition."""
    state = State(partial(_lag, ask.node or 0))
    return {
        str(replace(ask, place=place)): Observations.read(evidence, state, place)
        for place in places_of(evidence, ask)
    }


_SAMPLES: Final = "observed/partitions.jsonl"
_BOTH: Final = f"{_SAMPLES}, observed/metadata.jsonl"
_UNSEEN: Final = (
    "Unknown while nobody answers: an absence holds where no two samples that tell it are further apart than "
    "1 s."
)
_UNDECIDED: Final = (
    "Unknown while nobody answers: an absence over the whole run holds by the metadata log, if that is whole, "
    "else where no two samples are further apart than 1 s."
)
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
        State(lambda sample: _lag(sample.leader, sample)),
        "The leader's log end − its high watermark, in offsets.",
        _SAMPLES,
    ),
    (
        "isr_lag",
        State(_isr_lag),
        "The leader's log end − that of the in-sync replica which is furthest behind, in offsets.",
        _SAMPLES,
    ),
    (
        "high_watermark",
        State(lambda sample: sample.high_watermark if sample.high_watermark >= 0 else None),
        "The high watermark, asked at the leader.",
        _SAMPLES,
    ),
    (
        "log_end",
        State(lambda sample: sample.log_ends.get(sample.leader)),
        "The leader's log end.",
        _SAMPLES,
    ),
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
"""State → function that reads it from one sample, for triggers. It returns None if the sample does not show
it.
"""


def _elections(kind: str, evidence: Evidence, ask: Ask, _: Window) -> Value:
    log = evidence.metadata_log
    # Kafka creates `__consumer_offsets` for the groups of readers, with any leader.
    places = [place for place in log.states if place == ask.place or not (ask.place or internal(place.topic))]
    wanted = {"": (True, False, None), "clean": (True,), "unclean": (False,)}[kind]
    count = sum(clean in wanted for place in places for _, clean in log.elections(place))
    hole = log.hole or ("" if places else f"the metadata log says nothing of {ask.place or 'any partition'}")
    return Value.at_least(count, hole)


def _registrations(kind: str, evidence: Evidence, ask: Ask, _: Window) -> Value:
    log = evidence.metadata_log
    count = sum(
        _befell(record, zookeeper=evidence.zookeeper) == (kind, ask.node or getattr(record, "node", 0))
        for record in log.records
    )
    return Value.at_least(count, log.hole)


def _controllers(evidence: Evidence, _: Ask, __: Window) -> Value:
    epochs = {record.epoch for record in evidence.metadata_log.records if not isinstance(record, LogEnded)}
    hole = evidence.metadata_log.hole or ("" if epochs else "the metadata log has no record")
    return Value.at_least(max(0, len(epochs) - 1), hole)


def _befell(record: MetadataRecord, *, zookeeper: bool) -> tuple[str, int] | None:
    """Return the change of a broker's registration that a metadata record made (`made`, `fenced` or `gone`), and the
    broker's id. None: the record changed no registration.

    With ZooKeeper the registration is a znode; its end is recorded as a fencing, and returned as `gone`.
    """
    match record:
        case BrokerRegistered():
            return "made", record.node
        case BrokerChanged(fenced=True):
            return "gone" if zookeeper else "fenced", record.node
        case BrokerUnregistered():
            return "gone", record.node
    return None


_ELECTED: Final = {
    "": "",
    "clean": " that was in the ISR, or an eligible leader replica (KIP-966), until then",
    "unclean": " that was neither in the ISR nor an eligible leader replica (KIP-966) until then",
}
_REGISTRATIONS: Final = {
    "made": "a broker was registered; with ZooKeeper: its znode made",
    "fenced": "a broker that was registered was fenced, its registration kept; with ZooKeeper never",
    "gone": "the registration of a broker was removed; with ZooKeeper: its znode, which its session ends with",
}
_of_log = partial(
    Quantity, unit=Unit.COUNT, source="observed/metadata.jsonl", needs=Witness.METADATA_LOG, takes_time=False
)
STATES: Final = (
    *(
        Quantity(
            name=name,
            unit=Unit.NUMBER,
            definition=f"{definition} Without t/p: of every partition.",
            source=source,
            unknown=_UNSEEN if state.of_record is None else _UNDECIDED,
            required=(Argument.NODE,) if state.among is not None else (),
            optional=(Argument.PLACE,),
            windows=True,
            takes_time=False,
            state=state,
        )
        for name, state, definition, source in _STATES
    ),
    *(
        _of_log(
            name="elections",
            variant=kind,
            definition=f"How often a leader{whom} was named in a new leader epoch; that of a topic's creation does not "
            "count. Without t/p: on all partitions but those of Kafka's own topics (`__consumer_offsets`, …).",
            unknown="At least as many as are seen where the metadata log has a hole"
            + ("; what the leader was is not seen where that lies just before." if kind else "."),
            optional=(Argument.PLACE,),
            measure=partial(_elections, kind),
        )
        for kind, whom in _ELECTED.items()
    ),
    _of_log(
        name="controller_changes",
        definition="How many controllers of a later epoch wrote something into the metadata log.",
        unknown="At least as many as are seen where the metadata log has a hole.",
        needs=Witness.QUORUM,
        measure=_controllers,
    ),
    *(
        _of_log(
            name="registrations",
            variant=kind,
            definition=f"How often {what}. Without node N: of any broker.",
            unknown="At least as many as are seen where the metadata log has a hole.",
            optional=(Argument.NODE,),
            measure=partial(_registrations, kind),
        )
        for kind, what in _REGISTRATIONS.items()
    ),
)


Assignment: TypeAlias = Sequence[int]
"""The brokers of a partition's replicas, the preferred leader first."""
Assigned: TypeAlias = Callable[[Evidence, Collection[Assignment]], Mapping[str, float]]
"""Function that computes a number for each broker or rack from the assignments of all partitions. Its result is keyed
by names such as `node 1`."""


def _racks(evidence: Evidence, ask: Ask) -> Mapping[str, Observations]:
    """Return, for each partition, the number of racks of its replicas at each sample. Samples at which the rack of a
    replica is unknown are left out. Raises `Unknown` if the question is about no known partition."""
    found = {}
    for place in places_of(evidence, ask):
        samples = evidence.samples_of[place]
        within = [(one.t_ns, [evidence.racks.get(node, "") for node in one.replicas]) for one in samples]
        known = [(t_ns, len(set(racks))) for t_ns, racks in within if racks and all(racks)]
        found[f"{ask.quantity.key} of {place}"] = Observations.from_pairs(known)
    return found


def _on_brokers(evidence: Evidence, assigned: Collection[Assignment]) -> Mapping[str, float]:
    return {f"node {node}": sum(node in replicas for replicas in assigned) for node in evidence.racks}


def _partners(evidence: Evidence, assigned: Collection[Assignment]) -> Mapping[str, float]:
    together = {
        node: {other for replicas in assigned if node in replicas for other in replicas}
        for node in evidence.racks
    }
    return {f"node {node}": len(others - {node}) for node, others in together.items()}


def _in_racks(evidence: Evidence, assigned: Collection[Assignment]) -> Mapping[str, float]:
    racks = evidence.racks
    if not all(racks.values()) or any(node not in racks for replicas in assigned for node in replicas):
        return {}
    return {
        f"rack {rack}": sum(racks.get(node) == rack for replicas in assigned for node in replicas)
        for rack in set(racks.values())
    }


def _of_all(numbers: Assigned, evidence: Evidence, ask: Ask) -> Mapping[str, Observations]:
    """Return observations over time of a number that depends on all partitions. There is one series per broker or rack,
    by a name such as `placement(partners) of node 1`.

    `numbers` computes the number at each time at which the replicas of every partition are known (`_whole_samples`). If
    `ask` names a node, only the series of that node is returned. Raises `Unknown` if there is no series.
    """
    found: dict[str, list[tuple[int, float]]] = {}
    for t_ns, assigned in _whole_samples(evidence):
        for name, number in numbers(evidence, assigned).items():
            if ask.node is None or name == f"node {ask.node}":
                found.setdefault(name, []).append((t_ns, number))
    if not found:
        whom = "any broker" if ask.node is None else f"broker {ask.node}"
        raise Unknown(f"no sample tells where all replicas are, or nothing is known of {whom}")
    return {
        f"{ask.quantity.key} of {name}": Observations.from_pairs(known)
        for name, known in sorted(found.items())
    }


def _whole_samples(evidence: Evidence) -> Iterator[tuple[int, Collection[Assignment]]]:
    """Yield (time in ns, assignments) for each time of samples at which the replicas of every partition were observed
    at most `HOLE_NS` ago."""
    newest: dict[TopicPartition, tuple[int, Assignment]] = {}
    count = len(evidence.samples_of)
    samples = sorted(
        (one.t_ns, place, one.replicas) for place, each in evidence.samples_of.items() for one in each
    )
    for number, (t_ns, place, replicas) in enumerate(samples):
        newest[place] = t_ns, replicas
        ends = number + 1 == len(samples) or samples[number + 1][0] > t_ns
        if ends and len(newest) == count and all(t_ns - since <= HOLE_NS for since, _ in newest.values()):
            yield t_ns, [one for _, one in newest.values()]


_BROKERS: Final = f"{_SAMPLES}; observed/metadata.jsonl: registrations"
_NOT_SEEN: Final = (
    "Unknown while nobody answers: an absence holds where no two samples are further apart than 1 s."
)
_ALL: Final = "Of all partitions of the experiment together."


_placement = partial(Quantity, name="placement", unit=Unit.NUMBER, windows=True, takes_time=False)
_EACH: Final = "Without t/p: of every partition."
_EVERY: Final = f"{_ALL} Without node N: of every broker that ever registered."
_RACKLESS: Final = " Unknown, too, where a broker has no rack."
PLACEMENT: Final = (
    _placement(
        variant="brokers",
        definition="On how many different brokers the partition's replicas are; while they move, the new ones too. "
        + _EACH,
        source=_SAMPLES,
        unknown=_NOT_SEEN,
        optional=(Argument.PLACE,),
        state=State(lambda sample: len(set(sample.replicas)), lambda record: len(set(record.replicas))),
    ),
    _placement(
        variant="first replica",
        definition=f"The id of the broker of its first replica, which is its preferred leader. {_EACH}",
        source=_SAMPLES,
        unknown=_NOT_SEEN,
        optional=(Argument.PLACE,),
        state=State(
            lambda sample: sample.replicas[0] if sample.replicas else None, lambda record: record.replicas[0]
        ),
    ),
    _placement(
        variant="racks",
        definition=f"In how many different racks the partition's replicas are. {_EACH}",
        source=_BROKERS,
        unknown=_NOT_SEEN + _RACKLESS,
        optional=(Argument.PLACE,),
        needs=Witness.RACKS,
        state=State(among=_racks),
    ),
    _placement(
        variant="on a broker",
        definition=f"How many replicas are on the broker. {_EVERY}",
        source=_BROKERS,
        unknown=_NOT_SEEN,
        optional=(Argument.NODE,),
        needs=Witness.METADATA_LOG,
        state=State(among=partial(_of_all, _on_brokers)),
    ),
    _placement(
        variant="partners",
        definition=f"With how many other brokers the broker shares a partition. {_EVERY}",
        source=_BROKERS,
        unknown=_NOT_SEEN,
        optional=(Argument.NODE,),
        needs=Witness.METADATA_LOG,
        state=State(among=partial(_of_all, _partners)),
    ),
    _placement(
        variant="in a rack",
        definition=f"How many replicas are in a rack. {_ALL} Of every rack.",
        source=_BROKERS,
        unknown=_NOT_SEEN + _RACKLESS,
        needs=Witness.RACKS,
        state=State(among=partial(_of_all, _in_racks)),
    ),
)
