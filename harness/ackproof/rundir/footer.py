"""What the footer of a ledger's part says of a row group: the least and the greatest value of each column.

Who asks something of all rows asks the footer first: what it rules out need not be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # Arrow takes a second to load, which clients have when they end and not when they begin
    import pyarrow.parquet as pq

Span: TypeAlias = tuple[float, float]
"""Least and greatest value, both int in every column of numbers."""
ANYTHING: Span = (float("-inf"), float("inf"))


@dataclass(frozen=True)
class Footer:
    """Of one row group. A column of which it does not say anything may hold any value."""

    rows: int
    numbers: Mapping[str, Span]
    texts: Mapping[str, str]
    """Columns of text that hold one value alone."""

    @classmethod
    def of(cls, metadata: pq.FileMetaData, group: int) -> Footer:
        """That of a row group of a part."""
        found = metadata.row_group(group)
        numbers: dict[str, Span] = {}
        texts: dict[str, str] = {}
        for leaf in range(metadata.num_columns):
            said = found.column(leaf).statistics
            if said is None or not said.has_min_max:
                continue
            name = metadata.schema.column(leaf).path
            if not isinstance(said.min, str):
                numbers[name] = int(said.min), int(said.max)
            elif said.min == said.max:
                texts[name] = said.min
        return cls(found.num_rows, numbers, texts)

    @classmethod
    def all(cls, metadata: pq.FileMetaData) -> list[Footer]:
        """Those of all row groups of a part."""
        return [cls.of(metadata, group) for group in range(metadata.num_row_groups)]

    def least(self, column: str) -> float:
        """No value is below."""
        return self.numbers.get(column, ANYTHING)[0]

    def most(self, column: str) -> float:
        """No value is above."""
        return self.numbers.get(column, ANYTHING)[1]

    def may_be(self, column: str, value: int) -> bool:
        """Whether a row may have that value."""
        return self.least(column) <= value <= self.most(column)

    def is_all(self, column: str, value: int) -> bool:
        """Whether each row has that value."""
        return self.numbers.get(column) == (value, value)


def column_span(footers: Sequence[Footer], name: str) -> tuple[int, int] | None:
    """Least and greatest value of a column of a part; None: it has no rows, or its footer does not say."""
    spans = [footer.numbers[name] for footer in footers if name in footer.numbers]
    if not spans or len(spans) < len(footers):
        return None
    return int(min(first for first, _ in spans)), int(max(last for _, last in spans))
