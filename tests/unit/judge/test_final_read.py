"""Tests of the final read's flaws, resets of live readers, and losses that were acknowledged without an offset."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from ackproof.judge.checks import final_read, run
from ackproof.judge.checks.classes import unappended
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion
from ackproof.rundir.documents import FinalReadFile
from ackproof.rundir.outcome import Says
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.replicas import LogBatches, Replica, ReplicasFile
from ackproof.rundir.timeline import ClientReset
from judged_run import MakeRun, event
from run_directory import write_run

MARKER, DATA = True, False


def opinions(
    *batches: tuple[int, int, int, bool],
    places: tuple[int, ...] = (7,),
    seen: bool = True,
    read: tuple[int, ...] = (),
    held: int = 10,
    log_end: int = 20,
) -> list[Opinion]:
    """Return the opinions on a final read with flaws at the offsets `places` of t/0. Nodes 1 and 2 are in sync.

    `batches`: (node, first offset, last offset, True for a marker). `seen`: whether logs were read. `read`: offsets of
    the final read. `held`: number of records in each batch. `log_end`: of node 2.
    """
    names = ("node", "first_offset", "last_offset", "control")
    columns: dict[str, Any] = dict(zip(names, map(list, zip(*batches, strict=True)), strict=True))
    table = pa.table({**columns, "topic": ["t"] * len(batches), "partition": [0] * len(batches)})
    table = table.append_column("records", pa.array([held] * len(batches)))
    place = TopicPartition("t", 0)
    replicas = [
        Replica(node=node, topic="t", partition=0, folder="t-0", log_start=0, log_end=end)
        for node, end in ((1, 20), (2, log_end))
    ]
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
        in_sync={place: (1, 2)},
        replicas_of={place: replicas},
        final_rows=SimpleNamespace(read_partition=lambda _: pa.table({"offset": pa.array(read, pa.int64())})),
    )
    return list(final_read.check_read_completeness(cast(Facts, facts)))


def test_a_marker_in_every_log_took_what_was_read_there() -> None:
    both = [(1, 0, 6, DATA), (1, 7, 7, MARKER), (2, 0, 6, DATA), (2, 7, 7, MARKER)]
    assert opinions(*both) == []
    assert "in 1 places" in opinions(*both, places=(5, 7))[0].text


@pytest.mark.parametrize(
    "batches",
    [
        [(1, 0, 9, DATA), (2, 0, 9, DATA)],
        [(1, 7, 7, MARKER), (2, 0, 9, DATA)],
        [(3, 7, 7, MARKER), (1, 0, 9, DATA), (2, 0, 9, DATA)],
    ],
)
def test_a_record_that_a_log_in_sync_holds_was_passed_over(batches: list[tuple[int, int, int, bool]]) -> None:
    assert "in 1 places" in opinions(*batches)[0].text


COMPACTED = [(1, 0, 9, DATA), (2, 0, 9, DATA)]


def test_a_reader_that_got_all_that_compaction_left_passed_over_nothing() -> None:
    assert opinions(*COMPACTED, held=3, read=(0, 3, 9)) == []
    assert opinions((1, 0, 6, DATA), (2, 0, 6, DATA)) == [], "a whole batch is gone"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"read": (0, 9, 12)}, id="the logs hold one more"),
        pytest.param({"read": (0, 3, 9), "log_end": 7}, id="a log does not reach there"),
    ],
)
def test_what_a_log_may_hold_there_was_passed_over(changes: dict[str, Any]) -> None:
    assert "in 1 places" in opinions(*COMPACTED, held=3, **changes)[0].text


def test_without_the_logs_nobody_knows_of_markers() -> None:
    assert "in 1 places" in opinions((1, 7, 7, MARKER), seen=False)[0].text


def test_a_reader_that_was_sent_on_past_records_is_told_of(make_run: MakeRun) -> None:
    facts = Facts.read(make_run())
    reset = ClientReset(assignment=1, position=10, start=40, end=100, goes_on=40)
    cut = ClientReset(assignment=2, position=90, start=40, end=80, goes_on=70)
    happened = tuple(event(one, 0.9, client="r0", topic="orders", partition=0) for one in (reset, cut))
    (told,) = run.check_resets(replace(facts, events=happened))
    assert (told.kind, told.text) == (
        Says.NOT_JUDGED,
        "reader r0 was at offset 10 of orders/0 at 0.9 s, and the log began at 40 by then: it went on at 40 and "
        "never read the 30 offsets between",
    )


DUPLICATES = "; 2 of them were acknowledged without an offset, as duplicates are"


def _lost(*offsets: int) -> list[dict[str, Any]]:
    row = {"class": "lost", "topic": "orders", "partition": 0, "producer": 0, "detail": ""}
    return [{**row, "offset": offset, "seq": seq} for seq, offset in enumerate(offsets)]


def _batch(first: int, who: int, sequence: int, epoch: int) -> dict[str, Any]:
    names = (
        "records", "max_timestamp_ms", "crc", "content", "bytes", "producer_epoch", "timestamp_type",
    )  # fmt: skip
    numbers = dict.fromkeys(names, 1)
    flags = {"control": False, "transactional": False, "sound": True}
    where = {"node": 1, "topic": "orders", "partition": 0, "first_offset": first, "last_offset": first + 9}
    return {**where, **numbers, **flags, "producer_id": who, "base_sequence": sequence, "leader_epoch": epoch}


@pytest.mark.parametrize(
    ("offsets", "batches", "said"),
    [
        (
            [-1, -1, 7],
            [(0, 8, 0, 0), (10, 9, 50, 1)],
            ", and orders/0 has producer id 9 from sequence 50 on, at offset 10",
        ),
        ([-1, -1, 7], [(0, 9, 0, 0), (10, 9, 50, 1)], ""),
        ([-1, -1, 7], [(10, 9, 50, 0)], ""),
        ([-1, -1, 7], [(10, -1, 50, 1)], ""),
        ([-1, -1, 7], None, ""),
    ],
    ids=["begun late", "whole", "by the first leader", "of no producer id", "no log seen"],
)
def test_a_log_that_has_a_producer_from_its_middle_on(
    make_run: MakeRun, offsets: list[int], batches: list[tuple[int, int, int, int]] | None, said: str
) -> None:
    run = make_run(findings=_lost(*offsets), lost=len(offsets))
    if batches is not None:
        rows = [_batch(*one) for one in batches]
        write_run(run.path, replicas=ReplicasFile(replicas=()), replica_batches=rows)
    found = unappended(Facts.read(run))
    assert found.startswith(DUPLICATES + said)
    assert (found == DUPLICATES) == (said == "")


@pytest.mark.parametrize(("offsets", "producers"), [([3, 4], "acks: all"), ([-1, -1], "acks: 0")])
def test_where_an_ack_names_an_offset_or_never_does_nothing_is_said(
    make_run: MakeRun, offsets: list[int], producers: str
) -> None:
    assert unappended(Facts.read(make_run(findings=_lost(*offsets), lost=2, producers=producers))) == ""
