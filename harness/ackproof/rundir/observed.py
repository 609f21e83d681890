"""`observed/partitions.jsonl`: what the protocol said of each partition, at 5 Hz or more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from ackproof.rundir.documents import Document, read_lines
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.storage import is_stored


@dataclass(frozen=True, slots=True)
class Sample:
    """One partition at one moment. -1 is unknown (no leader, no answer).

    `log_ends` maps a broker's id to the log end offset of its own replica, asked as a debugging replica; a broker
    that did not answer is missing. `high_watermark` and `last_stable` are asked at the leader.

    No `Document`: a soak leaves tens of thousands an hour, and one of those takes four times the memory.
    """

    t_ns: int
    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    high_watermark: int = -1
    last_stable: int = -1
    log_ends: Mapping[int, int] = field(default_factory=dict)
    eligible: tuple[int, ...] = ()

    def line(self) -> str:
        """As a line of the file, without its end."""
        return _lines().dump_json(self).decode()


@cache
def _lines() -> TypeAdapter[Sample]:
    return TypeAdapter(Sample)


def read_samples(path: Path) -> Sequence[Sample]:
    """All whole samples; none where there is no such file. What is the same in many is one object.

    The samples of the file that was read last are kept: seal, replay, judge and report read the same ones.
    """
    if not path.exists():
        return ()
    if is_stored(path):
        return _read_samples(path)
    stat = path.stat()
    return _kept_samples(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=1)
def _kept_samples(path: Path, size: int, changed_ns: int) -> Sequence[Sample]:
    del size, changed_ns  # they are what tells one state of the file from another
    return _read_samples(path)


def _read_samples(path: Path) -> Sequence[Sample]:
    # Of a thousand partitions there are a million samples, each of which says little that is new.
    known: dict[object, Any] = {}
    newest: dict[tuple[str, int], Sample] = {}
    found: list[Sample] = []
    put = object.__setattr__
    for sample in iterate_samples(path):
        put(sample, "topic", known.setdefault(sample.topic, sample.topic))
        put(sample, "replicas", known.setdefault(sample.replicas, sample.replicas))
        put(sample, "isr", known.setdefault(sample.isr, sample.isr))
        put(sample, "eligible", known.setdefault(sample.eligible, sample.eligible))
        if sample.last_stable == sample.high_watermark:
            put(sample, "last_stable", sample.high_watermark)
        if found and found[-1].t_ns == sample.t_ns:
            put(sample, "t_ns", found[-1].t_ns)
        place = sample.topic, sample.partition
        before = newest.get(place)
        if before is not None and before.log_ends == sample.log_ends:
            put(sample, "log_ends", before.log_ends)
        newest[place] = sample
        found.append(sample)
    return tuple(found)


def iterate_samples(path: Path) -> Iterator[Sample]:
    """One whole sample after another; a torn line is passed over. Raises OSError."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                yield _lines().validate_json(line)
            except ValidationError:
                continue


ROUND_EVERY_S: Final = 0.2
"""So far apart rounds are, and what a reader tells."""
ZNODES: Final = 0
"""Among the viewers: ZooKeeper's znodes. Brokers count from 1."""


class PartitionView(Document):
    """What a viewer says of a partition. Its leader is -1 where it says none."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class ServedReplica(Document):
    """What a broker gave a client of one replica of its own. -1: it did not say.

    `log_end`: of that replica, asked just before. `fetch`: the error of a consumer's Fetch, 0 none; then `records`
    came with `high_watermark`, `beyond` of which had offsets at or above the one that the broker told after it, for it
    notes the mark before it reads (Partition.readRecords). `produce`: the error of a Produce whose batch has a broken
    checksum. Nothing of it is ever appended: who leads says CORRUPT_MESSAGE, who does not NOT_LEADER_OR_FOLLOWER,
    before it looks at the batch.
    """

    topic: str
    partition: int
    log_end: int = -1
    fetch: int
    records: int = 0
    beyond: int = 0
    high_watermark: int = -1
    produce: int


class ViewerAnswer(Document):
    """One viewer's answer. `brokers`: those that it takes for members."""

    viewer: int
    brokers: tuple[int, ...]
    partitions: tuple[PartitionView, ...]
    served: tuple[ServedReplica, ...] = ()


class BrokerRound(Document):
    """All viewers asked at `t_ns`; every answer was there by `done_ns`.

    `controller`: the active one as the quorum itself says, -1 nobody, None where it did not answer in time. `silent`:
    viewers that could be asked and did not answer in time. Who is stopped, paused or starts is not among them: it tells
    nobody anything.
    """

    t_ns: int
    done_ns: int
    controller: int | None
    told: tuple[ViewerAnswer, ...]
    silent: tuple[int, ...] = ()


class FetchSources(Document):
    """From which broker a reader fetched each of its partitions at `t_ns`, as its client library says: (topic,
    partition, broker), -1 none."""

    t_ns: int
    sources: tuple[tuple[str, int, int], ...]


def read_rounds(path: Path) -> list[BrokerRound]:
    """All rounds. Raises as `read_lines`."""
    return list(read_lines(path, BrokerRound))


def read_fetching(path: Path) -> list[FetchSources]:
    """What one reader told. Raises as `read_lines`."""
    return list(read_lines(path, FetchSources))


class OffsetCommit(Document):
    """An OffsetCommit of a reader, of `offsets` (topic, partition, offset).

    `done_ns`: when it was answered or given up, -1 not yet; then `error` is why it was not granted, '' it was.
    """

    begun_ns: int
    offsets: tuple[tuple[str, int, int], ...]
    done_ns: int = -1
    error: str = ""

    @property
    def good(self) -> bool:
        """Whether the group coordinator took it."""
        return self.done_ns >= 0 and not self.error


def read_commits(path: Path) -> list[OffsetCommit]:
    """All attempts in their order, each as far as it came; none without such a file. Raises as `read_lines`."""
    return list({one.begun_ns: one for one in read_lines(path, OffsetCommit)}.values())


PULSE_EVERY_S: Final = 1.0


class Pulse(Document):
    """One second, as its end saw it. Shares are of this second's time, 0 … 1; -1 is unknown.

    `late_ms`: how much later than it was due this was written, which nobody but the harness' own process decides.
    `looks`: how often the sampler looked at the cluster since the last. `sent`, `acked`: records of all producers so
    far. `busy`: of the processors' time, `stolen`: of it taken by the hypervisor (/proc/stat). The pressures are the
    shares in which somebody waited for it (/proc/pressure, `some`).
    """

    t_ns: int
    late_ms: float
    looks: int
    sent: int
    acked: int
    busy: float = -1
    stolen: float = -1
    cpu_pressure: float = -1
    io_pressure: float = -1
    memory_pressure: float = -1


def read_pulses(path: Path) -> list[Pulse]:
    """All whole lines; none where there is no such file, as in runs of the model and of older versions."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            found.append(Pulse.model_validate_json(line))
        except ValidationError:
            continue  # torn; the seal tells of it
    return found


class Unrecovered(Document):
    """One partition, replica or client that did not recover within its bound. Offsets and ids are -1 where unknown."""

    anomaly: str
    topic: str = ""
    partition: int = -1
    node: int = -1
    """The replica that stays behind."""
    client: str = ""
    number: int = -1
    """Of a client: its number in the ledgers."""
    seen: str
    """What was seen of it, in words."""
    for_s: float
    """How long nothing of it had moved when the watch ended."""
    isr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    """Replicas that a reassignment adds."""
    log_end: int = -1
    """The replica's own log end."""
    leader_end: int = -1
    high_watermark: int = -1
    last_stable: int = -1
    offline: tuple[int, ...] = ()
    """Replicas of brokers that run and do not list it in any of their log dirs."""
    throttled: bool = False
    """A replication throttle was in force, as the broker's own settings say."""
    stopped: bool = False
    """The client's process stood still (SIGSTOP)."""
    producer_id: int = -1
    coordinator: str = ""
    """The state of its transaction at the coordinator, as Kafka spells it; '' where no coordinator knows it."""
    reason: str = ""
    """What the broker's own log says of it."""

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class RecoveryFile(Document):
    """`bounds`: how long each class had, in seconds. `running`: the brokers that ran when the watch ended."""

    bounds: dict[str, float]
    waited_s: float
    running: tuple[int, ...] = ()
    unrecovered: tuple[Unrecovered, ...] = ()
    undecided: tuple[str, ...] = ()
    """What had not recovered, and is not called stuck: it still moved, or no class speaks of it."""

    def of_class(self, anomaly: str) -> tuple[Unrecovered, ...]:
        """Those of one class."""
        return tuple(one for one in self.unrecovered if one.anomaly == anomaly)
