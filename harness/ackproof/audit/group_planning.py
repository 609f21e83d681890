"""Finds the files about each consumer group of a directory, decides which anomaly classes they suffice to count, and
plans units of work."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Final

import pyarrow as pa

from ackproof.audit.group_sources import GroupPart, GroupSources, PlaceSet
from ackproof.audit.group_units import GroupUnit
from ackproof.audit.planning import GREATEST, LEAST, find_borders
from ackproof.audit.units import AuditTarget, Limits, Tally
from ackproof.ledgers.directory import Ledger, RowGroup, check_columns, describe_unreadable
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
    OffsetsHistory,
)
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.parts import Footer, digest
from ackproof.rundir.service import OUTPUT

_LEDGERS: Final = {"deliveries": DELIVERIES, "commits": COMMITS, "membership": MEMBERSHIP}
_UNPROCESSED: Final = (Anomaly.UNDELIVERED, Anomaly.SKIPPED_BY_RESET)
_OF_COMMITS: Final = (
    Anomaly.LOST_COMMIT,
    Anomaly.REGRESSED_COMMIT,
    Anomaly.ZOMBIE_COMMIT,
    Anomaly.TWO_OWNERS,
)
_OF_LEDGER: Final[Mapping[str, tuple[Anomaly, ...]]] = {
    "deliveries": _UNPROCESSED,
    "commits": (Anomaly.REGRESSED_COMMIT, Anomaly.LOST_COMMIT),
    "membership": (*_UNPROCESSED, Anomaly.TORN_OUTPUT, *_OF_COMMITS[1:]),
}
"""Ledger of group members → classes that cannot be counted if one of its parts is missing or unreadable."""


@dataclass
class ExaminedGroup:
    """A consumer group of an audited directory: the files about it (`sources`), and the anomaly classes that they
    suffice to count. `file`: `observed/groups.json` of the run. `set_aside`: path → reason, of files that cannot be
    read. `doubted`: paths of files whose statistics are not trusted. `counted`: classes that can be counted; `reasons`:
    why the other classes cannot. `broken`: parts of its ledgers that are missing or cannot be read, so the audit is
    incomplete. `digests`: SHA-256 of each part, by its path in the run directory. `partitions`: number of partitions of
    its input."""

    case: CaseDir
    file: GroupsFile
    sources: GroupSources
    set_aside: Mapping[str, str]
    doubted: Collection[str]
    counted: set[str] = field(default_factory=lambda: set(GROUP_CLASSES))
    reasons: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    partitions: int = 0

    def count(self, counted: Tally) -> GroupCounts:
        """Return the entry of this group in `audit.json`: its findings by class, its other numbers, and why some
        classes were not counted. `counted`: sums over all units of the directory; its field `groups` has those of each
        group."""
        group = self.sources.plan.group
        numbers = counted.groups.get(group, Counter())
        names = GroupCounts.model_fields.keys() - {"group", "counts", "reasons"}
        return GroupCounts(
            group=group,
            counts={name: numbers[name] for name in GROUP_CLASSES if name in self.counted},
            reasons=(*self.reasons, *self.broken),
            **{name: numbers[name] for name in names},
        )

    def examine(self, ledger: Ledger) -> None:
        """Find the group's files and the rows of the final read in `ledger`, and set `sources` and the fields
        from `counted` on. Files that cannot be read become texts in `reasons` or `broken`. Raises `Rejected`
        for a part with a missing or wrong column, OSError if a file disappears."""
        plan, sources = self.sources.plan, self.sources
        end = next((one for one in self.file.groups if one.group == plan.group), None)
        if end is None:
            self._leave_out("observed/groups.json has nothing about this group", *GROUP_CLASSES)
        else:
            sources, self.partitions = self._find_files(end, ledger), len(end.ends)
        self.sources = replace(sources, counted=frozenset(self.counted))

    def _find_files(self, end: GroupEnd, ledger: Ledger) -> GroupSources:
        plan, committed = self.sources.plan, end.committed
        if plan.commit == "auto":
            self._leave_out("the library's automatic commits are in no ledger", *_OF_COMMITS)
        if committed.reason:
            self._leave_out(f"OffsetFetch: {committed.reason}", *_UNPROCESSED, Anomaly.TORN_OUTPUT)
        clients = [member.client for member in self.file.members if member.group == plan.group]
        log, _ = self._read_file(self.case.offsets_log, OFFSETS_LOG)
        output, unreadable = self._read_file(self.case.group_output(plan.group), OUTPUT)
        if plan.output and (not output or end.problem):
            lost = (Anomaly.TORN_OUTPUT, *([] if output else [Anomaly.DOUBLED_OUTPUT]))
            self._leave_out(f"output: {unreadable or end.problem or 'it was not read back'}", *lost)
        return replace(
            self.sources,
            committed=None if committed.reason else committed.of_partition,
            history=self._choose_history(end, log),
            log=log,
            output=output if plan.output else (),
            finals=tuple(_find_finals(ledger, plan)),
            deliveries=self._read_ledger("deliveries", clients),
            commits=self._read_ledger("commits", clients),
            membership=self._read_ledger("membership", clients),
        )

    def _leave_out(self, reason: str, *classes: str) -> None:
        if left := [anomaly for anomaly in classes if anomaly in self.counted]:
            self.counted -= set(left)
            self.reasons.append(f"{', '.join(left)} not counted: {reason}")

    def _read_ledger(self, name: str, clients: Sequence[str]) -> tuple[GroupPart, ...]:
        """Return the parts of these members (`clients`) in the ledger `name`; members of other groups are never read.
        Parts that are missing or cannot be read become texts in `broken`, and the classes that need the ledger are not
        counted."""
        found: list[GroupPart] = []
        flaws: list[str] = []
        for client in clients:
            folder = self.case.ledger / name / client_folder(client)
            paths = sorted(folder.glob("part-*.parquet")) if folder.is_dir() else []
            if not paths:
                flaws.append(f"ledger/{name}/{client_folder(client)}: no part")
            for path in paths:
                where = str(path.relative_to(self.case.path))
                parts, reason = self._read_file(path, _LEDGERS[name])
                found += parts
                if reason:
                    flaws.append(f"{where}: {reason}")
                else:
                    self.digests[where] = digest(path)
        if flaws:
            self.broken += flaws
            self._leave_out(f"a part of ledger/{name} is missing", *_OF_LEDGER[name])
        return tuple(found)

    def _read_file(self, path: Path, schema: pa.Schema) -> tuple[tuple[GroupPart, ...], str]:
        """Return (parts, reason) for a file: one part and ''; no part and the reason if it cannot be read; no part and
        '' if it is missing. Raises `Rejected` if a column of `schema` is missing or of another type."""
        if not path.exists():
            return (), ""
        try:
            if str(path) in self.set_aside:
                raise OSError(self.set_aside[str(path)])
            with storage.open_parquet(path) as file:
                check_columns(file, schema, str(path))
                footers = Footer.read_all(file.metadata)
        except (OSError, pa.ArrowException) as error:
            return (), describe_unreadable(error)
        trusted = str(path) not in self.doubted
        return (
            GroupPart(str(path), tuple(_row_group(at, one, trusted) for at, one in enumerate(footers))),
        ), ""

    def _choose_history(self, end: GroupEnd, log: tuple[GroupPart, ...]) -> int:
        """Return the node whose log of `__consumer_offsets` serves as the group's history; -1 if no log is whole, or
        `log` is empty. The coordinator's log is preferred, else the whole log with the highest end offset.

        A log is whole if it was read, starts at offset 0 and has no gaps from compaction. Takes lost commits out of
        `counted` unless every replica's log is whole, and zombie commits if the result is -1.
        """
        histories: dict[int, list[OffsetsHistory]] = defaultdict(list)
        for one in self.file.histories:
            if end.committed.partition in (-1, one.partition):
                histories[one.node].append(one)
        whole = {
            node: max(one.log_end for one in found)
            for node, found in sorted(histories.items())
            if all(one.whole for one in found)
        }
        if not whole or not log:
            reason = "no log of __consumer_offsets is a whole history"
            self._leave_out(reason, Anomaly.LOST_COMMIT, Anomaly.ZOMBIE_COMMIT)
            return -1
        if len(whole) < len(histories):
            self._leave_out("not every log of __consumer_offsets is a whole history", Anomaly.LOST_COMMIT)
        coordinator = end.committed.coordinator
        return coordinator if coordinator in whole else max(whole, key=lambda node: whole[node])


def examine_groups(
    case: CaseDir,
    ledger: Ledger,
    target: AuditTarget,
    set_aside: Mapping[str, str],
    doubted: Collection[str],
) -> list[ExaminedGroup]:
    """Return the groups that a run's `groups-plan.json` lists, with their files examined; none without that file.
    `set_aside`, `doubted`: as in `ExaminedGroup`. Raises `BadInput` for a document that cannot be read, `Rejected` for
    a part with a missing or wrong column, OSError if a file disappears."""
    if not case.groups_plan.exists():
        return []
    file = GroupsFile.load(case.groups) if case.groups.exists() else GroupsFile()
    groups = [
        ExaminedGroup(case, file, GroupSources(target, plan, number), set_aside, doubted)
        for number, plan in enumerate(GroupsPlanFile.load(case.groups_plan).groups)
    ]
    for group in groups:
        group.examine(ledger)
    return groups


def _row_group(number: int, footer: Footer, trusted: bool) -> RowGroup:
    """Return row group `number` with the spans and the topic of its footer. If the statistics are not trusted, both are
    unknown, so that the row group is read in any case."""
    numbers = footer.numbers if trusted else {}
    spans = {
        key: (int(numbers[key][0]), int(numbers[key][1])) for key in ("partition", "seq") if key in numbers
    }
    topic = footer.texts.get("topic") if trusted else None
    return RowGroup(number, footer.rows, topic, None, None, spans=spans)


def _find_finals(ledger: Ledger, plan: GroupPlan) -> Iterator[Piece]:
    phase = ReadPhase.FINAL_COMMITTED if plan.committed_read else ReadPhase.FINAL
    for part in ledger.parts:
        groups = tuple(
            group
            for group in part.groups
            if group.rows and group.phase in (None, phase) and group.topic in (None, *plan.topics)
        )
        if groups and part.kind == "consumed":
            yield Piece(part, groups)


def plan_group(group: ExaminedGroup, limits: Limits) -> list[GroupUnit]:
    """Return the units of work for one group; none if no anomaly class of it can be counted. A group of at most
    `limits.whole_rows` rows is a single unit.

    A larger group has units of two kinds. Some audit deliveries and commits, each for a set of partitions; the rest
    audit the output, each for a range of seqs.
    """
    sources = group.sources
    if not sources.counted:
        return []
    finals = [one for piece in sources.finals for one in piece.groups]
    output = [one for part in sources.output for one in part.groups]
    of_members = [one for part in (*sources.deliveries, *sources.commits) for one in part.groups]
    read, handed, copied = (sum(one.rows for one in groups) for groups in (finals, of_members, output))
    if read + handed + copied <= limits.whole_rows:
        return [GroupUnit(sources, 0, read + handed + copied)]
    # Members write their partitions mixed, so each unit decodes most of their rows: few units.
    count = min(ceil(max(read, handed) / limits.range_rows), max(1, group.partitions))
    units = [
        GroupUnit(sources, at, (read + handed) // count, PlaceSet(at, count), seqs=None)
        for at in range(count)
    ]
    if sources.output:
        spans = [(*one.spans["seq"], float(one.rows)) for one in (*finals, *output) if "seq" in one.spans]
        starts = [LEAST, *sorted(set(find_borders(spans, ceil((read + copied) / limits.range_rows))))]
        units += [
            GroupUnit(
                sources, count + at, (read + copied) // len(starts), places=None, seqs=(least, following - 1)
            )
            for at, (least, following) in enumerate(pairwise([*starts, GREATEST + 1]))
        ]
    return units
