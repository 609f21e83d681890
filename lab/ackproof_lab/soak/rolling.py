"""The audit of a soak, window by window: the audit passes over the new rows, and the state carried between windows.

A window is a range of offsets of each partition, read by a follower reader, and the attempts whose outcomes came since
the window before. It ends before the first record whose attempt is not in the ledger yet, or that a live reader did not
receive yet. A window's bounds separate rows that belong together, so some state is carried to the next window:

* attempts that were acknowledged at offsets after the range, and live reads from there;
* of all other attempts only the seqs, as runs: a record found again is a duplicate, and one without an ack may still
  be found.

The passes also need rows of earlier windows, the *context*: each producer's record of the highest seq, the live reads
around the range, first copies. The first copies stand for records that are found again, at artificial offsets below all
others. Findings on context are left out. The counts of all windows together are those of one audit of everything,
except for losses after a record's window. These are found at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from ackproof.audit.bucket import BucketRows, audit_bucket
from ackproof.audit.outputs import FindingsWriter
from ackproof.audit.shares import CommitAudit, Share, cut_shares, resolve_share
from ackproof.ledgers.lookup import Identities, NumberRuns, are_in_runs
from ackproof.ledgers.rows import (
    FINAL,
    LIVE,
    PRODUCED,
    Bools,
    Ints,
    Rows,
    concat_rows,
    distinct_values,
    empty_rows,
    group_starts,
)
from ackproof.ledgers.transactions import NO_TRANSACTIONS, TransactionTable
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.removals import Removal
from ackproof_lab.soak.context import (
    HIGHEST,
    context,
    first_copies,
    highest_of,
    last_reads,
    next_reads,
    surfaced,
)


@dataclass(frozen=True)
class NewRows:
    """Ledger rows of one partition that are new in this window, in any order: attempts (`produced`), reads of
    live readers (`live`), and reads of the follower (`read`), the reader that reads the windows back.

    `start`, `end`: the offsets that the follower read, from `start` to before `end`.
    """

    start: int
    end: int
    produced: Rows = field(default_factory=partial(empty_rows, PRODUCED))
    live: Rows = field(default_factory=partial(empty_rows, LIVE))
    read: Rows = field(default_factory=partial(empty_rows, FINAL))


@dataclass(frozen=True)
class CarriedState:
    """State of one partition that the audit of a window leaves for the next one: rows that only a later window can
    compare, and the seqs of records that were found, not found or lost so far."""

    open: Rows = field(default_factory=partial(empty_rows, PRODUCED))
    """Acknowledged attempts that the next window decides: the follower has not read their offsets yet, or the offset is
    unknown and the record was not found."""
    unsaid: Mapping[tuple[int, int], NumberRuns] = field(default_factory=dict)
    """Seqs of unacknowledged attempts whose records were not found when their window closed, by (producer,
    outcome).
    """
    live: Rows = field(default_factory=partial(empty_rows, LIVE))
    """Live reads at offsets that the follower has not read yet."""
    last: Rows = field(default_factory=partial(empty_rows, LIVE))
    """The last read of each live reader."""
    highest: Rows = field(default_factory=partial(empty_rows, HIGHEST))
    """Of the records found so far, two per producer: the one with the highest seq, and the acknowledged one with the
    highest seq."""
    lost: Rows = field(default_factory=partial(empty_rows, PRODUCED))
    """Attempts that earlier windows counted as lost."""
    present: Mapping[int, NumberRuns] = field(default_factory=dict)
    """Seqs of the records that earlier windows found, by producer."""

    def knows(self, producer: Ints, seq: Ints) -> Bools:
        return are_in_runs(self.present, producer, seq)


@dataclass(frozen=True)
class LedgerProgress:
    """Progress of the ledgers when the window closed. `chunks`: by producer, the numbers of the ledger parts that it
    has written, each of `chunk_rows` seqs. `sent`: by producer, its number of attempts.
    """

    chunk_rows: int
    stride: int
    """Distance between two seqs of a producer in one partition: the number of partitions, to which it sends in turn."""
    chunks: Mapping[int, NumberRuns] = field(default_factory=dict)
    sent: Mapping[int, int] = field(default_factory=dict)
    last: bool = False
    """True for the last window: the ledgers are complete."""
    readers: frozenset[int] = frozenset()
    """Numbers of the live readers that run. A window ends at an offset that all of them have passed, so that
    it has all of their reads.
    """

    def later(self, producer: Ints, seq: Ints) -> Bools:
        """Return a mask of the records (producer, seq: parallel arrays) whose attempts may still be written to the
        ledger. The part for their seq is not there yet. Up to `chunk_rows` seqs above `sent` count too, because
        producers count their sends slightly late. All are False in the last window."""
        waits = np.zeros(len(seq), dtype=np.bool_)
        for number, chunks in self.chunks.items() if not self.last else ():
            mine = (producer == number) & (seq >= 0) & (seq < self.sent.get(number, 0) + self.chunk_rows)
            waits[mine] = ~chunks.has(seq[mine] // self.chunk_rows)
        return waits


@dataclass
class WindowCounts:
    """Result of the audit of one window. `counts`: findings by class. By partition: `ends`, the offset up to which it
    was audited; `reached`, the offset up to which all live readers have read it; `carried`, the state for the next
    window.

    `flaws`: number of offsets to which the reader that reads the windows back (the follower) went back, or that it
    skipped. `late`: number of live reads of offsets before this window.
    """

    counts: dict[str, int]
    ends: dict[TopicPartition, int]
    reached: dict[TopicPartition, int]
    carried: dict[TopicPartition, CarriedState]
    followed: int
    """Number of records that were read back, up to `ends`."""
    flaws: int
    late: int
    found_late: tuple[tuple[int, int], ...]
    """Identities (producer, seq) that an earlier window counted as lost and that were found now: they were
    acknowledged without an offset.
    """


class _Findings(FindingsWriter):
    """Writer of findings that leaves out findings about context rows, which were added only for comparison. `context`:
    their offsets, by partition."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.context: dict[TopicPartition, Ints] = {}

    def select_reported(self, place: TopicPartition, anomaly: Anomaly, rows: Rows) -> Bools | None:
        return ~np.isin(rows.ints("offset"), self.context.get(place, ()))


def audit(
    findings_file: Path,
    given: Mapping[TopicPartition, NewRows],
    carried: Mapping[TopicPartition, CarriedState],
    told: LedgerProgress,
) -> WindowCounts:
    """Audit one window and return its counts and the state for the next. The findings file is written only if
    there are any.

    `given`: new rows by partition. `carried`: state of the previous window. `told`: what the ledgers had when
    the window closed. Raises `Rejected` if an identity was produced twice, OSError if the file cannot be written.
    """
    findings = _Findings(findings_file)
    places = {
        place: _Place(place, one, carried.get(place, CarriedState()), told) for place, one in given.items()
    }
    elsewhere = [_known_at(place, one, places) for place, one in places.items()]
    given_shares: list[Share] = []
    flaws = 0
    for place, one in sorted(places.items()):
        findings.context[place] = one.context_offsets
        rows = BucketRows()
        rows.add("produced", one.produced)
        rows.add("live", one.live)
        rows.add("final", one.read)
        commits = CommitAudit(place, findings, TransactionTable(NO_TRANSACTIONS))
        audited = audit_bucket(place, rows, findings, commits, {}, Removal(place.topic, place.partition))
        for message in audited.handovers:
            given_shares += [share for _, share in cut_shares(message, 1)]
        flaws += int(np.count_nonzero(~np.isin(audited.flaws, one.context_offsets)))
    resolve_share([*given_shares, *elsewhere], frozenset(), findings)
    findings.close()
    return WindowCounts(
        counts=dict(findings.counts),
        ends={place: one.end for place, one in places.items()},
        reached={place: one.reached for place, one in places.items()},
        carried={place: one.carry() for place, one in places.items()},
        followed=sum(one.followed for one in places.values()),
        flaws=flaws,
        late=sum(one.late for one in places.values()),
        found_late=tuple(identity for one in places.values() for identity in one.found_late),
    )


class _Place:
    """One partition in the audit of one window: the rows to compare, and the state for the next window."""

    def __init__(
        self, place: TopicPartition, given: NewRows, before: CarriedState, told: LedgerProgress
    ) -> None:
        self.place = place
        self.before, self._told = before, told
        news = concat_rows([before.open, given.produced], PRODUCED)
        from_before = np.arange(len(news)) < len(before.open)
        order = np.lexsort((news["seq"], news["producer"]))
        news, from_before = news.take(order), from_before[order]
        # -- find the attempt of each record
        live = concat_rows([before.live, given.live], LIVE)
        self.reached = (
            given.end if told.last else _reached(concat_rows([before.last, live], LIVE), given, told.readers)
        )
        self.end, read = _up_to_untold(given, told, self.reached)
        self.followed = len(read)
        found = Identities(news["producer"], news.ints("seq")).find(read["producer"], read.ints("seq"))
        unknown = (found < 0) & ~((read["producer"] == -1) & (read["seq"] == -1))
        again = unknown & before.knows(read.ints("producer"), read.ints("seq"))
        lost = Identities(before.lost["producer"], before.lost.ints("seq")).find(
            read["producer"], read.ints("seq")
        )
        lost[~unknown | again] = -1
        said, found_late = surfaced(before.unsaid, read, unknown & ~again)
        self.foreign = read.take(unknown & ~again & (lost < 0) & ~said)
        # -- select the attempts that this window decides
        met = np.zeros(len(news), dtype=np.bool_)
        met[found[found >= 0]] = True
        self._intact = np.zeros(len(news), dtype=np.bool_)
        self._intact[found[(found >= 0) & read.flags("intact")]] = True
        acked, offset = news["outcome"] == Outcome.ACKED, news.ints("offset")
        due = acked & np.where(offset >= 0, offset < self.end, from_before)
        due |= acked & told.last
        self._now = met | due
        self._news = news
        self.waiting = news.take(~met & ~due & acked)
        taken_back = distinct_values(lost[lost >= 0])
        self._still_lost = np.setdiff1d(np.arange(len(before.lost)), taken_back)
        back = before.lost.take(taken_back)
        self._back = concat_rows([back, found_late], PRODUCED)
        intact = read.take(read.flags("intact"))
        of_intact = np.isin(_identity(back), _identity(intact))
        self.found_late = list(
            zip(back["producer"][of_intact].tolist(), back["seq"][of_intact].tolist(), strict=True)
        )
        # -- select the rows for the passes
        known = first_copies(read.take(again))
        produced_context, read_context = context(before.highest, known)
        self.produced = concat_rows([news.take(self._now), self._back, produced_context], PRODUCED)
        self.read = concat_rows([read, read_context], FINAL)
        # -- live reads: a read after the window of its offset is late
        offset = live.ints("offset")
        held = (offset >= self.end) & (not told.last)
        self._own, self._held = live.take(~held & (offset >= given.start)), live.take(held)
        self.late = int(np.count_nonzero(~held & (offset < given.start)))
        around = concat_rows([before.last, next_reads(self._held)], LIVE)
        self.live = concat_rows([self._own, around], LIVE)
        self.context_offsets = distinct_values(
            np.concatenate([read_context.ints("offset"), around.ints("offset")])
        )

    def _add_seqs(self, runs: NumberRuns | None, seqs: Ints) -> NumberRuns:
        stride = self._told.stride
        return (NumberRuns(stride, int(seqs[0]) % stride) if runs is None else runs).union(seqs)

    def carry(self) -> CarriedState:
        before, news = self.before, self._news
        acked = news["outcome"] == Outcome.ACKED
        there = news.take(self._intact)
        gone = news.take(self._now & ~self._intact & acked)
        unsaid = dict(before.unsaid)
        absent = news.take(~self._intact & ~acked)
        for producer, outcome in {*zip(absent["producer"].tolist(), absent["outcome"].tolist(), strict=True)}:
            mine = (absent["producer"] == producer) & (absent["outcome"] == outcome)
            unsaid[producer, outcome] = self._add_seqs(
                unsaid.get((producer, outcome)), absent.ints("seq")[mine]
            )
        present = dict(before.present)
        back = self._back.take(
            np.isin(_identity(self._back), _identity(self.read.take(self.read.flags("intact"))))
        )
        for rows in (there, back):
            for producer in np.unique(rows["producer"]).tolist():
                seqs = rows.ints("seq")[rows["producer"] == producer]
                present[producer] = self._add_seqs(present.get(producer), seqs)
        return replace(
            before,
            open=self.waiting.copied(),
            unsaid=unsaid,
            live=self._held.copied(),
            last=last_reads(concat_rows([before.last, self._own], LIVE)).copied(),
            highest=highest_of(before.highest, there, self.read).copied(),
            lost=concat_rows([before.lost.take(self._still_lost), gone], PRODUCED)
            .sorted_by("producer", "seq")
            .copied(),
            present=present,
        )


def _reached(live: Rows, given: NewRows, readers: frozenset[int]) -> int:
    """Return the offset up to which all live readers have read the partition, at least `given.start` and at most
    `given.end`; without readers `given.end`. `live`: their reads. `readers`: their numbers."""
    offset, reader = live.ints("offset"), live.ints("reader")
    come = (int(offset[reader == number].max(initial=-1)) + 1 for number in readers)
    return max(given.start, min([given.end, *come]))


def _up_to_untold(given: NewRows, told: LedgerProgress, end: int) -> tuple[int, Rows]:
    """Return the offset at which the window ends, at most `end`, and the records before it.

    The window ends before the first record whose attempt may still be missing in the ledger.
    """
    read = given.read.take((given.read["offset"] >= given.start) & (given.read["offset"] < end))
    untold = read.ints("offset")[told.later(read.ints("producer"), read.ints("seq"))]
    end = min([end, *untold.tolist()])
    return end, read.take(read["offset"] < end)


def _identity(rows: Rows) -> Ints:
    return rows.ints("producer") * (1 << 40) + rows.ints("seq")


def _known_at(place: TopicPartition, mine: _Place, places: Mapping[TopicPartition, _Place]) -> Share:
    """Return, for `resolve_share`, the attempts to send records to partition `place` that this window read back from
    another partition. Each has True if its record is known to be in `place` too.

    It has only attempts of earlier windows, and attempts that wait for a later window; these always have True. For
    attempts that this window audits, `resolve_share` gets the same from `audit_bucket` (`handovers`).
    """
    foreign = concat_rows([one.foreign for other, one in places.items() if other != place], FINAL)
    foreign = foreign.sorted_by("producer", "seq")
    foreign = foreign.take(group_starts([foreign["producer"], foreign["seq"]]))
    producer, seq = foreign.ints("producer"), foreign.ints("seq")

    def among(attempts: Rows) -> Bools:
        ordered = attempts.sorted_by("producer", "seq")
        there: Bools = Identities(ordered["producer"], ordered.ints("seq")).find(producer, seq) >= 0
        return there

    present = mine.before.knows(producer, seq) | among(mine.waiting)
    absent = among(mine.before.lost) | surfaced(mine.before.unsaid, foreign, ~present)[0]
    which = (present | absent) & ~among(mine.produced)
    columns = {"producer": foreign["producer"], "seq": foreign["seq"], "present": present}
    return Share(place, sparse=Rows(columns, len(foreign)).take(which))
