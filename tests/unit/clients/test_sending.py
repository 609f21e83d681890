"""Tests of `Sender`: records sent one by one and in batches per partition leave the same journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import KafkaError, KafkaException

from ackproof.clients.channel import SharedCounters
from ackproof.clients.contract import ProducerSettings
from ackproof.clients.journal import RESULT, SENT, Journal
from ackproof.clients.librdkafka.sending import Sender
from ackproof.rundir.partition import TopicPartition

PLACES = (TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("bills", 0))
ROWS = 64
STAMPS_FROM_NS = 1_700_000_000_123_456_789
FEW, MANY = 9, 48
"""Numbers of records: FEW are sent one by one, MANY in one batch per partition."""


@dataclass
class Library:
    """Fake librdkafka producer. It takes records while `room` lasts; after the first record without room it takes none
    of the same batch. `refuse`: error code by value. `bad_topic`: topic whose calls fail. `looks` is called at the
    begin of each batch call."""

    room: int = 1 << 20
    refuse: dict[bytes, int] = field(default_factory=dict)
    bad_topic: str = ""
    took: list[tuple[str, int, bytes]] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    """Start of each call in CLOCK_MONOTONIC ns."""
    taken_in: dict[bytes, int] = field(default_factory=dict)
    """Index in `calls` of the call that took a value."""
    timestamps: dict[bytes, int] = field(default_factory=dict)
    looks: Callable[[], None] = lambda: None

    def produce(self, topic: str, value: bytes, key: None, partition: int, *, timestamp: int) -> None:
        self.calls.append(time.monotonic_ns())
        if topic == self.bad_topic:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG))
        if value in self.refuse:
            raise KafkaException(KafkaError(self.refuse[value]))
        if not self.room:
            raise BufferError
        self.room -= 1
        self._takes(topic, partition, value, timestamp)

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
                assert message.keys() == {"value"}, "the library takes no timestamps in batches"
                self._takes(topic, partition, value, 0)
        return taken

    def _takes(self, topic: str, partition: int, value: bytes, timestamp: int) -> None:
        self.timestamps[value] = timestamp
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
    """Room that each call of `serve` adds."""
    end_after: int = 1 << 20
    """Number of `serve` calls after which the producer is asked to stop."""

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
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    """Return a sender with a fake library. With the parameter `stamps` it sets the records' timestamps."""
    settings = ProducerSettings(
        client="p0",
        producer=0,
        run_id="00" * 8,
        case_dir=str(tmp_path),
        places=PLACES,
        first_place=1,
        value_size=100,
        rate=5.0 if getattr(request, "param", "") == "stamps" else None,
        origin_ns=0,
        chunk_rows=ROWS,
        config={},
        stamps_from_ns=STAMPS_FROM_NS,
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
    return made


def in_order(bench: Bench, count: int, without: Set[int] = frozenset()) -> None:
    """Assert that each partition got its records once, in order of seq, except those in `without`."""
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


@pytest.mark.parametrize("bench", ["stamps"], indirect=True)
@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("room", [1 << 20, 5])
def test_a_record_has_the_time_of_the_call_that_took_it(bench: Bench, count: int, room: int) -> None:
    """A call without room is repeated. Journal and record have the time of the call that succeeded."""
    bench.library.room, bench.more = room, 7
    assert bench.sender.send(0, values(count)) == count
    expected = [(STAMPS_FROM_NS + sent) // 1_000_000 for sent in bench.column(SENT, count)]
    assert [bench.library.timestamps[value] for value in values(count)] == expected


@pytest.mark.parametrize("count", [FEW, MANY])
def test_at_full_speed_the_library_sets_timestamps(bench: Bench, count: int) -> None:
    assert bench.sender.send(0, values(count)) == count
    assert set(bench.library.timestamps.values()) == {0}
