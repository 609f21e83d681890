"""Contents of frames: the partitions that a request names, and the errors of a response, read and written.

kafka-python decodes the messages, by the version in the frame. It lacks a few responses of brokers and controllers:
this module encodes those that have one error for the whole response. Fields by version are those of
https://kafka.apache.org/protocol#protocol_messages, releases 3.9 to 4.4. kafka-python lacks the newest version of
TxnOffsetCommit (6, of 4.4). A frame that cannot be decoded raises `UnreadableFrame`: the rule notes the error
(`RuleCounts.trouble`), and the frame passes unchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from ackproof.network.requests.frames import UnreadableFrame
from ackproof.network.requests.rules import PartitionKey
from ackproof.network.wire import message

SESSIONS: Final = 7
"""First version of Fetch with sessions (KIP-227): later requests name only what has changed."""
NAMING: Final = (
    "Produce",
    "Fetch",
    "ListOffsets",
    "OffsetCommit",
    "OffsetFetch",
    "OffsetForLeaderEpoch",
    "AddPartitionsToTxn",
    "TxnOffsetCommit",
    "AlterPartition",
)
"""APIs whose requests name partitions, and can be matched by partition."""
OF_PARTITIONS: Final = tuple(api for api in NAMING if api not in ("Fetch", "AlterPartition"))
"""APIs of `NAMING` except Fetch and AlterPartition: responses of these two have an error for the whole response too."""
OF_MEMBERS: Final = ("JoinGroup", "LeaveGroup", "SyncGroup")
"""APIs of group members whose responses have one error code, decoded with kafka-python."""
_FETCH: Final = 1
_TOPICS: Final = ("topic_id", "topic_name", "topic", "name")
_NUMBERS: Final = ("partition_index", "partition", "index")
_ERRORS: Final = ("error_code", "partition_error_code")
_FULL: Final = (0, -1)
"""Fetch session epochs of a request that names all its partitions: 0 begins a session, -1 uses none."""


@cache
def _keys() -> dict[str, int]:
    """Return the numeric API keys by API name. The table is imported at the first call, so that the proxy's process
    starts without it."""
    from ackproof.experiment.links import APIS

    return {name: api.key for name, api in APIS.items()}


@cache
def _names() -> dict[int, str]:
    return {key: name for name, key in _keys().items()}


def import_messages() -> None:
    """Import the message classes in advance (half a second), so that the first frame is not delayed."""
    _kind("Request", _FETCH, SESSIONS)


def read_partitions(api: int, version: int, frame: memoryview) -> frozenset[PartitionKey]:
    """Return the partitions that a framed request names, as (topic, partition). A topic is its name, or its id as 32
    hexadecimal digits if the request has ids. `api`: Kafka's API key.

    Raises `UnreadableFrame` if the request cannot be decoded.
    """
    return frozenset(place for place, *_ in _rows(_decoded("Request", api, version, frame), version))


def read_fetched_partitions(
    version: int, frame: memoryview, before: frozenset[PartitionKey] | None
) -> frozenset[PartitionKey] | None:
    """Return the partitions of a fetch session (KIP-227) after the Fetch request `frame`. `before`:
    partitions before the request; None: unknown.

    Return None while the partitions are unknown, until a full request lists them. Raises `UnreadableFrame` if
    the request cannot be decoded.
    """
    asked = _decoded("Request", _FETCH, version, frame)
    named = frozenset(place for place, *_ in _rows(asked.topics, version))
    if version < SESSIONS or asked.session_epoch in _FULL:
        return named
    if before is None:
        return None
    return before - {place for place, *_ in _rows(asked.forgotten_topics_data, version)} | named


def make_error_response(api: int, version: int, frame: memoryview, code: int) -> bytes:
    """Return a framed response to the framed request `frame`, with the error `code` at the top level of the response.
    If the response has no error there, each partition or group of the request gets the error. `api`: Kafka's API key.
    Raises `UnreadableFrame` if the request cannot be decoded, or if its response has no error field."""
    if _error_offset(_names()[api], version) is not None:
        _, flexible, rest = _LAYOUTS[_names()[api]]
        tags = b"\0" * (version >= flexible)
        body = bytes(frame[8:12]) + tags + struct.pack(">ih", 0, code) + rest(version) + tags
        return struct.pack(">i", len(body)) + body
    asked = _decoded("Request", api, version, frame)
    made = _kind("Response", api, version)(version=version)
    if not _stamp(made, version, code):
        _fill(made, asked, version, code)
    made.with_header(correlation_id=struct.unpack_from(">i", frame, 8)[0])
    return bytes(made.encode(header=True, framed=True))


def put_error(
    api: int, version: int, frame: memoryview, code: int, among: Callable[[PartitionKey], bool] | None
) -> bytes:
    """Return the framed response `frame` with the error `code` in it.

    The error is put at the top level if this module knows the layout of the response in this version (APIs of
    `ANSWERABLE`). It is put there, too, if `among` is None and the response has an error there. Otherwise it is put
    into the rows of the partitions that `among` accepts (None: all). Raises `UnreadableFrame` if the response cannot be
    decoded or has no such row.
    """
    if (at := _error_offset(_names()[api], version)) is not None:
        if len(frame) < at + 2:
            raise UnreadableFrame(f"a response of {len(frame)} bytes")
        return b"".join((frame[:at], struct.pack(">h", code), frame[at + 2 :]))
    said = _decoded("Response", api, version, frame)
    if not (among is None and _stamp(said, version, code)):
        rows = [row for place, _, row in _rows(said, version) if among is None or among(place)]
        if not [row for row in rows if _stamp(row, version, code)]:
            raise UnreadableFrame(
                f"a response of {_names()[api]} in version {version} has no error of what is wanted"
            )
    return bytes(said.encode(header=True, framed=True))


def read_error(api: str, version: int, frame: bytes) -> int | None:
    """Return the error code of a framed response: at its top level, else of its first group or partition. `api`: the
    API's name, such as `Fetch`. None if the response has no error code, or cannot be read."""
    if (at := _error_offset(api, version)) is not None:
        return int(struct.unpack_from(">h", frame, at)[0]) if len(frame) >= at + 2 else None
    try:
        said = _decoded("Response", _keys()[api], version, memoryview(frame))
    except UnreadableFrame:
        return None
    rows = [said, *getattr(said, "groups", ()), *(row for *_, row in _rows(said, version))]
    return next((error for row in rows if (error := _one_of(row, version, _ERRORS)) is not None), None)


def read_partition_errors(api: str, frame: bytes, answer: bytes) -> list[int]:
    """Return the error code of each partition in `answer`, in its order. `frame`: the request.

    Both are framed; `api`: the API's name. Raises `UnreadableFrame` if one cannot be decoded.
    """
    version = struct.unpack_from(">h", frame, 6)[0]
    said = _decoded("Response", _keys()[api], version, memoryview(answer))
    errors = (_one_of(row, version, _ERRORS) for *_, row in _rows(said, version))
    return [error for error in errors if error is not None]


def _decoded(half: str, api: int, version: int, frame: memoryview) -> Any:  # noqa: ANN401 — kafka-python is untyped
    kind = _kind(half, api, version)
    try:
        return kind.decode(frame[4:], version=version, header=True)
    except (ValueError, IndexError, struct.error, TypeError, UnicodeDecodeError) as error:
        raise UnreadableFrame(f"a {half.lower()} of {_names()[api]} in version {version}: {error}") from error


def _kind(half: str, api: int, version: int) -> Any:  # noqa: ANN401
    try:
        kind = message(f"{_names()[api]}{half}")
    except FileNotFoundError:
        raise UnreadableFrame(f"the format of a {half.lower()} of {_names()[api]} is unknown") from None
    if not 0 <= version <= kind.max_version:
        raise UnreadableFrame(f"the format of version {version} of {_names()[api]} is unknown")
    return kind


def _topic_word(topic: object) -> str:
    """Return a topic as text: `topic` itself if that is its name, 32 hexadecimal digits if it is an id (UUID); ''
    for none."""
    if isinstance(topic, str):
        return topic
    number = int(getattr(topic, "int", 0))
    return f"{number:032x}" if number else ""


def _rows(value: Any, version: int) -> Iterator[tuple[PartitionKey, object, Any]]:  # noqa: ANN401
    """Yield (partition, topic name or id, row) for each partition that a message names at any depth.

    `row` is the partition's entry in the message, or its number if the message only lists numbers.
    """
    if isinstance(value, list):
        for item in value:
            yield from _rows(item, version)
        return
    fields = _fields(value, version)
    topics = (getattr(value, name) for name in _TOPICS if name in fields)
    topic = next((word for word in topics if _topic_word(word)), None)
    for name in fields:
        for row in rows if isinstance(rows := getattr(value, name), list) else ():
            number = row if isinstance(row, int) else _one_of(row, version, _NUMBERS)
            if topic is not None and number is not None:
                yield (_topic_word(topic), number), topic, row
            else:
                yield from _rows(row, version)


def _fields(value: object, version: int) -> Mapping[str, Any]:
    """Return kafka-python's descriptions of the fields that `value` has in a version of the protocol, by name. `value`:
    a message or a row in it; or the description of an array, for the fields of its rows. Empty for other values."""
    schema = getattr(type(value), "_struct", value)
    known = getattr(schema, "fields", None) or {}
    return {name: field for name, field in known.items() if field.for_version_q(version)}


def _one_of(row: object, version: int, names: Iterable[str]) -> int | None:
    fields = _fields(row, version)
    return next((int(getattr(row, name)) for name in names if name in fields), None)


def _stamp(row: object, version: int, code: int) -> bool:
    """Set the error code of a message or row; return False if it has no such field in this version."""
    name = next((name for name in _ERRORS if name in _fields(row, version)), None)
    if name is not None:
        setattr(row, name, code)
    return name is not None


def _fill(made: Any, asked: Any, version: int, code: int) -> None:  # noqa: ANN401
    """Fill a response with the error `code`: a row for each partition that the request `asked` names, or for each
    group. Raises `UnreadableFrame` if the response has no rows with errors."""
    for name, array in _fields(made, version).items():
        within = _fields(array, version)
        if "group_id" in within:  # an entry for a group: each group has its own error
            groups = [array.data_class(version=version, group_id=group.group_id) for group in asked.groups]
            for group in groups:
                _stamp(group, version, code)
            setattr(made, name, groups)
            return
        topic = next((field for field in _TOPICS if field in within), None)
        rows = next((field for field in within if set(_NUMBERS) & set(_fields(within[field], version))), None)
        if topic is None or rows is None:
            continue
        number = next(field for field in _NUMBERS if field in _fields(within[rows], version))
        by_topic: dict[Any, list[Any]] = {}
        for (_, partition), named, _ in _rows(asked, version):
            row = within[rows].data_class(version=version, **{number: partition})
            _stamp(row, version, code)
            by_topic.setdefault(named, []).append(row)
        made_of = ({topic: key, rows: given} for key, given in by_topic.items())
        setattr(made, name, [array.data_class(version=version, **words) for words in made_of])
        return
    raise UnreadableFrame(f"a response of {asked.name} in version {version} has no error of partitions")


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
"""Kafka's error code by name, of the errors that a fault can put into a response (`error` in an experiment)."""


def _fetch(version: int) -> bytes:
    return struct.pack(">i", 0) + (b"\1" if version >= 12 else struct.pack(">i", 0))


def _ended(version: int) -> bytes:
    return struct.pack(">qh", -1, -1) if version >= 5 else b""


def _producer(version: int) -> bytes:
    return struct.pack(">qh", -1, -1) + (struct.pack(">qh", -1, -1) if version >= 6 else b"")


_LAYOUTS: Final[Mapping[str, tuple[range, int, Callable[[int], bytes]]]] = MappingProxyType(
    {
        "Fetch": (range(7, 19), 12, _fetch),
        "Heartbeat": (range(1, 5), 4, lambda version: b""),
        "InitProducerId": (range(7), 2, _producer),
        "AddOffsetsToTxn": (range(5), 3, lambda version: b""),
        "EndTxn": (range(6), 3, _ended),
        "AlterPartition": (range(2, 4), 0, lambda version: b"\1"),
        "BrokerRegistration": (range(5), 0, lambda version: struct.pack(">q", -1)),
        "BrokerHeartbeat": (range(3), 0, lambda version: bytes(3)),
        "AllocateProducerIds": (range(1), 0, lambda version: struct.pack(">qi", -1, 0)),
    }
)
"""Layout of an API's responses: versions, the first version with tagged fields, and the bytes after the error in a
version, without the last tagged fields."""
ANSWERABLE: Final = tuple(_LAYOUTS)
"""APIs whose responses have an error at the top level that this module writes itself, in the versions of `_LAYOUTS`."""


def _error_offset(api: str, version: int) -> int | None:
    """Return the byte offset of the top-level error in a framed response; None if there is none or it is unknown.
    `api`: the API's name."""
    versions, flexible, _ = _LAYOUTS.get(api, (range(0), 0, None))
    return 12 + (version >= flexible) if version in versions else None
