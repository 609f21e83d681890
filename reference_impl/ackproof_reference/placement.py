"""Places the replicas of a new topic: striped over racks and brokers (StripedReplicaPlacer, KIP-36 and KRaft).

Replicas are spread evenly within one call only: existing partitions are not counted and never move. Spreading
each partition over racks outranks an even number of partitions for each broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple


class Broker(NamedTuple):
    """A broker that can take replicas. `rack`: '' if it has none. Fenced brokers are chosen last in their rack, and
    never lead."""

    broker: int
    rack: str = ""
    fenced: bool = False


class _Ring:
    """The unfenced or the fenced brokers of one rack, taken in turn. Each partition that takes some of them starts one
    broker after the start of the partition before."""

    def __init__(self, brokers: Sequence[int]) -> None:
        self._brokers = list(brokers)
        self._partition: int | None = None
        self._taken = self._offset = 0

    def shuffle(self, random: Random) -> None:
        random.shuffle(self._brokers)

    def take(self, partition: int) -> int | None:
        """Return the next broker for a partition; None if each broker of the ring already has a replica of it."""
        if not self._brokers:
            return None
        if partition != self._partition:
            self._partition, self._taken = partition, 0
            self._offset = (self._offset + 1) % len(self._brokers)
        if self._taken == len(self._brokers):
            return None
        broker = self._brokers[(self._offset + self._taken) % len(self._brokers)]
        self._taken += 1
        return broker


class _Rack(NamedTuple):
    free: _Ring
    fenced: _Ring

    def take(self, partition: int) -> int | None:
        """Return the next broker for a partition, unfenced brokers first; None if each broker of the rack already has a
        replica of it."""
        broker = self.free.take(partition)
        return self.fenced.take(partition) if broker is None else broker


def place(
    places: Sequence[Broker], partitions: int, replication_factor: int, random: Random
) -> list[tuple[int, ...]]:
    """Return the replicas of each of `partitions` partitions in assignment order, the preferred leader first.
    `places`: the brokers.

    Racks and brokers are shuffled (`random`) again after as many partitions as there are unfenced brokers, so
    that assignments do not repeat. Raises ValueError for a replication factor below 1 or above the number of
    brokers (INVALID_REPLICATION_FACTOR), or if no broker is unfenced.
    """
    if not 1 <= replication_factor <= len(places):
        raise ValueError(
            f"replication factor {replication_factor} with {len(places)} brokers: 1 to {len(places)} is possible"
        )
    unfenced = sum(not entry.fenced for entry in places)
    if not unfenced:
        raise ValueError("all brokers are fenced")
    racks = [
        _Rack(
            *(
                _Ring([e.broker for e in places if e.rack == name and e.fenced is fenced])
                for fenced in (False, True)
            )
        )
        for name in sorted({entry.rack for entry in places})
    ]
    placed = []
    first = random.randrange(len(racks))
    for partition in range(partitions):
        if partition % unfenced == 0:
            random.shuffle(racks)
            for rack in racks:
                rack.free.shuffle(random)
                rack.fenced.shuffle(random)
        turn = (first + partition) % len(racks)
        placed.append(_place_partition(racks[turn:] + racks[:turn], partition, replication_factor))
    return placed


def _place_partition(racks: Sequence[_Rack], partition: int, replication_factor: int) -> tuple[int, ...]:
    """Return one partition's replicas: the leader from the first rack with an unfenced broker, the others
    round-robin by rack.
    """
    led = next(
        (number, leader)
        for number, rack in enumerate(racks)
        if (leader := rack.free.take(partition)) is not None
    )
    chosen = [led[1]]
    turn = 0
    while len(chosen) < replication_factor:
        # In its first round the leader's rack is passed over: it has one already.
        broker = racks[turn % len(racks)].take(partition) if turn != led[0] else None
        if broker is not None:
            chosen.append(broker)
        turn += 1
    return tuple(chosen)
