"""Finds the files about the consumer groups of a directory, which classes they allow to count, and units of work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ackproof.audit.group_sources import ALL_PLACES, WIDEST, GroupPart, GroupSources, PlaceSet
from ackproof.audit.planning import find_borders
from ackproof.audit.units import AuditTarget, Limits, Tally
from ackproof.ledgers.directory import Ledger, Rejected, RowGroup, describe_unreadable, same_type
from ackproof.ledgers.load import Piece
from ackproof.rundir import storage
from ackproof.rundir.anomalies import GROUP_CLASSES, Anomaly
from ackproof.rundir.documents import GroupCounts
from ackproof.rundir.groups import (
    COMMITS,
    DELIVERIES,
    MEMBERSHIP,
    OFFSETS_LOG,
    GroupEnd,
    GroupPlan,
    GroupsFile,
    GroupsPlanFile,
)
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import Footer
from ackproof.rundir.service import OUTPUT

if TYPE_CHECKING:
    from ackproof.audit.group_units import GroupUnit

_LEDGERS: Final = {"deliveries": DELIVERIES, "commits": COMMITS, "membership": MEMBERSHIP}
_OF_LEDGER: Final[Mapping[str, tuple[Anomaly, ...]]] = {
    "deliveries": (Anomaly.UNDELIVERED, Anomaly.SKIPPED_BY_RESET),
    "commits": (Anomaly.REGRESSED_COMMIT, Anomaly.LOST_COMMIT),
    "membership": (
        Anomaly.UNDELIVERED,
        Anomaly.SKIPPED_BY_RESET,
        Anomaly.TORN_OUTPUT,
        Anomaly.REGRESSED_COMMIT,
        Anomaly.ZOMBIE_COMMIT,
        Anomaly.TWO_OWNERS,
    ),
}
"""Classes that cannot be counted if a part of a ledger is missing."""
_OF_COMMITS: Final = (
    Anomaly.LOST_COMMIT,
    Anomaly.REGRESSED_COMMIT,
    Anomaly.ZOMBIE_COMMIT,
    Anomaly.TWO_OWNERS,
)


@dataclass
class ExaminedGroup:
    """A group with its files. `reasons`: why classes cannot be counted."""

    sources: GroupSources
    reasons: tuple[str, ...]
    broken: tuple[str, ...] = ()
    """Parts of its ledgers that are missing or cannot be read: the audit is incomplete."""

    def count(self, counted: Tally) -> GroupCounts:
        """Return the counts of the group. `counted`: of the directory."""
        numbers = counted.groups.get(self.sources.group, Counter())
        names = GroupCounts.model_fields.keys() - {"group", "counts", "reasons"}
        return GroupCounts(
            group=self.sources.group,
            counts={name: numbers[name] for name in GROUP_CLASSES if name in self.sources.counted},
            reasons=(*self.reasons, *self.broken),
            **{name: numbers[name] for name in names},
        )


@dataclass
class _Limitation:
    """Classes that cannot be counted, and why."""

    counted: set[str] = field(default_factory=lambda: set(GROUP_CLASSES))
    reasons: list[str] = field(default_factory=list)

    def leave_out(self, reason: str, *classes: Anomaly) -> None:
        if left := [anomaly for anomaly in classes if anomaly in self.counted]:
            self.counted -= set(left)
            self.reasons.append(f"{', '.join(left)} not counted: {reason}")


def examine_groups(
    case: CaseDir,
    ledger: Ledger,
    target: AuditTarget,
    set_aside: Mapping[str, str],
    doubted: Collection[str],
) -> list[ExaminedGroup]:
    """Return the groups of a run by its `groups-plan.json`; none without that file.

    `set_aside`: path → reason, of files that cannot be read. `doubted`: paths of files whose statistics are not
    trusted. Raises `BadInput` for a document that cannot be read, `Rejected` for a part without a column, and OSError.
    """
    if not case.groups_plan.exists():
        return []
    plans = GroupsPlanFile.load(case.groups_plan).groups
    end = GroupsFile.load(case.groups) if case.groups.exists() else None
    return [
        _Examination(case, set_aside, doubted).examine(plan, end, ledger, target, number)
        for number, plan in enumerate(plans)
    ]


@dataclass
class _Examination:
    case: CaseDir
    set_aside: Mapping[str, str]
    doubted: Collection[str]
    limits: _Limitation = field(default_factory=_Limitation)
    broken: list[str] = field(default_factory=list)

    def examine(
        self, plan: GroupPlan, file: GroupsFile | None, ledger: Ledger, target: AuditTarget, number: int
    ) -> ExaminedGroup:
        end = next((one for one in file.groups if one.group == plan.group), None) if file else None
        sources = GroupSources(
            target=target,
            group=plan.group,
            number=number,
            counted=frozenset(),
            topics=frozenset(plan.topics),
            committed_read=plan.committed_read,
            transactional=plan.commit == "transaction",
            output_topic=plan.output,
            stable_positions=plan.commit != "transaction" or plan.isolation == "read_committed",
            consumer_protocol=plan.protocol == "consumer",
            assignment_epochs=plan.assignment_epochs,
        )
        if file is None or end is None:
            self.limits.leave_out(
                "observed/groups.json has nothing about this group", *map(Anomaly, GROUP_CLASSES)
            )
            return ExaminedGroup(sources, tuple(self.limits.reasons))
        if plan.commit == "auto":
            self.limits.leave_out("the library's automatic commits are in no ledger", *_OF_COMMITS)
        if end.committed.reason:
            self.limits.leave_out(
                f"OffsetFetch: {end.committed.reason}",
                Anomaly.UNDELIVERED,
                Anomaly.SKIPPED_BY_RESET,
                Anomaly.TORN_OUTPUT,
            )
        clients = [member.client for member in file.members if member.group == plan.group]
        parts = {name: self._ledger(name, clients) for name in _LEDGERS}
        log, _ = self._read_optional(self.case.offsets_log, OFFSETS_LOG)
        history = self._history(file, end) if log else self._without_history()
        wanted = ReadPhase.FINAL_COMMITTED if plan.committed_read else ReadPhase.FINAL
        sources = replace(
            sources,
            committed=None if end.committed.reason else end.committed.of_partition,
            history=history,
            deliveries=parts["deliveries"],
            commits=parts["commits"],
            membership=parts["membership"],
            log=log,
            output=self._output(plan, end),
            finals=tuple(_find_finals(ledger, wanted, plan.topics)),
            counted=frozenset(self.limits.counted),
        )
        return ExaminedGroup(
            replace(sources, counted=frozenset(self.limits.counted)),
            tuple(self.limits.reasons),
            tuple(self.broken),
        )

    def _ledger(self, name: str, clients: Sequence[str]) -> tuple[GroupPart, ...]:
        """Return the parts of the group's members in one ledger. Members of other groups are never read."""
        found: list[GroupPart] = []
        flaws: list[str] = []
        for client in clients:
            folder = self.case.ledger / name / client_folder(client)
            paths = sorted(folder.glob("part-*.parquet")) if folder.is_dir() else []
            if not paths:
                flaws.append(f"ledger/{name}/{client_folder(client)}: no part")
            for path in paths:
                try:
                    found += self._read_footer(path, _LEDGERS[name])
                except (OSError, pa.ArrowException) as error:
                    flaws.append(f"{path.relative_to(self.case.path)}: {describe_unreadable(error)}")
        if flaws:
            self.broken += flaws
            self.limits.leave_out(f"a part of ledger/{name} is missing", *_OF_LEDGER[name])
        return tuple(found)

    def _read_footer(self, path: Path, schema: pa.Schema) -> tuple[GroupPart, ...]:
        """Return the part at `path`. Raises OSError, ArrowException and `Rejected`."""
        if str(path) in self.set_aside:
            raise OSError(self.set_aside[str(path)])
        with storage.open_parquet(path) as file:
            metadata, found = file.metadata, file.schema_arrow
        for name, type_ in zip(schema.names, schema.types, strict=True):
            if name not in found.names:
                raise Rejected(f"{path}: column {name} is missing")
            if not same_type(found.field(name).type, type_):
                raise Rejected(f"{path}: column {name} is {found.field(name).type}, not {type_}")
        trusted = str(path) not in self.doubted
        groups = tuple(_row_group(at, footer, trusted) for at, footer in enumerate(Footer.read_all(metadata)))
        return (GroupPart(str(path), groups),)

    def _history(self, file: GroupsFile, end: GroupEnd) -> int:
        """Return the node whose log of `__consumer_offsets` is the group's history; -1: none."""
        partition = end.committed.partition
        of_node: dict[int, list[tuple[bool, int]]] = {}
        for one in file.histories:
            if partition in (-1, one.partition):
                of_node.setdefault(one.node, []).append((one.whole, one.log_end))
        whole = {
            node: max(end for _, end in found) for node, found in of_node.items() if all(w for w, _ in found)
        }
        if not whole:
            return self._without_history()
        if len(whole) < len(of_node):
            self.limits.leave_out(
                "not every log of __consumer_offsets is a whole history", Anomaly.LOST_COMMIT
            )
        if end.committed.coordinator in whole:
            return end.committed.coordinator
        return max(sorted(whole), key=lambda node: whole[node])

    def _without_history(self) -> int:
        reason = "no log of __consumer_offsets is a whole history"
        self.limits.leave_out(reason, Anomaly.LOST_COMMIT, Anomaly.ZOMBIE_COMMIT)
        return -1

    def _read_optional(self, path: Path, schema: pa.Schema) -> tuple[tuple[GroupPart, ...], str]:
        """Return a file as parts; none if it is missing or cannot be read, and why. Raises `Rejected`."""
        if not path.exists():
            return (), ""
        try:
            return self._read_footer(path, schema), ""
        except (OSError, pa.ArrowException) as error:
            return (), describe_unreadable(error)

    def _output(self, plan: GroupPlan, end: GroupEnd) -> tuple[GroupPart, ...]:
        if not plan.output:
            return ()
        found, unreadable = self._read_optional(self.case.group_output(plan.group), OUTPUT)
        if not found:
            problem = unreadable or end.problem or "it was not read back"
            self.limits.leave_out(f"output: {problem}", Anomaly.TORN_OUTPUT, Anomaly.DOUBLED_OUTPUT)
        elif end.problem:
            self.limits.leave_out(f"output: {end.problem}", Anomaly.TORN_OUTPUT)
        return found


def _row_group(number: int, footer: Footer, trusted: bool) -> RowGroup:
    """Return the footer of a row group. Without trust in its statistics it may have any rows."""
    spans = {
        key: (int(footer.least(key)), int(footer.most(key)))
        for key in ("partition", "seq")
        if trusted and key in footer.numbers
    }
    least, greatest = spans.get("partition", (0, -1))
    return RowGroup(
        number,
        footer.rows,
        footer.texts.get("topic") if trusted else None,
        least if least == greatest else None,
        None,
        spans=spans,
    )


def _find_finals(ledger: Ledger, phase: ReadPhase, topics: Collection[str]) -> list[Piece]:
    found: list[Piece] = []
    for part in ledger.parts:
        if part.kind == "consumed":
            groups = tuple(
                group
                for group in part.groups
                if group.rows
                and group.phase in (None, phase)
                and (group.topic is None or group.topic in topics)
            )
            found += [Piece(part, groups)] if groups else []
    return found


def plan_group(group: ExaminedGroup, limits: Limits) -> list[GroupUnit]:
    """Return the units of one group: one for a small group; else some for its deliveries, commits and output."""
    from ackproof.audit.group_units import GroupUnit, Passes, cut_seqs

    sources = group.sources
    if not sources.counted:
        return []
    finals = [one for piece in sources.finals for one in piece.groups]
    of_output = [one for part in sources.output for one in part.groups]
    delivered = [*finals, *(one for part in sources.deliveries for one in part.groups)]
    committed = [one for part in sources.commits for one in part.groups]
    total = sum(one.rows for one in (*delivered, *committed, *of_output))
    every = Passes.DELIVERIES | Passes.COMMITS | (Passes.OUTPUT if sources.output else Passes(0))
    if total <= limits.whole_rows:
        return [GroupUnit(sources, 0, total, every)]
    units = [
        (passes, places, (0, 0), rows)
        for passes, groups in ((Passes.DELIVERIES, delivered), (Passes.COMMITS, committed))
        for places, rows in _cut_places(groups, limits.slice_rows)
    ]
    found = [
        GroupUnit(sources, number, rows, passes, places)
        for number, (passes, places, _, rows) in enumerate(units)
    ]
    if sources.output:
        spans = [(*one.spans["seq"], float(one.rows)) for one in (*finals, *of_output) if "seq" in one.spans]
        rows = sum(one.rows for one in (*finals, *of_output))
        ranges = cut_seqs(find_borders(spans, ceil(rows / limits.range_rows)))
        found += [
            GroupUnit(sources, len(found) + number, rows // len(ranges), Passes.OUTPUT, seqs=seqs)
            for number, seqs in enumerate(ranges)
        ]
    return found


def _cut_places(groups: Sequence[RowGroup], most: int) -> list[tuple[PlaceSet, int]]:
    """Cut the partitions of row groups into sets of about `most` rows, each with its number of rows. Each partition is
    in one set."""
    rows: Counter[TopicPartition] = Counter()
    mixed = 0
    for group in groups:
        if group.topic is not None and group.partition is not None:
            rows[TopicPartition(group.topic, group.partition)] += group.rows
        elif group.topic is not None and (span := group.spans.get("partition")):
            width = span[1] - span[0] + 1
            for partition in range(span[0], span[1] + 1) if width <= WIDEST else ():
                rows[TopicPartition(group.topic, partition)] += group.rows // width
        else:
            mixed += group.rows
    sets: list[tuple[list[TopicPartition], int]] = []
    for place, count in sorted(rows.items(), key=lambda entry: (-entry[1], entry[0])):
        fitting = next((at for at, (_, held) in enumerate(sets) if held + count <= most), None)
        if fitting is None:
            sets.append(([place], count))
        else:
            sets[fitting] = ([*sets[fitting][0], place], sets[fitting][1] + count)
    if not sets:
        return [(ALL_PLACES, mixed)]
    known = frozenset(rows)
    return [
        (PlaceSet(frozenset(own), known, others=number == len(sets) - 1), count + mixed)
        for number, (own, count) in enumerate(sets)
    ]
