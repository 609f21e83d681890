"""Audit by identity: the classes lost, duplicate, resurrected, surfaced, displaced and reordered; and the classes of a
single final row: phantom, misrouted and corrupted.

An identity is (producer, seq); a bucket is all rows of one partition. A large bucket is cut by seq, so that each range
has all rows of its identities; only `reordered` needs other ranges (`find_crossings`). A bucket sends the identities
that it produced, each with a flag: True if the final read found it there intact. It also sends the final rows of
identities that it did not produce. `ackproof.audit.shares` joins these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ackproof.audit.outputs import FindingsWriter, Handover
from ackproof.audit.removed import RemovedRecords
from ackproof.audit.shares import UNMATCHED, CommitAudit
from ackproof.ledgers.directory import Rejected
from ackproof.ledgers.lookup import Identities, Lookup, highest_over
from ackproof.ledgers.rows import (
    FINAL,
    Bools,
    Ints,
    Rows,
    Schema,
    concat_rows,
    empty_rows,
    find_repeated,
    group_starts,
)
from ackproof.ledgers.transactions import TransactionFates
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.anomaly_terms import Inversion
from ackproof.rundir.arrow import append_numbers
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import Keys
from ackproof.rundir.removals import Removal, TimestampRule

COPIES: Schema = {"offset": "i8", "producer": "i4", "seq": "i8", "intact": "?"}
LOST: Schema = {"offset": "i8", "producer": "i4", "seq": "i8"}
OFFSETS: Schema = {"offset": "i8"}
SPANS: Schema = {"producer": "i4", "lowest": "i8", "lowest_acked": "i8", "highest": "i8"}
"""One row per producer with a record that the final read found intact. Each of its records counts at the lowest offset
of its copies. `lowest`, `highest`: least and greatest of these offsets; `lowest_acked`: the least over acked records,
the greatest int64 without any."""

_FAR = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class RangeReads:
    """Reads with which the produced records of a range of identities (producer, seq) are compared.

    `final`, `committed`: the final read at read_uncommitted and at read_committed. `live`: rows of live readers at both
    isolation levels, which serve to find removed records. It is empty for a range of a bucket: a bucket whose records
    may have been removed is never cut into ranges. `committed_live`: rows of live readers at read_committed. `gaps`,
    `committed_gaps`: offsets that live readers skipped (`offsets.GAPS`) at read_uncommitted and at read_committed.
    """

    final: Rows
    committed: Rows
    committed_live: Rows
    live: Rows
    gaps: Rows
    committed_gaps: Rows


@dataclass(frozen=True)
class IdentityPass:
    """Results of `audit_identities`, most of them for `audit_offsets`.

    `copies`: distinct final rows (`distinct_copies`). `lost`: lost records that were acked with an offset. `skipped`:
    offsets of produced records that the final read has and a live reader skipped; one offset may occur several times.
    `spans`: lowest and highest offsets by producer (`SPANS`), for `find_crossings`. `removed`: records that Kafka may
    have removed on purpose. `handovers`: rows that this bucket alone cannot decide on.
    """

    copies: Rows
    lost: Rows
    skipped: Rows
    spans: Rows
    removed: RemovedRecords
    handovers: tuple[Handover, ...]


class _ProducedMatch:
    """Produced rows by producer and seq, each matched with its copies in the final reads.

    For each of `copies`, `found` is the index of its produced row, -1 if it has none. `own`: indices of the intact
    copies that have a produced row. `of`, `at`: produced row and offset of each copy in `own`. By produced row:
    `lowest`, the lowest offset of its intact copies (`_FAR`: none); `present`, True if it has an intact copy.
    """

    def __init__(self, produced: Rows, reads: RangeReads) -> None:
        """Match produced rows with the reads. Raises `Rejected` if an identity was produced twice."""
        self.produced = produced.sorted_by("producer", "seq")
        if (twice := find_repeated(self.produced["producer"], self.produced["seq"])) is not None:
            producer, number = (int(self.produced[name][twice]) for name in ("producer", "seq"))
            raise Rejected(f"producer {producer}, seq {number} was produced twice")
        self.copies = distinct_copies(concat_rows([reads.final, reads.committed], FINAL))
        seq, offset = self.produced.ints("seq"), self.copies.ints("offset")
        self.known = Identities(self.produced["producer"], seq)
        self.found = self.known.find(self.copies["producer"], self.copies.ints("seq"))
        self.found[_is_unidentified(self.copies)] = -1
        self.own = np.flatnonzero((self.found >= 0) & self.copies.flags("intact"))
        self.of, self.at = self.found[self.own], offset[self.own]
        # Copies are sorted by offset. Assigning them in reverse leaves the lowest offset of each identity.
        self.lowest = np.full(len(produced), _FAR, dtype=np.int64)
        self.lowest[self.of[::-1]] = self.at[::-1]
        self.present = np.zeros(len(produced), dtype=np.bool_)
        self.present[self.of] = True


def audit_identities(
    place: TopicPartition,
    rows: Rows,
    reads: RangeReads,
    findings: FindingsWriter,
    commits: CommitAudit,
    keys: Mapping[int, Keys],
    removal: Removal,
    order: FindingsWriter | None = None,
    stamps: TimestampRule | None = None,
) -> IdentityPass:
    """Compare the produced rows of one bucket (`rows`), or of a range of it, with the final reads by identity
    (producer, seq). Add the findings: records that are lost, removed on purpose, duplicate, resurrected, surfaced,
    displaced, reordered, phantom, misrouted or corrupted. Also add reads of aborted and of not yet committed
    transactions. Return what later passes need.

    `commits` compares reads with the outcomes of transactions. `keys`: producer → keys of its records; a producer whose
    records have none is missing. `removal`: settings and requests that may have removed records. `order`: writer of the
    findings of class reordered, by default `findings`. `stamps`: timestamps that the records may have; None: any.
    Raises `Rejected` if an identity was produced twice or the transaction table is invalid, `UnreadablePart` for an
    unreadable file, OSError if findings cannot be written.
    """
    match, add = _ProducedMatch(rows, reads), partial(findings.add, place)
    produced, copies, present = match.produced, match.copies, match.present
    unidentified = _is_unidentified(copies)
    add(Anomaly.CORRUPTED, copies, np.flatnonzero(~copies.flags("intact")), detail="checksum broken")
    if stamps is not None:
        wrong = match.own[_is_restamped(match, stamps)]
        words = append_numbers("not the timestamp that it was given: ", copies.ints("timestamp_ms")[wrong])
        add(Anomaly.CORRUPTED, copies, wrong, detail=words)
    add(Anomaly.PHANTOM, copies, np.flatnonzero(unidentified), detail="no identity")
    astray = np.flatnonzero(copies.flags("astray") & ((match.found >= 0) | unidentified))
    add(Anomaly.MISROUTED, copies, astray, detail="its payload names another partition")
    extra = match.own[match.at != match.lowest[match.of]]
    add(Anomaly.DUPLICATE, copies, extra, detail="another intact copy of the same record")
    fates = commits.fates(produced)
    removed = RemovedRecords(removal, keys, produced, copies, reads.live)
    lost = _add_record_classes(add, match, fates, removed)
    _add_reordered(place, match, NOTHING_ABOVE, order or findings)
    epoch = copies["leader_epoch"][match.own].astype(np.int64)
    skipped = [_skipped(reads.gaps, match.at, epoch)]
    handovers: list[Handover] = []
    if fates is None:
        skipped.append(_skipped(reads.committed_gaps, match.at, epoch))
    else:
        visible = _find_visible(match, fates, reads, commits)
        owed = (fates.committed | (visible & ~fates.aborted))[match.of]
        skipped.append(_skipped(reads.committed_gaps, match.at[owed], epoch[owed]))
        handovers += commits.parts(produced, fates, visible, removed.at_read_committed, present)
    identities = {"producer": produced["producer"], "seq": produced.ints("seq"), "present": present}
    handovers.append(Handover(place, "identities", Rows(identities, len(produced))))
    unmatched = np.flatnonzero((match.found < 0) & ~unidentified)
    if len(unmatched):
        handovers.append(Handover(place, "unmatched", copies.select(UNMATCHED, unmatched)))
    return IdentityPass(
        copies.select(COPIES), lost, concat_rows(skipped, OFFSETS), _spans(match), removed, tuple(handovers)
    )


def _find_visible(
    match: _ProducedMatch, fates: TransactionFates, reads: RangeReads, commits: CommitAudit
) -> Bools:
    """Return a mask: True for each produced record that the final read at read_committed got intact.

    Also add findings for reads at read_committed, final and live, of records of aborted transactions. Reads before the
    commit of the transaction was requested are findings too (`CommitAudit.reads`). `fates`: outcome of each produced
    record's transaction. Raises OSError if the findings cannot be written.
    """
    visible = np.zeros(len(match.produced), dtype=np.bool_)
    for who, rows in (("final", distinct_copies(reads.committed)), ("live", reads.committed_live)):
        found = match.known.find(rows["producer"], rows.ints("seq"))
        found[_is_unidentified(rows)] = -1
        commits.reads(rows, found, fates, who)
        if who == "final":
            visible[found[(found >= 0) & rows.flags("intact")]] = True
    return visible


def _add_record_classes(
    add: Callable[..., None], match: _ProducedMatch, fates: TransactionFates | None, removed: RemovedRecords
) -> Rows:
    """Add findings about produced records: lost, removed on purpose, displaced, resurrected and surfaced ones. Return
    the lost records that were acked with an offset. `add`: `FindingsWriter.add` for the partition. `fates`: outcomes of
    the records' transactions; None: there are none."""
    produced, present, of = match.produced, match.present, match.of
    outcome, acked_at = produced["outcome"], produced.ints("offset")
    acked = outcome == Outcome.ACKED
    # Kafka promised nothing for records of transactions that were aborted or have an unknown outcome.
    owed = acked & ~present if fates is None else acked & ~present & fates.committed
    lost = np.flatnonzero(owed & ~removed.explained)
    add(Anomaly.LOST, produced, lost)
    for anomaly, rows, why in removed.causes():
        add(anomaly, produced, np.flatnonzero(owed & rows), detail=why)
    in_place = np.zeros(len(produced), dtype=np.bool_)
    in_place[of[match.at == acked_at[of]]] = True
    moved = np.flatnonzero(acked & (acked_at >= 0) & present & ~in_place)
    if len(moved):
        words = append_numbers("first found at offset ", match.lowest[moved])
        add(Anomaly.DISPLACED, produced, moved, detail=words)
    for anomaly, expected in (
        (Anomaly.RESURRECTED, Outcome.FAILED),
        (Anomaly.SURFACED, Outcome.INDETERMINATE),
    ):
        which = np.flatnonzero((outcome == expected) & present)
        add(anomaly, produced, which, offset=match.lowest[which])
    return produced.select(LOST, lost[acked_at[lost] >= 0])


NOTHING_ABOVE = empty_rows(SPANS)


def _add_reordered(
    place: TopicPartition, match: _ProducedMatch, above: Rows, findings: FindingsWriter
) -> None:
    """Add the findings of class reordered: records for which a higher seq of the same producer has a lower offset.

    `match`: the produced rows of a range of seqs, with the offsets at which the final read has them. `above`: lowest
    and highest offsets of the records with higher seqs, by producer (`SPANS`).
    """
    produced, there = match.produced, np.flatnonzero(match.present)
    if not len(there):
        return
    producer, offset = produced["producer"][there], match.lowest[there]
    acked = produced["outcome"][there] == Outcome.ACKED
    acked_offset = np.where(acked, offset, _FAR)
    starts = group_starts([producer])
    at = Lookup(above.ints("producer")).find(producer[starts].astype(np.int64))

    def least(of_each: Ints, name: str) -> Ints:
        known = np.append(above[name], _FAR)  # index −1: none above
        return _least_behind(of_each, starts, known[at])

    wrong = np.flatnonzero(least(offset, "lowest") < offset)
    if not len(wrong):
        return
    both = acked[wrong] & (least(acked_offset, "lowest_acked")[wrong] < offset[wrong])
    for which, detail in ((wrong[both], Inversion.BOTH_ACKED), (wrong[~both], Inversion.ONE_NOT_ACKED)):
        findings.add(place, Anomaly.REORDERED, produced, there[which], offset=offset[which], detail=detail)


def recount_reordered(
    place: TopicPartition, produced: Rows, reads: RangeReads, above: Rows, findings: FindingsWriter
) -> None:
    """Add the findings of class reordered of one range of seqs, now compared with the records of higher ranges.

    `produced`: the produced rows of the range. `reads`: reads in which their offsets are looked up. `above`: lowest and
    highest offsets of the records of higher ranges, by producer (`SPANS`). Raises `Rejected` if an identity was
    produced twice, OSError if the findings cannot be written.
    """
    _add_reordered(place, _ProducedMatch(produced, reads), above, findings)


def _spans(match: _ProducedMatch) -> Rows:
    there = np.flatnonzero(match.present)
    producer, offset = match.produced["producer"][there], match.lowest[there]
    starts = group_starts([producer])
    if not len(starts):
        return NOTHING_ABOVE
    acked = np.where(match.produced["outcome"][there] == Outcome.ACKED, offset, _FAR)
    columns = {
        "producer": producer[starts],
        "lowest": np.minimum.reduceat(offset, starts),
        "lowest_acked": np.minimum.reduceat(acked, starts),
        "highest": np.maximum.reduceat(offset, starts),
    }
    return Rows(columns, len(starts))


def find_crossings(spans: Sequence[Rows]) -> Iterator[tuple[int, Rows]]:
    """Yield (index, spans of all later ranges together) for each range that crosses a later one: it has a record at a
    higher offset than some record of the same producer there.

    `spans`: the spans of each range (`SPANS`), in ascending order of seq. The last range is yielded first.
    """
    above = NOTHING_ABOVE
    for number in reversed(range(len(spans))):
        own = spans[number]
        at = Lookup(above.ints("producer")).find(own.ints("producer"))
        if bool((np.append(above["lowest"], _FAR)[at] < own["highest"]).any()):
            yield number, above
        both = concat_rows([above, own], SPANS).sorted_by("producer")
        starts = group_starts([both["producer"]])
        if len(starts) < len(both):
            least = {name: np.minimum.reduceat(both[name], starts) for name in ("lowest", "lowest_acked")}
            highest = np.maximum.reduceat(both["highest"], starts)
            both = Rows({"producer": both["producer"][starts], **least, "highest": highest}, len(starts))
        above = both


def _skipped(gaps: Rows, at: Ints, epoch: Ints) -> Rows:
    """Return those offsets `at` that a reader skipped, because they lie in one of its `gaps`. `epoch`: leader epoch of
    each record, -1: unknown.

    A gap does not count if the leader epoch of the record after it is known to be below the record's own.
    """
    if not len(gaps) or not len(at):
        return empty_rows(OFFSETS)
    limit = np.where(gaps["epoch"] < 0, _FAR, gaps["epoch"])
    height = highest_over(at, gaps.ints("after"), gaps.ints("before"), limit)
    over = (height >= 0) & ((epoch < 0) | (epoch <= height))
    return Rows({"offset": at[over]}, int(np.count_nonzero(over)))


def _least_behind(offset: Ints, starts: Ints, last: Ints) -> Ints:
    """Return for each row the lowest offset among the later rows of its group and the group's element of `last`. A
    record whose own offset is higher is reordered.

    `offset`: one row per record, group after group. `starts`: first row of each group. `last`: one offset per group,
    such as the lowest offset of a producer's records with higher seqs.
    """
    ends = np.append(starts[1:], len(offset))
    behind = np.full(len(offset), _FAR, dtype=np.int64)
    # This is the result already for a group of ascending offsets that are below its element of `last`.
    behind[:-1] = offset[1:]
    behind[ends - 1] = last
    broken = np.logical_or.reduceat(behind < offset, starts)
    for group in np.flatnonzero(broken).tolist():
        low, high = int(starts[group]), int(ends[group])
        behind[low:high] = np.minimum.accumulate(behind[low:high][::-1])[::-1]
    return behind


def _is_restamped(match: _ProducedMatch, stamps: TimestampRule) -> Bools:
    """Return a mask over the intact copies of produced records (`match.own`): True if the copy has a timestamp that
    `stamps` does not allow. A copy without a timestamp (-1) is allowed."""
    stamp = match.copies.ints("timestamp_ms")[match.own]
    wrong: Bools = stamp >= 0  # the oldest format of records has no timestamps
    if stamps.sent_from_ns is not None:
        sent, answered = (match.produced.ints(name)[match.of] for name in ("sent_ns", "at_ns"))
        if stamps.unsure_ns is None:
            wrong &= stamp != (sent + stamps.sent_from_ns) // 1_000_000
        else:
            first = (sent + stamps.sent_from_ns - stamps.unsure_ns) // 1_000_000
            last = (answered + stamps.sent_from_ns + stamps.unsure_ns) // 1_000_000
            # without an answer `at_ns` is the time of the call, and the library may have set the timestamp later
            wrong &= (stamp < first) | ((stamp > last) & (answered > sent))
    if stamps.appended_ms is not None:
        wrong &= (stamp < stamps.appended_ms[0]) | (stamp > stamps.appended_ms[1])
    return wrong


def _is_unidentified(rows: Rows) -> Bools:
    unidentified: Bools = (rows["producer"] == -1) & (rows["seq"] == -1)
    return unidentified


def distinct_copies(final: Rows) -> Rows:
    """Return the final rows without repeated reads of one copy, sorted by offset. Rows with equal offset,
    producer, seq and `intact` are one copy.

    A copy gets the lowest leader epoch and the lowest timestamp of its rows (-1, unknown, is lowest) and the
    time of the first read. It is `astray` if any of its rows is.
    """
    rows = final.sorted_by("offset")
    if find_repeated(rows["offset"]) is None:
        return rows
    keys = ("offset", "producer", "seq", "intact")
    rows = rows.sorted_by(*keys)
    starts = group_starts([rows[key] for key in keys])
    if len(starts) == len(rows):
        return rows
    epoch = np.minimum.reduceat(rows["leader_epoch"], starts)
    astray = np.logical_or.reduceat(rows.flags("astray"), starts)
    kept = {**rows.take(starts).columns, "leader_epoch": epoch, "astray": astray}
    for name in kept.keys() & {"read_ns", "timestamp_ms"}:
        kept[name] = np.minimum.reduceat(rows[name], starts)
    return Rows(kept, len(starts))
