"""Observations of a cluster during a run, and the functions that read them.

`observed/partitions.jsonl`: samples of each partition, up to ten a second. `observed/pulse.jsonl`: load of the machine.
`observed/recovery.json`: what had not recovered at the end. With `observe: {brokers: true}` also
`observed/brokers.jsonl`: answers of each broker, and `clients/<reader>/served.jsonl`: fetch sources of a live reader.
`clients/<reader>/commits.jsonl`: offset commits of a live reader with `commit_every`. `clients/<reader>/starts.jsonl`:
committed offsets at which a live reader with `start: committed` started.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from ackproof.rundir.document import Document, read_lines
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.storage import is_stored


@dataclass(slots=True)
class Sample:
    """State of one partition at one moment. -1 is unknown (no leader, no answer).

    `log_ends`: log end offset of each broker's own replica; a broker that did not answer is missing. `high_watermark`
    and `last_stable` are the leader's answers. `eligible`: eligible leader replicas (KIP-966).

    This is no `Document`, which takes four times the memory, and not frozen, which takes four times as long to make: a
    run may have a million samples.
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
        """Return the sample as one line of the file (JSON), without a newline."""
        return _lines().dump_json(self).decode()


_MOST_STATES: Final = 100_000
"""Number of different lines, but for their time, that are remembered while a file is read: about 50 MiB."""
_all_but_time: Final = attrgetter(*(one.name for one in fields(Sample)[1:]))


@cache
def _lines() -> TypeAdapter[Sample]:
    return TypeAdapter(Sample)


def read_samples(path: Path) -> Sequence[Sample]:
    """Return all samples of a file; empty if there is no file. Lines that cannot be parsed, such as an incomplete last
    one, are skipped. Raises OSError if the file cannot be read.

    Equal tuples share one object, to save memory. The samples of the last file are cached until that file changes;
    files in an object store are not cached.
    """
    if not path.exists():
        return ()
    if is_stored(path):
        return _read_samples(path)
    stat = path.stat()
    return _kept_samples(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=1)
def _kept_samples(path: Path, size: int, changed_ns: int) -> Sequence[Sample]:
    del size, changed_ns  # only keys of the cache: they distinguish one state of the file from another
    return _read_samples(path)


def samples_by_partition(samples: Iterable[Sample]) -> dict[TopicPartition, list[Sample]]:
    """Return the samples of each partition, in their order."""
    found: dict[tuple[str, int], list[Sample]] = defaultdict(list)
    for sample in samples:
        found[sample.topic, sample.partition].append(sample)
    return {TopicPartition(*place): mine for place, mine in found.items()}


def _read_samples(path: Path) -> Sequence[Sample]:
    # A thousand partitions have a million samples, most of which repeat an earlier one at another time. A line is
    # parsed if it is the first with its time, or if its other fields are new.
    shared: dict[object, Any] = {}
    states: dict[str, tuple[Any, ...]] = {}
    found: list[Sample] = []
    time, t_ns = "", 0
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            head, _, rest = line.partition(",")
            state = states.get(rest) if head == time else None
            if state is None:
                try:
                    sample = _lines().validate_json(line)
                except ValidationError:
                    continue  # an incomplete line
                time, t_ns = head, t_ns if sample.t_ns == t_ns else sample.t_ns
                if len(states) >= _MOST_STATES:
                    states.clear()
                state = states[rest] = tuple(
                    value if isinstance(value, dict) else shared.setdefault(value, value)
                    for value in _all_but_time(sample)
                )
            found.append(Sample(t_ns, *state))
    return tuple(found)


ROUND_EVERY_S: Final = 0.2
"""Seconds between rounds of questions to the brokers, and between the lines with a reader's fetch sources."""
ZNODES: Final = 0
"""Viewer number that stands for the state in ZooKeeper. Brokers count from 1."""


class PartitionView(Document):
    """State of a partition as one viewer (a broker, or ZooKeeper) reports it. `leader` -1: no leader."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class ServedReplica(Document):
    """Answers of a broker to a client about one of its replicas. -1: no answer.

    `log_end`: log end offset of that replica, requested just before the fetch. `fetch`: error code of a consumer's
    Fetch, 0 none; the Fetch returned `records` records and `high_watermark`. `beyond`: number of offsets at or above
    that mark that it returned, transaction markers included. If there were some, a second Fetch was sent and its mark
    counts, because a broker takes the mark before it reads (Partition.readRecords). `produce`: error code of a Produce
    request whose batch has a broken checksum. Such a batch is never appended: a leader answers CORRUPT_MESSAGE, another
    broker answers NOT_LEADER_OR_FOLLOWER before it checks the batch.
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
    """Metadata that one viewer reported in a round. `viewer`: id of the broker, or `ZNODES` for ZooKeeper. `brokers`:
    ids of the cluster members that it lists. `served`: answers of a broker about its replicas."""

    viewer: int
    brokers: tuple[int, ...]
    partitions: tuple[PartitionView, ...]
    served: tuple[ServedReplica, ...] = ()


class BrokerRound(Document):
    """One round of metadata requests to all viewers: the brokers and, if used, ZooKeeper. The requests were sent at
    `t_ns`; all answers had arrived by `done_ns` (ns since the run's start).

    `controller`: the active controller according to the quorum; -1: no controller, None: the quorum did not answer in
    time. `told`: the answers. `silent`: viewers that run but did not answer in time, or answered with an error. Nodes
    that are stopped or paused, and those that refused or broke the connection, are not among them.
    """

    t_ns: int
    done_ns: int
    controller: int | None
    told: tuple[ViewerAnswer, ...]
    silent: tuple[int, ...] = ()


class FetchSources(Document):
    """The broker from which a reader fetched each of its partitions at `t_ns`, according to its client library.
    `sources`: (topic, partition, broker); broker -1: the reader fetched from no broker."""

    t_ns: int
    sources: tuple[tuple[str, int, int], ...]


class OffsetCommit(Document):
    """One OffsetCommit request of a reader. `offsets`: (topic, partition, offset).

    `done_ns`: time of the answer, or of giving up; -1: not yet. `error`: reason of a failure; '' for success. `group`:
    id of the group; '' in files of older versions.
    """

    begun_ns: int
    offsets: tuple[tuple[str, int, int], ...]
    done_ns: int = -1
    error: str = ""
    group: str = ""

    @property
    def good(self) -> bool:
        """True if the group coordinator accepted the commit."""
        return self.done_ns >= 0 and not self.error


def read_commits(path: Path) -> list[OffsetCommit]:
    """Return all commits in order, each in its last known state: the file has a line when a commit begins and when it
    ends.

    Empty if the file does not exist. Raises `BadInput` if a line other than the last is invalid, OSError if the file
    cannot be read.
    """
    return list({attempt.begun_ns: attempt for attempt in read_lines(path, OffsetCommit)}.values())


class CommittedStart(Document):
    """Start of a reader at the committed offsets of its group. `offsets`: (topic, partition, offset); -1: nothing was
    committed."""

    t_ns: int
    """Time at which the coordinator had answered."""
    group: str
    offsets: tuple[tuple[str, int, int], ...]


PULSE_EVERY_S: Final = 1.0


class Pulse(Document):
    """Load of the machine and of the harness, one line per second of a run (`observed/pulse.jsonl`). Shares are 0 … 1
    of the time since the previous line; -1 is unknown.

    `late_ms`: delay of the line after its planned time: the harness' own process was held up. `looks`: rounds in which
    the harness sampled the partitions since the previous line. `sent`, `acked`: records of all producers since the
    run's start. `busy`: share of processor time in use. `stolen`: share taken by the hypervisor (/proc/stat). The
    pressures are `some` of /proc/pressure.
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
    """Return all lines that can be parsed; empty if there is no such file, as in simulated runs and runs of older
    versions. Raises OSError if the file cannot be read."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            found.append(Pulse.model_validate_json(line))
        except ValidationError:
            continue  # an incomplete line, which the seal reveals
    return found


class Unrecovered(Document):
    """One partition, replica, client, group or controller quorum that did not recover within its bound. `anomaly`: its
    liveness class, such as `stuck-replica`. `topic`, `partition`: for a client the first partition without progress.
    Offsets and ids are -1, and texts '', if unknown or of no concern to that class."""

    anomaly: str
    topic: str = ""
    partition: int = -1
    node: int = -1
    """Broker of the replica that has not caught up."""
    client: str = ""
    number: int = -1
    """Number of the client in the ledgers."""
    group: str = ""
    """Consumer group that does not advance."""
    seen: str
    """What was observed, in words."""
    for_s: float
    """Seconds without progress when the watch ended."""
    isr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    """Replicas that a reassignment adds."""
    log_end: int = -1
    """Log end offset of the replica itself."""
    leader_end: int = -1
    high_watermark: int = -1
    last_stable: int = -1
    offline: tuple[int, ...] = ()
    """Replicas whose broker runs but lists them in none of its log dirs."""
    throttled: bool = False
    """True if a replication throttle was in force, according to the brokers' own settings."""
    stopped: bool = False
    """True if the client's process was paused (SIGSTOP)."""
    producer_id: int = -1
    coordinator: str = ""
    """State of its transaction at the coordinator, as Kafka spells it; '' if no coordinator knows it."""
    reason: str = ""
    """Line of the broker's own log that gives the reason; '' if there is none."""

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class RecoveryFile(Document):
    """`observed/recovery.json`: partitions, replicas, clients, groups and controllers that had not recovered at the end
    of a run. Runs of older versions and simulated runs have no such file; their audit has no counts for liveness
    classes.

    `bounds`: by liveness class, the seconds without progress after which something counts as stuck. `waited_s`: seconds
    for which the cluster was watched. `running`: brokers that ran when the watch ended.
    """

    bounds: dict[str, float]
    waited_s: float
    running: tuple[int, ...] = ()
    unrecovered: tuple[Unrecovered, ...] = ()
    undecided: tuple[str, ...] = ()
    """Sentences on what had not recovered but does not count as stuck: it still made progress, or no class covers
    it."""

    def of_class(self, anomaly: str) -> tuple[Unrecovered, ...]:
        return tuple(entry for entry in self.unrecovered if entry.anomaly == anomaly)
