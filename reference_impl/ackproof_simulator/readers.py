"""Live readers in virtual time: each reads every partition from its leader, up to the high watermark.

They are simulated only if a ledger or a trigger needs them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from ackproof.rundir.timeline import ClientReset
from ackproof_reference.broker import Leader
from ackproof_reference.log import DATA, Batch, end_of_epoch
from ackproof_reference.transactions import aborted, last_stable_offset
from ackproof_simulator.clock import MS
from ackproof_simulator.network import Connection, Host, Scene
from ackproof_simulator.partition import PartitionRun
from ackproof_simulator.producers import newest_known

POLL = 5 * MS
"""Range in ns of the random part of the time from a new high watermark until a reader has the records (fetch, poll)."""


class ReadBatch(NamedTuple):
    """A batch that a reader got at `read_ns`. `place`: index of its partition. `assignment`: number of the reader's
    assignment, from 1."""

    place: int
    assignment: int
    batch: Batch
    read_ns: int


@dataclass
class _Position:
    partition: PartitionRun
    place: int
    leader: int
    offset: int = 0
    epoch: int = -1
    armed: bool = False


@dataclass
class Reader:
    """One simulated consumer that reads all partitions while the run goes on. `positions`: one per partition, with the
    next offset and the leader that it reads from. `handed`: the batches that the consumer has read, in order.
    `assignment`: number by which the ledger tells its reads before and after a reset apart, from 1; each reset raises
    it."""

    number: int
    host: Host
    scene: Scene
    random: Random
    resets: list[tuple[int, int, int, ClientReset]]
    """Resets of all readers in order: time in ns, reader, index of the partition, event.

    A reader is reset if its position is beyond the log, or in an epoch that ended before it. It is reset, too, if the
    topic was created again.
    """
    positions: list[_Position] = field(default_factory=list)
    handed: list[ReadBatch] = field(default_factory=list)
    assignment: int = 1
    stopped: bool = False
    committed: bool = False
    """True with isolation level read_committed: the reader reads up to the last stable offset, without aborted
    records."""

    def follow(self, partition: PartitionRun, place: int) -> None:
        self.positions.append(_Position(partition, place, partition.image.partition.leader))

    def begin_again(self, before: PartitionRun, after: PartitionRun) -> None:
        """Record a reset, and continue from offset 0 with `after`, the partition of the topic that was created again in
        place of the deleted `before`."""
        for position in self.positions:
            if position.partition is before:
                self._reset(position, 0, 0, 0)
                position.partition, position.offset, position.epoch = after, 0, -1
                position.leader = after.image.partition.leader

    def _reset(self, position: _Position, start: int, end: int, goes_on: int) -> None:
        reset = ClientReset(
            assignment=self.assignment,
            position=position.offset,
            start=start,
            end=end,
            goes_on=goes_on,
            reason="the model: its position is not in the log any more",
        )
        self.resets.append((self.scene.clock.now, self.number, position.place, reset))
        self.assignment += 1

    def nudge(self, partition: PartitionRun, leader: int) -> None:
        for position in self.positions:
            if position.partition is partition and position.leader == leader:
                self._arm(position, int(self.random.random() * POLL) + MS)

    def ask_soon(self, partition: PartitionRun) -> None:
        """Schedule a request for metadata within one refresh interval, because a broker has newer metadata of the
        partition."""
        for position in self.positions:
            if position.partition is partition:
                self._ask(position, int(self.random.random() * self.scene.timing.refresh))

    def broken(self, connection: Connection) -> None:
        for position in self.positions:
            if position.leader == connection.acceptor.id:
                self._ask(position, int(self.random.random() * self.scene.timing.refresh))

    def _ask(self, position: _Position, wait: int) -> None:
        self.scene.clock.call_after(wait, self.host.do, self._find_leader, position)

    def _find_leader(self, position: _Position) -> None:
        leader = newest_known(self.scene.network, self.host, position.partition)
        if leader is None:
            self._ask(position, self.scene.timing.refresh)
            return
        position.leader = leader
        self._arm(position, MS)

    def _arm(self, position: _Position, delay: int) -> None:
        if not position.armed and not self.stopped:
            position.armed = True
            self.scene.clock.call_after(delay, self._due, position)

    def _due(self, position: _Position) -> None:
        position.armed = False
        self.host.do(self._read, position)

    def _read(self, position: _Position) -> None:
        partition, leader = position.partition, position.leader
        broker = partition.brokers.get(leader)
        if broker is None or not self.scene.network.between(self.host.id, leader).usable:
            if leader >= 0 and not self.stopped:
                self._ask(position, self.scene.timing.refresh)
            return
        if not isinstance(broker.process.role, Leader):
            self._ask(position, self.scene.timing.refresh)
            return
        log = broker.log
        trusted = position.offset
        if position.epoch >= 0:
            end = end_of_epoch(log, position.epoch)
            if 0 <= end.start < trusted:
                trusted = end.start
        if trusted < position.offset or position.offset > log.end:
            goes_on = max(log.start, min(log.high_watermark, trusted))
            self._reset(position, log.start, log.high_watermark, goes_on)
            position.offset = goes_on
            position.epoch = -1
        limit = last_stable_offset(log) if self.committed else log.high_watermark
        for batch in log.read(position.offset, len(log.batches)):
            if batch.next > limit:
                break
            if batch.kind == DATA and not (self.committed and aborted(log, batch)):
                self.handed.append(ReadBatch(position.place, self.assignment, batch, self.scene.clock.now))
            position.offset, position.epoch = batch.next, batch.epoch
