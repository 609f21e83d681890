"""Tests of contents of requests and responses: partitions are found, and errors written, in every version."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from ackproof.experiment.links import APIS
from ackproof.network.requests import contents
from ackproof.network.requests.contents import (
    ANSWERABLE,
    ERRORS,
    NAMING,
    read_error,
)
from ackproof.network.requests.frames import UnreadableFrame
from ackproof.network.requests.rules import FrameSide, RuleKind
from ackproof.network.wire import kafka_python, message
from request_ground import Ground

_OTHERS = ("forgotten_topics_data", "node_endpoints")
ID = uuid.UUID(int=77)
CODE = ERRORS["NOT_LEADER_OR_FOLLOWER"]


def framed(made: Any, correlation: int = 5) -> bytes:
    if made.is_request():
        made.with_header(correlation_id=correlation, client_id="someone")
    else:
        made.with_header(correlation_id=correlation)
    return bytes(made.encode(header=True, framed=True))


def rows(api: str, version: int, half: str) -> Any:
    """Return a message that names partitions 3 and 4 of a topic, built from the schema of its version. `half`:
    `Request` or `Response`."""
    kind = message(f"{api}{half}")
    made = kind(version=version)
    for name, field in kind.fields.items():
        if (
            field.for_version_q(version)
            and field.is_struct_array()
            and "forgotten" not in name
            and "endpoints" not in name
        ):
            setattr(made, name, [row(field, version)])
    return made


def row(field: Any, version: int) -> Any:
    """Return a row of the array `field`. Each array in it has one row; arrays of partitions have two."""
    made = field.data_class(version=version)
    for name, one in field.fields.items():
        if not one.for_version_q(version):
            continue
        if name == "topic_id":
            made.topic_id = ID
        elif name in ("topic", "name"):
            setattr(made, name, "orders")
        elif "partition" in name and one.is_array():
            if one.is_struct_array():
                number = next(n for n in one.fields if n in ("partition", "partition_index", "index"))
                setattr(made, name, [one.data_class(version=version, **{number: at}) for at in (3, 4)])
            else:
                setattr(made, name, [3, 4])
        elif one.is_struct_array() and "topic" in name:
            setattr(made, name, [row(one, version)])
    return made


def versions(*but: str) -> list[Any]:
    known = {api: message(f"{api}Request") for api in NAMING if api not in but}
    return [
        pytest.param(api, version, id=f"{api}-{version}")
        for api, kind in known.items()
        for version in range(kind.valid_versions[0], kind.max_version + 1)
    ]


@pytest.mark.parametrize(("api", "version"), versions())
def test_the_partitions_of_a_request(api: str, version: int) -> None:
    frame = framed(rows(api, version, "Request"))
    topics = {topic for topic, _ in contents.read_partitions(APIS[api].key, version, memoryview(frame))}
    assert topics <= {"orders", f"{ID.int:032x}"} and len(topics) == 1
    assert {at for _, at in contents.read_partitions(APIS[api].key, version, memoryview(frame))} == {3, 4}


@pytest.mark.parametrize(("api", "version"), versions("Fetch", "AlterPartition"))
def test_an_answer_made_from_the_request_has_the_error(api: str, version: int) -> None:
    frame = memoryview(framed(rows(api, version, "Request"), correlation=9))
    made = contents.make_error_response(APIS[api].key, version, frame, CODE)
    assert made[4:8] == (9).to_bytes(4, "big")
    assert contents.read_error(api, version, made) == CODE


@pytest.mark.parametrize(("api", "version"), versions("Fetch", "AlterPartition"))
def test_errors_of_partitions_are_read_by_the_version_of_the_request(api: str, version: int) -> None:
    asked, answer = framed(rows(api, version, "Request")), framed(rows(api, version, "Response"))
    assert contents.read_partition_errors(api, asked, answer) == [0, 0]
    stamped = contents.put_error(
        APIS[api].key, version, memoryview(answer), CODE, lambda place: place[1] == 4
    )
    assert contents.read_partition_errors(api, asked, stamped) == [0, CODE]


@pytest.mark.parametrize(("api", "version"), versions("Fetch", "AlterPartition"))
def test_one_partition_of_a_response_is_stamped(api: str, version: int) -> None:
    frame = framed(rows(api, version, "Response"))
    stamped = contents.put_error(APIS[api].key, version, memoryview(frame), CODE, lambda place: place[1] == 4)
    read = message(f"{api}Response").decode(stamped[4:], version=version, header=True)
    errors = {
        place[1]: contents._one_of(row, version, contents._ERRORS)
        for place, _, row in contents._rows(read, version)
    }
    assert errors == {3: 0, 4: CODE}
    with pytest.raises(UnreadableFrame):
        contents.put_error(APIS[api].key, version, memoryview(frame), CODE, lambda place: False)


def test_of_a_session_later_requests_name_what_has_changed() -> None:
    def fetch(epoch: int, *partitions: int, forgotten: list[int] | None = None) -> memoryview:
        kind = message("FetchRequest")
        topic, gone = kind.fields["topics"], kind.fields["forgotten_topics_data"]
        within = topic.fields["partitions"].data_class
        named = [within(version=17, partition=one) for one in partitions]
        return memoryview(
            framed(
                kind(
                    version=17,
                    session_id=3,
                    session_epoch=epoch,
                    topics=[topic.data_class(version=17, topic_id=ID, partitions=named)] if named else [],
                    forgotten_topics_data=[gone.data_class(version=17, topic_id=ID, partitions=forgotten)]
                    if forgotten
                    else [],
                )
            )
        )

    def numbers(places: frozenset[tuple[str, int]] | None) -> set[int]:
        assert places is not None
        return {number for _, number in places}

    assert contents.read_fetched_partitions(17, fetch(4, 1), None) is None
    full = contents.read_fetched_partitions(17, fetch(0, 1, 2), None)
    assert numbers(full) == {1, 2}
    same = contents.read_fetched_partitions(17, fetch(1), full)
    assert same == full
    assert numbers(contents.read_fetched_partitions(17, fetch(2, 5, forgotten=[1]), same)) == {2, 5}


@pytest.mark.parametrize("frame", [b"", b"\0\0\0\x04\0\0\0\x01", bytes(40)])
def test_what_cannot_be_read_is_told(frame: bytes) -> None:
    with pytest.raises(UnreadableFrame):
        contents.put_error(APIS["Produce"].key, 9, memoryview(frame), CODE, None)
    with pytest.raises(UnreadableFrame):
        contents.read_partitions(APIS["BrokerHeartbeat"].key, 0, memoryview(frame))


@pytest.fixture
def ground() -> Iterator[Ground]:
    made = Ground()
    yield made
    made.end()


def fetch(correlation: int, epoch: int, *partitions: int) -> bytes:
    kind = message("FetchRequest")
    topic = kind.fields["topics"]
    within = topic.fields["partitions"].data_class
    named = [within(version=12, partition=one) for one in partitions]
    topics = [topic.data_class(version=12, topic="orders", partitions=named)] if named else []
    return framed(kind(version=12, session_id=3, session_epoch=epoch, topics=topics), correlation)


def test_only_requests_of_a_partition_are_held_through_their_session(ground: Ground) -> None:
    client, node = ground.connect()
    ground.lay(RuleKind.HOLD, api=1, places=[["orders", 2]])
    client.sendall(fetch(1, 4))
    told = ground.came(client)
    assert ground.came(node) == b""
    assert contents.read_error("Fetch", 12, told) == ERRORS["FETCH_SESSION_ID_NOT_FOUND"]
    client.sendall(fetch(2, 0, 1))
    assert ground.came(node) == fetch(2, 0, 1)
    client.sendall(fetch(3, 1, 2))
    assert ground.came(node) == b""
    ground.relay.release("r", "w")
    assert ground.came(node) == fetch(3, 1, 2)
    client.sendall(fetch(4, 2))
    assert ground.came(node) == b""
    counted = ground.relay.lift("r")
    assert (counted.matched, counted.hit, counted.trouble) == (2, 2, "")
    assert ground.came(node) == fetch(4, 2)


def test_the_response_to_a_request_of_a_partition_is_stamped(ground: Ground) -> None:
    client, node = ground.connect()
    ground.lay(
        RuleKind.ANSWER, FrameSide.RESPONSE, api=APIS["ListOffsets"].key, places=[["orders", -1]], code=CODE
    )
    frame = framed(rows("ListOffsets", 6, "Request"), 8)
    client.sendall(frame)
    assert ground.came(node) == frame
    node.sendall(framed(rows("ListOffsets", 6, "Response"), 8))
    assert contents.read_error("ListOffsets", 6, ground.came(client)) == CODE
    assert ground.relay.rules["r"].counted.hit == 1


def test_what_a_rule_cannot_read_passes_and_is_told_of_the_rule(ground: Ground) -> None:
    client, node = ground.connect()
    ground.lay(RuleKind.LOSE, api=1, places=[["orders", 2]])
    frame = fetch(1, 0, 2)
    spoilt = frame[:23] + b"\xff" * (len(frame) - 23)
    client.sendall(spoilt)
    assert ground.came(node) == spoilt
    assert ground.relay.rules["r"].counted.trouble and not ground.relay.trouble


@pytest.mark.parametrize("api", ANSWERABLE)
def test_what_is_made_is_what_is_read(api: str) -> None:
    for version in contents._LAYOUTS[api][0]:
        asked = memoryview(struct.pack(">ihhih", 10, APIS[api].key, version, 5, -1))
        frame = contents.make_error_response(APIS[api].key, version, asked, CODE)
        assert read_error(api, version, frame) == CODE
        try:
            kind = message(f"{api}Response")
        except FileNotFoundError:
            continue  # kafka-python has no such message: real brokers read it in the tests of the night
        if version <= kind.max_version:
            read = kind.decode(frame[4:], version=version, header=True)
            assert read.error_code == CODE
            read.with_header(correlation_id=5)
            assert bytes(read.encode(header=True, framed=True)) == frame


_OLD_NAMES = {
    "NOT_LEADER_OR_FOLLOWER": "NOT_LEADER_FOR_PARTITION",
    "MESSAGE_TOO_LARGE": "MESSAGE_SIZE_TOO_LARGE",
    "UNKNOWN_SERVER_ERROR": "UNKNOWN",
}
"""Names that kafka-python still uses for errors, by Kafka's present names."""


def test_the_codes_are_kafkas() -> None:
    kafkas = {name: kafka_python("errors").for_code(code).message for name, code in ERRORS.items()}
    assert kafkas == {name: _OLD_NAMES.get(name, name) for name in ERRORS}
