"""Virtual time, and how long things take in it.

`Clock` runs events in the order of their time; events of one moment run in the order in which they were scheduled.
`Timing` has the durations: from the cluster's settings, as in a real run, and a few measured constants.
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
    """`now` is nanoseconds since the run's start."""

    __slots__ = ("_count", "_queue", "now", "over")

    def __init__(self) -> None:
        self.now = 0
        self.over = False
        self._queue: list[tuple[int, int, Act, tuple[object, ...]]] = []
        self._count = 0

    def call_at(self, when: int, act: Act, *args: object) -> None:
        """Call `act` at a time; what is asked for in the past happens now."""
        self._count += 1
        heappush(self._queue, (when if when > self.now else self.now, self._count, act, args))

    def call_after(self, delay: int, act: Act, *args: object) -> None:
        self._count += 1
        heappush(self._queue, (self.now + delay, self._count, act, args))

    def run(self) -> None:
        """Let everything happen until somebody sets `over`, or nothing is left."""
        queue = self._queue
        while queue and not self.over:
            self.now, _, act, args = heappop(queue)
            act(*args)


@dataclass(frozen=True)
class Timing:
    """Durations in nanoseconds. What is a constant here was seen on real brokers of this harness (see the README)."""

    fetch_wait: int
    fetch_backoff: int
    lag_max: int
    session: int
    heartbeat: int
    quorum_timeout: int
    quorum_jitter: int
    quorum_election: int
    """controller.quorum.election.timeout.ms: who waits for a leader waits as long, to twice as long."""
    flush_every: int
    """Records between two fsyncs of a log; Kafka leaves it to the operating system by default."""
    handlers: int
    """Threads of a broker that handle requests (num.io.threads)."""
    hop: int = 250_000
    jitter: int = 500_000
    """One way with the handling at its end: 0.25 to 0.75 ms."""
    metadata: int = 3 * MS
    metadata_jitter: int = 12 * MS
    """From a decision of the controller until a broker has applied it."""
    boot: int = 1700 * MS
    boot_jitter: int = 1400 * MS
    """From the start of a process until it asks to be registered."""
    join: int = 60 * MS
    join_jitter: int = 120 * MS
    """From the registration until the broker has caught up with the metadata and asks to be unfenced."""
    shutdown: int = 350 * MS
    shutdown_jitter: int = 500 * MS
    """From the last leadership given away until the process has ended."""
    refresh: int = 100 * MS
    """Clients ask for metadata as often (topic.metadata.refresh.interval.ms, set by the harness)."""
    retry: int = 100 * MS
    retry_max: int = 1000 * MS
    """retry.backoff.ms and retry.backoff.max.ms of librdkafka."""
    reconnect: int = 50 * MS
    reconnect_max: int = 200 * MS
    counters: int = 50 * MS
    """By how much the clients' counters lag, at most."""
    sampling: int = 200 * MS
    """How often ISR and lag are asked for."""


def timing_of(cluster: ClusterSpec) -> Timing:
    """The timing of a cluster."""
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
    """Nanoseconds of a duration of an experiment."""
    return round(value * SECOND)
