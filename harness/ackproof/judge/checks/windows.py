"""The windows of a soak beside the audit of the whole, and what nobody can say any more of what was deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import pyarrow as pa

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, agrees, contradicts, lacks, not_judged, stays_open
from ackproof.rundir import storage
from ackproof.rundir.anomalies import Anomaly, counted
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import FINDINGS
from ackproof.rundir.windows import window_findings

_LATER: Final = frozenset(
    {Anomaly.LOST, Anomaly.OVERWRITTEN, Anomaly.DISPLACED, Anomaly.VANISHED, Anomaly.CONFLICT}
)
"""What can become of a record after its window was read back."""
_NAMES: Final = ("class", "topic", "partition", "producer", "offset", "seq")


class _Finding(NamedTuple):
    anomaly: str
    topic: str
    partition: int
    producer: int
    offset: int
    seq: int

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def check(facts: Facts) -> Iterator[Opinion]:
    """What the windows come to."""
    if facts.case.experiment.soak is None:
        return
    found = facts.windows
    if not found or not found[-1].last:
        yield lacks("the last window of the soak was not audited")
        return
    for before, after in pairwise(found):
        for one, other in zip(before.read, after.read, strict=True):
            if one.end != other.start:
                yield contradicts(
                    f"{one.place}: window {before.number} ends at {one.end}, and window {after.number} begins at "
                    f"{other.start}"
                )
    yield from _deleted(facts)
    try:
        whole, windows = _whole(facts), _of_windows(facts)
    except (OSError, pa.ArrowException) as error:
        yield lacks(f"the findings of the windows cannot be read: {str(error).splitlines()[0]}")
        return
    yield from _beside(facts, whole, windows)


def _deleted(facts: Facts) -> Iterator[Opinion]:
    deleted = [one for one in facts.windows if one.deleted]
    if deleted:
        starts = ", ".join(f"{place} {start:,}" for place, start in sorted(facts.log_starts.items()))
        yield not_judged(
            f"what stood in the logs before {starts}: nothing was found in {len(deleted)} of {len(facts.windows)} "
            f"windows, up to window {deleted[-1].number} ({sum(one.acked for one in deleted):,} acknowledged), so "
            "their records and ledgers were deleted (--keep); what became of these records after their windows "
            "nobody can tell"
        )


def _beside(facts: Facts, whole: Counter[_Finding], windows: Counter[_Finding]) -> Iterator[Opinion]:
    """The sum of the windows is what the audit of the whole found, or the difference is said."""
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
            f"the windows found {counted(count, name)} that the audit of the whole did not: {_such(only_windows, name)}"
        )
    for name, count in _by_class(only_whole):
        says = stays_open if name in _LATER else lacks
        yield says(
            f"the audit of the whole found {counted(count, name)} that no window did: {_such(only_whole, name)}"
        )
    if not only_windows and not only_whole:
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


def _whole(facts: Facts) -> Counter[_Finding]:
    """Findings of the audit of the whole, but for those of what was deleted."""
    table = storage.rows_of(facts.run.finding_parts, list(_NAMES), None, FINDINGS)
    found = Counter(_Finding(*row) for row in zip(*(table[name].to_pylist() for name in _NAMES), strict=True))
    for one in [one for one in found if 0 <= one.offset < facts.log_starts.get(one.place, 0)]:
        del found[one]
    return found


def _of_windows(facts: Facts) -> Counter[_Finding]:
    found: Counter[_Finding] = Counter()
    for window in facts.windows:
        path = window_findings(facts.run, window.number)
        if path.exists():
            table = storage.table(path, columns=list(_NAMES))
            rows = zip(*(table[name].to_pylist() for name in _NAMES), strict=True)
            found.update(_Finding(*row) for row in rows)
        late = set(window.found_late)
        moved = {(one.producer, one.seq) for one in found if one.anomaly == Anomaly.DISPLACED} | late
        for one in [one for one in found if one.anomaly == Anomaly.LOST and (one.producer, one.seq) in moved]:
            del found[one]
    for one in [one for one in found if 0 <= one.offset < facts.log_starts.get(one.place, 0)]:
        del found[one]
    return found
