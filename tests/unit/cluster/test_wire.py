"""Tests of the protocol client: bytes that real nodes (4.3.1) sent and received, and servers that misbehave."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ackproof.cluster import queries
from ackproof.cluster.queries import PartitionState
from ackproof.experiment.spec import TopicSpec
from ackproof.network.addresses import Address
from ackproof.network.wire import Connection, Refused, Unreachable, error_name
from ackproof.rundir.partition import TopicPartition

BROKERS = (
    "000000180003000900000011000861636b70726f6f66000101000000",
    "00000011000000000004000000010b3132372e34382e322e31000071a6026100000000020b3132372e34382e322e32000071a6"
    "026200000000030b3132372e34382e322e33000071a6026100176b326f4d3064314554565758424a662d4f4d5041645100000003"
    "018000000000",
)
PARTITIONS = (
    "00000022004b000000000016000861636b70726f6f660002076f726465727300000007d0ff00",
    "000000160000000000020000076f7264657273a8211650aff94888a512c4f4faec9263000300000000000000000002000000000"
    "40000000200000001000000030400000002000000010000000301010100000000000001000000030000000004000000030000000"
    "200000001040000000300000002000000010101010000000df800ff00",
)
QUORUM = (
    "0000002f0037000100000039000861636b70726f6f660002135f5f636c75737465725f6d657461646174610200000000000000",
    "0000003900000002135f5f636c75737465725f6d6574616461746102000000000000000000650000000100000000000000190200"
    "0000650000000000000019000001a1fc75e1ae000001a1fc75e1ae0004000000030000000000000019000001a1fc75e176000001"
    "a1fc75e17600000000020000000000000019000001a1fc75e171000001a1fc75e17100000000010000000000000019000001a1fc"
    "75e16c000001a1fc75e16c00000000",
)
LEADER = (
    "00000016003c00010000003a000861636b70726f6f6600000200",
    "0000003a000000000000000002176b326f4d3064314554565758424a662d4f4d504164510000006502000000650e6e6f64652d31"
    "30312e74657374000071a500008000000000",
)
HIGH_WATERMARKS = (
    "000000470002000500000017000861636b70726f6f66ffffffff000000000100066f72646572730000000200000000ffffffffff"
    "ffffffffffffff00000001ffffffffffffffffffffffff",
    # Partition 0 is led by this broker, partition 1 is not (NOT_LEADER_OR_FOLLOWER).
    "00000017000000000000000100066f726465727300000002000000000000ffffffffffffffff0000000000000007000000000000"
    "00010006ffffffffffffffffffffffffffffffffffffffff",
)
CREATED = (
    "0000003e0013000500000018000861636b70726f6f660003076f7264657273000000010003010100046261640000000100030102"
    "04782e7902310000000013880000",
    "00000018000000000003076f726465727300241f546f70696320276f72646572732720616c7265616479206578697374732effff"
    "ffffffff01000462616400281f556e6b6e6f776e20746f70696320636f6e666967206e616d653a20782e79ffffffffffff010000",
)
DELETED = (
    "000000200014000500000019000861636b70726f6f660002076f72646572730000138800",
    "00000019000000000002076f72646572730000000000",
)
PLACES = [TopicPartition("orders", 0), TopicPartition("orders", 1)]

Behave = Callable[[socket.socket], None]


@contextmanager
def server(*behaviours: Behave) -> Iterator[Address]:
    """Yield the address of a server that handles each connection with the next one of these functions."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for behave in behaviours:
            try:
                line, _ = listener.accept()
            except OSError:
                return
            with line:
                line.settimeout(5)
                try:
                    behave(line)
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield Address("127.0.0.1", listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def request(line: socket.socket) -> bytes:
    head = line.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        raise OSError("closed")
    return head + line.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)


def frame(body: bytes, correlation: bytes | None = None) -> bytes:
    body = body if correlation is None else correlation + body[4:]
    return struct.pack(">i", len(body)) + body


def exchange(captured: tuple[str, str], asked: list[bytes]) -> Behave:
    def behave(line: socket.socket) -> None:
        got = request(line)
        asked.append(got)
        line.sendall(frame(bytes.fromhex(captured[1]), got[8:12]))

    return behave


def same(captured: tuple[str, str], asked: list[bytes]) -> bool:
    expected, (got,) = bytes.fromhex(captured[0]), asked
    return got[:8] == expected[:8] and got[12:] == expected[12:]


def ask(captured: tuple[str, str], question: Callable[[Connection], object]) -> object:
    asked: list[bytes] = []
    with server(exchange(captured, asked)) as address, Connection(address) as connection:
        said = question(connection)
    assert same(captured, asked), "the request is not what a real exchange had"
    return said


def test_brokers() -> None:
    assert ask(BROKERS, queries.brokers) == {1, 2, 3}


def test_partitions() -> None:
    found = ask(PARTITIONS, lambda connection: queries.partitions(connection, ["orders"]))
    assert found == {
        PLACES[0]: PartitionState("orders", 0, 2, 0, (2, 1, 3), (2, 1, 3)),
        PLACES[1]: PartitionState("orders", 1, 3, 0, (3, 2, 1), (3, 2, 1)),
    }


def test_the_quorum() -> None:
    quorum = ask(QUORUM, queries.quorum)
    assert isinstance(quorum, queries.Quorum)
    assert (quorum.leader, quorum.epoch) == (101, 1)
    assert quorum.voters == (queries.Voter(101),)


def test_the_quorum_leader() -> None:
    assert ask(LEADER, queries.quorum_leader) == 101


def test_offsets_of_partitions_that_the_broker_cannot_answer_for_are_missing() -> None:
    question = queries.ask_offsets(PLACES, what=queries.LATEST)
    found = ask(HIGH_WATERMARKS, lambda connection: queries.read_offsets(connection.ask(question)))
    assert found == {PLACES[0]: 7}


def test_a_debugging_replica_asks_for_the_brokers_own_log_end() -> None:
    data = queries.ask_log_ends(PLACES).encode(1)
    consumer = queries.ask_offsets(PLACES, what=queries.LATEST).encode(1)
    committed = queries.ask_offsets(PLACES, what=queries.LATEST, isolation=queries.READ_COMMITTED).encode(1)
    at = consumer.index(b"ackproof") + len("ackproof")
    assert (consumer[at : at + 5], data[at : at + 5]) == (b"\xff\xff\xff\xff\0", b"\xff\xff\xff\xfe\0")
    assert committed[at : at + 5] == b"\xff\xff\xff\xff\x01"
    assert data[at + 5 :] == consumer[at + 5 :] == committed[at + 5 :]


def test_creating_topics_tells_which_were_refused_and_why() -> None:
    topics = {"orders": TopicSpec(), "bad": TopicSpec(config={"x.y": "1"})}
    refused = ask(CREATED, lambda connection: queries.create_topics(connection, topics, 5.0))
    assert isinstance(refused, dict)
    assert {name: (why.code, why.reason) for name, why in refused.items()} == {
        "orders": (36, "TOPIC_ALREADY_EXISTS: Topic 'orders' already exists."),
        "bad": (40, "INVALID_CONFIG: Unknown topic config name: x.y"),
    }


def test_an_assignment_is_sent_as_it_is() -> None:
    spec = TopicSpec(assignment=((3, 1), (1, 2)))
    asked: list[bytes] = []
    with server(exchange(CREATED, asked)) as address, Connection(address) as connection:
        queries.create_topics(connection, {"t": spec}, 5.0)
    first, second = (struct.pack(">ibiib", i, 3, *pair, 0) for i, pair in enumerate(((3, 1), (1, 2))))
    rows = first + second
    assert b"\x02t" + struct.pack(">ih", -1, -1) + b"\x03" + rows in asked[0]


def test_deleting_topics() -> None:
    assert ask(DELETED, lambda connection: queries.delete_topics(connection, ["orders"], 5.0)) is None


def test_errors_are_typed() -> None:
    refusal = bytes.fromhex(DELETED[1])[:-5] + b"\0\x03\0\0\0"
    with (
        server(lambda line: line.sendall(frame(refusal, request(line)[8:12]))) as address,
        Connection(address) as connection,
        pytest.raises(Refused, match="orders could not be deleted: UNKNOWN_TOPIC") as caught,
    ):
        queries.delete_topics(connection, ["orders"], 5.0)
    assert caught.value.code == 3
    assert (error_name(41), error_name(31999)) == ("NOT_CONTROLLER", "error 31999")


def test_a_silent_node_costs_no_more_than_the_bound() -> None:
    done = threading.Event()
    with server(lambda line: done.wait(5) and None) as address, Connection(address) as connection:
        began = time.monotonic()
        with pytest.raises(Unreachable, match=rf"{address}.*no answer in time"):
            connection.ask(queries.ask_brokers(), timeout_s=0.1)
        assert 0.1 <= time.monotonic() - began < 0.5
        done.set()


def test_a_node_that_drips_does_not_stretch_the_bound() -> None:
    stop = threading.Event()

    def drip(line: socket.socket) -> None:
        request(line)
        for byte in frame(bytes.fromhex(BROKERS[1])):
            if stop.wait(0.02):
                return
            line.sendall(bytes([byte]))

    with server(drip) as address, Connection(address) as connection:
        began = time.monotonic()
        with pytest.raises(Unreachable):
            connection.ask(queries.ask_brokers(), timeout_s=0.2)
        assert time.monotonic() - began < 0.6
        stop.set()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">i", -5),
        frame(b"\0\0"),
        frame(bytes.fromhex(BROKERS[1]), b"\x7f\xff\xff\xff"),
        frame(bytes.fromhex(BROKERS[1])[:4] + b"\x01" + bytes.fromhex(BROKERS[1])[5:]),
        frame(bytes.fromhex(BROKERS[1])[:30]),
    ],
    ids=["closed", "http", "negative", "short", "stranger", "tagged", "torn"],
)
def test_nonsense_is_unreachable_and_the_next_question_gets_a_new_connection(answer: bytes) -> None:
    def nonsense(line: socket.socket) -> None:
        number = request(line)[8:12]
        body = answer.replace(bytes.fromhex(BROKERS[1])[:4], number) if len(answer) > 10 else answer
        line.sendall(body)

    with server(nonsense, exchange(BROKERS, [])) as address, Connection(address) as connection:
        with pytest.raises(Unreachable):
            connection.ask(queries.ask_brokers(), timeout_s=0.5)
        assert queries.brokers(connection) == {1, 2, 3}


def test_a_late_answer_is_not_taken_for_the_next_one() -> None:
    late = threading.Event()

    def answer_late(line: socket.socket) -> None:
        got = request(line)
        late.wait(5)
        line.sendall(frame(bytes.fromhex(PARTITIONS[1]), got[8:12]))

    with server(answer_late, exchange(BROKERS, [])) as address, Connection(address) as connection:
        with pytest.raises(Unreachable):
            connection.ask(queries.ask_partitions(["orders"]), timeout_s=0.05)
        late.set()
        assert queries.brokers(connection) == {1, 2, 3}


def test_one_connection_is_kept() -> None:
    def twice(line: socket.socket) -> None:
        for _ in range(2):
            line.sendall(frame(bytes.fromhex(BROKERS[1]), request(line)[8:12]))

    with server(twice) as address, Connection(address) as connection:
        assert queries.brokers(connection) == queries.brokers(connection) == {1, 2, 3}


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = Address("127.0.0.1", gone.getsockname()[1])
    with Connection(address) as connection, pytest.raises(Unreachable, match="Connection refused"):
        queries.brokers(connection)
