"""What stands in a frame: which partitions a request names, and the errors of a response, read and written.

The messages are kafka-python's, by the frame's own version; the few of brokers to controllers that it lacks have their
error where `answers` knows. What cannot be read is `Undecodable`: the fault that asked is told, the frame passes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from ackproof.cluster.messages import message
from ackproof.network.requests.answers import error_at
from ackproof.network.requests.rules import Place

SESSIONS: Final = 7
"""The first version of Fetch with sessions (KIP-227): later requests name only what has changed."""
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
"""APIs whose requests name partitions."""
OF_PARTITIONS: Final = tuple(api for api in NAMING if api not in ("Fetch", "AlterPartition"))
"""… whose responses have an error for each of them."""
OF_MEMBERS: Final = ("JoinGroup", "LeaveGroup", "SyncGroup")
"""APIs whose responses have an error for the whole, which kafka-python knows."""
_FETCH: Final = 1
_TOPICS: Final = ("topic_id", "topic_name", "topic", "name")
_NUMBERS: Final = ("partition_index", "partition", "index")
_ERRORS: Final = ("error_code", "partition_error_code")
_FULL: Final = (0, -1)
"""Epochs of requests that name all that is fetched."""


@cache
def _keys() -> dict[str, int]:
    """Keys by the APIs' names, imported at their first use: the proxy's process starts without."""
    from ackproof.experiment.links import APIS

    return {name: api.key for name, api in APIS.items()}


@cache
def _names() -> dict[int, str]:
    return {key: name for name, key in _keys().items()}


def prepare() -> None:
    """Import what the first look into a frame takes, half a second that nobody shall wait for then."""
    _kind("Request", _FETCH, SESSIONS)


class Undecodable(ValueError):
    """A frame cannot be read, or has nothing of what is wanted. The text says why."""


def places(api: int, version: int, frame: memoryview) -> frozenset[Place]:
    """The partitions that a request names."""
    return frozenset(named.place for named in _rows(_decoded("Request", api, version, frame), version))


def fetched(version: int, frame: memoryview, before: frozenset[Place] | None) -> frozenset[Place] | None:
    """The partitions of which a Fetch asks, given those of its session until then; None as long as nobody knows."""
    asked = _decoded("Request", _FETCH, version, frame)
    named = frozenset(one.place for one in _rows(asked.topics, version))
    if version < SESSIONS or asked.session_epoch in _FULL:
        return named
    if before is None:
        return None
    return before - {one.place for one in _rows(asked.forgotten_topics_data, version)} | named


def answer(api: int, version: int, frame: memoryview, code: int) -> bytes:
    """The framed response to a request that says nothing but this error, of the whole or of each partition."""
    asked = _decoded("Request", api, version, frame)
    made = _kind("Response", api, version)(version=version)
    if not _stamp(made, version, code):
        _fill(made, asked, version, code)
    made.with_header(correlation_id=struct.unpack_from(">i", frame, 8)[0])
    return bytes(made.encode(header=True, framed=True))


def stamped(
    api: int, version: int, frame: memoryview, code: int, among: Callable[[Place], bool] | None
) -> bytes:
    """A framed response in which the whole, or each partition that is `among`, has this error."""
    if (at := error_at(_names()[api], version)) is not None:
        if len(frame) < at + 2:
            raise Undecodable(f"a response of {len(frame)} bytes")
        return b"".join((frame[:at], struct.pack(">h", code), frame[at + 2 :]))
    said = _decoded("Response", api, version, frame)
    if not (among is None and _stamp(said, version, code)):
        rows = [one.row for one in _rows(said, version) if among is None or among(one.place)]
        if not [row for row in rows if _stamp(row, version, code)]:
            raise Undecodable(
                f"a response of {_names()[api]} in version {version} has no error of what is wanted"
            )
    return bytes(said.encode(header=True, framed=True))


def error_of(api: str, version: int, frame: bytes) -> int | None:
    """The error of a framed response: of the whole, or of the first partition; None: it has none."""
    if (at := error_at(api, version)) is not None:
        return int(struct.unpack_from(">h", frame, at)[0]) if len(frame) >= at + 2 else None
    try:
        said = _decoded("Response", _keys()[api], version, memoryview(frame))
    except Undecodable:
        return None
    rows = [said, *getattr(said, "groups", ()), *(named.row for named in _rows(said, version))]
    return next((error for row in rows if (error := _one_of(row, version, _ERRORS)) is not None), None)


def _decoded(half: str, api: int, version: int, frame: memoryview) -> Any:  # noqa: ANN401 — kafka-python is untyped
    kind = _kind(half, api, version)
    try:
        return kind.decode(frame[4:], version=version, header=True)
    except (ValueError, IndexError, struct.error, TypeError, UnicodeDecodeError) as error:
        raise Undecodable(f"a {half.lower()} of {_names()[api]} in version {version}: {error}") from error


def _kind(half: str, api: int, version: int) -> Any:  # noqa: ANN401
    try:
        kind = message(f"{_names()[api]}{half}")
    except FileNotFoundError:
        raise Undecodable(f"nobody knows how a {half.lower()} of {_names()[api]} is written") from None
    if not 0 <= version <= kind.max_version:
        raise Undecodable(f"nobody knows how version {version} of {_names()[api]} is written")
    return kind


class _Named(NamedTuple):
    """A partition that a message names. `row`: what says so, a number where that is all."""

    topic: object
    number: int
    row: Any

    @property
    def place(self) -> Place:
        return word_of(self.topic), self.number


def word_of(topic: object) -> str:
    """A topic's name, or the digits of its id; '' for neither."""
    if isinstance(topic, str):
        return topic
    number = int(getattr(topic, "int", 0))
    return f"{number:032x}" if number else ""


def _rows(value: Any, version: int) -> Iterator[_Named]:  # noqa: ANN401
    """Each partition that is named anywhere in it."""
    if isinstance(value, list):
        for one in value:
            yield from _rows(one, version)
        return
    fields = _fields(value, version)
    topics = (getattr(value, name) for name in _TOPICS if name in fields)
    topic = next((one for one in topics if word_of(one)), None)
    for name in fields:
        for row in rows if isinstance(rows := getattr(value, name), list) else ():
            number = row if isinstance(row, int) else _one_of(row, version, _NUMBERS)
            if topic is not None and number is not None:
                yield _Named(topic, number, row)
            else:
                yield from _rows(row, version)


def _fields(value: object, version: int) -> Mapping[str, Any]:
    """The fields that a message, a row or the rows of an array have in a version; empty for what has none."""
    schema = getattr(type(value), "_struct", value)
    known = getattr(schema, "fields", None) or {}
    return {name: field for name, field in known.items() if field.for_version_q(version)}


def _one_of(row: object, version: int, names: Iterable[str]) -> int | None:
    fields = _fields(row, version)
    return next((int(getattr(row, name)) for name in names if name in fields), None)


def _stamp(row: object, version: int, code: int) -> bool:
    """Give it this error; False: it has none in this version."""
    name = next((name for name in _ERRORS if name in _fields(row, version)), None)
    if name is not None:
        setattr(row, name, code)
    return name is not None


def _fill(made: Any, asked: Any, version: int, code: int) -> None:  # noqa: ANN401
    """Give a response, whose errors are those of partitions, a row for each that the request names."""
    for name, array in _fields(made, version).items():
        within = _fields(array, version)
        if "group_id" in within:  # several groups at once: each has an error
            groups = [array.data_class(version=version, group_id=one.group_id) for one in asked.groups]
            for group in groups:
                _stamp(group, version, code)
            setattr(made, name, groups)
            return
        topic = next((one for one in _TOPICS if one in within), None)
        rows = next((one for one in within if set(_NUMBERS) & set(_fields(within[one], version))), None)
        if topic is None or rows is None:
            continue
        number = next(one for one in _NUMBERS if one in _fields(within[rows], version))
        by_topic: dict[Any, list[Any]] = {}
        for named in _rows(asked, version):
            row = within[rows].data_class(version=version, **{number: named.number})
            _stamp(row, version, code)
            by_topic.setdefault(named.topic, []).append(row)
        made_of = ({topic: key, rows: given} for key, given in by_topic.items())
        setattr(made, name, [array.data_class(version=version, **words) for words in made_of])
        return
    raise Undecodable(f"a response of {asked.name} in version {version} has no error of partitions")
