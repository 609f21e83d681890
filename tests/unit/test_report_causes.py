"""The report's section "What took the acknowledged records", and the causes that it names for single findings."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from ackproof.rundir.batch import BatchCase
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import (
    ClassExplained,
    ConformanceFile,
    Deletion,
    Truncation,
    UnexplainedRecord,
    UnplacedLoss,
)
from ackproof.rundir.schema import FINDINGS
from ackproof_reports.loading import CaseView
from ackproof_reports.stories import MOST, Causes, causes_of, with_causes


def cut(begin: int, end: int, acked: int, why: str = "broker 2 led", partition: int = 0) -> Truncation:
    return Truncation(
        topic="t", partition=partition, from_offset=begin, to_offset=end, old_epoch=3, new_epoch=4,
        new_leader=2, why=why, acked=acked,
    )  # fmt: skip


def gone(acked: int) -> Deletion:
    return Deletion(
        topic="t", partition=0, topic_id="", incarnation=1, by="fault 1 (recreate)", created_ns=0, removed_ns=1,
        until_ns=1, again_ns=2, offset=9, log_end=-1, acked=acked, why="the topic was deleted by fault 1 (recreate)",
    )  # fmt: skip


def lost(count: int, **parts: int) -> ClassExplained:
    return ClassExplained(anomaly="lost", count=count, **parts)


def told(replay: ConformanceFile | None) -> Causes | None:
    entry = BatchCase(case="c#1", settings={}, repeat=1, run="c")
    return causes_of(
        CaseView(0, entry, CaseDir(Path("c")), None, None, None, None, (), True, (), conformance=replay)
    )


def shown(replay: ConformanceFile) -> list[tuple[str, str, int, str, bool]]:
    found = told(replay)
    assert found is not None
    return [(one.place, one.what, one.records, one.why, one.unexplained) for one in found.shown]


def test_nothing_taken_is_no_section() -> None:
    assert told(None) is None
    assert told(ConformanceFile(truncations=(cut(5, 9, 0),))) is None


def test_the_heaviest_stands_first_and_what_nothing_explains_before_all() -> None:
    replay = ConformanceFile(
        truncations=(cut(5, 9, 3), cut(1000, 1400, 400, partition=1)),
        deletions=(gone(50), gone(0)),
        classes=(lost(455, explained=453, unexplained=2, deleted=50),),
        unexplained=(
            UnexplainedRecord(
                anomaly="lost", topic="t", partition=7, producer=1, seq=4, offset=12, why="nothing cut it"
            ),
        ),
    )  # fmt: skip
    assert shown(replay) == [
        ("t/7", "lost, such as offset 12 of producer 1", 2, "nothing cut it", True),
        ("t/1", "offsets 1,000 to 1,399 of epoch 3 truncated", 400, "broker 2 led", False),
        ("t/0", "topic deleted, its incarnation 1 with it", 50, "the topic was deleted by fault 1 (recreate)", False),
        ("t/0", "offsets 5 to 8 of epoch 3 truncated", 3, "broker 2 led", False),
    ]  # fmt: skip


def test_what_is_unexplained_without_an_example_or_an_offset() -> None:
    assert shown(ConformanceFile(classes=(lost(2, explained=0, unexplained=2),))) == [
        ("—", "lost", 2, "no observed step takes them", True)
    ]
    example = UnexplainedRecord(
        anomaly="lost", topic="t", partition=0, producer=1, seq=4000, offset=-1, why="w"
    )
    replay = ConformanceFile(classes=(lost(2, explained=0, unexplained=2),), unexplained=(example,))
    assert shown(replay)[0][1] == "lost, such as seq 4,000 of producer 1"


def test_acks_without_offsets_are_told_by_their_seqs() -> None:
    known = UnplacedLoss(
        topic="t", partition=2, producer=1, first_seq=10, last_seq=2000, records=30, why="fault 1"
    )
    replay = ConformanceFile(
        intervals=(known, known.model_copy(update={"why": ""})),
        classes=(lost(90, explained=0, by_interval=70, unexplained=5, not_replayed=15),),
    )
    assert shown(replay)[1] == (
        "t/2", "seq 10 to 2,000 of producer 1, acknowledged without offsets", 30, "fault 1", False,
    )  # fmt: skip
    found = told(replay)
    assert found is not None
    assert found.notes == (
        "40 more records acknowledged without offsets went in like ways",
        "15 records counted as lost are on partitions that were not replayed, or whose files on disk a "
        "fault damaged",
    )


def test_only_so_many_are_shown() -> None:
    found = told(ConformanceFile(truncations=tuple(cut(at, at + 9, at) for at in range(1, MOST + 4))))
    assert found is not None
    assert (len(found.shown), found.more, found.more_records) == (MOST, 3, 1 + 2 + 3)


ROWS = [
    ("lost", "t", 0, 0, 5, 1, ""),
    ("lost", "t", 0, 0, 8, 2, ""),
    ("lost", "t", 0, 0, 9, 3, ""),
    ("lost", "t", 1, 0, 6, 4, ""),
    ("lost", "u", 0, 0, 6, 5, ""),
    ("lost", "t", 0, 0, 6, 6, "said by the audit"),
    ("vanished", "t", 0, 0, 6, 7, ""),
    ("lost", "t", 0, 0, -1, 8, ""),
]


def details(replay: ConformanceFile | None) -> list[str]:
    table = pa.Table.from_pylist([dict(zip(FINDINGS.names, row, strict=True)) for row in ROWS], FINDINGS)
    found = with_causes(table, replay)
    assert found.schema.equals(FINDINGS)
    assert found.drop_columns(["detail"]).equals(table.drop_columns(["detail"]))
    return found.column("detail").to_pylist()


AS_IT_WAS = [row[-1] for row in ROWS]


def test_each_record_says_what_took_it() -> None:
    replay = ConformanceFile(truncations=(cut(5, 9, 3),), classes=(lost(7, explained=7),))
    assert details(replay) == ["broker 2 led", "broker 2 led", "", "", "", "said by the audit", "", ""]
    twice = replay.model_copy(
        update={"truncations": (cut(5, 9, 3), cut(5, 6, 1, "broker 3 led"), cut(0, 99, 0))}
    )
    assert details(twice)[:3] == ["broker 2 led or broker 3 led", "broker 2 led", ""]


@pytest.mark.parametrize(
    "replay",
    [
        None,
        ConformanceFile(classes=(lost(7, explained=7),)),
        ConformanceFile(truncations=(cut(5, 9, 3),), classes=(lost(7, explained=6, unexplained=1),)),
        ConformanceFile(truncations=(cut(5, 9, 3),), classes=(lost(7, explained=6, not_replayed=1),)),
        ConformanceFile(truncations=(cut(5, 9, 3),), deletions=(gone(1),), classes=(lost(7, explained=7),)),
    ],
    ids=["no replay", "no cut", "unexplained", "not replayed", "made anew"],
)
def test_where_the_replay_is_not_sure_no_record_is_told(replay: ConformanceFile | None) -> None:
    assert details(replay) == AS_IT_WAS
