"""Units of work of the audit of consumer groups. A small run has one for each group, in the task of its directory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Flag, auto

import numpy as np

from ackproof.audit.group_commits import COMMITTED, audit_commits
from ackproof.audit.group_deliveries import BEGUN, DELIVERED, NOWHERE, audit_deliveries, group_events
from ackproof.audit.group_log import read_log
from ackproof.audit.group_output import COPIES, audit_output
from ackproof.audit.group_sources import ALL_PLACES, EVERY_SEQ, Event, GroupSources, PlaceSet, read_events
from ackproof.audit.outputs import FindingsWriter
from ackproof.audit.units import TROUBLES, AuditTarget, Tally, Trouble
from ackproof.ledgers.rows import Rows, empty_rows
from ackproof.rundir.partition import TopicPartition

_NO_RECORDS = empty_rows({"offset": "i8", "producer": "i4", "seq": "i8"})


class Passes(Flag):
    """Passes over the rows of a group that a unit makes."""

    DELIVERIES = auto()
    COMMITS = auto()
    OUTPUT = auto()


@dataclass(frozen=True)
class GroupUnit:
    """A part of the audit of one group. `places`: of its deliveries and commits. `seqs`: of its output.

    `number`: among the units of the group, which names its findings. `rows`: approximate number of rows to read.
    """

    sources: GroupSources
    number: int
    rows: int
    passes: Passes
    places: PlaceSet = ALL_PLACES
    seqs: tuple[int, int] = EVERY_SEQ

    @property
    def target(self) -> AuditTarget:
        return self.sources.target


def do_group(unit: GroupUnit) -> Tally | Trouble:
    """Audit a part of a group. Errors of files are returned as `Trouble`."""
    sources = unit.sources
    findings = unit.target.group_findings(f"group-{sources.number}-{unit.number}", sources.group)
    numbers: Counter[str] = Counter()
    try:
        every = read_events(sources, ALL_PLACES)
        events = group_events(every)
        if Passes.DELIVERIES in unit.passes:
            numbers += _do_deliveries(unit, events, findings)
        if Passes.COMMITS in unit.passes:
            numbers += _do_commits(unit, events, every, findings)
        if Passes.OUTPUT in unit.passes:
            copies = sources.output_rows(COPIES, unit.seqs)
            numbers["output"] = sum(map(len, copies.values()))
            audit_output(sources, sources.final_rows(seqs=unit.seqs), copies, events, findings)
        findings.close()
    except TROUBLES as error:
        return Trouble(unit.target.number, error)
    return Tally(
        unit.target.number, findings=findings.files, groups={sources.group: findings.counts + numbers}
    )


def _of_place(events: dict[TopicPartition, list[Event]], place: TopicPartition) -> list[Event]:
    """Return the events of a partition and those of no partition, by time."""
    both = [*events.get(place, ()), *events.get(NOWHERE, ())]
    return sorted(both, key=lambda event: event.t_ns)


def _do_deliveries(
    unit: GroupUnit, events: dict[TopicPartition, list[Event]], findings: FindingsWriter
) -> Counter[str]:
    sources, places = unit.sources, unit.places
    there = sources.final_rows(places)
    deliveries = sources.rows_by_place(sources.deliveries, DELIVERED, places)
    numbers: Counter[str] = Counter(input=sum(map(len, there.values())))

    def read_commits(place: TopicPartition) -> Rows:
        own = PlaceSet(frozenset({place}), frozenset(), others=False)
        return sources.rows_by_place(sources.commits, BEGUN, own).get(place, empty_rows(BEGUN))

    for place in sorted(there.keys() | deliveries.keys()):
        numbers += audit_deliveries(
            sources,
            place,
            there.pop(place, _NO_RECORDS),
            deliveries.pop(place, empty_rows(DELIVERED)),
            _of_place(events, place),
            lambda: read_commits(place),  # noqa: B023 - called before the next partition
            findings,
        )
    return numbers


def _do_commits(
    unit: GroupUnit,
    events: dict[TopicPartition, list[Event]],
    every: list[Event],
    findings: FindingsWriter,
) -> Counter[str]:
    sources, places = unit.sources, unit.places
    commits = sources.rows_by_place(sources.commits, COMMITTED, places)
    log = read_log(sources, places)
    numbers: Counter[str] = Counter()
    for place, rows in sorted(commits.items(), key=lambda entry: entry[0]):
        numbers += audit_commits(sources, place, rows, _of_place(events, place), every, log, findings)
    return numbers


def cut_seqs(borders: list[int]) -> list[tuple[int, int]]:
    """Return ranges of seq that begin at these numbers, and the one before the first."""
    least, greatest = EVERY_SEQ
    starts = [least, *sorted(set(borders))]
    return list(zip(starts, [*np.subtract(starts[1:], 1).tolist(), greatest], strict=True))
