"""Tests of the ledgers of group members, which are converted from event lines that each test plants."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ackproof.clients.command.events import LINES
from ackproof.clients.contract import MemberSettings, client_adapter
from ackproof.clients.group_ledgers import PART, REFUSED, convert
from ackproof.clients.instances import Instance
from ackproof.rundir import storage
from ackproof.rundir.groups import COMMITS, DELIVERIES, MEMBERSHIP, CommitResult, ProcessingState
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.parts import ClientLibrary, Footer, has_end

ORIGIN_NS = 1_000
NOTHING, EFFECTIVE, ABORTED, UNKNOWN = (state.value for state in ProcessingState)
Line = dict[str, Any]
Rows = list[dict[str, Any]]


def member(run: CaseDir, command: Sequence[str] = (), **changed: Any) -> MemberSettings:
    fields: dict[str, Any] = {
        "client": "g3",
        "run_id": "ab" * 8,
        "case_dir": str(run.path),
        "places": (),
        "origin_ns": ORIGIN_NS,
        "config": {},
        "library_version": "2.16.0",
        "command": command,
        "group": "billing",
        "member": 3,
        "topics": ("orders",),
        "cooperative": False,
        "commit": "after",
        "commit_s": 1.0,
        "group_metadata": True,
        "output": "",
        "output_config": {},
        "start": "earliest",
        "reset": "earliest",
        "batch": 10,
        "record_s": 0.0,
        "instance": "",
    }
    return MemberSettings(**(fields | changed))


class Planted:
    """Event lines of one group member. The time of each is 10 ns after that of the previous line."""

    def __init__(self, path: Path) -> None:
        self.run = CaseDir(path)
        self.lines: list[str] = []
        self.say("started", client="g3")

    def say(self, event: str, **fields: Any) -> int:
        """Add an event line. Return its time as the ledger has it, in ns since the run's start."""
        t_ns = ORIGIN_NS + 10 * (len(self.lines) + 1)
        self.lines.append(json.dumps({"e": event, "t": t_ns, **fields}))
        return t_ns - ORIGIN_NS

    def poll(self, *offsets: int, batch: int = 0, generation: int = 1, partition: int = 1) -> None:
        for offset in offsets:
            self.say(
                *("delivered",),
                topic="orders",
                p=partition,
                o=offset,
                id=[7, 100 + offset],
                g=generation,
                batch=batch,
            )

    def process(self, *offsets: int) -> None:
        for offset in offsets:
            self.say("processed", topic="orders", p=1, o=offset)

    def commit(self, number: int, offset: int, *, generation: int = 1) -> int:
        return self.say("commit", n=number, g=generation, os=[["orders", 1, offset]])

    def ledgers(
        self, *, torn: str = "", status: int = 0, command: Sequence[str] = ()
    ) -> tuple[Rows, Rows, Rows, list[str]]:
        folder = self.run.clients / "g3"
        folder.mkdir(parents=True)
        (folder / LINES).write_text("".join(f"{line}\n" for line in self.lines) + torn, encoding="utf-8")
        breaches = convert(self.run, member(self.run, command), ORIGIN_NS, status)
        found = []
        ledgers = (
            (self.run.deliveries, DELIVERIES),
            (self.run.commits_ledger, COMMITS),
            (self.run.membership, MEMBERSHIP),
        )
        for ledger, schema in ledgers:
            path = ledger / client_folder("g3") / PART
            with storage.open_parquet(path) as file:
                assert file.schema_arrow.equals(schema)
                assert ClientLibrary.read(file.metadata) == ("librdkafka", "2.16.0")
                found.append(file.read().to_pylist())
        return found[0], found[1], found[2], list(map(str, breaches))

    @property
    def ended(self) -> set[bool]:
        ledgers = (self.run.deliveries, self.run.commits_ledger, self.run.membership)
        return {has_end(ledger / client_folder("g3")) for ledger in ledgers}


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return Planted(tmp_path)


def states(rows: Rows) -> list[tuple[int, int, int]]:
    return [(row["offset"], row["state"], row["commit"]) for row in rows]


def test_deliveries_are_sorted_by_partition(planted: Planted) -> None:
    """Each partition has its own row group."""
    for offset in range(3000):
        planted.poll(offset, partition=offset % 2)
    planted.poll(7, partition=5)
    deliveries, *_ = planted.ledgers()
    assert [(row["partition"], row["offset"]) for row in deliveries] == [
        *((0, offset) for offset in range(0, 3000, 2)),
        *((1, offset) for offset in range(1, 3000, 2)),
        (5, 7),
    ]
    with storage.open_parquet(planted.run.deliveries / client_folder("g3") / PART) as file:
        spans = [footer.numbers["partition"] for footer in Footer.read_all(file.metadata)]
    assert spans == [(0, 0), (1, 1), (5, 5)]


def test_a_member_that_closed(planted: Planted) -> None:
    planted.say("assigned", m="m1", g=1, ps=[["orders", 1], ["orders", 2]])
    planted.say("position", m="m1", g=1, os=[["orders", 1, -1], ["orders", 2, 40]])
    reset_at = planted.say("reset", m="m1", g=1, topic="orders", p=1, **{"from": -1}, to=5, why="_NO_OFFSET")
    planted.poll(5, 6)
    planted.process(5, 6)
    begun = planted.commit(0, 7)
    done = planted.say("committed", n=0, g=2)
    planted.say("revoked", m="m1", g=2, ps=[])
    planted.say("closed", m="m1", g=2)
    deliveries, commits, membership, breaches = planted.ledgers()
    assert breaches == []
    assert deliveries[0] == {
        "group": "billing",
        "member": 3,
        "generation": 1,
        "batch": 0,
        "topic": "orders",
        "partition": 1,
        "offset": 5,
        "producer": 7,
        "seq": 105,
        "delivered_ns": reset_at + 10,
        "processed_ns": reset_at + 30,
        "state": EFFECTIVE,
        "commit": -1,
    }
    assert [row["processed_ns"] for row in deliveries] == [reset_at + 30, reset_at + 40]
    assert commits == [
        {
            "group": "billing",
            "member": 3,
            "number": 0,
            "generation": 1,
            "generation_after": 2,
            "topic": "orders",
            "partition": 1,
            "offset": 7,
            "begun_ns": begun,
            "done_ns": done,
            "result": CommitResult.ACCEPTED,
            "error": "",
            "transaction": False,
        }
    ]
    told = [
        (row["event"], row["partition"], row["from_offset"], row["offset"], row["why"]) for row in membership
    ]
    assert told == [
        ("assigned", 1, -1, -1, ""),
        ("assigned", 2, -1, -1, ""),
        ("position", 1, -1, -1, ""),
        ("position", 2, -1, 40, ""),
        ("reset", 1, -1, 5, "_NO_OFFSET"),
        ("revoked", -1, -1, -1, ""),
        ("closed", -1, -1, -1, ""),
    ]
    assert {row["member_id"] for row in membership} == {"m1"}
    assert planted.ended == {True}


def test_a_member_that_was_killed(planted: Planted) -> None:
    """A record that was committed but not processed stays NOT_PROCESSED. The torn last line is left out."""
    planted.poll(0, 1, 2)
    planted.commit(0, 3)
    planted.say("committed", n=0, g=1)
    planted.process(0)
    planted.commit(1, 6)
    torn = '{"e":"processed","t":99999,"topic":"orders","p":1,"o":'
    deliveries, commits, _, breaches = planted.ledgers(torn=torn, status=-9)
    assert states(deliveries) == [(0, EFFECTIVE, -1), (1, NOTHING, -1), (2, NOTHING, -1)]
    assert [row["processed_ns"] >= 0 for row in deliveries] == [True, False, False]
    assert [(row["result"], row["done_ns"] >= 0) for row in commits] == [
        (CommitResult.ACCEPTED, True),
        (CommitResult.UNKNOWN, False),
    ]
    assert commits[1]["generation_after"] == -1
    assert (breaches, planted.ended) == ([], {False})


def test_a_member_that_said_nothing(planted: Planted) -> None:
    planted.lines.clear()
    assert planted.ledgers(status=-9) == ([], [], [], [])
    assert planted.ended == {False}


def test_transactions_decide(planted: Planted) -> None:
    """The four transactions: committed, aborted (its records are delivered again), fenced, and open when the member is
    killed."""
    planted.poll(0, 1)
    planted.say("begin", n=0, g=1)
    planted.process(0, 1)
    planted.commit(0, 2)
    planted.say("ended", n=0, g=1)
    planted.poll(2, 3, batch=1)
    planted.say("begin", n=1, g=1)
    planted.process(2, 3)
    planted.commit(1, 4)
    planted.say("ended", n=1, g=1, x="UNKNOWN_MEMBER_ID", aborted=True)
    planted.poll(2, 3, batch=2, generation=3)
    planted.say("begin", n=2, g=3)
    planted.process(2, 3)
    planted.commit(2, 4, generation=3)
    planted.say("ended", n=2, g=3, x="_FENCED")
    planted.poll(4, batch=3, generation=3)
    planted.say("begin", n=3, g=3)
    planted.process(4)
    deliveries, commits, _, breaches = planted.ledgers(status=-9)
    assert breaches == []
    assert states(deliveries) == [
        (0, EFFECTIVE, 0),
        (1, EFFECTIVE, 0),
        (2, ABORTED, 1),
        (3, ABORTED, 1),
        (2, UNKNOWN, 2),
        (3, UNKNOWN, 2),
        (4, UNKNOWN, 3),
    ]
    assert [(row["number"], row["result"], row["transaction"]) for row in commits] == [
        (0, CommitResult.ACCEPTED, True),
        (1, CommitResult.REFUSED, True),
        (2, CommitResult.UNKNOWN, True),
    ]


def test_only_the_last_delivery_is_processed(planted: Planted) -> None:
    """A batch is delivered twice and processed once, after its second delivery."""
    planted.poll(0, 1)
    planted.poll(0, 1, batch=1)
    planted.process(0, 1)
    deliveries, _, _, _ = planted.ledgers()
    assert [(row["batch"], row["state"]) for row in deliveries] == [
        (0, NOTHING),
        (0, NOTHING),
        (1, EFFECTIVE),
        (1, EFFECTIVE),
    ]


@pytest.mark.parametrize(
    ("error", "result"),
    [
        *(
            (name, CommitResult.REFUSED)
            for name in ("ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH", "FENCED_INSTANCE_ID")
        ),
        *(
            (name, CommitResult.UNKNOWN)
            for name in ("REQUEST_TIMED_OUT", "_TIMED_OUT", "NOT_ENOUGH_REPLICAS", "?")
        ),
    ],
)
def test_errors_of_commits(planted: Planted, error: str, result: CommitResult) -> None:
    planted.commit(0, 3)
    planted.say("committed", n=0, x=error)
    _, commits, _, _ = planted.ledgers()
    assert [(row["error"], row["result"]) for row in commits] == [(error, result)]
    assert (error in REFUSED) is (result is CommitResult.REFUSED)


def lie_twice(planted: Planted) -> None:
    planted.process(0)


def lie_undelivered(planted: Planted) -> None:
    planted.process(9)


@pytest.mark.parametrize("lie", [lie_twice, lie_undelivered])
def test_a_record_that_was_not_delivered(planted: Planted, lie: Callable[[Planted], None]) -> None:
    planted.poll(0)
    planted.process(0)
    lie(planted)
    deliveries, _, _, breaches = planted.ledgers()
    assert states(deliveries) == [(0, EFFECTIVE, -1)]
    assert breaches == ["1 records were processed twice, or without being delivered before"]


def test_a_program_that_breaks_the_contract(planted: Planted) -> None:
    """Lines that break the contract are left out; the lines around them count."""
    planted.poll(0)
    planted.lines.append("debug")
    planted.say("delivered", topic="orders", p=1, o="five")
    planted.say("note", topic=5, o=[1])
    planted.say("delivered", topic="orders", p=1, o=1)
    planted.process(0, 1)
    deliveries, _, _, breaches = planted.ledgers(command=["./member"])
    assert [(row["offset"], row["producer"], row["generation"]) for row in deliveries] == [
        (0, 7, 1),
        (1, -1, -1),
    ]
    assert {row["state"] for row in deliveries} == {EFFECTIVE}
    assert [breach.split(":")[0] for breach in breaches] == [
        "line 3",
        "line 4",
        "the program ended and never said closed",
    ]


@pytest.mark.parametrize(
    ("library", "commit", "silent_s", "named"),
    [
        ("librdkafka", "transaction", 25.0, True),
        ("librdkafka", "transaction", 15.0, False),
        ("librdkafka", "after", 25.0, False),
        ("java", "transaction", 25.0, False),
    ],
)
def test_a_call_past_its_time_out_names_the_bug_of_the_library(
    tmp_path: Path, library: str, commit: str, silent_s: float, named: bool
) -> None:
    settings = member(CaseDir(tmp_path), library=library, commit=commit)
    assert ("/issues/5456" in client_adapter(library).known_wait(settings, silent_s)) is named


def test_a_member_is_silent_since_its_last_line_or_error(tmp_path: Path) -> None:
    for name, age_s in ((LINES, 60), ("output.log", 20)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, time.time() - age_s))
    child: Any = None
    assert 19 <= Instance("g3", child, 0, tmp_path, -1, True).silent_s < 59
