"""Units of work of the audit of consumer groups. In a small run each group is one unit, in the task of its
directory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ackproof.audit.group_commits import COMMITTED, audit_commits
from ackproof.audit.group_log import read_log
from ackproof.audit.group_records import DELIVERED, audit_deliveries, audit_output
from ackproof.audit.group_sources import (
    ALL_PLACES,
    EVERY_SEQ,
    RECORD,
    Event,
    GroupPartition,
    GroupSources,
    PlaceSet,
)
from ackproof.audit.outputs import FindingsWriter
from ackproof.audit.units import TROUBLES, AuditTarget, Tally, Trouble
from ackproof.ledgers.rows import empty_rows
from ackproof.rundir.partition import TopicPartition

_NOWHERE = TopicPartition("", -1)
"""Key of the events that name no partition."""


@dataclass(frozen=True)
class GroupUnit:
    """A part of the audit of one group. `places`: partitions whose deliveries and commits it audits; None: no
    deliveries and commits. `seqs`: least and greatest seq of the output records that it audits; None: no output.
    `number`: position among the units of the group, which is in the name of its findings file. `rows`: approximate
    number of rows to read."""

    sources: GroupSources
    number: int
    rows: int
    places: PlaceSet | None = ALL_PLACES
    seqs: tuple[int, int] | None = EVERY_SEQ

    @property
    def target(self) -> AuditTarget:
        return self.sources.target


def do_group(unit: GroupUnit) -> Tally | Trouble:
    """Audit a part of a group, write its findings, and return its counts. An error of a file is returned as `Trouble`,
    not raised."""
    sources, group = unit.sources, unit.sources.plan.group
    findings = unit.target.group_findings(f"group-{sources.number}-{unit.number}", group)
    numbers: Counter[str] = Counter()
    try:
        every = sources.read_events()
        events: dict[TopicPartition, list[Event]] = defaultdict(list)
        for event in every:
            events[event.place if event.place.partition >= 0 else _NOWHERE].append(event)
        if unit.places is not None:
            numbers += _audit_places(sources, unit.places, events, every, findings)
        if unit.seqs is not None and sources.output:
            copies = sources.output_rows(unit.seqs)
            numbers["output"] = len(copies)
            audit_output(sources, sources.final_rows(seqs=unit.seqs), copies, events, findings)
        findings.close()
    except TROUBLES as error:
        return Trouble(unit.target.number, error)
    return Tally(unit.target.number, findings=findings.files, groups={group: findings.counts + numbers})


def _audit_places(
    sources: GroupSources,
    places: PlaceSet,
    events: Mapping[TopicPartition, Sequence[Event]],
    every: Sequence[Event],
    findings: FindingsWriter,
) -> Counter[str]:
    numbers: Counter[str] = Counter()
    there = sources.final_rows(places)
    deliveries = sources.rows_by_place(sources.deliveries, DELIVERED, places)
    commits = sources.rows_by_place(sources.commits, COMMITTED, places)
    log = read_log(sources, places)
    for place in sorted(there.keys() | deliveries.keys() | commits.keys()):
        own = sorted((*events.get(place, ()), *events.get(_NOWHERE, ())), key=lambda event: event.t_ns)
        rows = commits.pop(place, empty_rows(COMMITTED))
        records, handed = there.pop(place, empty_rows(RECORD)), deliveries.pop(place, empty_rows(DELIVERED))
        of = GroupPartition(sources, place, own, findings)
        numbers += audit_deliveries(of, records, handed, rows)
        if len(rows):
            numbers += audit_commits(of, rows, every, log)
    return numbers
