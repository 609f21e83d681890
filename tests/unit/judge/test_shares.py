"""Tests of the counts of share groups, with planted ledgers and a second implementation that goes row by row."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ackproof.clients.contract import ShareSettings
from ackproof.clients.group_ledgers import convert_shares
from ackproof.judge.checks import shares
from ackproof.judge.facts import Facts
from ackproof.judge.shares import ShareCounts, count_shares
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.ledger import read_parts
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import has_end
from ackproof.rundir.shares import SHARES, ShareResult
from planted_groups import PlantedGroups

PLACE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
OK, REFUSED, UNKNOWN = (int(one) for one in ShareResult)
Row = dict[str, object]


def row(
    offset: int, ack: str, result: int = OK, *, count: int = 1, acquired: int = 0, answered: int = 10
) -> Row:
    """Return a ledger row (schema `SHARES`) for one delivery of a record of orders/0. `count`: the delivery count.
    `acquired`, `answered`: in ns."""
    return {
        "group": "jobs",
        "member": 0,
        "batch": 0,
        "topic": PLACE.topic,
        "partition": PLACE.partition,
        "offset": offset,
        "producer": 0,
        "seq": offset,
        "delivery_count": count,
        "acquired_ns": acquired,
        "delivered_ns": acquired + 1,
        "ack": ack,
        "ack_ns": acquired + 2,
        "answered_ns": answered,
        "result": result,
        "error": "",
    }


def table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SHARES)


def count(rows: list[Row], records: int, limit: int = 3) -> ShareCounts:
    return count_shares(table(rows), [(PLACE, np.arange(records))], limit)


def test_a_healthy_group() -> None:
    rows = [
        row(0, "accept"),
        row(1, "release"),
        row(1, "accept", count=2, acquired=20, answered=30),
        row(2, "renew"),
        row(2, "accept", acquired=11, answered=12),
        row(3, "reject"),
        *(row(4, "release", count=n, acquired=n * 20, answered=n * 20 + 5) for n in (1, 2, 3)),
    ]
    found = count(rows, 5)
    assert (found.accepted, found.rejected, found.limited) == (3, 1, 1)
    assert (found.undelivered, found.vanished, found.redelivered) == ((), (), ())
    assert (found.deliveries, found.renewed, found.refused) == (9, 1, 0)


def test_a_record_that_nobody_was_handed() -> None:
    found = count([row(0, "accept")], 3)
    assert found.undelivered == ((PLACE, 1), (PLACE, 2)) and found.vanished == ()


def test_a_record_that_vanished_below_the_limit() -> None:
    rows = [row(0, "release", count=2), row(1, "", UNKNOWN, answered=-1), row(2, "accept", REFUSED)]
    assert count(rows, 3).vanished == ((PLACE, 0), (PLACE, 1), (PLACE, 2))
    assert count([row(0, "release", count=2)], 1, limit=2).vanished == ()
    assert count([row(0, "accept", UNKNOWN, answered=-1)], 1).vanished == ()


def test_a_record_that_was_delivered_after_its_accept() -> None:
    first = row(0, "accept", answered=10)
    assert count([first, row(0, "accept", count=2, acquired=11, answered=20)], 1).redelivered == ((PLACE, 0),)


def test_the_order_is_that_of_the_broker() -> None:
    """A delivery that may have been acquired before the answer, or that follows a refused or unanswered accept, is no
    finding."""
    first = row(0, "accept", answered=10)
    late = row(0, "accept", count=2, acquired=9, answered=20)
    assert count([first, late], 1).redelivered == ()
    for result in (REFUSED, UNKNOWN):
        again = row(0, "accept", count=2, acquired=11, answered=20)
        assert count([row(0, "accept", result, answered=10), again], 1).redelivered == ()


def test_a_record_that_is_not_there_is_none_of_the_counts() -> None:
    found = count([row(7, "release")], 1)
    assert found.undelivered == ((PLACE, 0),) and found.vanished == () and found.records == 1


def slow(rows: list[Row], there: set[tuple[TopicPartition, int]], limit: int) -> tuple[object, ...]:
    """Return the counts of `ShareCounts` as a tuple, computed record by record as its fields are defined."""
    accepted = rejected = limited = 0
    undelivered, vanished, redelivered = [], [], []
    for one in there:
        own = [
            r for r in rows if (TopicPartition(str(r["topic"]), int(str(r["partition"]))), r["offset"]) == one
        ]
        counts = [r["ack"] for r in own if r["result"] != REFUSED]
        if "accept" in counts:
            accepted += 1
        elif "reject" in counts:
            rejected += 1
        elif not own:
            undelivered.append(one)
        elif max(int(str(r["delivery_count"])) for r in own) >= limit:
            limited += 1
        else:
            vanished.append(one)
    for r in rows:
        for s in rows:
            same = (r["partition"], r["offset"]) == (s["partition"], s["offset"])
            if same and s["ack"] == "accept" and s["result"] == OK and r["acquired_ns"] > s["answered_ns"]:  # type: ignore[operator]
                redelivered.append((TopicPartition("orders", int(str(r["partition"]))), r["offset"]))
                break
    return accepted, rejected, limited, sorted(undelivered), sorted(vanished), sorted(redelivered)


@pytest.mark.parametrize("seed", range(30))
def test_the_slow_count_agrees(seed: int) -> None:
    draw = random.Random(seed)
    rows = []
    for _ in range(draw.randrange(60)):
        acquired = draw.randrange(100)
        made = row(
            draw.randrange(12),
            draw.choice(["accept", "release", "reject", "renew", ""]),
            draw.choice([OK, OK, REFUSED, UNKNOWN]),
            count=draw.randrange(1, 5),
            acquired=acquired,
            answered=acquired + draw.randrange(1, 40),
        )
        rows.append({**made, "partition": draw.randrange(2)})
    offsets = {place: np.unique([draw.randrange(14) for _ in range(10)]) for place in (PLACE, OTHER)}
    limit = draw.randrange(2, 6)
    found = count_shares(table(rows), list(offsets.items()), limit)
    there = {(place, int(offset)) for place, own in offsets.items() for offset in own}
    mine = (
        *(found.accepted, found.rejected, found.limited),
        *(sorted(one) for one in (found.undelivered, found.vanished, found.redelivered)),
    )
    assert mine == slow(rows, there, limit)


def test_lines_of_a_member_become_its_ledger(tmp_path: Path) -> None:
    """An answer belongs to the oldest unanswered acknowledgement of its record. An incomplete line is left out."""
    run = CaseDir(tmp_path)
    folder = run.clients / "h0"
    folder.mkdir(parents=True)
    record = {"topic": "orders", "p": 0, "o": 5}
    lines: list[dict[str, object]] = [
        {"e": "started", "t": 100, "client": "h0"},
        {"e": "delivered", "t": 110, "batch": 0, "q": 90, "d": 1, **record, "id": [0, 7]},
        {"e": "delivered", "t": 110, "batch": 0, "q": 90, "d": 1, "topic": "orders", "p": 0, "o": 6},
        {"e": "acknowledge", "t": 120, "batch": 0, "how": "renew", **record},
        {"e": "answered", "t": 130, "os": [["orders", 0, 5]]},
        {"e": "delivered", "t": 140, "batch": 1, "q": 135, "d": 1, **record, "id": [0, 7]},
        {"e": "acknowledge", "t": 150, "batch": 1, "how": "accept", **record},
        {"e": "answered", "t": 160, "os": [["orders", 0, 5]], "x": "INVALID_RECORD_STATE"},
        {"e": "closed", "t": 170},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "lines.jsonl").write_text(text + '{"e":"deliv')
    settings = ShareSettings(
        client="h0",
        run_id="0" * 16,
        case_dir=str(tmp_path),
        places=(),
        origin_ns=100,
        config={},
        library="java",
        library_version="4.4.0",
        group="jobs",
        member=0,
        topics=("orders",),
        release_every=0,
        releases=1,
        reject_every=0,
        renew_every=0,
        record_s=0.0,
        group_config={},
    )
    convert_shares(run, settings, 0)
    rows = read_parts(run.shares_ledger, SHARES).to_pylist()
    assert has_end(run.shares_ledger / client_folder("h0"))
    told = [(r["offset"], r["seq"], r["ack"], r["answered_ns"], r["result"], r["error"]) for r in rows]
    assert told == [
        (5, 7, "renew", 30, OK, ""),
        (6, -1, "", -1, UNKNOWN, ""),
        (5, 7, "accept", 60, REFUSED, "INVALID_RECORD_STATE"),
    ]
    assert [r["acquired_ns"] for r in rows] == [-10, -10, 35]


@pytest.mark.parametrize(("size", "expected"), [(None, 3), (20, 2)])
def test_records_of_aborted_transactions_are_not_there(
    tmp_path: Path, size: int | None, expected: int
) -> None:
    """The final read at read_uncommitted has three records, and the one at read_committed has two."""
    run = PlantedGroups(records=3, partitions=1, members=1, transactional=True).write(tmp_path / "run")
    for path in run.consumed.glob("*/*.parquet"):
        rows = pq.read_table(path, partitioning=None)
        hidden = pc.and_(pc.equal(rows["phase"], int(ReadPhase.FINAL_COMMITTED)), pc.equal(rows["offset"], 1))
        pq.write_table(rows.filter(pc.invert(hidden)), path)
    facts = SimpleNamespace(
        run=run,
        case=SimpleNamespace(
            experiment=SimpleNamespace(
                input_of=lambda group: ("orders",),
                topics={"orders": SimpleNamespace(partitions=1)},
                workload=SimpleNamespace(producers=SimpleNamespace(transaction_size=size)),
            )
        ),
    )
    ((_, offsets),) = shares._there(cast(Facts, facts), "jobs")
    assert len(offsets) == expected
