"""The table of all classes of anomalies that the audit counts. Every list of classes is derived from it.

`python -m ackproof.rundir.anomalies` prints `docs/anomalies.md`; a test compares both.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from ackproof.rundir.anomaly_terms import LIVENESS_ROWS, Concern, RuledBy, Unit


class Anomaly(StrEnum):
    """The names of the classes, in the order in which `audit.json` counts them."""

    LOST = "lost"
    OVERWRITTEN = "overwritten"
    DUPLICATE = "duplicate"
    RESURRECTED = "resurrected"
    SURFACED = "surfaced"
    PHANTOM = "phantom"
    MISROUTED = "misrouted"
    CORRUPTED = "corrupted"
    DISPLACED = "displaced"
    REORDERED = "reordered"
    VANISHED = "vanished"
    CONFLICT = "conflict"
    SKIPPED = "skipped"
    REWOUND = "rewound"
    ABORTED_READ = "aborted-read"
    TORN_TRANSACTION = "torn-transaction"
    EARLY_READ = "early-read"
    EXPIRED = "expired"
    COMPACTED = "compacted"
    DELETED = "deleted"
    LEADERLESS = "leaderless"
    STUCK_REPLICA = "stuck-replica"
    STUCK_REASSIGNMENT = "stuck-reassignment"
    STUCK_PRODUCER = "stuck-producer"
    STUCK_READER = "stuck-reader"
    HANGING_TRANSACTION = "hanging-transaction"
    NO_CONTROLLER = "no-controller"


_WHOLE: Final = ("producer", "seq", "offset", "detail")
_WITHOUT_DETAIL: Final = ("producer", "seq", "offset")
_OF_AN_OFFSET: Final = ("offset", "detail")


@dataclass(frozen=True, slots=True)
class AnomalyClass:
    """One row of the table."""

    name: Anomaly
    singular: str
    short: str
    """Fate of one unit, after its name: `acknowledged, and not there`."""
    wording: str
    """The definition."""
    unit: Unit = Unit.RECORD
    ruled_by: RuledBy = RuledBy.NO_SETTING
    concern: Concern = Concern.DURABILITY
    plural: str = ""
    """Plural, if it is not the singular with an s."""
    proves: bool = False
    """True if one specimen proves itself: where it is forbidden, the verdict is FAIL even with incomplete
    evidence."""
    live: bool = False
    """True if only live readers can show it."""
    traced: bool = False
    """True if the replay traces its findings to the steps that took the records."""
    follows: bool = False
    """True if a record can become one after its window of a soak was read back."""
    passing: bool = False
    """True if a later window can find the record elsewhere."""
    columns: tuple[str, ...] = _WHOLE
    """Columns of a finding besides class, topic and partition; the others are -1 or empty."""

    @property
    def always_forbidden(self) -> bool:
        """Return True if no configuration permits it, so that no expectation can either."""
        return self.ruled_by is RuledBy.NO_SETTING

    @property
    def of_liveness(self) -> bool:
        """Return True for a class of liveness, which only an observed run can count."""
        return self.ruled_by is RuledBy.LIVENESS

    @property
    def of_absence(self) -> bool:
        """Return True for a class of absence, which only a final read can show."""
        return self.ruled_by is RuledBy.REMOVAL or (self.ruled_by is RuledBy.LOSS and not self.proves)

    @property
    def explained_removal(self) -> bool:
        """Return True for records that a setting or an administrator removed."""
        return self.ruled_by is RuledBy.REMOVAL

    @property
    def transactional(self) -> bool:
        """Return True if only records of transactions can show it."""
        return self.concern is Concern.TRANSACTIONS


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
        singular="overwritten record",
        short="acknowledged, and another record holds its offset",
        wording="It is lost, and an intact record with another identity now holds its acknowledged offset.",
    ),
    AnomalyClass(
        name=Anomaly.CONFLICT,
        follows=True,
        unit=Unit.OFFSET,
        ruled_by=RuledBy.LOSS,
        proves=True,
        singular="conflicting offset",
        short="two reads of one offset gave different records",
        wording="Two reads there, live or final, by any readers, gave different records.",
        columns=_OF_AN_OFFSET,
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
        wording="The checksum over its payload is broken.",
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
        columns=_OF_AN_OFFSET,
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
    *(
        AnomalyClass(
            name=Anomaly(row.name),
            unit=row.unit,
            ruled_by=RuledBy.LIVENESS,
            concern=Concern.LIVENESS,
            proves=True,
            singular=row.singular,
            plural=row.plural,
            short=row.short,
            wording=row.wording,
            columns=row.columns,
        )
        for row in LIVENESS_ROWS
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
    AnomalyClass(
        name=Anomaly.EXPIRED,
        follows=True,
        ruled_by=RuledBy.REMOVAL,
        concern=Concern.NOTHING,
        singular="expired record",
        short="acknowledged, kept, and then deleted by retention",
        wording=(
            "It was acknowledged and is gone, below the start of the log, and a retention setting that was in force "
            "deletes a record of its age, or leaves as many bytes as the log has."
        ),
    ),
    AnomalyClass(
        name=Anomaly.COMPACTED,
        follows=True,
        ruled_by=RuledBy.REMOVAL,
        concern=Concern.NOTHING,
        singular="compacted record",
        short="acknowledged, kept, and then replaced by a later record of its key",
        wording=(
            "It was acknowledged and is gone, and a later record of its key was written while the topic's "
            "cleanup.policy was compact."
        ),
    ),
    AnomalyClass(
        name=Anomaly.DELETED,
        follows=True,
        ruled_by=RuledBy.REMOVAL,
        concern=Concern.NOTHING,
        singular="record of a deleted topic",
        plural="records of a deleted topic",
        short="acknowledged, kept, and then deleted with its topic",
        wording="It was acknowledged before its topic was deleted, as the experiment asked, and is gone.",
    ),
)

_ROWS: Final = {row.name: row for row in _GRAVEST_FIRST}
REMOVED: Final = tuple(name for name in Anomaly if _ROWS[name].explained_removal)
"""Acknowledged records that a setting or an administrator removed: they are not lost."""
TRACED: Final = tuple(name for name in Anomaly if _ROWS[name].traced)
FOLLOWING: Final = frozenset(name for name in Anomaly if _ROWS[name].follows)
PASSING: Final = frozenset(name for name in Anomaly if _ROWS[name].passing)
LIVE_ONLY: Final = tuple(name for name in Anomaly if _ROWS[name].live)
LIVENESS: Final = tuple(name for name in Anomaly if _ROWS[name].of_liveness)
TABLE: Final[Mapping[str, AnomalyClass]] = MappingProxyType({name: _ROWS[name] for name in Anomaly})
"""Rows by name, in the order of `Anomaly`. Findings of a newer version may name other classes."""


def gravity(name: str) -> tuple[bool, int, str]:
    """Return the sort key of a class name: the gravest first, unknown names before those for information
    only."""
    row = TABLE.get(name)
    if row is None:
        return (False, len(_GRAVEST_FIRST), name)
    return (row.ruled_by in (RuledBy.INFORMATION, RuledBy.REMOVAL), _GRAVEST_FIRST.index(row), name)


def count_text(count: int, name: str) -> str:
    """Return a count with the noun of its class: `2 duplicate copies`."""
    row = TABLE.get(name)
    if row is None:
        return f"{count:,} {name}"
    return f"{count:,} {row.singular if count == 1 else row.plural or row.singular + 's'}"


def markdown() -> str:
    """Return `docs/anomalies.md`."""
    lines = [
        "# Classes of anomalies",
        "",
        "Generated by `python -m ackproof.rundir.anomalies`; a test holds both equal. The gravest stand first, as",
        "reports and `ackproof explain` tell them. The audit counts every class in every run, those of liveness from",
        "what the run saw of its recovery ([what never comes back](liveness.md)); whether it is forbidden",
        "is the judge's question. A class that proves itself is FAIL, where it is forbidden, even if the evidence of",
        "the run is not whole.",
        "",
        "| class | counts | definition | forbidden | proves itself | a finding names |",
        "|---|---|---|---|---|---|",
    ]
    for row in _GRAVEST_FIRST:
        forbidden = f"transactions only; {row.ruled_by}" if row.transactional else row.ruled_by
        proves = "yes" if row.proves else "no"
        lines.append(
            f"| `{row.name}` | {row.unit} | {row.wording} | {forbidden} | {proves} | {', '.join(row.columns)} |"
        )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(markdown())
