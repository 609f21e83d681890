"""Findings as lines of a table: neighbours that differ in their numbers alone are one line with a range.

The page's script groups in the same way (`findings.js`), whatever is searched or sorted; these are there without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from ackproof_reports.wording import ABSENT, number_range, one_line

MOST_ROWS: Final = 20_000
"""Findings that are looked through for the first lines."""
_SAME: Final = ("class", "topic", "partition", "detail")

Row = Mapping[str, Any]  # a row of Arrow, as its own to_pylist gives it; it does not leave this module


@dataclass
class Line:
    """Findings that follow one another."""

    rows: list[Row] = field(default_factory=list)

    @property
    def anomaly(self) -> str:
        """The class of all of them."""
        return str(self.rows[0]["class"])

    @property
    def place(self) -> str:
        """Their partition."""
        return f"{self.rows[0]['topic']}/{self.rows[0]['partition']}"

    @property
    def detail(self) -> str:
        """Of duplicates where the other copies are, of others what is said of each."""
        others = [row["other"] for row in self.rows if row["other"] >= 0]
        if not others:
            return one_line(str(self.rows[0]["detail"]))
        copies = "copy is at offset" if len(others) == 1 else "copies are at offsets"
        return f"the other {copies} {number_range(others)}"

    def numbers(self, name: str) -> str:
        """`offset`, `producer` or `seq`: one, or the lowest and the highest."""
        known = [row[name] for row in self.rows if row[name] >= 0]
        return number_range(known) if known else ABSENT


def first_lines(findings: pa.Table, most: int) -> tuple[Line, ...]:
    """The first `most` lines of findings (columns as in `FINDINGS`, and `other`)."""
    lines: list[Line] = []
    for row in findings.slice(0, MOST_ROWS).to_pylist():
        if lines and _follows(row, lines[-1].rows[-1]):
            lines[-1].rows.append(row)
        elif len(lines) == most:
            break
        else:
            lines.append(Line([row]))
    return tuple(lines)


def _follows(row: Row, before: Row) -> bool:
    """Whether a row goes on where the one before stops: at the next offset; where it is unknown, of one producer."""
    if any(row[name] != before[name] for name in _SAME):
        return False
    step = row["offset"] - before["offset"]
    if row["offset"] < 0 or before["offset"] < 0:
        return step == 0 and bool(row["producer"] == before["producer"])
    if abs(step) > 1 or (row["other"] < 0) != (before["other"] < 0):
        return False
    return row["other"] < 0 or bool(row["other"] - before["other"] == step)
