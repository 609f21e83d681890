from __future__ import annotations

from datetime import datetime

from ackproof.testing.moments import LINES, excerpt

BEGAN = datetime(2026, 1, 1, 12, 0, 0)


def _log(*seconds: float) -> str:
    return "\n".join(
        f"[{datetime.fromtimestamp(BEGAN.timestamp() + at):%Y-%m-%dT%H:%M:%S}.{int(at * 1000) % 1000:03d}] INFO at {at}"
        for at in seconds
    )


def _told(log: str, *moments: float) -> list[str]:
    told = excerpt(lambda _: log, [BEGAN.timestamp() + moment for moment in moments])
    return [line.partition("INFO at ")[2] for line in told]


def test_lines_around_each_moment_in_their_order() -> None:
    log = _log(1.0, 9.4, 9.6, 10.25, 14.9, 15.1, 20.0, 300.5)
    assert _told(log, 10) == ["9.6", "10.25", "14.9"]
    assert _told(log, 10, 20) == ["9.6", "10.25", "14.9", "20.0"]


def test_not_too_many_of_a_moment() -> None:
    log = _log(*(10 + step / 10 for step in range(20)), 30.0)
    assert len(_told(log, 10)) == LINES
    assert _told(log, 10, 30)[-1] == "30.0"


def test_the_last_lines_where_nothing_is_told_of_a_moment() -> None:
    log = _log(*range(20))
    assert _told(log) == [str(at) for at in range(12, 20)]
    assert _told(log, 100) == _told(log)


def test_what_is_logged_at_every_moment_is_left_out_and_long_lines_are_cut() -> None:
    log = _log(1.0) + "\n" + _log(1.1) + " (PeriodicTaskControlManager)\n" + "x" * 500
    told = excerpt(lambda _: log, [])
    assert len(told) == 2
    assert told[1].endswith("x…")
    assert len(told[1]) < 300
