"""Hypothesis strategies that draw small ledgers, and the comparison of the audit with the plain one (reference.py).

Each column has few possible values, so that records share offsets, partitions and producers often.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from ackproof.rundir.layout import CaseDir

from . import reference
from .ledgers import findings_of, write_case, write_ledger, write_stamps
from .reference import Finding, Produced, Read, Transaction
from .stamps import Stamps

TOPICS = ("a", "b")
BEYOND_DOUBLE = 2**53
FAR = 2**62
_LATER = st.sampled_from([*[0] * 19, 10**18])
"""Nanoseconds added to `sent_ns`: 0, but some thirty years for about one record in twenty."""
_LATENCY_NS = st.sampled_from([5_000_000, 5_000_000, 5_000_000, 0, 1_000_001, 64_000_000, 2**41])


@dataclass(frozen=True)
class DrawnDirectory:
    """The rows and the files of one run directory, as drawn by `directories`."""

    produced: tuple[Produced, ...]
    reads: tuple[Read, ...]
    clients: tuple[str, ...] | None
    """Ids of the producers that case.json lists, like `p0`. None: no case.json is written."""
    closed: tuple[int, ...]
    """Numbers of the producers that left an END."""
    transactions: tuple[Transaction, ...] = ()
    keys: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """By producer: how many keys it writes, and that every Nth record of a key is a tombstone (0: none is)."""

    stamps: Mapping[tuple[str, int], Stamps] = field(default_factory=dict)

    @property
    def read_committed(self):
        return any(read.phase == 3 for read in self.reads)

    @property
    def open_producers(self):
        if self.clients is None:
            return frozenset()
        return frozenset(int(client[1:]) for client in self.clients) - frozenset(self.closed)


@st.composite
def domains(draw):
    """Return a strategy for the values of each ledger column, by its name."""
    base = draw(st.sampled_from([0, 0, 0, 100, BEYOND_DOUBLE - 2, FAR]))
    seq_base = draw(st.sampled_from([0, 0, 0, 65_533, BEYOND_DOUBLE - 2, FAR]))
    spread = draw(st.sampled_from([1, 1, 1, 7, 2**40]))
    return {
        "topic": st.sampled_from(TOPICS[: draw(st.integers(1, 2))]),
        "partition": st.sampled_from([0, 1, 7][: draw(st.integers(1, 3))]),
        "producer": st.sampled_from([0, 1, 5][: draw(st.integers(1, 3))]),
        "seq": st.integers(0, draw(st.sampled_from([9, 30, 2, 0]))).map(lambda n: seq_base + n * spread),
        "offset": st.integers(0, draw(st.integers(1, 9))).map(lambda n: base + n),
        "outcome": st.sampled_from(
            draw(st.sampled_from([(0,), (0,), (0, 0, 0, 0, 1, 2), (0, 1, 2), (1, 2)]))
        ),
        "epoch": st.sampled_from(draw(st.sampled_from([(0,), (-1,), (-1, 0, 1, 2), (3, 4)]))),
    }


@st.composite
def produced_rows(draw, of):
    few = draw(st.sampled_from([False, False, False, True]))
    identities = draw(
        st.lists(
            st.tuples(of["producer"], of["seq"]),
            unique=True,
            min_size=0 if few else 1,
            max_size=3 if few else 24,
        )
    )
    acks_0 = draw(st.sampled_from([False, False, True]))
    rows = []
    for producer, seq in identities:
        outcome = draw(of["outcome"])
        unknown = acks_0 or (outcome != 0 and draw(st.booleans()))
        rows.append(
            Produced(
                producer,
                seq,
                draw(of["topic"]),
                draw(of["partition"]),
                outcome,
                -1 if unknown else draw(of["offset"]),
                sent_ns=(sent := draw(st.integers(0, 5)) * 70_000_000 + draw(_LATER)),
                done_ns=draw(st.sampled_from([-1, sent + 1, sent + 30_000_000]))
                if outcome
                else sent + draw(_LATENCY_NS),
            )
        )
    return tuple(rows)


@st.composite
def record(draw, of, produced):
    """Draw (topic, partition, producer, seq, origin topic, origin partition, intact), mostly of a produced record.

    A foreign record and an undecodable one have -1 as producer and seq. Only the foreign one is intact.
    """
    how = draw(st.sampled_from(["own", "own", "own", "own", "own", "astray", "any", "nobody", "foreign"]))
    if how == "nobody":
        return draw(of["topic"]), draw(of["partition"]), -1, -1, "", -1, False
    if how == "foreign":
        return draw(of["topic"]), draw(of["partition"]), -1, -1, "", -1, True
    if not produced or how == "any":
        producer, seq = draw(of["producer"]), draw(of["seq"])
        origin_topic, origin_partition = draw(of["topic"]), draw(of["partition"])
    else:
        row = draw(st.sampled_from(produced))
        producer, seq, origin_topic, origin_partition = row.producer, row.seq, row.topic, row.partition
    topic, partition = origin_topic, origin_partition
    if how == "astray":
        topic, partition = draw(of["topic"]), draw(of["partition"])
    origin = draw(st.sampled_from(["known", "known", "known", "unknown", "wrong"]))
    if origin == "unknown":
        origin_topic, origin_partition = "", -1
    elif origin == "wrong":
        origin_topic, origin_partition = draw(st.sampled_from(["a", "b", "elsewhere"])), draw(of["partition"])
    intact = draw(st.sampled_from([True, True, True, True, False]))
    return topic, partition, producer, seq, origin_topic, origin_partition, intact


@st.composite
def reads_of_log(draw, of, produced):
    """Draw what up to three readers return from one log. All readers see the same record at an offset."""
    log = {}
    moves = draw(st.sampled_from([0, 0, 0, 3]))  # of ten records so many stand elsewhere than their ack says
    for row in produced:
        if draw(st.integers(0, 9)) == 0:
            continue  # lost, and perhaps overwritten by what comes next
        moved = row.offset < 0 or draw(st.integers(0, 9)) < moves
        offset = draw(of["offset"]) if moved else row.offset
        log.setdefault((row.topic, row.partition, offset), (row, draw(of["epoch"])))
    rows = []
    read_seqs = {}
    for reader, phase in draw(
        st.sampled_from([((9, 1),), ((9, 1), (1, 0)), ((9, 1), (1, 0), (2, 0)), ((9, 1), (8, 1))])
    ):
        for assignment in range(draw(st.sampled_from([1, 1, 2]))):
            for (topic, partition, offset), (row, epoch) in sorted(log.items()):
                if draw(st.integers(0, 9)) < (9 if phase else 8):
                    number = read_seqs[reader] = read_seqs.get(reader, -1) + 1
                    rows.append(
                        Read(
                            reader, phase, assignment, number, topic, partition, offset, epoch,
                            row.producer, row.seq, row.topic, row.partition, True, number * 60_000_000,
                        )
                    )  # fmt: skip
    return rows


@st.composite
def reads_at_random(draw, of, produced):
    """Draw reads with independent offsets and records, which no real broker would return."""
    rows = []
    for _ in range(draw(st.sampled_from([0, 2, 6, 25]))):
        topic, partition, producer, seq, origin_topic, origin_partition, intact = draw(record(of, produced))
        reader, phase = draw(
            st.sampled_from([(9, 1), (9, 1), (9, 1), (8, 1), (1, 0), (2, 0), (3, 0), (3, 1), (4, 2), (5, 3)])
        )
        rows.append(
            Read(
                reader,
                phase,
                draw(st.sampled_from([0, 0, 1])),
                draw(st.integers(0, 30)),
                topic,
                partition,
                draw(of["offset"]),
                draw(of["epoch"]),
                producer,
                seq,
                origin_topic,
                origin_partition,
                intact,
                draw(st.integers(0, 3)) * 100_000_000,
            )
        )
    return rows


@st.composite
def in_transactions(draw, produced):
    """Return `produced` with most rows in transactions, and the table of transactions. The table may lack some."""
    size = draw(st.sampled_from([1, 2, 3, 30]))
    rows, count = [], {}
    for row in produced:
        number = count[row.producer] = count.get(row.producer, -1) + 1
        rows.append(row if draw(st.integers(0, 9)) == 0 else row._replace(txn=number // size))
    keys = sorted({(row.producer, row.txn) for row in rows if row.txn >= 0})
    table = [
        Transaction(
            *key, draw(st.sampled_from([0, 0, 0, 1, 2, 3])), draw(st.sampled_from([-1, 0, 90_000_000]))
        )
        for key in keys
        if draw(st.integers(0, 9))
    ]
    return tuple(rows), tuple(table)


@st.composite
def at_read_committed(draw, reads, produced, transactions):
    """Draw reads at read_committed out of `reads`. They lack most records whose transaction did not commit, and a few
    of the others."""
    outcome = {(row.producer, row.txn): row.outcome for row in transactions}
    hidden = {
        (row.producer, row.seq)
        for row in produced
        if row.txn >= 0 and outcome.get((row.producer, row.txn), 2) != 0
    }
    phases = draw(st.sampled_from([{0: 2, 1: 3}, {0: 2, 1: 3}, {1: 3}, {0: 2}]))
    return [
        read._replace(reader=read.reader + 20, phase=phases[read.phase])
        for read in reads
        if read.phase in phases
        and (read.identity not in hidden or draw(st.integers(0, 4)) == 0)
        and draw(st.integers(0, 9))
    ]


@st.composite
def directories(draw):
    of = draw(domains())
    produced = draw(produced_rows(of))
    transactions = ()
    if draw(st.sampled_from([False, True])):
        produced, transactions = draw(in_transactions(produced))
    shape = draw(st.sampled_from(["log", "log", "both", "random"]))
    reads = []
    if shape != "random":
        reads += draw(reads_of_log(of, produced))
    if shape != "log":
        reads += draw(reads_at_random(of, produced))
    if transactions:
        reads += draw(at_read_committed(reads, produced, transactions))
    if draw(st.sampled_from([False, True])):  # rows that never reached the ledger
        produced = tuple(row for row in produced if draw(st.integers(0, 5)))
    clients, closed = None, ()
    if draw(st.sampled_from([False, True])):
        clients = tuple(f"p{n}" for n in draw(st.sampled_from([(0, 1, 5), (0, 1, 5), (0,), (5,), ()])))
        closed = draw(st.sampled_from([(), (0,), (1, 5), (0, 1, 5)]))
    some = st.tuples(st.integers(1, 3), st.sampled_from([0, 0, 2, 3]))
    listed = st.sampled_from([int(client[1:]) for client in clients]) if clients else st.nothing()
    keys = draw(st.one_of(st.just({}), st.dictionaries(listed, some)))
    stamps = draw(_STAMPS)
    if stamps:
        sent_ns = {(row.producer, row.seq): row.sent_ns for row in produced}
        base = next((rule.base for rule in stamps.values() if rule.base is not None), 0)
        reads = [
            read._replace(
                timestamp_ms=draw(
                    st.sampled_from([*[(base + sent_ns.get(read.identity, 0)) // 10**6] * 6, -1, 70])
                )
            )
            for read in reads
        ]
    return DrawnDirectory(produced, tuple(reads), clients, closed, transactions, keys, stamps)


_STAMPS = st.one_of(
    st.just({}),
    st.just({}),
    st.dictionaries(
        st.tuples(st.sampled_from(TOPICS), st.sampled_from([0, 1, 7])),
        st.sampled_from(
            [
                *(Stamps(0), Stamps(1_700_000), Stamps(None, (71, 300)), Stamps(None, (0, 10**13))),
                *(Stamps(0, (65, 75)), Stamps(0, None, 0), Stamps(1_700_000, None, 2_000_000)),
            ]
        ),
    ),
)


CLASSES = (
    *("lost", "overwritten", "duplicate", "resurrected", "surfaced", "phantom", "misrouted", "corrupted"),
    *("displaced", "reordered", "vanished", "conflict", "skipped", "rewound"),
    *("aborted-read", "torn-transaction", "early-read"),
    *("expired", "compacted", "deleted"),
)

WAYS = {
    "whole": {},
    "ranges": {"whole_rows": 0, "range_rows": 3, "slice_rows": 2, "split_rows": 4},
    "buckets": {"whole_rows": 0, "split_rows": 4, "share_rows": 3, "task_rows": 2},
    "buckets in ranges": {"whole_rows": 0, "split_rows": 2, "share_rows": 2, "task_rows": 1}
    | {"range_rows": 1, "slice_rows": 1},
}
"""By way of the audit: the arguments of `ackproof.audit.units.Limits` that make small ledgers take it."""


def write(path: Path, drawn: DrawnDirectory, shuffle: random.Random) -> Path:
    write_ledger(path, drawn.produced, drawn.reads, drawn.transactions, shuffle=shuffle)
    if drawn.clients is not None:
        write_case(
            path,
            [_listed(client, *drawn.keys.get(int(client[1:]), (0, 0))) for client in drawn.clients],
            ended=[f"produced/p{number}" for number in drawn.closed],
        )
    if drawn.stamps:
        write_stamps(path, drawn.stamps)
    return path


def _listed(client: str, keys: int, tombstone_every: int) -> dict[str, object]:
    told = {"keys": keys, "tombstone_every": tombstone_every}
    return {"id": client, "kind": "producer", "producer": int(client[1:]), **told}


def agree(drawn: DrawnDirectory, path: Path, result) -> None:
    expected = reference.audit(
        drawn.produced,
        drawn.reads,
        drawn.open_producers,
        drawn.transactions,
        drawn.read_committed,
        drawn.keys,
        drawn.stamps,
    )
    assert result.file is not None, result.reasons
    reasons = "\n".join(result.reasons)
    transactional = any(row.txn >= 0 for row in drawn.produced)
    assert ("no final read at read_committed" in reasons) == (transactional and not drawn.read_committed)
    assert ("lacks the transactions of" in reasons) == (expected.untold > 0)
    assert expected.untold == 0 or f"of {expected.untold} produced rows" in reasons
    findings = Counter(
        Finding(row["class"], row["topic"], row["partition"], row["producer"], row["offset"], row["seq"])
        for row in findings_of(path)
    )
    assert findings == expected.findings
    assert result.file.counts == {name: expected.counts[name] for name in CLASSES}
    assert result.file.unledgered == expected.unledgered
    assert result.file.final_read.count == len(expected.final_read)
    assert [tuple(place) for place in result.file.final_read.places] == sorted(expected.final_read)
    both = {(row["producer"], row["seq"]) for row in findings_of(path) if row["detail"] == "both acked"}
    assert both == expected.both_acked
    records = result.file.records
    assert records.produced == len(drawn.produced)
    assert records.acked == sum(row.outcome == 0 for row in drawn.produced)
    assert records.failed == sum(row.outcome == 1 for row in drawn.produced)
    assert records.indeterminate == sum(row.outcome == 2 for row in drawn.produced)
    assert records.consumed_live == sum(read.phase in (0, 2) for read in drawn.reads)
    assert records.consumed_final == sum(read.phase == 1 for read in drawn.reads)
    assert result.file.consumed_committed == sum(read.phase == 3 for read in drawn.reads)
    agree_on_series(reference.series(drawn.produced, drawn.reads), path)


def agree_on_series(expected: list[reference.Bin], path: Path) -> None:
    found = [reference.Bin(**row) for row in pq.read_table(CaseDir(path).series).to_pylist()]
    assert [row[:7] for row in found] == [row[:7] for row in expected]
    for one, other in zip(found, expected, strict=True):
        assert one[7:] == pytest.approx(other[7:], nan_ok=True)
