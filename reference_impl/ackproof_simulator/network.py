"""Simulated hosts, the connections between them, and messages in flight.

Connections have delay, jitter, order, cuts, silence, loss and bandwidth. A connection is named by its opener (A -> B,
as links in an experiment are) and carries both directions. A paused host does not see what arrives meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ackproof_reference.messages import AlterPartition, Fetch, Produce
from ackproof_simulator.clock import Act, Clock, Timing

if TYPE_CHECKING:
    from ackproof_simulator.disks import Disks
    from ackproof_simulator.partition import PartitionRun
    from ackproof_simulator.producers import ClientBatch, Producer

RETRANSMIT_NS = 200_000_000
"""TCP's smallest time-out before a lost packet is sent again; it doubles (RFC 6298, Linux's TCP_RTO_MIN)."""
PACKET = 1448
HEADERS = 52
"""Bytes of the IP and TCP headers. On a loopback or virtual link up to 64 KB sent at once are one packet."""
TO_ACCEPTOR, TO_OPENER = 0, 1


@dataclass(slots=True, eq=False)
class Host:
    """A process on the network: a node or a client. `up`: False if it has ended. `paused`: True if it is stopped by
    SIGSTOP.

    `life`: how often it has ended; messages to an earlier life are dropped. `inbox`: actions that wait while it is
    paused, as (`life`, action, its arguments). `broken` is called with each lost connection that this process had
    opened."""

    id: int
    up: bool = True
    paused: bool = False
    life: int = 0
    inbox: list[tuple[int, Act, tuple[object, ...]]] = field(default_factory=list)
    broken: Callable[[Connection], None] | None = None

    @property
    def running(self) -> bool:
        return self.up and not self.paused

    def do(self, act: Act, *args: object) -> None:
        """Call `act` now; if the process is paused, when it resumes; never if it has ended by then."""
        if self.paused:
            self.inbox.append((self.life, act, args))
        elif self.up:
            act(*args)


@dataclass(slots=True, eq=False)
class Connection:
    """A TCP connection; `ends` has its acceptor at index `TO_ACCEPTOR` and its opener at `TO_OPENER`.

    `generation`: number of resets; a message of an earlier generation is dropped. `cuts`: number of faults that refuse
    the connection. `holds`: number of faults that hold its packets; `held`: messages that wait until no fault does.
    `plain`: True only if no fault slows, drops or blocks packets.

    One entry per fault: `delays` (latency and jitter, ns), `losses` (share of packets), `rates` (bytes per second)."""

    ends: tuple[Host, Host]
    generation: int = 0
    cuts: int = 0
    holds: int = 0
    held: list[Letter] = field(default_factory=list)
    delays: list[tuple[int, int]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    rates: list[int] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    """Sizes in bytes above which packets are lost, one per fault."""
    slow_closes: list[int] = field(default_factory=list)
    """Delays in ns after which the opener notices the end of the connection, one per fault."""
    stuck: list[list[Unsent]] = field(default_factory=lambda: [[], []])
    """Per direction: a packet too large to pass, and the messages after it, which cannot overtake it."""
    lingers: bool = False
    """True if the connection has ended and its opener has not noticed yet, because of a `slow_close` fault."""
    plain: bool = True
    last: list[int] = field(default_factory=lambda: [0, 0])
    """Per direction: time in ns at which the latest message arrives; no later message arrives before it."""
    busy: list[int] = field(default_factory=lambda: [0, 0])
    """Per direction: time in ns until which a limited bandwidth is used up."""

    @property
    def opener(self) -> Host:
        return self.ends[TO_OPENER]

    @property
    def acceptor(self) -> Host:
        return self.ends[TO_ACCEPTOR]

    @property
    def open(self) -> bool:
        """True if no fault cuts or holds the connection, and it does not linger; the processes at its ends need not
        run. A connection lingers if it has ended, and a `slow_close` fault keeps its opener from noticing."""
        return not self.cuts and not self.holds and not self.lingers

    @property
    def usable(self) -> bool:
        """True if the connection is open, and the processes at both ends run and are not paused."""
        return self.open and self.acceptor.running and self.opener.running


Letter: TypeAlias = tuple[int, Host, Act, tuple[object, ...]]
Unsent: TypeAlias = tuple[int, int, Act, tuple[object, ...]]
"""A message that waits for retransmission: time of the first attempt in ns, size in bytes, action at arrival with its
arguments. `Letter`: a message that a fault holds: generation of the connection, receiver, action with its arguments."""


class Network:
    """All connections between processes. `hop`: fixed one-way latency, `jitter`: range of its random part, both in ns.
    `hosts`: number → host; clients have negative numbers.
    """

    def __init__(self, clock: Clock, random: Random, hop: int, jitter: int) -> None:
        self._clock = clock
        self._random = random.random
        self._hop = hop
        self._jitter = jitter
        self._connections: dict[tuple[int, int], Connection] = {}
        self.hosts: dict[int, Host] = {}
        self.shifts: dict[int, int] = {}
        """By node: offset of its wall clock from the virtual clock, in ns."""

    def join(self, host: Host) -> Host:
        self.hosts[host.id] = host
        return host

    def between(self, opener: int, acceptor: int) -> Connection:
        found = self._connections.get((opener, acceptor))
        if found is None:
            found = self._connections[opener, acceptor] = Connection(
                (self.hosts[acceptor], self.hosts[opener])
            )
        return found

    def send(self, connection: Connection, way: int, size: int, act: Act, *args: object) -> bool:
        """Send `size` bytes to one end of the connection (`way`: TO_ACCEPTOR or TO_OPENER), and call `act` there on
        arrival.

        Return False if the connection is refused or the process at that end has ended; but True if the connection
        lingers. True does not mean that the bytes arrive."""
        to = connection.ends[way]
        if connection.lingers:
            return True  # into a connection that nobody reads from any more
        if connection.cuts or not to.up:
            return False
        large = size + HEADERS
        if not connection.plain and (connection.stuck[way] or any(large > one for one in connection.limits)):
            connection.stuck[way].append((self._clock.now, size, act, args))
            return True
        arrival = self._clock.now + self._hop + int(self._random() * self._jitter)
        if not connection.plain:
            arrival = self._hindered(connection, way, size, arrival)
        last = connection.last
        if arrival <= last[way]:
            arrival = last[way] + 1
        last[way] = arrival
        self._clock.call_at(arrival, self._arrive, connection, connection.generation, to, act, args)
        return True

    def widen(self, connection: Connection) -> None:
        """Send blocked packets again at TCP's next retransmission, because the limit on their size was lifted."""
        for way in (TO_ACCEPTOR, TO_OPENER):
            if connection.stuck[way]:
                wait, tried = RETRANSMIT_NS, connection.stuck[way][0][0]
                while tried < self._clock.now:
                    tried += wait
                    wait *= 2
                self._clock.call_at(tried, self._try_again, connection, connection.generation, way)

    def _try_again(self, connection: Connection, generation: int, way: int) -> None:
        if connection.generation != generation:
            return
        unsent, connection.stuck[way] = connection.stuck[way], []
        for _, size, act, args in unsent:
            self.send(connection, way, size, act, *args)

    def _hindered(self, connection: Connection, way: int, size: int, arrival: int) -> int:
        for latency, jitter in connection.delays:
            arrival += latency + int((2 * self._random() - 1) * jitter)
        for share in connection.losses:
            for _ in range(1 + size // PACKET):
                wait = RETRANSMIT_NS
                while self._random() < share and wait < RETRANSMIT_NS << 7:
                    arrival += wait
                    wait *= 2
        for rate in connection.rates:
            begin = max(self._clock.now, connection.busy[way])
            connection.busy[way] = begin + size * 1_000_000_000 // rate
            arrival = max(arrival, connection.busy[way])
        return arrival

    def _arrive(
        self, connection: Connection, generation: int, to: Host, act: Act, args: tuple[object, ...]
    ) -> None:
        if connection.generation != generation:
            return
        if connection.holds:
            connection.held.append((generation, to, act, args))
        elif to.paused:
            # In the kernel's buffer: it will be read, even if the connection ends meanwhile.
            to.inbox.append((to.life, act, args))
        elif to.up:
            act(*args)

    def wall(self, node: int) -> int:
        """Return a node's wall-clock time: virtual time plus the shifts of clock faults, in ns since the start."""
        return self._clock.now + self.shifts.get(node, 0)

    def reset_all_of(self, host: Host) -> None:
        for (opener, _), connection in list(self._connections.items()):
            if opener == host.id:
                self.reset(connection)

    def reset(self, connection: Connection) -> None:
        """Drop the connection with all messages in flight. Its opener, if it has not ended, is notified (`Host.broken`)
        one hop later, or later still if a `slow_close` fault delays the end of connections."""
        connection.generation += 1
        connection.held.clear()
        connection.stuck = [[], []]
        opener = connection.opener
        if opener.broken is not None and opener.up:
            late = sum(connection.slow_closes)
            connection.lingers = bool(late)
            if opener.paused and not late:
                opener.inbox.append((opener.life, opener.broken, (connection,)))
            else:
                self._clock.call_after(self._hop + late, self._tell, opener, opener.life, connection)

    def _tell(self, opener: Host, life: int, connection: Connection) -> None:
        connection.lingers = False
        if opener.life == life and opener.broken is not None:
            opener.do(opener.broken, connection)

    def release(self, connection: Connection) -> None:
        if connection.holds:
            return
        held, connection.held = connection.held, []
        for generation, to, act, args in held:
            self._arrive(connection, generation, to, act, args)

    def down(self, host: Host) -> None:
        """End a process: drop its connections in both directions, and the messages that it has not handled."""
        host.up = False
        host.paused = False
        host.life += 1
        host.inbox.clear()
        for (opener, acceptor), connection in list(self._connections.items()):
            if host.id in (opener, acceptor):
                self.reset(connection)

    def pause(self, host: Host) -> None:
        host.paused = True

    def resume(self, host: Host) -> None:
        """Resume a process, which then handles the messages that arrived meanwhile."""
        host.paused = False
        missed, host.inbox = host.inbox, []
        for at, (life, act, args) in enumerate(missed):
            if host.paused:
                host.inbox.extend(missed[at:])
                return
            if host.life == life:
                act(*args)


@dataclass
class Scene:
    """Objects that all parts of a simulated run share. `record_bytes`: size of one record in bytes.

    Callbacks, assigned last: `alter(partition, leader, request)` sends a leader's ISR proposal to the controller.
    `learned(partition)` is called when a broker has a new image of the partition, `advanced(partition, broker)` when
    the broker's high watermark has changed; None: nobody needs it. `verified(partition, request)` asks the transaction
    coordinator about a batch; without transactions it is always True."""

    clock: Clock
    network: Network
    disks: Disks
    timing: Timing
    random: Random
    record_bytes: int
    alter: Callable[[PartitionRun, int, AlterPartition], None] = field(init=False)
    learned: Callable[[PartitionRun], None] = field(init=False)
    advanced: Callable[[PartitionRun, int], None] | None = None
    verified: Callable[[PartitionRun, Produce], bool] = lambda partition, request: True
    """Return True if the transaction coordinator knows the transaction that a batch would open in a log (KIP-890)."""


class PendingProduce(NamedTuple):
    """A produce request that was sent to a leader, where it may wait for replicas. `connection`: the connection on
    which it came. `generation`: the connection's generation when it was sent.

    `attempt`: the client's batch. `since`: time in ns at which it was sent. `request_timeout`: longest wait in ns that
    the client allows (request.timeout.ms)."""

    client: Producer
    connection: Connection
    generation: int
    attempt: ClientBatch
    since: int
    request_timeout: int


class PendingFetch(NamedTuple):
    """A follower's fetch that waits at its leader for new records. `token`: number of the follower's fetch, by which
    answers to earlier fetches are dropped."""

    request: Fetch
    connection: Connection
    token: int


@dataclass
class Caught:
    """A leader's record of a follower's fetches, from which it computes the lag (kafka.cluster.Replica).

    `caught_up`: last time at which the follower had all records. `fetched`: time of its last fetch; `end_then`: the
    leader's log end at that time. Times are in ns by the leader's wall clock."""

    caught_up: int
    fetched: int
    end_then: int

    def note(self, offset: int, end: int, now: int) -> None:
        """Record a fetch from `offset` while the leader's log ends at `end` (Replica.updateFetchState). `now`: time in
        ns by the leader's wall clock."""
        if offset >= end:
            self.caught_up = max(self.caught_up, now)
        elif offset >= self.end_then:
            self.caught_up = max(self.caught_up, self.fetched)
        self.fetched, self.end_then = now, end
