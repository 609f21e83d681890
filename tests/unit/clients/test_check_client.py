"""`ackproof check-client`: a service that keeps to the contract, and planted breaches of it, each found by its kind."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from ackproof.clients.command.check import CheckedProcess, Report, Role, Truth, examine
from ackproof.clients.command.events import BreachKind, EventName
from ackproof.rundir.partition import TopicPartition

NOW = time.monotonic_ns()
IN, OUT = TopicPartition("orders", 0), TopicPartition("copies", 0)
RECORDS = 3
Fields: TypeAlias = dict[str, object]
Lines: TypeAlias = list[Fields | str]


def lines_of_a_service() -> Lines:
    """Return the events that a service of level 3 prints when it copies three records."""
    told: Lines = [
        {"e": "started", "client": "test", "acks": "all"},
        {"e": "assigned", "ps": [["orders", 0]]},
    ]
    told += [{"e": "delivered", "topic": "orders", "p": 0, "o": n} for n in range(RECORDS)]
    told += [
        {"e": "attempt", "n": n, "topic": "copies", "p": 0, "of": ["orders", 0, n]} for n in range(RECORDS)
    ]
    told += [{"e": "result", "n": n, "o": n} for n in range(RECORDS)]
    told += [{"e": "processed", "topic": "orders", "p": 0, "o": n} for n in range(RECORDS)]
    told += [{"e": "commit", "n": 0, "os": [["orders", 0, RECORDS]]}, {"e": "committed", "n": 0}]
    told += [{"e": "stopping"}, {"e": "closed"}]
    return [{**line, "t": NOW + 10 * at} for at, line in enumerate(told) if isinstance(line, dict)]


TRUTH = Truth(
    input=[(0, n, 0, n) for n in range(RECORDS)],
    written=[(0, n, 0, n) for n in range(RECORDS)],
    committed={IN: RECORDS},
)


def check(
    folder: Path,
    lines: Lines,
    truth: Truth = TRUTH,
    *,
    status: int = 0,
    rest: str = "",
    role: Role = Role.SERVICE,
) -> Report:
    file = folder / "lines.jsonl"
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    file.write_text(text + rest)
    return examine(role, [CheckedProcess("s0", file, NOW, status)], truth)


def at(lines: Lines, event: str, number: int = 0) -> int:
    """Return the index in `lines` of the line number `number` of this event, counted from 0 among the lines of the
    event."""
    return [i for i, line in enumerate(lines) if isinstance(line, dict) and line["e"] == event][number]


def without(event: str) -> Callable[[Lines], Lines]:
    return lambda lines: [line for line in lines if not isinstance(line, dict) or line["e"] != event]


def with_fields(event: str, number: int = 0, **fields: object) -> Callable[[Lines], Lines]:
    def change(lines: Lines) -> Lines:
        line = lines[at(lines, event, number)]
        assert isinstance(line, dict)
        line.update(fields)
        return lines

    return change


def test_a_program_that_keeps_the_contract_has_no_breach(tmp_path: Path) -> None:
    report = check(tmp_path, lines_of_a_service())
    assert report.breaches == () and report.level == 3 and report.missing == ()


@pytest.mark.parametrize(
    ("event", "level"),
    [("attempt", 2), ("committed", 1), ("assigned", 1), ("processed", 0), ("delivered", 0)],
)
def test_a_level_needs_all_its_events(tmp_path: Path, event: str, level: int) -> None:
    report = check(tmp_path, without(event)(lines_of_a_service()))
    assert report.level == level
    assert EventName(event) in dict(report.missing)


@pytest.mark.parametrize(
    ("plant", "kind", "words"),
    [
        (lambda lines: [*lines[:3], "copied 3 records", *lines[3:]], BreachKind.TEXT, "line 4: no JSON"),
        (with_fields("delivered", o="1"), BreachKind.FIELD, 'o is "1", not a whole number'),
        (with_fields("assigned", ps=[["orders", 1 << 31]]), BreachKind.FIELD, 'ps is ["orders", 2147483648], not'),
        (with_fields("commit", os=[["orders", -7, 3]]), BreachKind.FIELD, 'os is ["orders", -7, 3], not'),
        (with_fields("commit", os=[["orders", 0, 1 << 63]]), BreachKind.FIELD, 'os is ["orders", 0, 922337203685477'),
        (with_fields("commit", os=[["orders", True, 3]]), BreachKind.FIELD, 'os is ["orders", true, 3], not'),
        (with_fields("commit", os=[[0, 3]]), BreachKind.FIELD, "os is [0, 3], not [topic, partition, offset]"),
        (with_fields("processed", t=NOW), BreachKind.BACKWARDS, "processed: t goes back by"),
        (with_fields("assigned", t=time.time_ns()), BreachKind.CLOCK, "and CLOCK_MONOTONIC was"),
        (with_fields("attempt", 1, n=0), BreachKind.NUMBER, "a second attempt has the number 0"),
        (with_fields("result", 1, n=0), BreachKind.ANSWER, "result: attempt 0 is answered twice"),
        (without("attempt"), BreachKind.ANSWER, "result: attempt 0 was never told"),
        (with_fields("processed", 1, o=7), BreachKind.UNDELIVERED, "orders/0 at 7 was not told as delivered"),
        (with_fields("delivered", 1, o=0), BreachKind.UNTOLD, "1 records were committed past and were not told"),
        (with_fields("result", 2, o=9), BreachKind.ANSWER, "1 acknowledged offsets hold no record, such as 9"),
        (with_fields("commit", os=[["orders", 0, 2]]), BreachKind.COMMIT, "the group has offset 3 of orders/0"),
        (with_fields("commit", os=[["orders", 0, 5]]), BreachKind.COMMIT, "orders/0 at 5 was told, and the group"),
        (without("started"), BreachKind.ORDER, "assigned comes before started"),
        (without("closed"), BreachKind.ORDER, "never said closed"),
    ],
)  # fmt: skip
def test_each_breach_is_named(
    tmp_path: Path, plant: Callable[[Lines], Lines], kind: BreachKind, words: str
) -> None:
    report = check(tmp_path, plant(lines_of_a_service()))
    assert any(breach.kind is kind and words in str(breach) for _, breach in report.breaches), report.breaches


def test_an_attempt_that_is_told_late_is_named(tmp_path: Path) -> None:
    """The output topic has two records more than the attempts that the program printed."""
    written = [(0, n, 0, n) for n in range(RECORDS + 2)]
    ((instance, breach),) = check(tmp_path, lines_of_a_service(), replace(TRUTH, written=written)).breaches
    assert (instance, breach.kind) == ("", BreachKind.UNFLUSHED)
    assert "partition 0 has 5 records, and 3 attempts were told" in breach.text


@pytest.mark.parametrize(("status", "words"), [(1, "and ended with 1"), (-9, "did not end in time")])
def test_a_program_that_does_not_stop_cleanly_is_named(tmp_path: Path, status: int, words: str) -> None:
    breaches = check(tmp_path, lines_of_a_service(), status=status).breaches
    assert [breach.kind for _, breach in breaches] == [BreachKind.STOP] and words in breaches[0][1].text


def test_half_a_line_at_the_end_is_named(tmp_path: Path) -> None:
    (breach,) = check(tmp_path, lines_of_a_service(), rest='{"e":"clo').breaches
    assert breach[1].kind is BreachKind.TORN


def test_a_producer_whose_values_are_not_the_templates_is_named(tmp_path: Path) -> None:
    kept = ("started", "attempt", "closed")
    lines = [line for line in lines_of_a_service() if isinstance(line, dict) and line["e"] in kept]
    truth = Truth(written=[(-1, -1, 0, n) for n in range(RECORDS)])
    report = check(tmp_path, list(lines), truth, role=Role.PRODUCER)
    assert [breach.text for _, breach in report.breaches] == [
        "3 records have another value than the template with n and its checksum"
    ]


def test_a_reader_that_tells_less_than_the_topic_has_is_named(tmp_path: Path) -> None:
    lines = without("delivered")(lines_of_a_service())
    line: Fields = {"e": "delivered", "topic": "orders", "p": 0, "o": 0, "ts": 1, "v": "", "t": NOW + 11}
    report = check(tmp_path, [*lines[:2], line, *lines[-2:]], Truth(input=TRUTH.input), role=Role.READER)
    assert [breach.text for _, breach in report.breaches] == [
        "delivered: 2 records are in the topic and were not told, such as 1 of partition 0"
    ]
