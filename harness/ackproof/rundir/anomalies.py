"""The table of all classes of anomalies that the audit counts. Every list of classes is derived from it.

`python -m ackproof.rundir.anomalies` prints `docs/anomalies.md`; a test compares both.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from ackproof.rundir.anomaly_terms import GROUP_ROWS, Anomaly, AnomalyClass, Concern, RuledBy, Unit

__all__ = [
    "ABSENCES",
    "CONDITIONAL",
    "FOLLOWING",
    "GONE",
    "GROUP_CLASSES",
    "LIVENESS",
    "LIVE_ONLY",
    "MISSING",
    "PASSING",
    "PREDICTED_WITH",
    "REMOVED",
    "REPLAYED",
    "TABLE",
    "TRACED",
    "Anomaly",
    "AnomalyClass",
    "count_text",
    "gravity",
    "markdown",
]

_WITHOUT_DETAIL: Final = ("producer", "seq", "offset")


_liveness = partial(
    AnomalyClass, ruled_by=RuledBy.LIVENESS, concern=Concern.LIVENESS, proves=True, columns=("detail",)
)
"""Make a liveness class: something had not recovered within its bound after the last healing."""
_removal = partial(AnomalyClass, ruled_by=RuledBy.REMOVAL, concern=Concern.NOTHING, follows=True)

_GRAVEST_FIRST: Final = (
    AnomalyClass(
        name=Anomaly.LOST,
        traced=True,
        follows=True,
        passing=True,
        ruled_by=RuledBy.LOSS,
        singular="acknowledged record",
        short="acknowledged, and not there",
        wording=(
            "It was acknowledged, and the final read does not hold it, intact, in the partition that it was sent to. "
            "A record of a transaction can be lost only if its commit was acknowledged."
        ),
        columns=_WITHOUT_DETAIL,
    ),
    AnomalyClass(
        name=Anomaly.VANISHED,
        follows=True,
        live=True,
        unit=Unit.OFFSET,
        ruled_by=RuledBy.LOSS,
        singular="vanished offset",
        short="a consumer was handed it, and it is not there",
        wording="A live reader was handed a record there that is not among the final ones there.",
    ),
    AnomalyClass(
        name=Anomaly.OVERWRITTEN,
        follows=True,
        passing=True,
        ruled_by=RuledBy.LOSS,
        predicted_as=Anomaly.LOST,  # a leader without the record gives its offset to the next one
        singular="overwritten record",
        short="acknowledged, and another record holds its offset",
        wording="It is lost, and an intact record with another identity now holds its acknowledged offset.",
    ),
    AnomalyClass(
        name=Anomaly.CONFLICT,
        follows=True,
        unit=Unit.OFFSET,
        ruled_by=RuledBy.LOSS,
        predicted_as=Anomaly.VANISHED,  # nobody is shown another record unless a leader lacks the one shown before
        proves=True,
        singular="conflicting offset",
        short="two reads of one offset gave different records",
        wording="Two reads there, live or final, by any readers, gave different records.",
        columns=("offset", "detail"),
    ),
    AnomalyClass(
        name=Anomaly.TORN_TRANSACTION,
        unit=Unit.TRANSACTION,
        ruled_by=RuledBy.LOSS,
        concern=Concern.TRANSACTIONS,
        singular="torn transaction",
        short="of a transaction that is not whole at read_committed",
        wording="It was committed and is not wholly there at read_committed; or it is there in part.",
    ),
    AnomalyClass(
        name=Anomaly.ABORTED_READ,
        unit=Unit.READ,
        concern=Concern.TRANSACTIONS,
        proves=True,
        singular="read of an aborted record",
        plural="reads of aborted records",
        short="of an aborted transaction, and handed over at read_committed",
        wording="A record of an aborted transaction was handed to a reader at read_committed.",
    ),
    AnomalyClass(
        name=Anomaly.EARLY_READ,
        unit=Unit.READ,
        concern=Concern.TRANSACTIONS,
        proves=True,
        singular="read before its commit",
        plural="reads before their commit",
        short="handed over at read_committed before its commit",
        wording="A record was handed to a reader at read_committed before the commit of its transaction was asked for.",
    ),
    AnomalyClass(
        name=Anomaly.RESURRECTED,
        proves=True,
        singular="resurrected record",
        short="reported as failed for good, and there",
        wording="Its outcome was that it failed for good, yet it is present.",
        columns=_WITHOUT_DETAIL,
    ),
    AnomalyClass(
        name=Anomaly.PHANTOM,
        unit=Unit.ROW,
        proves=True,
        singular="phantom record",
        short="there, and nobody sent it",
        wording="It has no identity that can be read, or one that was never produced.",
    ),
    AnomalyClass(
        name=Anomaly.CORRUPTED,
        unit=Unit.ROW,
        proves=True,
        singular="corrupted record",
        short="there, but not as it was sent",
        wording="The checksum over its payload is broken, or its timestamp is not the one that it was given.",
    ),
    AnomalyClass(
        name=Anomaly.MISROUTED,
        unit=Unit.ROW,
        proves=True,
        singular="misrouted record",
        short="there, but not where it was sent to",
        wording="Its partition differs from the one that its payload names, or from the one that it was produced to.",
    ),
    AnomalyClass(
        name=Anomaly.DUPLICATE,
        unit=Unit.ROW,
        ruled_by=RuledBy.RETRIES,
        concern=Concern.ONCE_IN_ORDER,
        proves=True,
        singular="duplicate copy",
        plural="duplicate copies",
        short="there more than once",
        wording="An intact copy of one identity beyond the first, wherever it is found.",
    ),
    AnomalyClass(
        name=Anomaly.DISPLACED,
        traced=True,
        follows=True,
        ruled_by=RuledBy.RETRIES,
        singular="displaced record",
        short="acknowledged at an offset where it is not",
        wording="It was acknowledged with an offset and is present, but no copy of it is at that offset.",
    ),
    AnomalyClass(
        name=Anomaly.REORDERED,
        ruled_by=RuledBy.ORDER,
        concern=Concern.ONCE_IN_ORDER,
        singular="reordered record",
        short="behind a record that was sent after it",
        wording=(
            "Of the present records of one producer in one partition, each at its lowest offset, one sent later "
            "stands before it."
        ),
    ),
    AnomalyClass(
        name=Anomaly.SKIPPED,
        live=True,
        unit=Unit.OFFSET,
        concern=Concern.READING,
        singular="skipped offset",
        short="a consumer passed over it",
        wording=(
            "A live reader went from an offset below it to one above it within one assignment, and a record is there "
            "that had been written by then."
        ),
        columns=("offset", "detail"),
    ),
    AnomalyClass(
        name=Anomaly.REWOUND,
        live=True,
        unit=Unit.READ,
        concern=Concern.READING,
        singular="rewound read",
        short="a consumer was handed what is not behind what it had",
        wording="A live reader was handed an offset not above that of its read just before, within one assignment.",
    ),
    *GROUP_ROWS,
    _liveness(
        name=Anomaly.STALLED,
        unit=Unit.PARTITION,
        singular="stalled partition of a group",
        plural="stalled partitions of groups",
        short="its group has records to process there, and does not advance",
        wording="The group's committed offset is behind the high watermark and does not advance, and members run.",
    ),
    _liveness(
        name=Anomaly.NO_CONTROLLER,
        unit=Unit.CLUSTER,
        singular="cluster without a controller",
        plural="clusters without a controller",
        short="a majority of the controllers runs, and none is active",
        wording="No controller is active, although a majority of them runs.",
    ),
    _liveness(
        name=Anomaly.LEADERLESS,
        unit=Unit.PARTITION,
        singular="leaderless partition",
        short="has no leader, and gets none",
        wording="The partition has no leader.",
    ),
    _liveness(
        name=Anomaly.HANGING_TRANSACTION,
        unit=Unit.PARTITION,
        singular="partition with a hanging transaction",
        plural="partitions with a hanging transaction",
        short="its last stable offset stays behind the high watermark, and no coordinator will end that transaction",
        wording="The last stable offset stays where it is, and no coordinator has that transaction open.",
        columns=("offset", "detail"),
    ),
    _liveness(
        name=Anomaly.STUCK_REPLICA,
        unit=Unit.REPLICA,
        singular="stuck replica",
        short="its broker runs unfenced, and it does not return to the ISR",
        wording="Its broker runs unfenced, it is not in the ISR, and its log end does not approach the leader's.",
    ),
    _liveness(
        name=Anomaly.STUCK_REASSIGNMENT,
        unit=Unit.PARTITION,
        singular="stuck reassignment",
        short="the controller lists its reassignment, which makes no progress",
        wording="The controller lists a reassignment, and no log end of a replica that it adds moves.",
    ),
    _liveness(
        name=Anomaly.STUCK_PRODUCER,
        unit=Unit.CLIENT,
        singular="stuck producer",
        short="gets no acknowledgement where another producer does",
        wording="It gets no acknowledgement from a leader with a full ISR, and a probe or the high watermark advances.",
        columns=("producer", "detail"),
    ),
    _liveness(
        name=Anomaly.STUCK_READER,
        unit=Unit.CLIENT,
        singular="stuck reader",
        short="gets no records where another reader does",
        wording="It gets no records where the partition has a leader, and a probe at its isolation gets further.",
    ),
    AnomalyClass(
        name=Anomaly.SURFACED,
        ruled_by=RuledBy.INFORMATION,
        concern=Concern.NOTHING,
        singular="surfaced record",
        short="its outcome was never known, and it is there",
        wording="Its outcome was never known, and it is present.",
        columns=_WITHOUT_DETAIL,
    ),
    _removal(
        name=Anomaly.EXPIRED,
        singular="expired record",
        short="acknowledged, kept, and then deleted by retention",
        wording=(
            "It was acknowledged and is gone, below the start of the log, and a retention setting that was in force "
            "deletes a record of its age, or leaves as many bytes as the log has."
        ),
    ),
    _removal(
        name=Anomaly.COMPACTED,
        singular="compacted record",
        short="acknowledged, kept, and then replaced by a later record of its key",
        wording=(
            "It was acknowledged and is gone, and a later record of its key was written while the topic's "
            "cleanup.policy was compact."
        ),
    ),
    _removal(
        name=Anomaly.DELETED,
        singular="record of a deleted topic",
        plural="records of a deleted topic",
        short="acknowledged, kept, and then deleted with its topic",
        wording="It was acknowledged before its topic was deleted, as the experiment asked, and is gone.",
    ),
)

_ROWS: Final = sorted(_GRAVEST_FIRST, key=lambda row: list(Anomaly).index(row.name))
TABLE: Final[Mapping[str, AnomalyClass]] = MappingProxyType({row.name: row for row in _ROWS})
"""Rows by name, in the order of `Anomaly`. Findings of newer versions may name other classes."""
REMOVED: Final = tuple(row.name for row in _ROWS if row.ruled_by is RuledBy.REMOVAL)
"""Classes of acknowledged records that a setting or an administrator removed: they are not lost."""
GONE: Final = (Anomaly.LOST, *REMOVED)
"""Classes of acknowledged records that the final read does not hold."""
PREDICTED_WITH: Final[Mapping[Anomaly, Anomaly]] = MappingProxyType(
    {row.predicted_as: row.name for row in _ROWS if row.predicted_as is not None}
)
"""Class that the model searches for → second class, for which the model's answer on the first holds too."""
MISSING: Final = tuple(PREDICTED_WITH)
"""`lost` and `vanished`: a record that is gone, or an offset whose record is gone. Audits of older versions also count
records in these classes that a setting or an administrator removed."""
ABSENCES: Final = {*REMOVED, *(row.name for row in _ROWS if row.ruled_by is RuledBy.LOSS and not row.proves)}
"""Classes of missing records. They are shown only if the final read reached the end of every partition, because a
missing record may else only be unread (`AuditFile.counts_to_show`)."""
LIVENESS: Final = tuple(row.name for row in _ROWS if row.ruled_by is RuledBy.LIVENESS)
"""Classes of what does not recover. Only runs with an `observed/recovery.json` count them."""
GROUP_CLASSES: Final = tuple(row.name for row in _ROWS if row.ruled_by is RuledBy.GROUP)
"""Classes of consumer groups. Only runs with `workload.groups` count them."""
CONDITIONAL: Final = frozenset({*LIVENESS, *GROUP_CLASSES})
"""Classes that only some runs count: liveness classes, and classes of consumer groups."""
TRACED: Final = tuple(row.name for row in _ROWS if row.traced)
REPLAYED: Final = (*TRACED, *REMOVED)
"""Classes whose records the replay gets: the acknowledged record is not at its acknowledged offset. The replay numbers
the classes by their index here."""
FOLLOWING: Final = frozenset(row.name for row in _ROWS if row.follows)
PASSING: Final = frozenset(row.name for row in _ROWS if row.passing)
LIVE_ONLY: Final = tuple(row.name for row in _ROWS if row.live)
"""Classes that only live readers can show."""


def gravity(name: str) -> tuple[bool, int, str]:
    """Return a sort key for class names: the gravest class first, then unknown names, last the classes that are never
    forbidden."""
    row = TABLE.get(name)
    if row is None:
        return (False, len(_GRAVEST_FIRST), name)
    return (row.ruled_by in (RuledBy.INFORMATION, RuledBy.REMOVAL), _GRAVEST_FIRST.index(row), name)


def count_text(count: int, name: str) -> str:
    """Return a count with the noun of its class: `2 duplicate copies`. An unknown class gives its name as noun."""
    row = TABLE.get(name)
    noun = name if row is None else row.singular if count == 1 else row.plural or f"{row.singular}s"
    return f"{count:,} {noun}"


_INTRODUCTION: Final = """\
# Classes of anomalies

Generated by `python -m ackproof.rundir.anomalies`; a test holds both equal. The gravest stand first, as
reports and `ackproof explain` tell them. The audit counts every class in every run, those of liveness from
what the run saw of its recovery ([what never comes back](liveness.md)); whether it is forbidden
is the judge's question. A class that proves itself is FAIL, where it is forbidden, even if the evidence of
the run is not whole.

| class | counts | definition | forbidden | proves itself | a finding names |
|---|---|---|---|---|---|"""


def markdown() -> str:
    """Return the text of `docs/anomalies.md`: an introduction, and a table with one row per class of anomalies, the
    gravest first."""
    lines = [_INTRODUCTION]
    for row in _GRAVEST_FIRST:
        forbidden = f"transactions only; {row.ruled_by}" if row.transactional else row.ruled_by
        cells = (f"`{row.name}`", row.unit, row.wording, forbidden, "yes" if row.proves else "no")
        lines.append(f"| {' | '.join(cells)} | {', '.join(row.columns)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(markdown())
