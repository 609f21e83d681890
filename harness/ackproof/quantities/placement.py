"""Where replicas are: over brokers, racks and each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from ackproof.quantities.evidence import Evidence
from ackproof.quantities.over_time import HOLE_NS, Looks
from ackproof.quantities.quantity import Argument, Ask, Quantity, State, Witness
from ackproof.rundir.bounds import Unit
from ackproof.rundir.partition import TopicPartition

Assignment: TypeAlias = Sequence[int]
"""The brokers of a partition's replicas, the preferred leader first."""
Assigned: TypeAlias = Callable[[Evidence, Collection[Assignment]], Mapping[str, float]]
"""From the replicas of all partitions to a number of each thing, by its name."""


def _first(replicas: Assignment) -> float | None:
    return replicas[0] if replicas else None


def _racks(evidence: Evidence, ask: Ask) -> Mapping[str, Looks] | str:
    """In how many racks the replicas of each partition are, at looks at brokers whose racks are known."""
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
    """Numbers that all partitions together come to, at each look that knows all of them."""
    found: dict[str, list[tuple[int, float]]] = {}
    for t_ns, assigned in _whole_looks(evidence):
        for name, number in numbers(evidence, assigned).items():
            if ask.node is None or name == _node(ask.node):
                found.setdefault(name, []).append((t_ns, number))
    each = {f"{ask.quantity.key} of {name}": _looks(known) for name, known in sorted(found.items())}
    whom = "any broker" if ask.node is None else f"broker {ask.node}"
    return each or f"no look tells where all replicas are, or nothing is known of {whom}"


def _whole_looks(evidence: Evidence) -> Iterator[tuple[int, Collection[Assignment]]]:
    """When it was known of every partition where its replicas are, and where."""
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


_SAMPLES: Final = "observed/partitions.jsonl"
_BROKERS: Final = f"{_SAMPLES}; observed/metadata.jsonl: registrations"
_UNSEEN: Final = (
    "Unknown while nobody answers: an absence holds where no two looks are further apart than 1 s."
)
_ALL: Final = "Of all partitions of the experiment together."


def _of(
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
        source=_SAMPLES if needs is None else _BROKERS,
        unknown=_UNSEEN + unknown,
        optional=() if argument is None else (argument,),
        needs=needs,
        windows=True,
        takes_time=False,
        state=state,
    )


_EACH: Final = "Without t/p: of every partition."
_EVERY: Final = f"{_ALL} Without node N: of every broker that ever registered."
_RACKLESS: Final = " Unknown, too, where a broker has no rack."
QUANTITIES: Final = (
    _of(
        "brokers",
        State(lambda sample: len(set(sample.replicas)), lambda record: len(set(record.replicas))),
        f"On how many different brokers the partition's replicas are; while they move, the new ones too. {_EACH}",
        argument=Argument.PLACE,
    ),
    _of(
        "first replica",
        State(lambda sample: _first(sample.replicas), lambda record: record.replicas[0]),
        f"The id of the broker of its first replica, which is its preferred leader. {_EACH}",
        argument=Argument.PLACE,
    ),
    _of(
        "racks",
        State(among=_racks),
        f"In how many different racks the partition's replicas are. {_EACH}",
        argument=Argument.PLACE,
        needs=Witness.RACKS,
        unknown=_RACKLESS,
    ),
    _of(
        "on a broker",
        State(among=partial(_of_all, _on_brokers)),
        f"How many replicas are on the broker. {_EVERY}",
        argument=Argument.NODE,
        needs=Witness.METADATA_LOG,
    ),
    _of(
        "partners",
        State(among=partial(_of_all, _partners)),
        f"With how many other brokers the broker shares a partition. {_EVERY}",
        argument=Argument.NODE,
        needs=Witness.METADATA_LOG,
    ),
    _of(
        "in a rack",
        State(among=partial(_of_all, _in_racks)),
        f"How many replicas are in a rack. {_ALL} Of every rack.",
        needs=Witness.RACKS,
        unknown=_RACKLESS,
    ),
)
