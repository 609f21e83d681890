"""Disks in virtual time that stand still: each writer waits, and so does everything that waits for it.

A broker appends under the lock of its log (UnifiedLog, Partition.leaderIsrUpdateLock), in a request handler or a
fetcher thread. So behind an append that waits there wait: all that changes that replica's state (other appends, fetches
that advance the high watermark, the look for slow followers, a new role); its connection's next requests; all requests
once no handler is left (num.io.threads); all that the same fetcher brings; and, where the metadata log lies on that
disk, all news from the controllers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from ackproof_reference.metadata import Metadata
from ackproof_reference.node import Event, step
from ackproof_simulator.clock import Act
from ackproof_simulator.network import Connection, Network

if TYPE_CHECKING:
    from ackproof_simulator.partition import PartitionRun

_NOBODYS: Final = -1
Lane: TypeAlias = Connection | int
"""A connection, whose requests are handled one after the other, or a fetcher thread, by the leader that it asks."""


_Waiting: TypeAlias = tuple[int, Act, tuple[object, ...]]
"""The life of the process that waits, and what it will do."""


class Disks:
    """All log dirs, by node and number (from 0). `threads`: request handlers of a broker."""

    def __init__(
        self, network: Network, threads: int, log_dirs: int, brokers: Sequence[int], *, zookeeper: bool
    ) -> None:
        self._network, self._threads = network, threads
        apart = brokers if zookeeper or log_dirs > 1 else ()
        self._apart = frozenset(apart)
        self.frozen: Counter[tuple[int, int]] = Counter()
        """Log dirs that stand still now: empty most of the time, and looked at first."""
        self.knew: dict[int, int] = {}
        """Nodes whose metadata log stands still, and who was the active controller when that began: should another
        become it, they do not learn of it."""
        self.partitions: Sequence[PartitionRun] = ()
        self._writers: dict[tuple[int, int], list[_Waiting]] = {}
        self._requests: dict[int, list[_Waiting]] = {}
        self._news: dict[int, list[_Waiting]] = {}
        self._lanes: dict[int, dict[Lane, int]] = {}
        self._locked: set[tuple[int, int]] = set()

    @property
    def waiting(self) -> int:
        everything = (*self._writers.values(), *self._requests.values(), *self._news.values())
        return sum(map(len, everything))

    def still(self, node: int, folder: int) -> bool:
        return (node, folder) in self.frozen

    def metadata_still(self, node: int) -> bool:
        """Return True if the node's metadata log stands still; brokers with ZooKeeper have none, those with several log
        dirs have it in none of them.
        """
        return node not in self._apart and self.still(node, 0)

    # -- standing still and going on ----------------------------------------------------------------------------

    def freeze(self, node: int, folder: int, active: int) -> None:
        """Make every write wait from now on. What was written before is on the disk (FIFREEZE syncs the file system).

        `active`: the controller that is the active one.
        """
        self.frozen[node, folder] += 1
        if self.metadata_still(node):
            self.knew.setdefault(node, active)
        for partition in self.partitions:
            if node in partition.brokers and partition.folder_at(node) == folder:
                partition.synced[node] = partition.log(node).end

    def thaw(self, node: int, folder: int) -> None:
        """Let everything that waited happen, in its order."""
        self.frozen[node, folder] -= 1
        if self.frozen[node, folder] > 0:
            return
        del self.frozen[node, folder]
        if not self.metadata_still(node):
            self.knew.pop(node, None)
        for partition in self.partitions:
            if partition.folder_at(node) == folder:
                self._locked.discard((node, id(partition)))
                self._asked_meanwhile(partition, node)
        lanes = self._lanes.get(node, {})
        for lane in [lane for lane, at in lanes.items() if at == folder]:
            del lanes[lane]
        for waiting in (
            self._writers.pop((node, folder), []),
            self._news.pop(node, []),
            self._requests.pop(node, []),
        ):
            for life, act, args in waiting:
                self._go_on(node, life, act, args)

    def _asked_meanwhile(self, partition: PartitionRun, leader: int) -> None:
        """A follower that waits for more has asked every fetch wait and got nothing: it is caught up."""
        for follower, parked in partition.parked.items():
            if parked.request.leader == leader and parked.connection.usable and follower in partition.caught:
                partition.caught[follower].caught_up = self._network.wall(leader)

    def _go_on(self, node: int, life: int, act: Act, args: tuple[object, ...]) -> None:
        host = self._network.hosts[node]
        if life not in (host.life, _NOBODYS):
            return  # the process that waited is gone
        if host.paused and life != _NOBODYS:
            host.inbox.append((life, act, args))
        else:
            act(*args)

    def ended(self, node: int) -> None:
        """Forget all that waited in a process that is gone."""
        self._lanes.pop(node, None)
        self._requests.pop(node, None)
        self._news.pop(node, None)
        self._locked = {(at, partition) for at, partition in self._locked if at != node}

    # -- waiting ------------------------------------------------------------------------------------------------

    def probe(self, node: int, folder: int, act: Act, *args: object) -> None:
        """A write and fsync of somebody who is not the node: done now, or when the disk goes on."""
        if self.still(node, folder):
            self._writers.setdefault((node, folder), []).append((_NOBODYS, act, args))
        else:
            act(*args)

    def holds(self, node: int, folder: int, act: Act, *args: object) -> bool:
        """Return True if something that writes must wait; then it is called when the disk goes on."""
        if not self.still(node, folder):
            return False
        self._writers.setdefault((node, folder), []).append(self._mine(node, act, args))
        return True

    def holds_step(
        self,
        partition: PartitionRun,
        at: int,
        event: Event | None,
        lane: Lane | None,
        act: Act,
        *args: object,
    ) -> bool:
        """Return True if a step of a replica must wait (None: one that takes its lock and writes nothing); then later.

        `lane`: later arrivals on the same lane wait for it.
        """
        if lane is not None and self._is_taken(at, lane):
            self._requests.setdefault(at, []).append(self._mine(at, act, args))
            return True
        if not self._must_wait(partition, at, event):
            return False
        folder = partition.folder_at(at)
        self._locked.add((at, id(partition)))
        if lane is not None:
            self._lanes.setdefault(at, {})[lane] = folder
        self._writers.setdefault((at, folder), []).append(self._mine(at, act, args))
        return True

    def holds_news(self, partition: PartitionRun, at: int, image: Metadata, act: Act, *args: object) -> bool:
        """Return True if a broker learns an image only later: its metadata log stands still, or who applies it
        waits.
        """
        if not self.metadata_still(at) and at not in self._news and not self._must_wait(partition, at, image):
            return False
        self._news.setdefault(at, []).append(self._mine(at, act, args))
        return True

    def _must_wait(self, partition: PartitionRun, at: int, event: Event | None) -> bool:
        locked = (at, id(partition)) in self._locked
        if event is None:
            return locked
        still = self.still(at, partition.folder_at(at))
        if not still:
            return False
        before = partition.brokers[at]
        after, _ = step(before, event, partition.own.get(at, partition.rules))
        if (after.log.batches, after.log.epochs) != (before.log.batches, before.log.epochs):
            return True
        return locked and after != before

    def _is_taken(self, node: int, lane: Lane) -> bool:
        lanes = self._lanes.get(node)
        if not lanes:
            return False
        if lane in lanes:
            return True
        busy = sum(isinstance(one, Connection) for one in lanes)
        return isinstance(lane, Connection) and busy >= self._threads

    def _mine(self, node: int, act: Act, args: tuple[object, ...]) -> _Waiting:
        return self._network.hosts[node].life, act, args
