"""Who votes in the metadata quorum, with directories and endpoints, and how that is changed (KIP-853).

kafka-python does not know the two requests that change it: they are written here, in the versions (0) that every
release since 3.9 understands.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass, field
from typing import Any, Final

from ackproof.cluster.messages import DescribeQuorumRequest, DescribeQuorumResponse
from ackproof.cluster.wire import Connection, Question, Refused, WireError

_QUORUM: Final = 2
_ADD, _REMOVE = 80, 81
_TIMEOUT_S: Final = 10.0
_LOG: Final = "__cluster_metadata"


@dataclass(frozen=True)
class Endpoint:
    """Where a controller listens."""

    name: str
    host: str
    port: int


@dataclass(frozen=True)
class Member:
    """A voter or an observer. `endpoints` are empty for those that the leader does not tell of."""

    node: int
    directory: uuid.UUID
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True)
class Members:
    """The quorum, as its leader says; a broker passes the question on."""

    leader: int
    voters: tuple[Member, ...]
    observers: tuple[Member, ...]

    def voter(self, node: int) -> Member | None:
        """This voter, None if the node is none."""
        return next((member for member in self.voters if member.node == node), None)


def members(connection: Connection, timeout_s: float | None = None) -> Members:
    """The quorum now. Raises `WireError`."""
    kind = DescribeQuorumRequest
    row = kind.TopicData.PartitionData(partition_index=0, version=_QUORUM)
    request = kind(
        topics=[kind.TopicData(topic_name=_LOG, partitions=[row], version=_QUORUM)], version=_QUORUM
    )
    answer = connection.ask(Question(request, DescribeQuorumResponse, _QUORUM), timeout_s=timeout_s)
    _check("DescribeQuorum", answer.error_code, answer.error_message)
    if not answer.topics or not answer.topics[0].partitions:
        raise WireError("DescribeQuorum: the node says nothing of the metadata log")
    log = answer.topics[0].partitions[0]
    _check("DescribeQuorum", log.error_code, log.error_message)
    endpoints = {
        node.node_id: tuple(Endpoint(one.name, one.host, one.port) for one in node.listeners)
        for node in answer.nodes or ()
    }

    def member(state: Any) -> Member:  # noqa: ANN401 — kafka-python's messages are untyped
        directory = state.replica_directory_id
        known = directory if isinstance(directory, uuid.UUID) else uuid.UUID(bytes=bytes(directory))
        return Member(state.replica_id, known, endpoints.get(state.replica_id, ()))

    return Members(
        leader=log.leader_id,
        voters=tuple(map(member, log.current_voters)),
        observers=tuple(map(member, log.observers)),
    )


def remove_voter(connection: Connection, member: Member) -> None:
    """Take a controller out of the quorum. Raises `Refused` in Kafka's words, `Unreachable`."""
    body = _compact(None) + _INT32.pack(member.node) + member.directory.bytes + b"\0"
    _change(connection, _REMOVE, body, f"removal of controller {member.node}")


def add_voter(connection: Connection, member: Member) -> None:
    """Take a controller into the quorum, which must have caught up with it. Raises as `remove_voter`."""
    listeners = b"".join(
        _compact(one.name) + _compact(one.host) + _UINT16.pack(one.port) + b"\0" for one in member.endpoints
    )
    body = (
        _compact(None)
        + _INT32.pack(int(_TIMEOUT_S * 1000))
        + _INT32.pack(member.node)
        + member.directory.bytes
        + _varint(len(member.endpoints) + 1)
        + listeners
        + b"\0"
    )
    _change(connection, _ADD, body, f"addition of controller {member.node}")


_INT32: Final = struct.Struct(">i")
_UINT16: Final = struct.Struct(">H")
_HEADER: Final = struct.Struct(">hhi")


def _change(connection: Connection, api: int, body: bytes, asked: str) -> None:
    answer = connection.ask(Question(_Request(api, body), _Response, 0), timeout_s=_TIMEOUT_S + 1.0)
    _check(asked, answer.error_code, answer.error_message)


@dataclass
class _Request:
    """A request that is encoded already, but for its header (version 2)."""

    api: int
    body: bytes
    head: bytes = field(default=b"", init=False)

    def with_header(self, correlation_id: int, client_id: str) -> None:
        name = client_id.encode()
        self.head = _HEADER.pack(self.api, 0, correlation_id) + struct.pack(">h", len(name)) + name + b"\0"

    def encode(self, *, version: int, header: bool, framed: bool) -> bytes:
        del version, header, framed
        data = self.head + self.body
        return _INT32.pack(len(data)) + data


@dataclass(frozen=True)
class _Response:
    """Throttle time, error code, error message: the answer to either."""

    error_code: int
    error_message: str | None

    @staticmethod
    def flexible_version_q(_: int) -> bool:
        return True

    @classmethod
    def decode(cls, data: memoryview, *, version: int) -> _Response:
        del version
        (code,) = struct.unpack_from(">h", data, 4)
        length = data[6]
        if length >> 7:
            return cls(code, "a long message")
        return cls(code, bytes(data[7 : 6 + length]).decode() if length > 1 else None)


def _compact(text: str | None) -> bytes:
    """A compact nullable string."""
    if text is None:
        return b"\0"
    data = text.encode()
    return _varint(len(data) + 1) + data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _check(asked: str, code: int, message: str | None) -> None:
    if code:
        raise Refused(asked, code, message)
