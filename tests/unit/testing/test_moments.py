"""Lines of nodes' logs that a failed test shows: only WARN and above, only around faults, at most ten."""

from __future__ import annotations

from datetime import datetime

from ackproof.testing.faults import MOST, bad_lines

BEGAN = datetime(2026, 1, 1, 12, 0, 0).timestamp()


def _line(at: float, text: str, level: str = "WARN") -> str:
    stamp = datetime.fromtimestamp(BEGAN + at)
    return f"[{stamp:%Y-%m-%dT%H:%M:%S}.{int(at * 1000) % 1000:03d}] {level} {text}"


def _told(logs: dict[str, list[str]], *moments: float, since: float = 0.0) -> list[str]:
    whole = {node: "\n".join(lines) for node, lines in logs.items()}
    told = bad_lines(whole, [BEGAN + moment for moment in moments], BEGAN + since)
    return [line.partition(": [")[0] + line.partition("]")[2] for line in told]


def test_bad_lines_around_each_moment_in_their_order() -> None:
    log = [
        _line(9.4, "too early"),
        _line(9.6, "just before"),
        _line(10.2, "nothing to tell", "INFO"),
        _line(14.9, "an error", "ERROR"),
        "\tat org.apache.kafka.Somewhere",
        _line(15.1, "too late"),
        _line(20.5, "the second"),
    ]
    other = [_line(11.0, "the other's")]
    assert _told({"broker-1": log, "broker-2": other}, 10) == [
        "broker-1 WARN just before",
        "broker-2 WARN the other's",
        "broker-1 ERROR an error",
    ]
    assert _told({"broker-1": log}, 10, 20)[-1] == "broker-1 WARN the second"


def test_where_nothing_was_broken_all_that_came_once_the_cluster_stood() -> None:
    log = [_line(1.0, "while it starts"), _line(9.0, "later")]
    assert _told({"broker-1": log}, since=5.0) == ["broker-1 WARN later"]
    assert _told({"broker-1": log}, 50.0) == []


def test_of_lines_that_differ_in_their_numbers_alone_the_first() -> None:
    log = [_line(10 + at / 10, f"no connection to node {at}") for at in range(20)]
    assert _told({"broker-1": log}, 10) == ["broker-1 WARN no connection to node 0 (20 such lines)"]


def test_ten_at_most_and_the_severe_ones_first() -> None:
    words = [f"kind {chr(ord('a') + at)}" for at in range(14)]
    log = [_line(10 + at / 10, word, "ERROR" if at > 10 else "WARN") for at, word in enumerate(words)]
    told = _told({"broker-1": log}, 10)
    assert len(told) == MOST + 1
    assert told[:7] == [f"broker-1 WARN {word}" for word in words[:7]]
    assert told[7:10] == [f"broker-1 ERROR {word}" for word in words[11:]]
    assert told[-1] == "… and 4 more kinds of lines at WARN or above"


def test_long_lines_are_cut() -> None:
    (told,) = _told({"broker-1": [_line(10, "x" * 500)]}, 10)
    assert told.endswith("x…")
    assert len(told) < 300
