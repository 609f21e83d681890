"""How what was found reads in a failed test: records by name, at most a few of each kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ackproof.rundir.anomalies import TABLE
from ackproof.testing.book import Attempt
from ackproof.testing.evidence import Finding

MOST: Final = 10
_LONGEST: Final = 60


def short(part: bytes | None) -> str:
    """A key or a value, cut where it is long."""
    text = repr(part)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}… ({len(part or b'')} bytes)"


def record(attempt: Attempt) -> str:
    """A record by name: what it says and who sent it when."""
    key = "" if attempt.content.key is None else f"key {short(attempt.content.key)}, "
    number = f"p{attempt.producer} #{attempt.seq}" if attempt.taken else f"p{attempt.producer}"
    return f"{key}value {short(attempt.content.value)} ({number}, sent at {attempt.sent_ns / 1e9:.2f} s)"


def findings(found: Sequence[Finding]) -> list[str]:
    """A few lines a class."""
    lines: list[str] = []
    for anomaly in dict.fromkeys(one.anomaly for one in found):
        of_class = [one for one in found if one.anomaly == anomaly]
        row = TABLE.get(anomaly)
        lines.append(f"{anomaly}: {len(of_class)}" + (f" ({row.short})" if row else ""))
        lines += [f"  {_finding(one)}" for one in of_class[:MOST]]
        lines += _more(len(of_class))
    return lines


def undelivered(attempts: Sequence[Attempt]) -> list[str]:
    """Attempts with what became of them."""
    lines = [f"  {one.content.topic}: {record(one)}: {one.error}" for one in attempts[:MOST]]
    return lines + _more(len(attempts))


def _finding(one: Finding) -> str:
    where = f"{one.topic}/{one.partition}" if one.partition >= 0 else one.topic
    at = f" offset {one.offset}" if one.offset >= 0 else ""
    who = f": {record(one.attempt)}" if one.attempt is not None else ""
    detail = f" — {one.detail}" if one.detail else ""
    return f"{where}{at}{who}{detail}"


def _more(count: int) -> list[str]:
    return [f"  … and {count - MOST} more"] if count > MOST else []
