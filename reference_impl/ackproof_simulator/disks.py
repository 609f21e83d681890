"""Frozen disks in virtual time: each writer waits, and so does everything that needs the same lock or thread.

A broker appends under the lock of its log (UnifiedLog, Partition.leaderIsrUpdateLock), in a request handler or a
fetcher thread. So an append that waits makes the following wait:

* everything that changes the state of that replica: other appends, fetches that advance the high watermark, the check
  for slow followers, a new role;
* the next requests of its connection;
* all requests, once no request handler is free (num.io.threads);
* everything that the same fetcher brings;
* all metadata updates, if the metadata log is on that disk.
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
"""Queue of requests handled in order: a connection, or the fetcher thread for a leader, given by the leader's
id.
"""


_Waiting: TypeAlias = tuple[int, Act, tuple[object, ...]]
"""A waiting action: the number of its process's life (`Host.life`; -1: a write from outside the node), and the action
with its arguments."""


class Disks:
    """Log dirs of all nodes, each of which may be frozen, so that writes wait. `folder` in the methods: number of a
    node's log dir, from 0.

    `threads`: number of request handlers of a broker. `log_dirs`: number of log dirs per broker. `zookeeper`: True if
    the brokers have no metadata log."""

    def __init__(
        self, network: Network, threads: int, log_dirs: int, brokers: Sequence[int], *, zookeeper: bool
    ) -> None:
        self._network, self._threads = network, threads
        apart = brokers if zookeeper or log_dirs > 1 else ()
        self._apart = frozenset(apart)
        self.frozen: Counter[tuple[int, int]] = Counter()
        """Log dirs that are frozen now, as (node, number), with the number of faults that freeze each."""
        self.knew: dict[int, int] = {}
        """By node with a frozen metadata log: the active controller when it froze. The node learns of no
        later one.
        """
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
        """Return True if the node's metadata log is on a frozen disk. False for brokers in ZooKeeper mode, which have
        no metadata log, and for brokers with several log dirs, which have it on a separate disk."""
        return node not in self._apart and self.still(node, 0)

    # -- standing still and going on ----------------------------------------------------------------------------

    def freeze(self, node: int, folder: int, active: int) -> None:
        """Freeze a log dir: later writes wait. Earlier writes are on the disk, because FIFREEZE syncs the file system.
        `active`: id of the controller that counts as active (`Quorum.presumed`). If the metadata log is on this dir,
        the node knows no later controller until the thaw."""
        self.frozen[node, folder] += 1
        if self.metadata_still(node):
            self.knew.setdefault(node, active)
        for partition in self.partitions:
            if node in partition.brokers and partition.folder_at(node) == folder:
                partition.synced[node] = partition.log(node).end

    def thaw(self, node: int, folder: int) -> None:
        """End one freeze of a log dir. If no other fault freezes it, run what waited: first the writes, then metadata
        updates, then requests. Actions of ended processes are dropped. Those of paused processes wait until these
        resume."""
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
        """After a thaw, record each follower whose fetch waits at the leader, over a usable connection, as caught up. A
        real follower would have fetched again after each replica.fetch.wait.max.ms."""
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
        """Drop the waiting requests and metadata updates of a process that has ended. Its waiting writes are dropped
        when their disk recovers."""
        self._lanes.pop(node, None)
        self._requests.pop(node, None)
        self._news.pop(node, None)
        self._locked = {(at, partition) for at, partition in self._locked if at != node}

    # -- waiting ------------------------------------------------------------------------------------------------

    def probe(self, node: int, folder: int, act: Act, *args: object) -> None:
        """Write and fsync in a log dir from outside the node: `act` is called now, or when the disk recovers."""
        if self.still(node, folder):
            self._writers.setdefault((node, folder), []).append((_NOBODYS, act, args))
        else:
            act(*args)

    def holds(self, node: int, folder: int, act: Act, *args: object) -> bool:
        """Queue a write if its log dir is frozen, and return True: `act` is called when the dir thaws. Else return
        False: the caller must write now."""
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
        """Queue a step of a partition's replica on broker `at` if a frozen disk delays the step, and return True: `act`
        is called after the wait. Else return False: the caller must take the step now.

        A step waits if it would write to the frozen log dir. It also waits if it would change the replica's state while
        an earlier step holds the replica's lock. It waits, too, if its lane is blocked or no handler is free. `lane`:
        requests that are handled in order, given by their connection or by the leader whose fetcher brings them. A step
        that waits blocks later ones of its lane. `event` None: a step that needs the replica's lock but writes nothing.
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
        """Queue a metadata image that broker `at` cannot apply yet, and return True: `act` is called after the wait.

        Else return False. The image waits for the broker's metadata log, or for an earlier image that waits. Like a
        step (`holds_step`), it also waits for the replica's disk or lock.
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
