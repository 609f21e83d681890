"""Coherence of consumer groups: members fit the case and the timeline. Rows of their ledgers fit each other and the
final read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.experiment.group_promises import Condition
from ackproof.judge.coherence.clients import outside_life, unlisted_folders
from ackproof.judge.facts import Facts
from ackproof.judge.groups import read_groups
from ackproof.judge.opinion import Opinion, contradicts, kafka_differs
from ackproof.rundir.groups import COMMITS, DELIVERIES, MEMBERSHIP, CommitResult, MemberEnd, ProcessingState
from ackproof.rundir.layout import client_folder
from ackproof.rundir.ledger import read_parts

_PROCESSED: Final = pc.field("processed_ns") >= 0
_UNPROCESSED: Final = pc.field("state") == int(ProcessingState.NOT_PROCESSED)
_DELIVERY_RULES: Final = {
    "were processed before they were delivered": _PROCESSED
    & (pc.field("processed_ns") < pc.field("delivered_ns")),
    "were processed at no time, or not processed at some time": _UNPROCESSED == _PROCESSED,
    "have an offset below 0": pc.field("offset") < 0,
}
"""Properties that no delivery may have: words for a sentence → filter. `_COMMIT_RULES` is the same for commits."""
_COMMIT_RULES: Final = {
    "were answered before they began": (pc.field("done_ns") >= 0)
    & (pc.field("done_ns") < pc.field("begun_ns")),
    "were accepted without an answer, or with an error": (pc.field("result") == int(CommitResult.ACCEPTED))
    & ((pc.field("done_ns") < 0) | (pc.field("error") != "")),
}


def check_group_members(facts: Facts) -> Iterator[Opinion]:
    """Yield a `contradicts` opinion (files disagree) for each member that differs from the case, the timeline or its
    own ledgers. Nothing is yielded without groups, or without `groups.json`.

    Also yield an opinion if members got records, or committed offsets, beyond the end of the final read
    (`_beyond_the_end`). Then Kafka's answers to the members and to the final reader differ. In a sealed run, whose
    digests prove its files unchanged, the opinion is `lacks` (evidence is missing), else `contradicts`.
    """
    if facts.groups is None or not facts.case.experiment.workload.groups:
        return
    specs = facts.case.experiment.workload.groups
    for name, count in Counter(one.client for one in facts.groups.members).items():
        if count > 1:
            yield contradicts(f"groups.json lists member {name} {count} times", subject=name)
    for one in facts.groups.members:
        if one.group not in specs:
            text = f"member {one.client} is of group {one.group}, which the case does not have"
            yield contradicts(text, subject=one.client)
        yield from (contradicts(text, subject=one.client) for text in _of_member(facts, one))
    members, run = (one.client for one in facts.groups.members), facts.run
    for where in unlisted_folders(facts, members, run.deliveries, run.commits_ledger, run.membership):
        yield contradicts(f"{where}: of a member that groups.json does not list")
    yield from map(kafka_differs(sealed=facts.sealed), _beyond_the_end(facts))


def _of_member(facts: Facts, member: MemberEnd) -> Iterator[str]:
    """Yield a sentence for each contradiction in a member's ledgers: rows of another member, rows that cannot be true
    (`_DELIVERY_RULES`, `_COMMIT_RULES`), and times outside its lifetime. A ledger with a part that cannot be read is
    left out: the audit reports the part."""
    name, folder = f"member {member.client}", client_folder(member.client)
    ledgers: tuple[tuple[Path, pa.Schema, tuple[str, ...], Mapping[str, pc.Expression]], ...] = (
        (facts.run.deliveries, DELIVERIES, ("delivered_ns", "processed_ns"), _DELIVERY_RULES),
        (facts.run.commits_ledger, COMMITS, ("begun_ns", "done_ns"), _COMMIT_RULES),
        (facts.run.membership, MEMBERSHIP, ("t_ns",), {}),
    )
    life = facts.lifelines.client(member.client)
    began = min((event.t_ns for event in life.starts), default=0)
    ended = max((event.t_ns for event in life.ends), default=None)
    for ledger, schema, times, rules in ledgers:
        rows = _read(ledger / folder, schema)
        if not len(rows):
            continue
        others = set(zip(*(pc.unique(rows[key]).to_pylist() for key in ("group", "member")), strict=False))
        if others != {(member.group, member.member)}:
            yield f"{name} is number {member.member} of {member.group}, and {ledger.name} has rows of {sorted(others)}"
        for words, rule in rules.items():
            if len(broken := rows.filter(rule)):
                (row,) = broken.slice(0, 1).to_pylist()
                where = f"{row['topic']}/{row['partition']} at {row['offset']}"
                yield f"{name}: {len(broken):,} rows of {ledger.name} {words}, such as {where}"
        for column in times:
            first, last = pc.min_max(rows.filter(pc.field(column) >= 0)[column]).as_py().values()
            yield from outside_life(name, f"{column} in {ledger.name}", (first, last), began, ended)


def _read(folder: Path, schema: pa.Schema) -> pa.Table:
    try:
        return read_parts(folder, schema).select(schema.names)
    except (OSError, pa.ArrowException, KeyError):
        return schema.empty_table()


def _beyond_the_end(facts: Facts) -> Iterator[str]:
    """Yield a sentence for each partition of which members got, or asked to commit, offsets beyond the end of the final
    read.

    Left out are groups whose input may have lost records that members got. So are groups whose offsets or input a fault
    or a user's command changed. The input of every other group keeps all records below the high watermark, so that the
    final read reaches what members got. Committed offsets that no member asked for are checked in
    `judge.checks.groups`.
    """
    reads = facts.final_read.partitions if facts.final_read is not None else ()
    ends = {(read.topic, read.partition): read.end for read in reads if read.complete}
    for group in read_groups(facts):
        if {Condition.INPUT, Condition.OPERATOR, Condition.OUTSIDE} & group.conditions.keys():
            continue
        for ledger, schema, did, past in (
            (facts.run.deliveries, DELIVERIES, "was handed", 1),
            (facts.run.commits_ledger, COMMITS, "asked to commit", 0),
        ):
            rows = _read(ledger, schema)
            mine = rows.filter(pc.equal(rows["group"], group.name)).group_by(["topic", "partition"])
            for row in mine.aggregate([("offset", "max")]).to_pylist():
                end = ends.get((row["topic"], row["partition"]))
                if end is not None and row["offset_max"] + past > end:
                    yield (
                        f"group {group.name} {did} offset {row['offset_max']} of {row['topic']}/{row['partition']}, "
                        f"and the final read ends at {end}"
                    )
