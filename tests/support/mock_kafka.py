"""librdkafka's mock cluster with injected errors, called by ctypes in the library that the client package bundles.

Also `Load`: a workload on that cluster, with its run directory and ledgers."""

from __future__ import annotations

import ctypes
import socket
import socketserver
import struct
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import confluent_kafka
import pyarrow as pa

from ackproof.base.processes import RunTag
from ackproof.base.wait import wait_until
from ackproof.clients.channel import SharedCounters
from ackproof.clients.contract import Rotation
from ackproof.clients.workload import Workload
from ackproof.experiment.group import ServiceSpec
from ackproof.experiment.spec import ConsumerSpec, ProducerSpec, TopicSpec, WorkloadSpec
from ackproof.rundir.clock import RunClock
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import read_parts
from ackproof.rundir.schema import CONSUMED, PRODUCED
from ackproof.rundir.timeline import Event, Timeline, read_timeline

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
_PRODUCER: Final = 0
_TEXT: Final = 512


def _library() -> ctypes.CDLL:
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    (path,) = folder.glob("librdkafka-*.so*")
    library = ctypes.CDLL(str(path))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("rd_kafka_conf_new", pointer, []),
        ("rd_kafka_conf_set", number, [pointer, text, text, text, ctypes.c_size_t]),
        ("rd_kafka_new", pointer, [number, pointer, text, ctypes.c_size_t]),
        ("rd_kafka_destroy", None, [pointer]),
        ("rd_kafka_mock_cluster_new", pointer, [pointer, number]),
        ("rd_kafka_mock_cluster_destroy", None, [pointer]),
        ("rd_kafka_mock_cluster_bootstraps", text, [pointer]),
        ("rd_kafka_mock_topic_create", number, [pointer, text, number, number]),
        ("rd_kafka_mock_topic_set_error", None, [pointer, text, number]),
        (
            "rd_kafka_mock_push_request_errors_array",
            None,
            [pointer, ctypes.c_int16, ctypes.c_size_t, pointer],
        ),
        ("rd_kafka_mock_clear_request_errors", None, [pointer, ctypes.c_int16]),
        ("rd_kafka_mock_broker_set_down", number, [pointer, ctypes.c_int32]),
        ("rd_kafka_mock_broker_set_up", number, [pointer, ctypes.c_int32]),
        ("rd_kafka_mock_broker_set_host_port", number, [pointer, ctypes.c_int32, text, number]),
        ("rd_kafka_mock_broker_set_rtt", number, [pointer, ctypes.c_int32, number]),
        ("rd_kafka_mock_partition_set_leader", number, [pointer, text, ctypes.c_int32, ctypes.c_int32]),
        ("rd_kafka_mock_partition_delete_records", number, [pointer, text, ctypes.c_int32, ctypes.c_int64]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class MockKafka:
    """A mock cluster. It keeps at most 5 MB or 100,000 records per partition."""

    def __init__(self, library: ctypes.CDLL, cluster: int, brokers: int) -> None:
        self._library = library
        self._cluster = cluster
        self.brokers = range(1, brokers + 1)
        text: bytes = library.rd_kafka_mock_cluster_bootstraps(cluster)
        self.bootstrap = text.decode()

    def move(self, port: int) -> None:
        """Let the cluster tell clients that its first broker is at this port of 127.0.0.1, and change `bootstrap` to
        it."""
        self.bootstrap = f"127.0.0.1:{port}"
        assert self._library.rd_kafka_mock_broker_set_host_port(self._cluster, 1, b"127.0.0.1", port) == 0

    def create_topic(self, name: str, partitions: int) -> None:
        assert self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1) == 0

    def fail(self, api_key: int, codes: Sequence[int]) -> None:
        """Answer the next requests of this API, to any broker, with these error codes, one each."""
        array = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, api_key, len(codes), array)

    def clear(self, api_key: int) -> None:
        self._library.rd_kafka_mock_clear_request_errors(self._cluster, api_key)

    def fail_topic(self, name: str, code: int) -> None:
        self._library.rd_kafka_mock_topic_set_error(self._cluster, name.encode(), code)

    def down(self) -> None:
        for broker in self.brokers:
            assert self._library.rd_kafka_mock_broker_set_down(self._cluster, broker) == 0

    def up(self) -> None:
        for broker in self.brokers:
            assert self._library.rd_kafka_mock_broker_set_up(self._cluster, broker) == 0

    def rtt(self, milliseconds: int) -> None:
        for broker in self.brokers:
            assert self._library.rd_kafka_mock_broker_set_rtt(self._cluster, broker, milliseconds) == 0

    def new_epoch(self, topic: str, partition: int) -> None:
        """Let broker 1 lead the partition in a later epoch, also if it leads already."""
        assert (
            self._library.rd_kafka_mock_partition_set_leader(self._cluster, topic.encode(), partition, 1) == 0
        )

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        assert (
            self._library.rd_kafka_mock_partition_delete_records(
                self._cluster, topic.encode(), partition, before
            )
            == 0
        )


@contextmanager
def mock_kafka(brokers: int = 1) -> Iterator[MockKafka]:
    library = _library()
    error = ctypes.create_string_buffer(_TEXT)
    settings = library.rd_kafka_conf_new()
    assert library.rd_kafka_conf_set(settings, b"log_level", b"2", error, _TEXT) == 0, error.value
    handle = library.rd_kafka_new(_PRODUCER, settings, error, _TEXT)
    assert handle, error.value
    cluster = library.rd_kafka_mock_cluster_new(handle, brokers)
    try:
        yield MockKafka(library, cluster, brokers)
    finally:
        library.rd_kafka_mock_cluster_destroy(cluster)
        library.rd_kafka_destroy(handle)


API_VERSIONS: Final = 18
_NEWEST_VERSIONS: Final = 2
_REFUSED: Final = struct.pack(">hi", 35, 0)
"""Answer of a broker to an ApiVersions request that is too new for it: UNSUPPORTED_VERSION, and no API."""


class _JavaConnection(socketserver.BaseRequestHandler):
    """Forwards frames, and answers ApiVersions requests that are too new. The Java client misreads the mock cluster's
    own answer to these as a throttle of 20 minutes."""

    def handle(self) -> None:
        server = cast(_JavaRelay, self.server)
        with suppress(OSError), socket.create_connection(server.upstream) as broker:
            back = threading.Thread(target=self._pass_back, args=(broker,), daemon=True)
            back.start()
            with self.request.makefile("rb") as frames, suppress(struct.error):
                while True:
                    head = frames.read(4)
                    frame = frames.read(*struct.unpack(">i", head))
                    api, version, correlation = struct.unpack_from(">hhi", frame)
                    if api == API_VERSIONS and version > _NEWEST_VERSIONS:
                        answer = struct.pack(">i", correlation) + _REFUSED
                        self.request.sendall(struct.pack(">i", len(answer)) + answer)
                    else:
                        broker.sendall(head + frame)

    def _pass_back(self, broker: socket.socket) -> None:
        with suppress(OSError):
            while data := broker.recv(1 << 16):
                self.request.sendall(data)
            self.request.shutdown(socket.SHUT_RDWR)


class _JavaRelay(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, upstream: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _JavaConnection)
        self.upstream = upstream


@contextmanager
def mock_kafka_for_java() -> Iterator[MockKafka]:
    """Start a mock cluster of one broker, with which the Java client can talk."""
    with mock_kafka() as cluster:
        host, _, port = cluster.bootstrap.rpartition(":")
        with _JavaRelay((host, int(port))) as relay:
            threading.Thread(target=relay.serve_forever, daemon=True).start()
            cluster.move(relay.server_address[1])
            yield cluster
            relay.shutdown()


RUN_ID: Final = uuid.uuid4().hex[:16]
"""Run id by which the processes of this test process are found; each test process has another."""


@dataclass
class Load:
    """A workload on a mock cluster, with its run directory and timeline."""

    workload: Workload
    run: CaseDir
    clock: RunClock
    tag: RunTag
    timeline: Timeline
    topics: dict[str, TopicSpec]

    def until(self, look: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
        def checked() -> bool:
            self.workload.check()
            return look()

        wait_until(checked, what=what, timeout_s=timeout_s, interval_s=0.002)

    def sent(self) -> int:
        return sum(one.sent for one in self.producers())

    def failed(self) -> int:
        return sum(one.failed for one in self.producers())

    def indeterminate(self) -> int:
        return sum(one.indeterminate for one in self.producers())

    def producers(self) -> list[SharedCounters]:
        return [self.workload.counters(one.id) for one in self.workload.clients if one.kind == "producer"]

    def produced(self) -> pa.Table:
        return read_parts(self.run.produced, PRODUCED).sort_by(
            [("producer", "ascending"), ("seq", "ascending")]
        )

    def consumed(self) -> pa.Table:
        return read_parts(self.run.consumed, CONSUMED).sort_by(
            [("reader", "ascending"), ("read_seq", "ascending")]
        )

    def events(self) -> list[Event]:
        events, whole = read_timeline(self.run.timeline)
        assert whole
        return events


@dataclass
class Loads:
    """Factory of loads, whose topics it creates (default: orders with two partitions). Their clients are not started
    yet. `producer`: settings of the producers. All loads are stopped when `stack` is closed."""

    folder: Path
    stack: ExitStack = field(default_factory=ExitStack)
    count: int = 0

    def __call__(
        self,
        kafka: MockKafka,
        *,
        topics: dict[str, int] | None = None,
        live: int = 0,
        commit_every: str | None = None,
        start: str = "earliest",
        chunk_rows: int = 1024,
        seed: int = 0,
        service: dict[str, object] | None = None,
        **producer: object,
    ) -> Load:
        specs = {name: TopicSpec(partitions=count) for name, count in (topics or {"orders": 2}).items()}
        for name, spec in specs.items():
            kafka.create_topic(name, spec.partitions)
        self.count += 1
        run = CaseDir(self.folder / f"case-{self.count}")
        run.path.mkdir()
        clock = RunClock.start()
        tag = RunTag(RUN_ID, self.folder, run.path)
        timeline = self.stack.enter_context(Timeline(run.timeline, clock))
        spec = WorkloadSpec(
            producers=ProducerSpec.model_validate({"linger": "1ms", "delivery_timeout": "20s", **producer}),
            consumers=ConsumerSpec.model_validate(
                {"live": live, "commit_every": commit_every, "start": start}
            ),
            service=None if service is None else ServiceSpec.model_validate(service),
        )
        workload = Workload(
            spec, specs, kafka.bootstrap, timeline, tag, seed=seed, rotation=Rotation(chunk_rows)
        )
        self.stack.callback(workload.abort)
        return Load(workload, run, clock, tag, timeline, specs)


def stored(kafka: MockKafka, topics: dict[str, TopicSpec]) -> dict[tuple[str, int, int], bytes]:
    """Read all records of the mock cluster with a plain client; return the values by (topic, partition, offset)."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "test",
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    places = [
        confluent_kafka.TopicPartition(name, number, 0)
        for name, spec in topics.items()
        for number in range(spec.partitions)
    ]
    consumer.assign(places)
    values: dict[tuple[str, int, int], bytes] = {}
    left = len(places)
    try:
        while left:
            for message in consumer.consume(1000, 0.2):
                if message.error():
                    assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                    left -= 1
                else:
                    values[message.topic(), message.partition(), message.offset()] = message.value()
    finally:
        consumer.close()
    return values
