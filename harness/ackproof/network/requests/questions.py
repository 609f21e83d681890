"""Requests that any node answers and that change nothing, one of each API: what a witness asks over a link.

They name nobody: no topic, an empty group, a broker that there is not, another cluster. The node answers with an empty
response or an error, which is an answer all the same. Where a rule speaks of partitions they name one (`Named`), in
ways that change nothing either: no records, no group, no producer, an offset that there is not. Versions are those that
every release from 3.9 to 4.3 takes (https://kafka.apache.org/protocol#protocol_messages); what is written here is the
body, by its fields.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ackproof.experiment.links import APIS
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
    """Fields of a broker that there is not: id and epoch."""
    return struct.pack(">iq", NOBODY, -1) + b"".join(rest)


_NO_PRODUCER: Final = struct.pack(">qh", -1, -1)
_NO_MEMBER: Final = _EMPTY + struct.pack(">i", -1) + _EMPTY + b"\xff\xff"
"""Of a group without a name: generation, member, group instance."""

_ONE_SNAPSHOT: Final = b"\2" + _compact(_TEXT) + b"\2" + struct.pack(">iiqixqx", 0, 0, 0, 0, 0) + _NO_TAGS
"""Of one partition of one topic: a controller of 4.3.1 ends (IndexOutOfBoundsException in the raft IO thread) when it
is asked for none."""
_OF_ANOTHER_CLUSTER: Final = b"\1\0" + bytes([len(_TEXT) + 1]) + _compact(_TEXT)
"""One tagged field, the first, of so many bytes: the cluster's id."""


class Named(NamedTuple):
    """A partition that a question names. `topic_id`: in hexadecimal digits."""

    topic: str
    topic_id: str
    partition: int


NOWHERE: Final = Named(_TEXT.decode(), "5" * 32, 0)
"""A topic that there is not."""


def _rows(of_partition: Callable[[int], bytes], named: Named | None) -> bytes:
    """One row of one topic, or none."""
    if named is None:
        return _NO_ROWS
    one = struct.pack(">i", 1)
    return one + _text(named.topic.encode()) + one + of_partition(named.partition)


def _compact_rows(of_partition: Callable[[int], bytes], named: Named | None) -> bytes:
    if named is None:
        return _NO_COMPACT_ROWS
    return b"\2" + bytes.fromhex(named.topic_id) + b"\2" + of_partition(named.partition) + 2 * _NO_TAGS


_COMMITTED: Final = struct.pack(">qih", 0, -1, -1)
"""Offset, leader epoch, no metadata."""
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
"""What follows the topic and the number of its rows."""
ROWS: Final = b"\0rows of partitions\0"
"""Where they stand in a body."""

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
"""By the API's name: version, whether its header has tagged fields, body."""


def version_of(api: str) -> int:
    """The version in which it is asked."""
    return _BODIES[api][0]


def question(api: str, *, size: int = 0, named: Named | None = None) -> bytes:
    """A framed request of this API, whose asker has a name of at least `size` bytes (at most some 32,000), and which
    names this partition.

    KeyError for an API of which there is none, or which names no partitions.
    """
    version, flexible, body = _BODIES[api]
    name = PROBE.ljust(size, b".")
    head = struct.pack(">hhih", APIS[api].key, version, 1, len(name)) + name + (_NO_TAGS if flexible else b"")
    if named is not None or api in _OF_PARTITIONS:
        body = body.replace(ROWS, (_compact_rows if flexible else _rows)(_OF_PARTITIONS[api], named))
    return struct.pack(">i", len(head) + len(body)) + head + body
