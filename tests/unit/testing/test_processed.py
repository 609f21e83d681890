"""The rules of `Ledger.assert_processed`, without a cluster: how often a group must have processed each record."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer

from ackproof.base.errors import BadInput
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import ClientLibrary
from ackproof.rundir.payload import Identity
from ackproof.testing.audited import audit_consumer
from ackproof.testing.book import Book, Content, Place, Read
from ackproof.testing.ledger import (
    Promise,
    acknowledged_records,
    judge_group,
    mark_processed,
    place_of,
)

LIBRARY = ClientLibrary("test", "1")
COUNT = 6


@pytest.fixture
def book() -> Book:
    """A book with six attempts for orders/0. The fifth is not acknowledged; the sixth's transaction was aborted."""
    book = Book("0123456789abcdef", 0)
    producer = book.new_producer(LIBRARY)
    for seq in range(COUNT):
        attempt = book.attempt(producer, Content("orders", None, b"%d" % seq), 0)
        producer.attempts.append(attempt)
        attempt.outcome = Outcome.INDETERMINATE if seq == 4 else Outcome.ACKED
        attempt.given_up, attempt.sent_ns = seq == 5, 0
    return book


def read(offset: int) -> Read:
    return Read(0, "orders", 0, offset, -1, Identity(0, offset, "orders", 0, True), 0, 0)


def message(offset: int) -> SimpleNamespace:
    return SimpleNamespace(topic="orders", partition=0, offset=offset)


def judged(
    book: Book, committed: int, promise: Promise = "at least once", *, caught_up: bool = False
) -> list[str]:
    records = acknowledged_records(book, [read(offset) for offset in range(COUNT)])
    places = {TopicPartition("orders", 0): committed}
    return judge_group(book, "billing", places, records, promise, caught_up=caught_up)


def line(offset: int) -> str:
    return f"  orders/0 offset {offset}: value b'{offset}' (p0 #{offset}, sent at 0.00 s)"


def hand(book: Book, *offsets: int, group: str = "billing") -> None:
    book.new_reader(LIBRARY, group).extend(read(offset) for offset in offsets)


def test_what_was_committed_past_must_have_been_handed_over(book: Book) -> None:
    hand(book, 0, 2)
    hand(book, 1, 3, group="shipping")
    assert judged(book, 1) == []
    assert judged(book, 4) == [
        "group billing did not process every record at least once (committed offsets: orders/0 4).",
        "committed past, never handed over: 2",
        line(1),
        line(3),
    ]
    assert judged(book, 4, "at most once") == []


def test_neither_unacknowledged_nor_aborted_records_count(book: Book) -> None:
    hand(book, 0, 1, 2, 3)
    assert judged(book, COUNT, "exactly once", caught_up=True) == []


def test_marks_count_once_there_are_any(book: Book) -> None:
    hand(book, 0, 1, 2, 3)
    for offset in (0, 1, 1):
        mark_processed(book, message(offset), None)
    lines = judged(book, 4, "exactly once")
    assert lines[1:] == [
        "committed past, handed over, not processed: 2",
        line(2),
        line(3),
        "processed more than once: 1",
        line(1),
    ]
    assert judged(book, 2, "at least once") == []


def test_handed_over_twice_is_not_exactly_once_also_ahead_of_the_commit(book: Book) -> None:
    hand(book, 0, 1)
    hand(book, 1)
    assert judged(book, 1, "at most once")[1:] == [
        "processed more than once: 1",
        line(1),
    ]
    assert judged(book, 1, "at least once") == []


def test_caught_up_asks_for_all(book: Book) -> None:
    hand(book, 0, 1, 2)
    assert judged(book, 3) == []
    assert judged(book, 3, caught_up=True)[1:] == ["not committed past: 1", line(3)]


def test_a_group_must_be_clear(book: Book) -> None:
    with pytest.raises(BadInput, match="name the group: consumers of this ledger are in none"):
        mark_processed(book, message(0), None)
    hand(book, 0)
    hand(book, 0, group="shipping")
    with pytest.raises(BadInput, match="are in billing, shipping"):
        mark_processed(book, message(0), None)
    mark_processed(book, message(0), "shipping")
    assert book.processed == [("shipping", Place("orders", 0, 0))]
    with pytest.raises(TypeError, match="expected a message that a consumer returned, not b'order'"):
        place_of(b"order")


def test_the_group_of_a_consumer_of_confluent_is_known(book: Book) -> None:
    given = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "bücher", "log_level": 0})
    audit_consumer(given, book)
    assert book.reader_groups == ["bücher"]
    given.close()
