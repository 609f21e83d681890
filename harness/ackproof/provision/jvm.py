"""JVMs of Kafka nodes: command line, log configuration (INFO), and class-data archives (AppCDS).

An archive has Kafka's classes in parsed form. Every node maps it, so that a cluster starts in less than half the time.
It is valid for one build of Java and one class path: the same jars by absolute path, size and time, in the same order.
The name of its folder identifies all of these. Java silently ignores an archive that does not fit. So each archive is
tried before use, and `archive_in_use` checks that a process has mapped it.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from ackproof.provision.cache import build_once, discard
from ackproof.provision.jars import KafkaJars
from ackproof.provision.java import Java
from ackproof.provision.progress import Progress, ProgressSink, ProvisionFailed, ignore
from ackproof.provision.releases import is_4

_HERE = Path(__file__).parent

SERVER = "kafka.Kafka"
STORAGE_TOOL = "kafka.tools.StorageTool"


def jvm_flags(heap_bytes: int = 256 << 20) -> list[str]:
    """Return JVM flags of a small node.

    They set the largest heap (`heap_bytes`) and an initial heap of at most 64 MiB. They select the serial collector and
    only the first compiler tier, and switch off the performance data file and the display.
    """
    megabytes = max(1, heap_bytes >> 20)
    return [
        f"-Xmx{megabytes}m",
        f"-Xms{min(64, megabytes)}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        "-Djava.awt.headless=true",
    ]


def node_flags(heap_bytes: int) -> list[str]:
    """Return JVM flags of a Kafka node: the flags of `jvm_flags`, the size of the young generation, and an exit on
    OutOfMemoryError."""
    return [
        *jvm_flags(heap_bytes),
        # Room for all that a start allocates: fewer collections, 6 % less CPU until the node is up.
        f"-Xmn{min(40, (heap_bytes >> 20) // 3)}m",
        "-XX:+ExitOnOutOfMemoryError",
    ]


def java_command(
    java: Java, jars: KafkaJars, main: str, arguments: Sequence[str], flags: Sequence[str]
) -> list[str]:
    """Return the command line that runs the main class `main` with these jars as class path. `flags`: options of the
    JVM. `arguments`: arguments of the main class."""
    return [str(java.path), *flags, "-cp", jars.classpath_argument, main, *arguments]


def log_configuration(version: str) -> Path:
    """Return the log4j file for this Kafka version. It logs to the file that `-Dackproof.log` names."""
    return _HERE / ("log4j2.properties" if is_4(version) else "log4j.properties")


def logging_flags(version: str, log_file: Path, folder: Path = _HERE) -> list[str]:
    """Return JVM flags that append a node's log to `log_file`. `folder`: folder with the log configuration."""
    name = "log4j2.configurationFile=" if is_4(version) else "log4j.configuration=file:"
    return [f"-D{name}{folder / log_configuration(version).name}", f"-Dackproof.log={log_file}"]


Role = Literal["broker", "controller"]
ROLES: tuple[Role, ...] = ("broker", "controller")

_TRY_TIMEOUT_S = 30.0


def class_data_archives(
    jars: KafkaJars, java: Java, make: Callable[[Path], None], progress: ProgressSink = ignore
) -> dict[Role, Path]:
    """Return the class-data archive of each role, for `-XX:SharedArchiveFile`; a combined node uses the broker's.

    `make(folder)` creates `<role>.jsa` for all roles, once per version, Java and class path. Unusable archives
    are created again. Raises `ProvisionFailed` if the new archives cannot be used either, `WaitTimeout` if
    another process works on them for too long, and what `make` raises.
    """
    folder = archive_folder(jars, java)
    archives: dict[Role, Path] = {role: folder / f"{role}.jsa" for role in ROLES}

    def unusable() -> str:
        build_once(folder, make, progress)
        return next(filter(None, (why_unusable(path, jars, java) for path in archives.values())), "")

    if reason := unusable():
        progress(Progress(f"the class-data archive cannot be used ({reason}): making it again"))
        discard(folder, progress)
        if reason := unusable():
            raise ProvisionFailed(f"{java.path} ({java.version}) does not use the archive it made: {reason}")
    return archives


def archive_folder(jars: KafkaJars, java: Java) -> Path:
    """Return the cache folder of the class-data archives for this Java and exactly these jar files. It need not exist.
    Raises OSError if a jar is missing."""
    stats = ((path, path.stat()) for path in jars.classpath)
    text = "\n".join(f"{path} {stat.st_size} {stat.st_mtime_ns}" for path, stat in stats)
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    return jars.home / "archives" / f"java-{java.major}-{java.identity}-{key}"


def archive_in_use(pid: int, archive: Path) -> bool:
    """Return True if this process has mapped the class-data archive. False if the process has ended, or if this user
    may not inspect it. A JVM maps its archive at the very beginning of its start."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    wanted = str(archive.resolve())
    return any(line.endswith(wanted) for line in maps.splitlines())


_usable: set[tuple[str, int, int, str, str]] = set()
"""Archives that worked in this process: path, size and time of change (ns), class path, Java."""


def why_unusable(archive: Path, jars: KafkaJars, java: Java) -> str:
    """Return why Java cannot use the class-data archive; '' if it can. A check takes 0.1 s; this process
    remembers a success."""
    if not archive.is_file():
        return "it is not there"
    stat = archive.stat()
    look = (str(archive), stat.st_size, stat.st_mtime_ns, jars.classpath_argument, java.identity)
    if look in _usable:
        return ""
    command = [
        str(java.path),
        *jvm_flags(),
        "-Xshare:on",  # an unfit archive ends this JVM; "auto" would only be slow
        "-XX:+VerifySharedSpaces",  # it also exits if the archive is damaged
        f"-XX:SharedArchiveFile={archive}",
        "-cp",
        jars.classpath_argument,
        "-version",
    ]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_TRY_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"Java did not answer within {_TRY_TIMEOUT_S:g} s"
    if answer.returncode != 0:
        return (
            " ".join((answer.stderr + answer.stdout).split())[:300] or f"Java ended with {answer.returncode}"
        )
    _usable.add(look)
    return ""


_RECORDS = 200
_WARM_UP_WITHIN_S = 30.0

Settings = dict[str, str | int | float | bool]


def warm_up(bootstrap: str, *, leader: int, follower: int) -> None:
    """Use a cluster as clients do, so that nodes load the classes that belong into their archive.

    Create a topic with two partitions, produce (plain, compressed, in a transaction), read in a group, commit.
    `bootstrap`: address of the cluster. `leader`, `follower`: ids of two brokers; each leads one of the
    partitions. Raises `ProvisionFailed` if the cluster fails.
    """
    from confluent_kafka import Consumer, KafkaException, Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    topic = "warm-up"
    # quick to notice new leaders and coordinators; librdkafka's own complaints while nodes start are not news
    settings: Settings = {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "topic.metadata.refresh.interval.ms": 200,
        "topic.metadata.refresh.fast.interval.ms": 50,
        "retry.backoff.ms": 50,
        "fetch.error.backoff.ms": 50,
    }

    def send(producer: Producer) -> None:
        for number in range(_RECORDS):
            producer.produce(topic, b"x" * 100, partition=number % 2)
        if left := producer.flush(_WARM_UP_WITHIN_S):
            raise ProvisionFailed(f"{left} records were not acknowledged within {_WARM_UP_WITHIN_S:g} s")

    try:
        assignment = [[leader, follower], [follower, leader]]
        new = NewTopic(topic, num_partitions=len(assignment), replica_assignment=assignment)
        admin = AdminClient(settings)  # keep a reference until the answers have arrived
        admin.create_topics([new])[topic].result(_WARM_UP_WITHIN_S)
        send(Producer({**settings, "acks": "all", "compression.type": "lz4"}))
        send(Producer({**settings, "acks": "1"}))
        producer = Producer({**settings, "transactional.id": "warm-up"})
        producer.init_transactions(_WARM_UP_WITHIN_S)
        producer.begin_transaction()
        send(producer)
        producer.commit_transaction(_WARM_UP_WITHIN_S)
        consumer = Consumer({**settings, "group.id": "warm-up", "auto.offset.reset": "earliest"})
        try:
            consumer.subscribe([topic])
            if not consumer.consume(_RECORDS, _WARM_UP_WITHIN_S):
                raise ProvisionFailed(f"no record came back within {_WARM_UP_WITHIN_S:g} s")
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
    except KafkaException as error:
        raise ProvisionFailed(f"a cluster for class-data archives does not work: {error}") from error
