"""Harmless requests that any node answers, one of each API, by which a witness observes a rule of the request proxy.

They name no topic, an empty group, a broker that does not exist, another cluster. The node answers with an empty
response or an error. Where a rule is about partitions they name one (`NamedPartition`), and still change nothing: no
records, no group, no producer, an offset that does not exist. Versions are those that every release from 3.9 to 4.4
takes (https://kafka.apache.org/protocol#protocol_messages); the bodies are written field by field.

The witness does not know the rules. It sends a request of a size that no other has, as the link's source would. One
half of the evidence is the response; the other is the kernel's count of bytes that the node's connections received,
which shows whether the request arrived.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from ackproof.base.errors import WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.experiment.links import APIS
from ackproof.network.addresses import Address
from ackproof.network.probe import TcpFlow, read_socket_inodes, read_tcp_flows
from ackproof.network.requests.contents import read_error
from ackproof.network.requests.frames import PROBE

NOBODY: Final = 999_999
_TEXT: Final = b"ackproof-probe"
_NO_TAGS: Final = b"\0"
_NO_ROWS: Final = b"\0\0\0\0"
_NO_COMPACT_ROWS: Final = b"\1"
_NULL: Final = b"\0"
_EMPTY: Final = b"\0\0"


def _text(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def _compact(text: bytes) -> bytes:
    return bytes([len(text) + 1]) + text


def _broker(*rest: bytes) -> bytes:
    """Return the encoded id and epoch of a broker that does not exist, followed by the fields `rest`."""
    return struct.pack(">iq", NOBODY, -1) + b"".join(rest)


_NO_PRODUCER: Final = struct.pack(">qh", -1, -1)
_NO_MEMBER: Final = _EMPTY + struct.pack(">i", -1) + _EMPTY + b"\xff\xff"
"""Encoded group id '', generation -1, member id '' and null group instance id."""

_ONE_SNAPSHOT: Final = b"\2" + _compact(_TEXT) + b"\2" + struct.pack(">iiqixqx", 0, 0, 0, 0, 0) + _NO_TAGS
"""Encoded array of one topic with one partition, for FetchSnapshot. A FetchSnapshot without a topic crashes a
controller of 4.3.1 (IndexOutOfBoundsException in the raft IO thread)."""
_OF_ANOTHER_CLUSTER: Final = b"\1\0" + bytes([len(_TEXT) + 1]) + _compact(_TEXT)
"""Encoded tagged fields: field 0 holds the cluster id, of a cluster that does not exist."""


class NamedPartition(NamedTuple):
    """Partition that a request names.

    Both names of the topic are needed: some APIs send `topic`, others `topic_id` (32 hexadecimal digits).
    """

    topic: str
    topic_id: str
    partition: int


NOWHERE: Final = NamedPartition(_TEXT.decode(), "5" * 32, 0)
"""Partition of a topic that does not exist."""


def _rows(of_partition: Callable[[int], bytes], named: NamedPartition | None) -> bytes:
    """Return an encoded array with one topic and in it one row, for the partition `named`; an empty array for None.
    `of_partition` encodes the row of a partition number."""
    if named is None:
        return _NO_ROWS
    one = struct.pack(">i", 1)
    return one + _text(named.topic.encode()) + one + of_partition(named.partition)


def _compact_rows(of_partition: Callable[[int], bytes], named: NamedPartition | None) -> bytes:
    if named is None:
        return _NO_COMPACT_ROWS
    return b"\2" + bytes.fromhex(named.topic_id) + b"\2" + of_partition(named.partition) + 2 * _NO_TAGS


_COMMITTED: Final = struct.pack(">qih", 0, -1, -1)
"""Encoded fields of an offset commit after the partition: offset 0, leader epoch -1, null metadata."""
_OF_PARTITIONS: Final[Mapping[str, Callable[[int], bytes]]] = MappingProxyType(
    {
        "Produce": lambda partition: struct.pack(">ii", partition, 0),
        "Fetch": lambda partition: struct.pack(">iiqqi", partition, -1, 1 << 62, -1, 1),
        "ListOffsets": lambda partition: struct.pack(">iiq", partition, -1, -1),
        "OffsetCommit": lambda partition: struct.pack(">i", partition) + _COMMITTED,
        "OffsetFetch": lambda partition: struct.pack(">i", partition),
        "OffsetForLeaderEpoch": lambda partition: struct.pack(">iii", partition, -1, 0),
        "AddPartitionsToTxn": lambda partition: struct.pack(">i", partition),
        "TxnOffsetCommit": lambda partition: struct.pack(">i", partition) + _COMMITTED,
        "AlterPartition": lambda partition: (
            struct.pack(">ii", partition, -1) + b"\1" + struct.pack(">bi", 0, -1)
        ),
    }
)
"""Encoder of a partition's row in the request, by API."""
ROWS: Final = b"\0rows of partitions\0"
"""Placeholder for rows in a body."""

_BODIES: Final[Mapping[str, tuple[int, bool, bytes]]] = MappingProxyType(
    {
        "Produce": (3, False, struct.pack(">hhi", -1, -1, 1000) + ROWS),
        "Fetch": (11, False, struct.pack(">iiiibii", -1, 0, 0, 1, 0, 0, -1) + ROWS + _NO_ROWS + _EMPTY),
        "ListOffsets": (5, False, struct.pack(">ib", -1, 0) + ROWS),
        "Metadata": (4, False, _NO_ROWS + b"\0"),
        "OffsetCommit": (7, False, _NO_MEMBER + ROWS),
        "OffsetFetch": (5, False, _EMPTY + ROWS),
        "FindCoordinator": (2, False, _text(_TEXT) + b"\x09"),
        "JoinGroup": (
            5,
            False,
            _EMPTY + struct.pack(">ii", 6000, 6000) + _EMPTY + b"\xff\xff" + _text(b"consumer") + _NO_ROWS,
        ),
        "Heartbeat": (3, False, _NO_MEMBER),
        "LeaveGroup": (3, False, _EMPTY + _NO_ROWS),
        "SyncGroup": (3, False, _NO_MEMBER + _NO_ROWS),
        "ApiVersions": (0, False, b""),
        "InitProducerId": (1, False, _EMPTY + struct.pack(">i", 1000)),
        "OffsetForLeaderEpoch": (3, False, struct.pack(">i", -1) + ROWS),
        "AddPartitionsToTxn": (1, False, _text(_TEXT) + _NO_PRODUCER + ROWS),
        "AddOffsetsToTxn": (1, False, _text(_TEXT) + _NO_PRODUCER + _text(_TEXT)),
        "EndTxn": (1, False, _text(_TEXT) + _NO_PRODUCER + b"\0"),
        "WriteTxnMarkers": (1, True, _NO_COMPACT_ROWS + _NO_TAGS),
        "TxnOffsetCommit": (2, False, _text(_TEXT) + _EMPTY + _NO_PRODUCER + ROWS),
        "Vote": (0, True, _compact(_TEXT) + _NO_COMPACT_ROWS + _NO_TAGS),
        "BeginQuorumEpoch": (0, False, _text(_TEXT) + _NO_ROWS),
        "EndQuorumEpoch": (0, False, _text(_TEXT) + _NO_ROWS),
        "AlterPartition": (2, True, _broker(ROWS, _NO_TAGS)),
        "FetchSnapshot": (0, True, struct.pack(">ii", -1, 1) + _ONE_SNAPSHOT + _OF_ANOTHER_CLUSTER),
        "BrokerRegistration": (
            0,
            True,
            struct.pack(">i", NOBODY) + _compact(_TEXT) + bytes(16) + 2 * _NO_COMPACT_ROWS + _NULL + _NO_TAGS,
        ),
        "BrokerHeartbeat": (0, True, _broker(struct.pack(">q??", -1, False, False), _NO_TAGS)),
        "AllocateProducerIds": (0, True, _broker(_NO_TAGS)),
        "ConsumerGroupHeartbeat": (
            0,
            True,
            2 * _compact(b"")
            + struct.pack(">i", 0)
            + 2 * _NULL
            + struct.pack(">i", -1)
            + 3 * _NULL
            + _NO_TAGS,
        ),
        "AssignReplicasToDirs": (0, True, _broker(_NO_COMPACT_ROWS, _NO_TAGS)),
    }
)
"""Version, whether the header has tagged fields, and body, by the API's name."""


def make_question(api: str, *, size: int = 0, named: NamedPartition | None = None) -> bytes:
    """Return a framed, harmless request of the API with the name `api`. Its client id has at least `size` bytes (up to
    some 32,000).

    `named`: the partition that the request names; None: no partition. Raises KeyError for an API that has no such
    request, or for a partition where the API's request names none.
    """
    version, flexible, body = _BODIES[api]
    name = PROBE.ljust(size, b".")
    head = struct.pack(">hhih", APIS[api].key, version, 1, len(name)) + name + (_NO_TAGS if flexible else b"")
    if named is not None or api in _OF_PARTITIONS:
        body = body.replace(ROWS, (_compact_rows if flexible else _rows)(_OF_PARTITIONS[api], named))
    return struct.pack(">i", len(head) + len(body)) + head + body


How = Literal["answered", "closed", "silent", "refused"]
_SIZES: Final = range(12_000, 23_000)
"""Lengths in bytes of the client id, one drawn for each question. The node has the question if a connection received
exactly the request's size, or a multiple of it. No size is a multiple of another."""
_ARRIVES_WITHIN_S: Final = 0.3
"""Seconds within which a request arrives at the node. Loopback takes 1 ms, the proxy on a busy machine some more."""


@dataclass(frozen=True)
class QuestionOutcome:
    """Outcome of a harmless request that shows what a rule does (`ask_question`).

    `how`: "answered", "closed" (the connection was closed or reset), "refused" (there was no connection), or "silent"
    (no answer in time, or no route). `seconds`: time until the answer, or until the sender stopped waiting for it.
    `error`: Kafka's error code in the answer, at its top, else of its first group or partition; None without an answer
    or an error code.

    `arrived`: number of times that the request was seen to arrive at the node. It is 0 if the connection failed, or was
    closed before arrivals were counted. `arrived_s`: seconds until the count and the wait for the answer had ended. All
    counted arrivals came before that time.
    """

    how: How
    seconds: float
    arrived: int
    error: int | None = None
    arrived_s: float = 0.0

    @property
    def answered(self) -> bool:
        return self.how == "answered"

    def __str__(self) -> str:
        times = {0: "did not arrive", 1: "arrived", 2: "arrived twice"}.get(
            self.arrived, f"arrived {self.arrived} times"
        )
        return f"{times}, {self.how} after {self.seconds * 1000:.0f} ms"


@dataclass(frozen=True)
class QuestionPlan:
    """Parameters of a harmless request that shows what a rule does. `timeout_s`: seconds to wait for the answer.

    `look_after_s`: seconds from the sending until arrivals are counted (None: after the answer or the end of the wait).
    `wanted`: expected number of arrivals, the last one `later_s` seconds after the first. `named`: partition that the
    request names. `elsewhere`: partition that the control request names (`RequestLinks.ask`: a second request, which
    the rule leaves alone); None: the control request is of another API.
    """

    timeout_s: float
    look_after_s: float | None = None
    wanted: int = 1
    later_s: float = 0.0
    named: NamedPartition | None = None
    elsewhere: NamedPartition | None = None


def ask_question(
    pid: int,
    address: Address,
    api: str,
    asking: QuestionPlan,
    *,
    connect: Callable[[Address, float], socket.socket] = socket.create_connection,
    flows: Callable[[], list[TcpFlow]] = read_tcp_flows,
) -> QuestionOutcome:
    """Send a harmless request of this API to `address`, and count its arrivals at the node with process id `pid`.

    `connect(address, seconds)` connects from where the link's source is; `flows` returns the connections in the node's
    network namespace. A failed connection is an outcome.
    """
    timeout_s, look_after_s = asking.timeout_s, asking.look_after_s
    before = {flow.inode for flow in flows()}
    most = 0

    def count_arrivals() -> int:
        """Wait until a request of this size has arrived as often as wanted at a new connection of the
        process, or the time is over. Return how often it arrived."""

        def look() -> bool:
            nonlocal most
            own = read_socket_inodes(pid)
            received = [flow.received for flow in flows() if flow.inode in own and flow.inode not in before]
            most = max((count // len(frame) for count in received if count % len(frame) == 0), default=0)
            return most >= asking.wanted

        with contextlib.suppress(WaitTimeout):
            within_s = _ARRIVES_WITHIN_S + asking.later_s
            wait_until(look, what="a request to arrive", timeout_s=within_s, interval_s=0.01)
        return most

    began = time.monotonic()
    frame = make_question(api, size=random.choice(_SIZES), named=asking.named)
    try:
        with contextlib.closing(connect(address, timeout_s)) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line.sendall(frame)
            arrived = None
            how, came = _answer(line, began + (timeout_s if look_after_s is None else look_after_s))
            if look_after_s is not None:
                arrived = count_arrivals()
            if how == "silent" and look_after_s is not None:
                how, came = _answer(line, began + timeout_s)
            took = time.monotonic() - began
            if arrived is None:
                arrived = 0 if how == "closed" else count_arrivals()
            arrived_s = time.monotonic() - began
            return QuestionOutcome(how, took, arrived, read_error(api, _BODIES[api][0], came), arrived_s)
    except ConnectionRefusedError:
        return QuestionOutcome("refused", time.monotonic() - began, 0)
    except (ConnectionResetError, BrokenPipeError):
        return QuestionOutcome("closed", time.monotonic() - began, 0)
    except OSError:  # no way to that host
        return QuestionOutcome("silent", time.monotonic() - began, 0)


def _answer(line: socket.socket, until: float) -> tuple[How, bytes]:
    """Wait until the time `until` for the first bytes of an answer. Return how it went (`silent`, `closed` or
    `answered`), and the bytes. A node sends an answer only when it has all of it."""
    line.settimeout(max(0.001, until - time.monotonic()))
    try:
        came = line.recv(1024)
    except TimeoutError:
        return "silent", b""
    return "answered" if came else "closed", came
