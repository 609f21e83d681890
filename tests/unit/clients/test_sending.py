"""How records are handed to librdkafka: one by one or a place at a time, the journal says the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from ackproof.clients.channel import SharedCounters
from ackproof.clients.contract import ProducerSettings
from ackproof.clients.journal import DONE, RESULT, SENT, Journal
from ackproof.clients.librdkafka import sending
from ackproof.clients.librdkafka.sending import Sender
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition

PLACES = (TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("bills", 0))
ROWS = 64
FEW, MANY = 9, 48
"""Sent one by one; sent a place at a time."""


@dataclass
class Library:
    """Takes records as librdkafka does: while there is room; after the first without, none of the same batch."""

    room: int = 1 << 20
    refuse: dict[bytes, int] = field(default_factory=dict)
    bad_topic: str = ""
    took: list[tuple[str, int, bytes]] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    """When each began, as the journal's clock says."""
    taken_in: dict[bytes, int] = field(default_factory=dict)
    """By which call a value was taken."""
    looks: Callable[[], None] = lambda: None

    def produce(self, topic: str, value: bytes, key: None, partition: int) -> None:
        self.calls.append(time.monotonic_ns())
        if topic == self.bad_topic:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG))
        if value in self.refuse:
            raise KafkaException(KafkaError(self.refuse[value]))
        if not self.room:
            raise BufferError
        self.room -= 1
        self._takes(topic, partition, value)

    def produce_batch(self, topic: str, messages: list[dict[str, object]], partition: int) -> int:
        self.calls.append(time.monotonic_ns())
        self.looks()
        if topic == self.bad_topic:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG))
        full, taken = False, 0
        for message in messages:
            value = message["value"]
            assert isinstance(value, bytes)
            if not full and value in self.refuse:
                message["_error"] = KafkaError(self.refuse[value])
            elif full or not self.room:
                full = True
                message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
            else:
                self.room -= 1
                taken += 1
                self._takes(topic, partition, value)
        return taken

    def _takes(self, topic: str, partition: int, value: bytes) -> None:
        self.took.append((topic, partition, value))
        self.taken_in[value] = len(self.calls) - 1


@dataclass
class Bench:
    library: Library
    sender: Sender
    journal: Journal
    counters: SharedCounters
    errors: list[KafkaError]
    served: list[float]
    ending: bool = False
    more: int = 0
    """Room that each serving of reports makes."""
    end_after: int = 1 << 20
    """Servings after which the producer is asked to stop."""

    def serve(self, timeout_s: float) -> None:
        self.served.append(timeout_s)
        self.library.room += self.more
        self.ending = self.ending or len(self.served) >= self.end_after

    def column(self, which: int, count: int) -> list[int]:
        column: list[int] = self.journal.current.matrix[:count, which].tolist()
        return column


def values(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    settings = ProducerSettings(
        client="p0",
        producer=0,
        run_id="00" * 8,
        case_dir=str(tmp_path),
        places=PLACES,
        first_place=1,
        value_size=100,
        rate=None,
        origin_ns=0,
        chunk_rows=ROWS,
        config={},
    )
    SharedCounters(tmp_path / "counters", len(PLACES), create=True)
    journal = Journal(tmp_path / "journal", ROWS)
    journal.extend()
    journal.current.matrix[:, RESULT] = (np.arange(ROWS) + 1) % len(PLACES)
    library, errors = Library(), list[KafkaError]()
    counters = SharedCounters(tmp_path / "counters", len(PLACES))
    sender = Sender(
        library,  # type: ignore[arg-type]
        journal,
        counters,
        settings,
        serve=lambda timeout_s: made.serve(timeout_s),
        ending=lambda: made.ending,
        failed=errors.append,
        tombstone_callback=lambda value: lambda error, message: None,
    )
    made = Bench(library, sender, journal, counters, errors, [])
    yield made


def in_order(bench: Bench, count: int, without: Set[int] = frozenset()) -> None:
    """Every record is where it belongs, once, and in the order of its seq within its partition."""
    for nth, place in enumerate(PLACES):
        mine = [value for topic, partition, value in bench.library.took if (topic, partition) == place]
        due = [b"%d" % seq for seq in range(count) if (seq + 1) % len(PLACES) == nth and seq not in without]
        assert mine == due


@pytest.mark.parametrize("count", [1, FEW, MANY])
def test_each_record_goes_to_its_place_in_order(bench: Bench, count: int) -> None:
    before = time.monotonic_ns()
    assert bench.sender.send(0, values(count)) == count
    in_order(bench, count)
    sent = bench.column(SENT, ROWS)
    assert all(before <= one <= time.monotonic_ns() for one in sent[:count])
    assert not any(sent[count:])
    assert len(bench.library.calls) == (count if count <= FEW else len(PLACES))


@pytest.mark.parametrize("first", [1, 2, 3, FEW])
def test_a_block_begins_at_any_seq(bench: Bench, first: int) -> None:
    assert bench.sender.send(0, values(first)) == first
    assert bench.sender.send(first, values(first + MANY)[first:]) == MANY
    in_order(bench, first + MANY)


@pytest.mark.parametrize("count", [FEW, MANY])
def test_sent_is_when_the_library_was_offered_the_record_that_it_took(bench: Bench, count: int) -> None:
    bench.library.room, bench.more = 5, 4
    before = time.monotonic_ns()
    assert bench.sender.send(0, values(count)) == count
    calls, sent = bench.library.calls, bench.column(SENT, count)
    for seq in range(count):
        taken_in = bench.library.taken_in[b"%d" % seq]
        assert (calls[taken_in - 1] if taken_in else before) <= sent[seq] <= calls[taken_in]


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("room", [0, 1, 5, 20])
def test_what_there_is_no_room_for_is_offered_again_in_order(bench: Bench, count: int, room: int) -> None:
    bench.library.room, bench.more = room, 4
    assert bench.sender.send(0, values(count)) == count
    in_order(bench, count)
    assert all(bench.column(SENT, count))
    assert bool(bench.served) is (room < count)


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("room", [0, 1, 5, 20, 33])
@pytest.mark.parametrize("servings", [0, 2])
def test_what_was_not_taken_before_the_end_leaves_no_gap(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, count: int, room: int, servings: int
) -> None:
    monkeypatch.setattr(sending, "_END_S", 0.0)
    bench.library.room, bench.end_after, bench.ending = room, servings, servings == 0
    dealt_with = bench.sender.send(0, values(count))
    attempts = [seq for seq, sent in enumerate(bench.column(SENT, count)) if sent]
    assert attempts == list(range(dealt_with))
    done, result = bench.column(DONE, count), bench.column(RESULT, count)
    failed = {seq for seq in range(count) if done[seq]}
    taken = {int(value) for _, _, value in bench.library.took}
    assert taken == set(attempts) - failed
    assert len(taken) == min(room, count)
    assert max(attempts, default=-1) == max(taken, default=-1), (
        "what comes after the last that was taken is none"
    )
    assert {result[seq] >> 48 for seq in failed} <= {Outcome.FAILED}
    assert bench.counters.failed == len(failed)
    if count == FEW:
        assert not failed


def test_a_block_that_was_begun_is_brought_to_its_end_while_there_is_time(bench: Bench) -> None:
    bench.library.room, bench.more, bench.ending = 5, 2, True
    assert bench.sender.send(0, values(MANY)) == MANY
    in_order(bench, MANY)
    assert not any(bench.column(DONE, MANY))


def test_one_that_is_killed_in_the_middle_of_a_block_has_left_no_seq_out(bench: Bench) -> None:
    """A kill would leave what the journal says whenever the library is called."""
    seen: list[list[int]] = []
    bench.library.looks = lambda: seen.append(bench.column(SENT, ROWS))
    bench.library.room, bench.more = 20, 3
    bench.sender.send(0, values(MANY))
    assert len(seen) > len(PLACES)
    assert all(all(sent[:MANY]) and not any(sent[MANY:]) for sent in seen)


@pytest.mark.parametrize("count", [FEW, MANY])
def test_what_the_library_refuses_is_a_failed_attempt(bench: Bench, count: int) -> None:
    bench.library.refuse = {b"2": KafkaError.MSG_SIZE_TOO_LARGE, b"7": KafkaError._UNKNOWN_PARTITION}
    assert bench.sender.send(0, values(count)) == count
    in_order(bench, count, {2, 7})
    assert all(bench.column(SENT, count))
    done, result = bench.column(DONE, count), bench.column(RESULT, count)
    assert [seq for seq in range(count) if done[seq]] == [2, 7]
    assert [result[seq] >> 48 for seq in (2, 7)] == [Outcome.FAILED, Outcome.FAILED]
    codes = [np.uint16(result[seq] >> 32 & 0xFFFF).astype(np.int16) for seq in (2, 7)]
    assert codes == [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._UNKNOWN_PARTITION]
    assert [result[seq] & 0xFFFFFFFF for seq in range(count)] == [(seq + 1) % 3 for seq in range(count)]
    assert bench.counters.failed == 2
    assert {error.code() for error in bench.errors} == set(bench.library.refuse.values())


def test_refused_and_no_room_in_one_batch(bench: Bench) -> None:
    bench.library.refuse = {b"2": KafkaError.MSG_SIZE_TOO_LARGE}
    bench.library.room, bench.more = 3, 50
    assert bench.sender.send(0, values(MANY)) == MANY
    in_order(bench, MANY, {2})
    assert [seq for seq, done in enumerate(bench.column(DONE, MANY)) if done] == [2]


@pytest.mark.parametrize("count", [FEW, MANY])
def test_a_topic_that_the_library_does_not_take_fails_all_that_was_for_it(bench: Bench, count: int) -> None:
    bench.library.bad_topic = "bills"
    assert bench.sender.send(0, values(count)) == count
    failed = [seq for seq, done in enumerate(bench.column(DONE, count)) if done]
    assert failed == [seq for seq in range(count) if (seq + 1) % 3 == 2]
    assert bench.counters.failed == len(failed)


def test_the_real_library_takes_a_batch_as_the_one_above_does() -> None:
    """It takes from the front while there is room, and says of each that it did not take why."""
    told: list[int] = []
    producer = Producer(
        {
            "bootstrap.servers": "unused",
            "test.mock.num.brokers": 1,
            "queue.buffering.max.messages": 10,
            "log_level": 2,
            "on_delivery": lambda error, message: told.append(int(message.value())),
        }
    )
    messages: list[dict[str, object]] = [{"value": value} for value in values(30)]
    messages[4]["value"] = b"x" * 2_000_000
    assert producer.produce_batch("orders", messages, 1) == 10
    errors = [message.get("_error") for message in messages]
    codes = [error.code() if isinstance(error, KafkaError) else 0 for error in errors]
    full = KafkaError._QUEUE_FULL
    assert codes == [0] * 4 + [KafkaError.MSG_SIZE_TOO_LARGE] + [0] * 6 + [full] * 19
    producer.flush()
    assert told == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10]
