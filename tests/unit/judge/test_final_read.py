"""Places that a final reader passed over, and transaction markers that took the place of what was truncated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from ackproof.judge.checks import final_read
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion
from ackproof.rundir.documents import FinalReadFile
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.replicas import LogBatches

MARKER, DATA = True, False


def opinions(
    *batches: tuple[int, int, int, bool], places: tuple[int, ...] = (7,), seen: bool = True
) -> list[Opinion]:
    """`batches`: node, first and last offset, whether a marker. Nodes 1 and 2 are in sync."""
    names = ("node", "first_offset", "last_offset", "control")
    columns: dict[str, Any] = dict(zip(names, map(list, zip(*batches, strict=True)), strict=True))
    table = pa.table({**columns, "topic": ["t"] * len(batches), "partition": [0] * len(batches)})
    named = [["t", 0, offset] for offset in places]
    facts = SimpleNamespace(
        final_read=FinalReadFile(complete=True),
        case=SimpleNamespace(
            experiment=SimpleNamespace(
                topics={}, workload=SimpleNamespace(producers=SimpleNamespace(transaction_size=None))
            )
        ),
        audit=SimpleNamespace(
            final_read=SimpleNamespace(count=len(named), places=named),
            records=SimpleNamespace(consumed_final=0),
        ),
        recovery=None,
        replicas=object() if seen else None,
        logs=LogBatches(table),
        in_sync={TopicPartition("t", 0): (1, 2)},
    )
    return list(final_read.check_final_read(cast(Facts, facts)))


def test_a_marker_in_every_log_took_what_was_read_there() -> None:
    both = [(1, 0, 6, DATA), (1, 7, 7, MARKER), (2, 0, 6, DATA), (2, 7, 7, MARKER)]
    assert opinions(*both) == []
    assert "in 1 places" in opinions(*both, places=(5, 7))[0].text


@pytest.mark.parametrize(
    "batches",
    [
        [(1, 0, 9, DATA), (2, 0, 9, DATA)],
        [(1, 7, 7, MARKER), (2, 0, 9, DATA)],
        [(1, 0, 6, DATA), (2, 0, 6, DATA)],
        [(3, 7, 7, MARKER), (1, 0, 9, DATA), (2, 0, 9, DATA)],
    ],
)
def test_a_record_that_a_log_in_sync_holds_was_passed_over(batches: list[tuple[int, int, int, bool]]) -> None:
    assert "in 1 places" in opinions(*batches)[0].text


def test_without_the_logs_nobody_knows_of_markers() -> None:
    assert "in 1 places" in opinions((1, 7, 7, MARKER), seen=False)[0].text
