"""Checks of a soak's windows, which are compared with each other, the timeline and the audit of the whole run; and of
deleted windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, agrees, contradicts, lacks, not_judged
from ackproof.rundir import storage
from ackproof.rundir.anomalies import FOLLOWING, PASSING, Anomaly, count_text
from ackproof.rundir.arrow import rows_of
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import FINDINGS
from ackproof.rundir.timeline import WindowAudited
from ackproof.rundir.windows import window_findings

_LATE_READS: Final = frozenset({Anomaly.SKIPPED, Anomaly.REWOUND})
"""Classes that live reads of an earlier window's offsets can show. Only the audit of the whole run covers
such late reads."""
_NAMES: Final = ("class", "topic", "partition", "producer", "offset", "seq")


class _Finding(NamedTuple):
    """A finding of a window, or of the audit of the whole run. Two with equal fields are the same finding. Numbers are
    -1 if unknown."""

    anomaly: str
    topic: str
    partition: int
    producer: int
    offset: int
    seq: int

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def check_windows(facts: Facts) -> Iterator[Opinion]:
    """Compare the windows of a soak with each other, with the timeline and with the audit of the whole run. A window is
    a part of the load whose records are read back and audited while the load runs.

    Yields `contradicts` (files disagree) if windows leave out offsets or partitions, or overlap. Yields `contradicts`,
    too, if the counts of a window differ from the timeline or from its own findings. The same holds for a deleted
    window if the case keeps all.

    Yields only `lacks` (evidence is missing) if the last window was not audited. Yields `lacks`, too, if the counts or
    findings of all windows together differ from the audit of the whole run. Findings that only that audit can have are
    `not judged`, and so are deleted windows. Yields `agrees` if all windows together found what that audit did.

    Yields nothing for a run that is no soak. Raises `BadInput` for a broken window file.
    """
    if facts.case.experiment.soak is None:
        return
    found = facts.windows
    if not found or not found[-1].last:
        yield lacks("the last window of the soak was not audited")
        return
    yield from _ranges(facts)
    yield from _timeline_windows(facts)
    yield from _deleted(facts)
    try:
        every = storage.read_rows(facts.run.finding_parts, list(_NAMES), None, FINDINGS)
        whole, found_in = _about_kept(facts, Counter(_findings(every))), _found_in(facts)
    except (OSError, pa.ArrowException) as error:
        yield lacks(f"the findings of the windows cannot be read: {str(error).splitlines()[0]}")
        return
    yield from _finding_counts(facts, found_in)
    yield from _compare_with_whole(facts, whole, _of_windows(facts, found_in))


def _ranges(facts: Facts) -> Iterator[Opinion]:
    """Check that each window has the partitions of the case. All windows together must cover each partition from offset
    0 to the end of the final read, without gaps. Yields `contradicts` (files disagree) where they do not."""
    ends: dict[TopicPartition, tuple[str, int]] = dict.fromkeys(facts.planned, ("the soak begins", 0))
    for window in facts.windows:
        read = {one.place: one for one in window.read}
        if read.keys() != ends.keys():
            strange = ", ".join(str(place) for place in sorted(read.keys() ^ ends.keys()))
            yield contradicts(f"window {window.number} and the case have not the same partitions: {strange}")
            return
        for place, one in read.items():
            before, end = ends[place]
            if one.start != end:
                yield contradicts(
                    f"{place}: {before} at {end}, and window {window.number} begins at {one.start}"
                )
            ends[place] = f"window {window.number} ends", one.end
    final = facts.final_read
    for whole in final.partitions if final is not None and final.complete else ():
        last, end = ends.get(whole.place, ("", whole.position))
        if end < whole.position:
            yield contradicts(
                f"{whole.place}: {last} at {end} as the last, and the final read at {whole.position}"
            )


def _timeline_windows(facts: Facts) -> Iterator[Opinion]:
    told = {one.what.number: one.what for one in facts.events if isinstance(one.what, WindowAudited)}
    for window in facts.windows:
        what = told.get(window.number)
        if what is None or (what.acked, what.followed, what.counts) != (
            window.acked, window.followed, window.counts
        ):  # fmt: skip
            yield contradicts(f"window {window.number} is not what the timeline says of it")
    there = {window.number for window in facts.windows}
    for number in sorted(number for number, what in told.items() if what.audited and number not in there):
        yield contradicts(f"the timeline tells that window {number} was audited, and there is no such window")


def _finding_counts(facts: Facts, found_in: Sequence[Sequence[_Finding]]) -> Iterator[Opinion]:
    for window, found in zip(facts.windows, found_in, strict=True):
        held = Counter(one.anomaly for one in found)
        if held != Counter(window.counts):
            yield contradicts(
                f"window {window.number} counts {dict(window.counts)}, and its findings are {dict(held)}"
            )


def _deleted(facts: Facts) -> Iterator[Opinion]:
    deleted = [one for one in facts.windows if one.deleted]
    soak = facts.case.experiment.soak
    if deleted and (soak is None or soak.keep is None):
        yield contradicts(f"window {deleted[0].number} was deleted, and the case keeps all")
    if deleted:
        starts = ", ".join(f"{place} {start:,}" for place, start in sorted(facts.log_starts.items()))
        yield not_judged(
            f"what stood in the logs before {starts}: nothing was found in {len(deleted)} of {len(facts.windows)} "
            f"windows, up to window {deleted[-1].number} ({sum(one.acked for one in deleted):,} acknowledged), so "
            "their records and ledgers were deleted (--keep); what became of these records after their windows "
            "nobody can tell"
        )


def _compare_with_whole(
    facts: Facts, whole: Counter[_Finding], windows: Counter[_Finding]
) -> Iterator[Opinion]:
    records, deleted = facts.audit.records, facts.audit.deleted
    gone = deleted.gone if deleted is not None else 0
    produced = sum(one.produced for one in facts.windows)
    if produced != records.produced + gone:
        yield lacks(
            f"the windows count {produced:,} attempts, and the ledgers have, or had, {records.produced + gone:,}"
        )
    if deleted is None:
        for name in ("acked", "failed", "indeterminate"):
            summed = sum(getattr(one, name) for one in facts.windows)
            if summed != getattr(records, name):
                yield lacks(
                    f"the windows count {summed:,} {name}, and the audit of the whole {getattr(records, name):,}"
                )
    only_windows, only_whole = windows - whole, whole - windows
    for name, count in _by_class(only_windows):
        yield lacks(
            f"the windows found {count_text(count, name)} that the audit of the whole did not: "
            f"{_such(only_windows, name)}"
        )
    later = FOLLOWING | _LATE_READS if any(one.late for one in facts.windows) else FOLLOWING
    for name, count in _by_class(only_whole):
        # what came later the audit of the whole alone can tell, and its finding is judged as that of any run
        says = not_judged if name in later else lacks
        yield says(
            f"the audit of the whole found {count_text(count, name)} that no window did: {_such(only_whole, name)}"
        )
    partly = [f"window {one.number}: {reason}" for one in facts.windows for reason in one.reasons]
    if partly:
        yield not_judged(
            f"what windows did not see whole, and the audit of the whole alone tells: {partly[0]}"
        )
    if not only_windows and not only_whole and not partly:
        yield agrees(
            f"{len(facts.windows)} windows, audited while the load went on, found what the audit of the whole did"
        )


def _by_class(found: Counter[_Finding]) -> list[tuple[str, int]]:
    counts: Counter[str] = Counter()
    for one, count in found.items():
        counts[one.anomaly] += count
    return sorted(counts.items())


def _such(found: Counter[_Finding], name: str) -> str:
    one = min(one for one in found if one.anomaly == name)
    return f"such as producer {one.producer}, seq {one.seq} at {one.place}, offset {one.offset}"


def _about_kept(facts: Facts, found: Counter[_Finding]) -> Counter[_Finding]:
    """Return the findings without those at offsets that the soak deleted, which are below `facts.log_starts`."""
    gone = {one for one in found if 0 <= one.offset < facts.log_starts.get(one.place, 0)}
    return Counter({one: count for one, count in found.items() if one not in gone})


def _findings(table: pa.Table) -> Iterator[_Finding]:
    yield from (_Finding(*row) for row in rows_of(table, *_NAMES))


def _found_in(facts: Facts) -> list[list[_Finding]]:
    """Return the findings of each window, window by window. Raises OSError or ArrowException if they cannot be read."""
    paths = (window_findings(facts.run, window.number) for window in facts.windows)
    return [
        [*_findings(storage.read_table(path, columns=list(_NAMES)))] if path.exists() else []
        for path in paths
    ]


def _of_windows(facts: Facts, found_in: Sequence[Sequence[_Finding]]) -> Counter[_Finding]:
    """Return each finding of the windows (`found_in`), with the number of times that it was found. Left out are those
    about deleted records, and those that a later window took back: the record was read after all, maybe displaced."""
    found: Counter[_Finding] = Counter()
    for window, own in zip(facts.windows, found_in, strict=True):
        found.update(own)
        late = set(window.found_late)
        moved = {(one.producer, one.seq) for one in found if one.anomaly == Anomaly.DISPLACED} | late
        for one in [one for one in found if one.anomaly in PASSING and (one.producer, one.seq) in moved]:
            del found[one]
    return _about_kept(facts, found)
