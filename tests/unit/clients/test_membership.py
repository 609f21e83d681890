"""Tests of the positions of a librdkafka group member, with a fake library whose answers each test sets."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_STORED, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Part

from ackproof.clients.librdkafka import member as librdkafka_member
from ackproof.clients.librdkafka import membership
from ackproof.clients.librdkafka.member import MemberProcess, Pace
from ackproof.clients.librdkafka.membership import Lines, Membership

ORDERS = ("orders", 0)


class Library:
    """Fake consumer. `offset`: committed offset that its coordinator returns for each partition; -1001: none."""

    offset = -1001

    def __init__(self, config: object) -> None:
        self.assigned: list[int] = []

    def subscribe(self, topics: object, **callbacks: object) -> None:
        pass

    def consumer_group_metadata(self) -> bytes:
        return b""

    def committed(self, parts: list[Part], timeout: float) -> list[Part]:
        return [Part(part.topic, part.partition, self.offset) for part in parts]

    def get_watermark_offsets(self, part: Part, timeout: float) -> tuple[int, int]:
        return 0, 90

    def assign(self, parts: list[Part]) -> None:
        self.assigned = [part.offset for part in parts]


class Told(Lines):
    """Fake `Lines` that keeps the events of a member as (event, fields)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def add(self, event: str, **fields: object) -> None:
        self.events.append((event, fields))

    def flush(self) -> None:
        pass

    @property
    def resets(self) -> list[tuple[object, object]]:
        return [(fields["from"], fields["to"]) for event, fields in self.events if event == "reset"]


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> tuple[Membership, Any, Told]:
    monkeypatch.setattr(membership, "Consumer", Library)
    settings: Any = type("Settings", (), {"topics": ["orders"], "config": {}, "cooperative": False,
                                          "start": "earliest", "reset": "earliest"})()  # fmt: skip
    told = Told()
    made = Membership(settings, threading.Event(), told, lambda places: None)
    return made, made.client, told


def no_offset() -> Any:
    """Return the error message by which the library reports that it found no committed offset."""
    error = KafkaError(KafkaError._NO_OFFSET)
    return type("Message", (Part,), {"error": lambda _: error})(*ORDERS)


def test_a_reset_begins_where_nothing_is_committed(member: tuple[Membership, Any, Told]) -> None:
    made, library, told = member
    made._on_assign(library, [Part(*ORDERS)])
    assert (told.resets, library.assigned) == ([(-1, 0)], [0])


def test_a_member_that_stops_does_not_reset(member: tuple[Membership, Any, Told]) -> None:
    made, library, told = member
    made._stop.set()
    made._on_assign(library, [Part(*ORDERS)])
    made.take_errors([no_offset()])
    made.resume()
    assert (told.resets, made.positions) == ([], {ORDERS: OFFSET_STORED})


def test_an_unknown_position_is_asked_for_before_a_reset(
    member: tuple[Membership, Any, Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, library, told = member
    monkeypatch.setattr(membership, "_POSITIONS_S", 0.0)  # the coordinator does not answer at the assignment
    made._on_assign(library, [Part(*ORDERS)])
    assert library.assigned == [OFFSET_STORED]
    made.uncommitted = {ORDERS: 30}
    made.take_errors([no_offset()])
    made.resume()
    assert (told.resets, library.assigned) == ([], [OFFSET_STORED])
    monkeypatch.setattr(membership, "_POSITIONS_S", 1.0)
    library.offset = 40
    made.resume()
    assert (told.resets, library.assigned, made.positions) == ([], [40], {ORDERS: 40})
    assert [fields["os"] for event, fields in told.events if event == "position"] == [[["orders", 0, 40]]]
    made.take_errors([cast("Any", type("Message", (Part,), {"error": lambda _: KafkaError(1)})(*ORDERS))])
    made.resume()
    assert (told.resets, made.uncommitted) == ([(40, 0)], {})


class Transactions:
    """Fake transactional producer. Its commit is still in progress whenever the call returns, so the library refuses
    every other call."""

    def __init__(self) -> None:
        self.aborts = 0

    def begin_transaction(self) -> None:
        pass

    def send_offsets_to_transaction(self, *_: object) -> None:
        pass

    def commit_transaction(self, _: float) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "retry call to resume", retriable=True))

    def abort_transaction(self, _: float) -> None:
        self.aborts += 1
        raise KafkaException(KafkaError(KafkaError._CONFLICT, "in progress", retriable=True))


def test_a_commit_that_stays_in_progress_is_unknown_and_another_producer_takes_over(
    member: tuple[Membership, Any, Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, library, told = member
    library.assignment = list
    process: Any = object.__new__(MemberProcess)
    process.settings = type("Settings", (), {"group_metadata": True, "member": 0, "output": "copies"})()
    process.lines, process.group, process.number, process.pace = told, made, 0, Pace(0.0)
    first = process.producer = Transactions()
    process._start_producer = Transactions
    monkeypatch.setattr(librdkafka_member, "_INSIST_S", 0.0)
    process._transact([], {}, {})
    ended = [fields for event, fields in told.events if event == "ended"]
    assert (ended[0]["x"], ended[0]["aborted"]) == ("_TIMED_OUT", False)
    assert process.producer is not first
    assert first.aborts == 0


def test_a_reset_comes_after_the_records_of_its_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of a poll are processed before the reset that the same poll reports."""
    told: list[str] = []
    stop = threading.Event()
    group = SimpleNamespace(
        client=SimpleNamespace(consume=lambda count, wait: [record], close=lambda: None),
        take_errors=lambda messages: told.append("error"),
        resume=lambda: (told.append("reset"), stop.set()),
        tell=lambda event: None,
    )
    record = SimpleNamespace(error=lambda: None)
    made = object.__new__(MemberProcess)
    made.settings, made.stop, made.group, made.lines = cast(
        Any, (SimpleNamespace(batch=1, commit="after"), stop, group, Told())
    )
    monkeypatch.setattr(made, "_take", lambda records: told.append("records"))
    monkeypatch.setattr(made, "_commit_processed", lambda: None)
    monkeypatch.setattr(librdkafka_member, "_CLOSE_S", 1e6)  # else the process ends
    assert made.run() == 0
    assert told == ["error", "records", "reset"]
