"""The story of a record in consumer groups: its deliveries, its processing, the commits past it, and its copies in the
output. Incidents of a group's member: killed, frozen, lost partitions, resets, commits that were not accepted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.base.errors import BadInput
from ackproof.rundir import storage
from ackproof.rundir.anomalies import TABLE
from ackproof.rundir.anomaly_terms import Unit
from ackproof.rundir.groups import (
    COMMITS,
    DELIVERIES,
    MEMBERSHIP,
    OFFSETS_LOG,
    CommitResult,
    GroupEnd,
    GroupsFile,
    LogDecision,
    MembershipEvent,
    OffsetsRecord,
    ProcessingState,
)
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.ledger import parts, read_parts
from ackproof.rundir.lifelines import Lifelines
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import GROUP_FINDINGS
from ackproof.rundir.service import OUTPUT
from ackproof.rundir.timeline import ClientDied, seconds
from ackproof_reports.mechanics import Row
from ackproof_reports.wording import joined, number, plural

_LASTING: Final = {"pause_client": "paused", "slow_member": "slowed"}
"""Kind of the incident by kind of fault, for faults that last and leave the member's process alive."""


@dataclass(frozen=True)
class Incident:
    """An event in the life of a group member, `t_ns` ns after the run's start.

    `kind`: killed (or died by itself), paused, slowed, over (the end of a pause or slowing) or fault (another fault).
    Further kinds: lost (a partition), reset (of its position), refused or unknown (a commit). `last_ns`: time of the
    last of `count` similar incidents; -1 if `count` is 1."""

    t_ns: int
    member: str
    kind: str
    text: str
    last_ns: int = -1
    count: int = 1

    def __str__(self) -> str:
        return self.text if self.count == 1 else f"{self.count} times {self.text}"


class MemberLife:
    """Confirmed faults, commits, membership events and incidents of one group member, from timeline and ledgers.

    `client`: id of the member. `lines`: the run's timeline, sorted by fault, node and client. Raises OSError or
    ArrowException if a ledger cannot be read."""

    def __init__(self, run: CaseDir, lines: Lifelines, client: str) -> None:
        self.client = client
        self.own = lines.client(client)
        self.faults = [
            one for one in lines.every_fault.values() if client in one.clients and one.confirmed is not None
        ]
        self.pauses = [one for one in self.faults if one.kind in _LASTING]
        self.commits: pa.Table = read_parts(run.commits_ledger / client_folder(client), COMMITS)
        self.membership: list[Row] = read_parts(
            run.membership / client_folder(client), MEMBERSHIP
        ).to_pylist()
        found = sorted(self._incidents(), key=lambda one: one.t_ns)
        self.incidents = tuple(_merged(found))
        """Incidents of the member, in order of time."""

    def _incidents(self) -> Iterator[Incident]:
        name = self.client
        for fault in self.faults:
            kind = _LASTING.get(fault.kind) or ("killed" if fault.kind.startswith("kill") else "fault")
            text = f"{fault.done} by fault {fault.name}, {fault.title}"
            yield Incident(fault.confirmed or 0, name, kind, text)
            if fault in self.pauses and fault.healed is not None:
                yield Incident(fault.healed, name, "over", f"fault {fault.name} over")
        for event in self.own.ends:
            if isinstance(event.what, ClientDied):
                yield Incident(event.t_ns, name, "killed", f"died, status {event.what.status}")
        for row in self.membership:
            place = f"{row['topic']}/{row['partition']}"
            if row["event"] == MembershipEvent.LOST:
                yield Incident(row["t_ns"], name, "lost", f"lost {place}, generation {row['generation']}")
            elif row["event"] == MembershipEvent.RESET and (row["from_offset"], row["offset"]) != (-1, 0):
                # Not to the beginning because nothing was committed: so every group starts.
                yield Incident(row["t_ns"], name, "reset", f"reset {place} {reset_text(row)}")
        for row in self.commits.filter(pc.field("result") != CommitResult.ACCEPTED.value).to_pylist():
            kind = CommitResult(row["result"]).name.lower()
            text = f"commit {kind}: {row['error'] or 'no answer'}"
            yield Incident(max(row["begun_ns"], row["done_ns"]), name, kind, text)


def reset_text(row: Row) -> str:
    """Return a reset of a member's position as text: `from 200 to 215: REASON`. `row`: the reset's row in the
    membership ledger."""
    came = "no committed offset" if row["from_offset"] == -1 else number(row["from_offset"])
    return f"from {came} to {number(row['offset'])}: {row['why']}"


def _merged(found: Iterable[Incident]) -> Iterator[Incident]:
    """Yield incidents in order. Successive incidents with the same kind and text become one, at the first time."""
    for _, alike in groupby(found, lambda one: (one.kind, one.text)):
        first, *rest = alike
        yield replace(first, last_ns=rest[-1].t_ns, count=1 + len(rest)) if rest else first


# -- the story of a record ------------------------------------------------------------------------------------------

Record = tuple[int, int]
"""Identity of a record: the number of its producer, and its seq."""
_STATES = {
    ProcessingState.ABORTED: ", in a transaction that was aborted",
    ProcessingState.UNKNOWN: ", in a transaction whose outcome is unknown",
}
_FATES = frozenset({"killed", "paused", "slowed", "fault", "lost", "refused", "unknown"})
_MOST_FATES = 3
_NEAR_COMMITS = 6
"""Number of commits and membership events that are shown before and after the commit of a finding."""


class GroupStories:
    """Stories of some records: what consumer groups did with each, from the ledgers of group members and from the
    groups' outputs.

    `lines`: the run's timeline, sorted by fault, node and client. `whom`: the records, as (producer, seq). Deliveries
    and outputs are read by the constructor; members' lives, commits and membership events when a method needs them.
    Raises `BadInput` if a file cannot be read; for a member's life, OSError or ArrowException (`MemberLife`)."""

    def __init__(self, run: CaseDir, lines: Lifelines, whom: Collection[Record]) -> None:
        self.run = run
        file = GroupsFile.load(run.groups) if run.groups.exists() else GroupsFile()
        self.ends = file.groups
        self._life = cache(lambda member: MemberLife(run, lines, f"g{member}"))
        producers, seqs = ([who[at] for who in whom] for at in (0, 1))
        which = pc.field("producer").isin(producers) & pc.field("seq").isin(seqs)
        self.deliveries = _by_record(read_matching(parts(run.deliveries), DELIVERIES, which))
        self.copies = {
            one.group: _by_record(read_matching([path], OUTPUT, which))
            for one in self.ends
            if (path := run.group_output(one.group)).exists()
        }
        self._of_partition = cache(self._read_partition)

    def moments(self, who: Record) -> Iterator[tuple[int, str]]:
        """Yield (ns since the run's start, text) of each delivery and processing of a record. For each group that got
        it, also of the group's first accepted commit past its offset."""
        covered: dict[tuple[str, TopicPartition, int], None] = {}
        for row in self.deliveries.get(who, ()):
            member = _member(row)
            where = f"{row['topic']}/{row['partition']} offset {number(row['offset'])}"
            text = f"handed to {member}: {where}, batch {row['batch']}, generation {row['generation']}"
            yield row["delivered_ns"], text
            if row["processed_ns"] >= 0:
                state = _STATES.get(ProcessingState(row["state"]), "")
                yield row["processed_ns"], f"processed by {member}, batch {row['batch']}{state}"
            covered[row["group"], TopicPartition(row["topic"], row["partition"]), row["offset"]] = None
        for group, place, offset in covered:
            if (commit := self._commit_past(group, place, offset)) is not None:
                yield commit["done_ns"], f"group {group}: {_commit(commit)} covers it"

    def facts(self, who: Record, spots: Sequence[tuple[str, int, int]]) -> Iterator[str]:
        """Yield a sentence about what each group did with a record at each of its places in the group's input. Yield
        another about its copies in the group's output. `spots`: topic, partition and offset of each place where the
        record was acknowledged or read."""
        for end in self.ends:
            of_group = [row for row in self.deliveries.get(who, ()) if row["group"] == end.group]
            input_places = {(topic, partition) for topic, partition, _ in end.ends}
            for topic, partition, offset in spots:
                at = (topic, partition, offset)
                rows = [row for row in of_group if (row["topic"], row["partition"], row["offset"]) == at]
                if rows or (topic, partition) in input_places:
                    yield self._fate(end, TopicPartition(topic, partition), offset, rows)
            if end.group in self.copies:
                found = self.copies[end.group].get(who, [])
                where = joined(
                    [f"partition {row['partition']} offset {number(row['offset'])}" for row in found[:5]]
                )
                told = f"{plural(len(found), 'copy', 'copies')}: {where}" if found else "no copy of it"
                yield f"the output of group {end.group} has {told}"

    def _fate(self, end: GroupEnd, place: TopicPartition, offset: int, rows: Sequence[Row]) -> str:
        effects = (ProcessingState.EFFECTIVE, ProcessingState.UNKNOWN)
        done = [row for row in rows if row["state"] in effects]
        committed = end.committed.of_partition.get(place, -1)
        past = committed > offset
        commit = self._commit_past(end.group, place, offset)
        by = joined([f"{_member(row)} at {seconds(row['processed_ns'])}" for row in done])
        times = f"processed it {'once' if len(done) == 1 else f'{len(done)} times'}: {by}"
        told = [f"group {end.group} {times if done else 'never processed it'}"]
        if not done or len(done) > 1:
            told += [self._tell_delivery(row) for row in rows] or ["no member was handed it"]
            told += list(self._resets(end.group, place, offset))
        if past and commit is not None:
            told.append(f"{_commit(commit)} went past it")
        elif past:
            told.append("no commit in a member's ledger went past it")
        if end.committed.reason:
            told.append(f"its committed offset is unknown: {end.committed.reason}")
        elif committed < 0:
            told.append("at the end it has no committed offset there")
        else:
            by_then = "past it" if past else "not past it"
            told.append(f"at the end its committed offset is {number(committed)}, {by_then}")
        return "; ".join(told)

    def _tell_delivery(self, row: Row) -> str:
        """Return as a clause which member got a record and when (`row`: the delivery), and what happened to that member
        afterwards."""
        incidents = self._life(row["member"]).incidents
        fates = [one for one in incidents if one.kind in _FATES and one.t_ns >= row["delivered_ns"]]
        then = joined([f"{one} at {seconds(one.t_ns)}" for one in fates[:_MOST_FATES]])
        text = f"{_member(row)} was handed it at {seconds(row['delivered_ns'])} (batch {row['batch']})"
        return text + (f", then: {then}" if then else "")

    def _resets(self, group: str, place: TopicPartition, offset: int) -> Iterator[str]:
        for row in self._of_partition(place)[1]:
            passes = row["event"] == MembershipEvent.RESET and row["from_offset"] <= offset < row["offset"]
            if passes and row["group"] == group:
                yield f"{_member(row)} passed over it at {seconds(row['t_ns'])}: reset {reset_text(row)}"

    def _commit_past(self, group: str, place: TopicPartition, offset: int) -> Row | None:
        """Return the first accepted commit of a group above this offset of a partition; None if there is no such
        commit."""
        for row in self._of_partition(place)[0]:
            if row["group"] == group and row["offset"] > offset and row["result"] == CommitResult.ACCEPTED:
                return row
        return None

    def _read_partition(self, place: TopicPartition) -> tuple[list[Row], list[Row]]:
        """Return the commits and the membership events of a partition over all members, each in order of time."""
        commits = read_matching(parts(self.run.commits_ledger), COMMITS, _in_partition(place)).to_pylist()
        events = read_matching(parts(self.run.membership), MEMBERSHIP, _in_partition(place)).to_pylist()
        commits.sort(key=lambda row: max(row["done_ns"], row["begun_ns"]))
        return commits, sorted(events, key=lambda row: row["t_ns"])


def _in_partition(place: TopicPartition) -> pc.Expression:
    return (pc.field("topic") == place.topic) & (pc.field("partition") == place.partition)


def _member(row: Row) -> str:
    return f"g{row['member']}"


def _commit(row: Row) -> str:
    result = CommitResult(row["result"]).name.lower()
    kind = "transaction" if row["transaction"] else "commit"
    at = row["done_ns"] if row["done_ns"] >= 0 else row["begun_ns"]
    why = f": {row['error']}" if row["error"] else ""
    return (
        f"{kind} {row['number']} of {_member(row)} to offset {number(row['offset'])} "
        f"(generation {row['generation']}, {result} at {seconds(at)}{why})"
    )


def is_commit_class(anomaly: str) -> bool:
    """Return True for an anomaly class whose findings are commits of a group (`tell_commit`), not records."""
    return anomaly in TABLE and TABLE[anomaly].unit is Unit.COMMIT


def tell_commit(run: CaseDir, anomaly: str) -> Iterator[str]:
    """Yield lines of text about the first finding of a class of commits. Raises `BadInput` without a finding, or for an
    unreadable file.

    The lines are the commits and membership events of the group in the partition shortly before and after this commit,
    in order of time; then the records of this commit in the brokers' logs of `__consumer_offsets`; then the number of
    findings of the class."""
    found = read_matching(run.finding_parts, GROUP_FINDINGS, pc.field("class") == anomaly)
    if not found.num_rows:
        raise BadInput(f"{run.path}: no finding of class {anomaly}")
    first: Row = found.slice(0, 1).to_pylist()[0]
    place, group = TopicPartition(first["topic"], first["partition"]), first["group"]
    of_member = "" if first["member"] < 0 else f", g{first['member']}"
    yield f"{anomaly} ({TABLE[anomaly].short}): group {group}{of_member}, {place} to offset {number(first['offset'])}"
    of_group = _in_partition(place) & (pc.field("group") == group)
    moments = [
        (max(row["done_ns"], row["begun_ns"]), _commit(row), row)
        for row in read_matching(parts(run.commits_ledger), COMMITS, of_group).to_pylist()
    ]
    moments += [
        (row["t_ns"], f"{_member(row)}: {_event(row)}", {})
        for row in read_matching(parts(run.membership), MEMBERSHIP, of_group).to_pylist()
    ]
    moments.sort(key=lambda one: one[0])
    at = 0
    for position, (_, _, row) in enumerate(moments):
        if row and row["offset"] == first["offset"] and first["member"] in (-1, row["member"]):
            at = position
            break
    numbers = []
    for t_ns, text, row in moments[max(0, at - _NEAR_COMMITS) : at + _NEAR_COMMITS + 1]:
        yield f"{t_ns / 1e9:9.3f} s  {text}"
        numbers += [(row["member"], row["number"])] if row and row is moments[at][2] else []
    if first["detail"]:
        yield f"  {first['detail']}"
    for member, its_number in numbers:
        yield from _in_log(run, of_group, member, its_number)
    yield f"  findings of this class: {found.num_rows}"


def _event(row: Row) -> str:
    match row["event"]:
        case MembershipEvent.POSITION:
            return f"was told the committed offset {number(row['offset'])}"
        case MembershipEvent.RESET:
            return f"reset {reset_text(row)}"
    return f"{row['event']}, generation {row['generation']}"


def _in_log(run: CaseDir, of_group: pc.Expression, member: int, its_number: int) -> Iterator[str]:
    if not run.offsets_log.exists():
        yield "  the logs of __consumer_offsets were not read"
        return
    own = of_group & (pc.field("record") == OffsetsRecord.COMMIT)
    own &= (pc.field("member") == member) & (pc.field("number") == its_number)
    rows: list[Row] = read_matching([run.offsets_log], OFFSETS_LOG, own).to_pylist()
    for row in rows:
        decision = LogDecision(row["decision"]).name.lower().replace("_", " ")
        yield (
            f"  log of node {row['node']}: commit {its_number} of g{member} at log offset {row['log_offset']}, "
            f"generation {row['generation']}, {decision}"
        )
    if not rows:
        yield f"  no replica's log has commit {its_number} of g{member}"


def _by_record(table: pa.Table) -> Mapping[Record, list[Row]]:
    rows: dict[Record, list[Row]] = {}
    for row in table.to_pylist():
        rows.setdefault((row["producer"], row["seq"]), []).append(row)
    return rows


def read_matching(
    files: Sequence[Path], schema: pa.Schema, which: pc.Expression | None, columns: list[str] | None = None
) -> pa.Table:
    """Return the rows of these files that match `which` (None: all); without files an empty table of `schema`.
    `columns`: names of the columns to return; None: all of `schema`. A column that a file lacks is null. Raises
    `BadInput` for an unreadable file."""
    if not files:
        return schema.empty_table()
    try:
        return storage.open_dataset(files, schema).to_table(filter=which, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise BadInput(f"{files[0].parent}: cannot be read: {str(error).splitlines()[0]}") from error
