"""Virtual time, and the durations in it.

`Clock` runs events in the order of their times; events of the same time run in the order in which they were scheduled.
`Timing` has the durations: from the settings of the cluster, as in a real run, and a few measured constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

from ackproof.experiment.setting_effects import kafka_default
from ackproof.experiment.spec import ClusterSpec
from ackproof.experiment.timing import configured

Act: TypeAlias = Callable[..., object]

MS = 1_000_000
SECOND = 1_000_000_000


class Clock:
    """Virtual clock with a queue of future events. `now`: nanoseconds since the start of the run. Set `over`
    to end `run`.
    """

    __slots__ = ("_count", "_queue", "now", "over")

    def __init__(self) -> None:
        self.now = 0
        self.over = False
        self._queue: list[tuple[int, int, Act, tuple[object, ...]]] = []
        self._count = 0

    def call_at(self, when: int, act: Act, *args: object) -> None:
        """Schedule the call of `act` with `args` for virtual time `when` (ns), or for now if `when` has passed."""
        self._count += 1
        heappush(self._queue, (when if when > self.now else self.now, self._count, act, args))

    def call_after(self, delay: int, act: Act, *args: object) -> None:
        self._count += 1
        heappush(self._queue, (self.now + delay, self._count, act, args))

    def run(self) -> None:
        """Run events in order of time until `over` is set or none is left."""
        queue = self._queue
        while queue and not self.over:
            self.now, _, act, args = heappop(queue)
            act(*args)


@dataclass(frozen=True)
class Timing:
    """Durations of a simulated cluster, in nanoseconds. Only `flush_every` (records) and `handlers` (threads) are
    counts.

    Fields without a default come from the settings of the cluster. `fetch_wait`, `fetch_backoff`, `lag_max`:
    replica.fetch.wait.max.ms, replica.fetch.backoff.ms, replica.lag.time.max.ms. `session`: time without a heartbeat
    after which a broker is fenced; `heartbeat`: interval of heartbeats. `quorum_timeout`: time without the leader after
    which a voter begins an election. `hop`, `metadata`, `boot`, `join` and `shutdown` were measured on real brokers
    (README).

    If a field has a partner `…_jitter`, a random time from 0 to the partner is added to it each time. `hop` and
    `jitter` are such a pair: the one-way latency of a message."""

    fetch_wait: int
    fetch_backoff: int
    lag_max: int
    session: int
    heartbeat: int
    quorum_timeout: int
    quorum_jitter: int
    quorum_election: int
    """controller.quorum.election.timeout.ms. Once the active controller has resigned, an election follows after two to
    three times this time-out."""
    flush_every: int
    """Number of records between two fsyncs of a log; by default Kafka leaves flushing to the operating
    system.
    """
    handlers: int
    """Number of threads of a broker that handle requests (num.io.threads)."""
    hop: int = 250_000
    jitter: int = 500_000
    """Range of the random latency of a message, one way, with its handling: 0.25 to 0.75 ms in all."""
    metadata: int = 3 * MS
    metadata_jitter: int = 12 * MS
    """Range of the random part of the time from a decision of the controller until a broker has applied it.
    """
    boot: int = 1700 * MS
    boot_jitter: int = 1400 * MS
    """Range of the random part of the time from the start of a process until it requests its registration."""
    join: int = 60 * MS
    join_jitter: int = 120 * MS
    """Range of the random part of the time from a broker's registration until it has caught up with the
    metadata and requests its unfencing.
    """
    shutdown: int = 350 * MS
    shutdown_jitter: int = 500 * MS
    """Range of the random part of the time from when a broker has given up its leaderships until its process has ended.
    """
    refresh: int = 100 * MS
    """Interval in ns at which clients request metadata (topic.metadata.refresh.interval.ms, set by the
    harness).
    """
    retry: int = 100 * MS
    retry_max: int = 1000 * MS
    """`retry`, `retry_max`: shortest and longest wait of a producer before it sends a batch again (retry.backoff.ms and
    retry.backoff.max.ms of librdkafka)."""
    reconnect: int = 50 * MS
    reconnect_max: int = 200 * MS
    """Longest time in ns until a client connects again after a lost connection; the time is random, from `reconnect`
    on."""
    counters: int = 50 * MS
    """Longest time in ns until a trigger sees a changed counter of the clients."""
    sampling: int = 200 * MS
    """Longest time in ns until a trigger sees a changed ISR, lag or other sampled state: samples are that far apart."""


def timing_of(cluster: ClusterSpec) -> Timing:
    """Return the durations of a simulated cluster: from the settings of its first broker, and measured constants. With
    ZooKeeper, heartbeats and elections of the quorum follow from the length of a session."""
    configured_here = configured(cluster, cluster.broker_ids[0])

    def setting(name: str) -> str:
        return configured_here.get(name, kafka_default(name))

    def ms(name: str) -> int:
        return round(float(setting(name)) * MS)

    zookeeper = cluster.metadata.broker_controls
    session = ms(cluster.metadata.session)
    return Timing(
        fetch_wait=ms("replica.fetch.wait.max.ms"),
        fetch_backoff=ms("replica.fetch.backoff.ms"),
        lag_max=ms("replica.lag.time.max.ms"),
        session=session,
        # ZooKeeper's client pings after a third of the session.
        heartbeat=session // 3 if zookeeper else ms("broker.heartbeat.interval.ms"),
        quorum_timeout=session if zookeeper else ms("controller.quorum.fetch.timeout.ms"),
        quorum_jitter=100 * MS if zookeeper else ms("controller.quorum.election.backoff.max.ms"),
        quorum_election=session if zookeeper else ms("controller.quorum.election.timeout.ms"),
        flush_every=int(setting("log.flush.interval.messages")),
        handlers=int(setting("num.io.threads")),
    )


def seconds(value: float) -> int:
    """Return a number of seconds in whole nanoseconds."""
    return round(value * SECOND)
