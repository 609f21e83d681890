"""Requests that any node answers and that change nothing, one of each API: what a witness asks over a link.

They name nobody: no topic, an empty group, a broker that there is not, another cluster. The node answers with an empty
response or an error, which is an answer all the same. Versions are those that every release from 3.9 to 4.3 takes
(https://kafka.apache.org/protocol#protocol_messages); what is written here is the body, by its fields.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ackproof.cluster.network.requests.frames import PROBE
from ackproof.experiment.apis import APIS

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

_BODIES: Final[Mapping[str, tuple[int, bool, bytes]]] = MappingProxyType(
    {
        "Produce": (3, False, struct.pack(">hhi", -1, -1, 1000) + _NO_ROWS),
        "Fetch": (11, False, struct.pack(">iiiibii", -1, 0, 0, 1, 0, 0, -1) + _NO_ROWS + _NO_ROWS + _EMPTY),
        "ListOffsets": (5, False, struct.pack(">ib", -1, 0) + _NO_ROWS),
        "Metadata": (4, False, _NO_ROWS + b"\0"),
        "OffsetCommit": (7, False, _NO_MEMBER + _NO_ROWS),
        "OffsetFetch": (5, False, _EMPTY + _NO_ROWS),
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
        "OffsetForLeaderEpoch": (3, False, struct.pack(">i", -1) + _NO_ROWS),
        "AddPartitionsToTxn": (1, False, _text(_TEXT) + _NO_PRODUCER + _NO_ROWS),
        "AddOffsetsToTxn": (1, False, _text(_TEXT) + _NO_PRODUCER + _text(_TEXT)),
        "EndTxn": (1, False, _text(_TEXT) + _NO_PRODUCER + b"\0"),
        "WriteTxnMarkers": (1, True, _NO_COMPACT_ROWS + _NO_TAGS),
        "TxnOffsetCommit": (2, False, _text(_TEXT) + _text(_TEXT) + _NO_PRODUCER + _NO_ROWS),
        "Vote": (0, True, _compact(_TEXT) + _NO_COMPACT_ROWS + _NO_TAGS),
        "BeginQuorumEpoch": (0, False, _text(_TEXT) + _NO_ROWS),
        "EndQuorumEpoch": (0, False, _text(_TEXT) + _NO_ROWS),
        "AlterPartition": (2, True, _broker(_NO_COMPACT_ROWS, _NO_TAGS)),
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


def question(api: str, *, size: int = 0) -> bytes:
    """A framed request of this API, whose asker has a name of at least `size` bytes (at most some 32,000).

    KeyError for an API of which there is none.
    """
    version, flexible, body = _BODIES[api]
    name = PROBE.ljust(size, b".")
    head = struct.pack(">hhih", APIS[api].key, version, 1, len(name)) + name + (_NO_TAGS if flexible else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body
