"""Responses that say nothing but an error, made without the node: of the APIs whose responses have one for the whole.

Where they have one for each partition (Produce, OffsetCommit) the request would have to be understood first: these are
not here. Fields by version are those of https://kafka.apache.org/protocol#protocol_messages, releases 3.9 to 4.3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

ERRORS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "UNKNOWN_SERVER_ERROR": -1,
        "OFFSET_OUT_OF_RANGE": 1,
        "CORRUPT_MESSAGE": 2,
        "UNKNOWN_TOPIC_OR_PARTITION": 3,
        "LEADER_NOT_AVAILABLE": 5,
        "NOT_LEADER_OR_FOLLOWER": 6,
        "REQUEST_TIMED_OUT": 7,
        "MESSAGE_TOO_LARGE": 10,
        "COORDINATOR_LOAD_IN_PROGRESS": 14,
        "COORDINATOR_NOT_AVAILABLE": 15,
        "NOT_COORDINATOR": 16,
        "NOT_ENOUGH_REPLICAS": 19,
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND": 20,
        "ILLEGAL_GENERATION": 22,
        "UNKNOWN_MEMBER_ID": 25,
        "REBALANCE_IN_PROGRESS": 27,
        "TOPIC_AUTHORIZATION_FAILED": 29,
        "GROUP_AUTHORIZATION_FAILED": 30,
        "CLUSTER_AUTHORIZATION_FAILED": 31,
        "NOT_CONTROLLER": 41,
        "INVALID_REQUEST": 42,
        "OUT_OF_ORDER_SEQUENCE_NUMBER": 45,
        "DUPLICATE_SEQUENCE_NUMBER": 46,
        "INVALID_PRODUCER_EPOCH": 47,
        "INVALID_TXN_STATE": 48,
        "INVALID_PRODUCER_ID_MAPPING": 49,
        "CONCURRENT_TRANSACTIONS": 51,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": 53,
        "KAFKA_STORAGE_ERROR": 56,
        "UNKNOWN_PRODUCER_ID": 59,
        "FETCH_SESSION_ID_NOT_FOUND": 70,
        "INVALID_FETCH_SESSION_EPOCH": 71,
        "FENCED_LEADER_EPOCH": 74,
        "UNKNOWN_LEADER_EPOCH": 75,
        "STALE_BROKER_EPOCH": 77,
        "OFFSET_NOT_AVAILABLE": 78,
        "INVALID_RECORD": 87,
        "UNSTABLE_OFFSET_COMMIT": 88,
        "THROTTLING_QUOTA_EXCEEDED": 89,
        "PRODUCER_FENCED": 90,
        "UNKNOWN_TOPIC_ID": 100,
        "BROKER_ID_NOT_REGISTERED": 102,
    }
)
"""Kafka's names and codes of errors that befall a request, or one of its partitions."""


class _Layout(NamedTuple):
    """Of the responses of an API. `rest`: what follows the error in a version, but for the last tagged fields."""

    versions: range
    flexible: int
    """The first version with tagged fields."""
    rest: Callable[[int], bytes]


def _fetch(version: int) -> bytes:
    """No session, no topics."""
    return struct.pack(">i", 0) + (b"\1" if version >= 12 else struct.pack(">i", 0))


def _ended(version: int) -> bytes:
    """No producer, from transactions of the second version on."""
    return struct.pack(">qh", -1, -1) if version >= 5 else b""


def _producer(version: int) -> bytes:
    return struct.pack(">qh", -1, -1) + (struct.pack(">qh", -1, -1) if version >= 6 else b"")


_LAYOUTS: Final[Mapping[str, _Layout]] = MappingProxyType(
    {
        "Fetch": _Layout(range(7, 19), 12, _fetch),
        "Heartbeat": _Layout(range(1, 5), 4, lambda version: b""),
        "InitProducerId": _Layout(range(7), 2, _producer),
        "AddOffsetsToTxn": _Layout(range(5), 3, lambda version: b""),
        "EndTxn": _Layout(range(6), 3, _ended),
        "AlterPartition": _Layout(range(2, 4), 0, lambda version: b"\1"),
        "BrokerRegistration": _Layout(range(5), 0, lambda version: struct.pack(">q", -1)),
        "BrokerHeartbeat": _Layout(range(3), 0, lambda version: bytes(3)),
        "AllocateProducerIds": _Layout(range(1), 0, lambda version: struct.pack(">qi", -1, 0)),
    }
)
ANSWERABLE: Final = tuple(_LAYOUTS)


def answers(api: str, code: int) -> dict[int, bytes]:
    """What follows the correlation id in a response with this error, by the request's version."""
    layout = _LAYOUTS[api]
    return {
        version: _between_tags(version >= layout.flexible, struct.pack(">ih", 0, code) + layout.rest(version))
        for version in layout.versions
    }


def error_at(api: str, version: int) -> int | None:
    """Where the error stands in a framed response; None where it has none for the whole, or nobody knows."""
    layout = _LAYOUTS.get(api)
    return None if layout is None or version not in layout.versions else 12 + (version >= layout.flexible)


def _between_tags(flexible: bool, body: bytes) -> bytes:
    return b"\0" + body + b"\0" if flexible else body
