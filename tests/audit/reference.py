"""A plain second implementation of the audit, written from docs/audit.md. Tests compare both.

It shares no code with ackproof.audit, and uses only lists, dicts, sets and loops.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from . import keyed
from .stamps import Stamps

ACKED, FAILED, INDETERMINATE = 0, 1, 2
LIVE, FINAL, LIVE_COMMITTED, FINAL_COMMITTED = 0, 1, 2, 3
COMMITTED, ABORTED, UNKNOWN, FENCED = 0, 1, 2, 3


class Produced(NamedTuple):
    """A row of the produced ledger, with only the columns that the classes need."""

    producer: int
    seq: int
    topic: str
    partition: int
    outcome: int
    offset: int
    sent_ns: int = 0
    done_ns: int = 0
    txn: int = -1


class Transaction(NamedTuple):
    """A row of the table of transactions. `commit_ns`: time of the commit request; -1: there was none."""

    producer: int
    txn: int
    outcome: int
    commit_ns: int = -1


class Read(NamedTuple):
    """A row of the consumed ledger."""

    reader: int
    phase: int
    assignment: int
    read_seq: int
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    producer: int
    seq: int
    origin_topic: str
    origin_partition: int
    intact: bool
    read_ns: int = 0
    timestamp_ms: int = 0

    @property
    def live(self):
        return self.phase in (LIVE, LIVE_COMMITTED)

    @property
    def committed(self):
        return self.phase in (LIVE_COMMITTED, FINAL_COMMITTED)

    @property
    def place(self):
        return self.topic, self.partition

    @property
    def spot(self):
        return self.topic, self.partition, self.offset

    @property
    def identity(self):
        return self.producer, self.seq


class Finding(NamedTuple):
    """One finding, as its class counts it. -1 or "": the class does not name that column."""

    anomaly: str
    topic: str
    partition: int
    producer: int
    offset: int
    seq: int


NOBODY = (-1, -1)


class ProducedTwice(Exception):
    """Raised if two produced rows have the same producer and seq. Such a ledger cannot be audited."""


@dataclass
class Audit:
    """Result of the plain audit. `both_acked`: (producer, seq) of reordered records that were acknowledged, as was a
    later record that stands before them.

    `unledgered`: reads of producers without END. `final_read`: spots where the final read went back or lacks a
    record."""

    findings: Counter = field(default_factory=Counter)
    both_acked: set = field(default_factory=set)
    unledgered: int = 0
    final_read: set = field(default_factory=set)
    untold: int = 0
    """Number of produced rows whose transaction is not in the table."""

    @property
    def counts(self):
        counts = Counter()
        for finding, number in self.findings.items():
            counts[finding.anomaly] += number
        return counts


class Copy:
    """Final reads that agree in topic, partition, offset, producer, seq and intact. They count once."""

    def __init__(self, rows):
        self.spot, self.identity, self.intact = rows[0].spot, rows[0].identity, rows[0].intact
        self.place, self.offset = rows[0].place, rows[0].offset
        self.epoch = min(row.leader_epoch for row in rows)
        self.read_ns = min(row.read_ns for row in rows)
        self.timestamp_ms = min(row.timestamp_ms for row in rows)
        self.astray = any(
            (row.origin_topic != "" and row.origin_topic != row.topic)
            or (row.origin_partition != -1 and row.origin_partition != row.partition)
            for row in rows
        )


def audit(
    produced: Iterable[Produced],
    reads: Iterable[Read],
    open_producers=frozenset(),
    transactions: Iterable[Transaction] = (),
    read_committed: bool = True,
    keys: Mapping[int, tuple[int, int]] = MappingProxyType({}),
    stamps: Mapping[tuple[str, int], Stamps] = MappingProxyType({}),
) -> Audit:
    """Audit a ledger. Raises `ProducedTwice` if two produced rows have one identity. `open_producers`: producers
    without END. `read_committed`: whether a final reader used read_committed. `keys`, by producer: the number of its
    keys, and that every Nth record of a key is a tombstone (0: none is). `stamps`: by (topic, partition)."""
    produced, reads = list(produced), list(reads)
    found = Audit()
    told = {(row.producer, row.txn): row for row in transactions}
    found.untold = sum(row.txn >= 0 and (row.producer, row.txn) not in told for row in produced)

    def fate(row: Produced) -> int:
        """Return the outcome of the record's transaction. A record outside of transactions counts as committed."""
        if row.txn < 0:
            return COMMITTED
        return told[row.producer, row.txn].outcome if (row.producer, row.txn) in told else UNKNOWN

    def say(anomaly, place, *, offset=-1, identity=NOBODY):
        found.findings[Finding(anomaly, place[0], place[1], identity[0], offset, identity[1])] += 1

    by_identity = {}
    for row in produced:
        if (row.producer, row.seq) in by_identity:
            raise ProducedTwice(row)
        by_identity[row.producer, row.seq] = row

    alike = defaultdict(list)
    for read in reads:
        if not read.live:
            alike[read.spot, read.identity, read.intact].append(read)
    copies = [Copy(rows) for rows in alike.values()]

    # Present: a produced identity that the final read holds, intact, at the topic and partition of its produced row.
    present = defaultdict(list)
    for copy in copies:
        if copy.identity == NOBODY or copy.identity not in by_identity or not copy.intact:
            continue
        row = by_identity[copy.identity]
        if copy.place == (row.topic, row.partition):
            present[copy.identity].append(copy)
    lowest = {identity: min(copy.offset for copy in there) for identity, there in present.items()}

    def superseded(identity, place, offset):
        return identity[0] in keys and keyed.superseded(
            identity, offset, *keys[identity[0]], *keyed.alike(place, identity, copies, produced, keys)
        )

    for identity, row in by_identity.items():
        place = row.topic, row.partition
        there = present.get(identity, [])
        # A transactional record can be lost only if its commit was acknowledged.
        gone = row.outcome == ACKED and not there and fate(row) == COMMITTED
        if gone and superseded(identity, place, row.offset) and not keyed.retaken(row, copies, produced):
            say("compacted", place, offset=row.offset, identity=identity)
        elif gone:
            say("lost", place, offset=row.offset, identity=identity)
            if row.offset >= 0 and any(
                copy.intact and copy.spot == (*place, row.offset) and copy.identity != identity
                for copy in copies
            ):
                say("overwritten", place, offset=row.offset, identity=identity)
        if row.outcome == FAILED and there:
            say("resurrected", place, offset=lowest[identity], identity=identity)
        if row.outcome == INDETERMINATE and there:
            say("surfaced", place, offset=lowest[identity], identity=identity)
        if (
            row.outcome == ACKED
            and row.offset >= 0
            and there
            and all(copy.offset != row.offset for copy in there)
        ):
            say("displaced", place, offset=row.offset, identity=identity)

    intact_copies = defaultdict(list)
    for copy in copies:
        if copy.intact and copy.identity != NOBODY:
            intact_copies[copy.identity].append(copy)
    for identity, several in intact_copies.items():
        at_home = {id(copy) for copy in present.get(identity, [])}
        several.sort(key=lambda copy: (id(copy) not in at_home, copy.spot))
        for copy in several[1:]:
            say("duplicate", copy.place, offset=copy.offset, identity=identity)

    for copy in copies:
        row = by_identity.get(copy.identity) if copy.identity != NOBODY else None
        unledgered = copy.identity != NOBODY and row is None and copy.identity[0] in open_producers
        if unledgered:
            found.unledgered += 1
        elif row is None:
            say("phantom", copy.place, offset=copy.offset, identity=copy.identity)
        if copy.astray or (row is not None and copy.place != (row.topic, row.partition)):
            say("misrouted", copy.place, offset=copy.offset, identity=copy.identity)
        at_home = copy.intact and row is not None and copy.place == (row.topic, row.partition)
        if at_home and copy.place in stamps and not stamps[copy.place].permit(copy.timestamp_ms, row):
            say("corrupted", copy.place, offset=copy.offset, identity=copy.identity)
        if not copy.intact:
            say("corrupted", copy.place, offset=copy.offset, identity=copy.identity)

    in_line = defaultdict(list)
    for identity, row in by_identity.items():
        if identity in lowest:
            in_line[row.producer, row.topic, row.partition].append((lowest[identity], row.seq, row.outcome))
    for (producer, topic, partition), line in in_line.items():
        for offset, seq, outcome in line:
            before = [(s, o) for at, s, o in line if at < offset and s > seq]
            if before:
                say("reordered", (topic, partition), offset=offset, identity=(producer, seq))
                if outcome == ACKED and any(o == ACKED for _, o in before):
                    found.both_acked.add((producer, seq))

    final_at, live_at = defaultdict(set), defaultdict(set)
    for read in reads:
        (live_at if read.live else final_at)[read.spot].add(read.identity)
    for spot, identities in live_at.items():
        gone = {
            one for one in identities - final_at.get(spot, set()) if not superseded(one, spot[:2], spot[2])
        }
        if gone:
            say("vanished", spot[:2], offset=spot[2], identity=min(gone))
    for spot in final_at.keys() | live_at.keys():
        if len(final_at.get(spot, set()) | live_at.get(spot, set())) > 1:
            say("conflict", spot[:2], offset=spot[2])

    visible = {
        read.identity
        for read in reads
        if read.phase == FINAL_COMMITTED
        and read.intact
        and read.identity in by_identity
        and read.place == (by_identity[read.identity].topic, by_identity[read.identity].partition)
    } - {NOBODY}

    # Rows handed over at read_committed: final ones that agree count once, live ones each.
    handed = [read for read in reads if read.phase == LIVE_COMMITTED]
    at_the_end = defaultdict(list)
    for read in reads:
        if read.phase == FINAL_COMMITTED:
            at_the_end[read.spot, read.identity, read.intact].append(read)
    handed += [Copy(rows) for rows in at_the_end.values()]
    for one in handed:
        row = by_identity.get(one.identity) if one.identity != NOBODY else None
        if row is None or row.txn < 0 or one.place != (row.topic, row.partition):
            continue
        if fate(row) == ABORTED:
            say("aborted-read", one.place, offset=one.offset, identity=one.identity)
        asked = told[row.producer, row.txn].commit_ns if (row.producer, row.txn) in told else -1
        if asked >= 0 and one.read_ns < asked:
            say("early-read", one.place, offset=one.offset, identity=one.identity)

    members = defaultdict(list)
    for row in produced:
        if row.txn >= 0 and read_committed:
            members[row.producer, row.txn].append(row)
    for rows in members.values():
        missing = [row for row in rows if row.outcome == ACKED and (row.producer, row.seq) not in visible]
        there = [row for row in rows if (row.producer, row.seq) in visible]
        # In part; or not at all, though its commit was acknowledged.
        if missing and (there or fate(rows[0]) == COMMITTED):
            first = min(missing, key=lambda row: ((row.producer, row.seq) not in present, row.seq))
            place = first.topic, first.partition
            say("torn-transaction", place, offset=first.offset, identity=(first.producer, first.seq))

    lines = defaultdict(list)
    for read in reads:
        lines[read.phase, read.reader, read.assignment, read.place].append(read)
    skipped = set()
    for (phase, _, _, place), line in lines.items():
        line.sort(key=lambda read: (read.read_seq, read.offset, read.leader_epoch, read.identity))
        for before, after in pairwise(line):
            a, b = before.offset, after.offset
            if b <= a:
                if before.live:
                    say("rewound", place, offset=b, identity=after.identity)
                else:
                    found.final_read.add((*place, b))
            elif before.live:
                for identity, there in present.items():
                    # At read_committed nobody is owed what is not committed, as far as one can see.
                    outcome = fate(by_identity[identity])
                    hidden = outcome == ABORTED or (outcome != COMMITTED and identity not in visible)
                    for copy in there if phase == LIVE or not hidden else ():
                        later = (
                            copy.epoch >= 0 and after.leader_epoch >= 0 and copy.epoch > after.leader_epoch
                        )
                        if copy.place == place and a < copy.offset < b and not later:
                            skipped.add(copy.spot)
            elif phase == FINAL:
                for read in reads:
                    truncated = 0 <= read.leader_epoch < before.leader_epoch
                    gone = truncated or superseded(read.identity, place, read.offset)
                    owed = read.spot in final_at or not gone
                    if read.place == place and a < read.offset < b and owed:
                        found.final_read.add(read.spot)
    for spot in skipped:
        say("skipped", spot[:2], offset=spot[2])
    return found


class Bin(NamedTuple):
    """A row of series.parquet: numbers of one partition in one bin of 0.1 s. Latencies are NaN without any.
    `longest_gap_ms`: of the whole partition, in each bin; -1: fewer than two acknowledgements."""

    topic: str
    partition: int
    start_ns: int
    acked: int
    failed: int
    indeterminate: int
    read: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    longest_gap_ms: float


def series(produced: Iterable[Produced], reads: Iterable[Read]) -> list[Bin]:
    """Return the rows of series.parquet by topic, partition and start: one per 0.1 s that has rows."""
    counts, latencies, acks = defaultdict(Counter), defaultdict(list), defaultdict(list)
    for row in produced:
        place, at = (row.topic, row.partition), row.sent_ns if row.done_ns < 0 else row.done_ns
        key = (*place, at // 10**8 * 10**8)
        counts[key][("acked", "failed", "indeterminate")[row.outcome]] += 1
        if row.outcome == ACKED and row.done_ns >= 0:
            latencies[key].append((row.done_ns - row.sent_ns) / 1e6)
            acks[place].append(row.done_ns)
    for read in reads:
        if read.live:
            counts[*read.place, read.read_ns // 10**8 * 10**8]["read"] += 1
    found = []
    for key in sorted(counts):
        times = sorted(acks[key[:2]])
        gap = max((b - a for a, b in pairwise(times)), default=-1)
        found.append(
            Bin(
                *key,
                *(counts[key][name] for name in ("acked", "failed", "indeterminate", "read")),
                *(percentile(latencies[key], share) for share in (0.5, 0.99, 1)),
                -1.0 if gap < 0 else gap / 1e6,
            )
        )
    return found


def percentile(values, share):
    """Return the percentile at `share` (0 to 1), interpolated between the nearest values. NaN: no values."""
    if not values:
        return float("nan")
    values = sorted(values)
    at = (len(values) - 1) * share
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)
