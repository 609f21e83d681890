"""Metadata that the controller decides and brokers learn: the state of one partition, and the brokers'
registrations."""

from __future__ import annotations

from typing import NamedTuple

NO_LEADER = -1


class Partition(NamedTuple):
    """One partition as the controller last decided it (PartitionRegistration; in ZooKeeper the state node).

    `replicas` is in assignment order. `leader` is NO_LEADER if there is none. Every change raises `epoch`. A
    new leader, or none, raises `leader_epoch` too. So does the end of a reassignment that removes replicas, the
    cancellation of one that adds replicas, and with `bump_on_shrink` a smaller ISR.

    `elr`: eligible leader replicas (KIP-966). `last_known_leader`: with ELR, the last leader while there is none, else
    NO_LEADER. `recovering`: the leader was elected uncleanly and has not said since that it recovered (KIP-704).
    `adding`, `removing`: replicas of a reassignment in progress.
    """

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER
    recovering: bool = False
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class Registration(NamedTuple):
    """One incarnation of a broker. `epoch`: its broker epoch. `fenced`: it may not lead. `stopping`: it is in
    controlled shutdown and may not lead either."""

    broker: int
    epoch: int
    fenced: bool = False
    stopping: bool = False


class Metadata(NamedTuple):
    """One partition and all broker registrations at one time, as brokers replay them from the metadata log."""

    partition: Partition
    brokers: tuple[Registration, ...]

    def registration(self, broker: int) -> Registration:
        return next(entry for entry in self.brokers if entry.broker == broker)

    def with_broker(self, changed: Registration) -> Metadata:
        return Metadata(
            self.partition, tuple(changed if e.broker == changed.broker else e for e in self.brokers)
        )
