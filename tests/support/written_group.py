"""Writes the run directory of a group made by `healthy_group`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ackproof.rundir.committed import GroupOffsets
from ackproof.rundir.documents import CaseFile, Client
from ackproof.rundir.groups import GroupEnd, GroupsFile, MemberEnd, OffsetsHistory
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.schema import PRODUCED
from run_directory import case_file, read_case, write_rows, write_run

if TYPE_CHECKING:
    from healthy_group import HealthyGroup

TOPIC, OUTPUT_TOPIC = "orders", "copies"
MS = 1_000_000
START = 1000 * MS
WALL_MS = 1_700_000_000_000
LOG_PARTITION = 7
NODES = (1, 2, 3)
EXPERIMENT = """\
name: planted-groups
cluster: {{kafka: "{kafka}"}}
topics:
  orders: {{partitions: {partitions}, replication_factor: 3}}
workload:
  producers: {{{producers}}}
  consumers: {{live: 0}}
  groups:
    {group}: {{{spec}}}
  duration: 1s
"""
_TRANSACTIONS = ", transaction_size: 10, idempotence: true, acks: all"


def write_group(group: HealthyGroup, folder: Path, **options: Any) -> CaseDir:
    """Write the run directory, without the files that are prepared before the audit. `options`: arguments of Parquet's
    writer; without any, files are written as ackproof writes them."""
    log = group.log.table().sort_by("log_offset")
    write_run(folder, case_json=_case_file(group), closed=True, options=options or None, **_records(group))
    run = write_run(
        folder,
        deliveries=_by_member(group, group.deliveries.table()),
        commits_ledger=_by_member(group, group.commits.table()),
        membership=_by_member(group, group.membership.table()),
        offsets_log=pa.concat_tables([_with(log, node=node) for node in NODES]),
        groups=_groups_file(group),
        options=options or None,
    )
    if group.output:
        write_rows(run.group_output(group.group), group.copies.table(), options or None)
    return run


def _with(table: pa.Table, **values: int) -> pa.Table:
    """Return the table with the named columns replaced: each has one value in all rows."""
    for name, value in values.items():
        at = table.schema.get_field_index(name)
        field = table.schema.field(at)
        table = table.set_column(at, field, pa.repeat(pa.scalar(value, field.type), len(table)))
    return table


def _by_member(group: HealthyGroup, rows: pa.Table) -> dict[str, pa.Table]:
    member = rows["member"].to_numpy()
    return {f"g{number}": rows.filter(pa.array(member == number)) for number in range(group.members)}


def _groups_file(group: HealthyGroup) -> GroupsFile:
    ends = tuple((TOPIC, partition, group.records) for partition in range(group.partitions))
    offsets = tuple((TOPIC, partition, offset) for partition, offset in group.committed.items())
    committed = GroupOffsets(
        group=group.group,
        partition=LOG_PARTITION,
        coordinator=1,
        isr=NODES,
        offsets=() if group.unanswered else offsets,
        reason=group.unanswered,
    )
    return GroupsFile(
        groups=(
            GroupEnd(
                group=group.group,
                committed=committed,
                ends=ends,
                caught_up=True,
                waited_s=1.0,
                output_ends=tuple((OUTPUT_TOPIC, *end[1:]) for end in ends) if group.output else (),
                problem=group.problem,
            ),
        ),
        members=tuple(
            MemberEnd(
                client=f"g{number}", group=group.group, member=number, pid=100 + number, started_ns=0,
                status=0, asked=True,
            )
            for number in range(group.members)
        ),
        histories=tuple(
            OffsetsHistory(
                node=node,
                partition=LOG_PARTITION,
                log_start=0,
                log_end=group.log_end,
                cleaned=not group.whole,
            )
            for node in NODES
        ),
    )  # fmt: skip


def _case_file(group: HealthyGroup) -> CaseFile:
    spec = [
        f"members: {group.members}", f"protocol: {group.protocol}", f"commit: {group.commit}",
        f"batch: {group.batch}",
    ]  # fmt: skip
    spec += [f"output: {OUTPUT_TOPIC}"] if group.output else []
    spec += [] if group.group_metadata else ["group_metadata: false"]
    spec += [group.spec] if group.spec else []
    text = EXPERIMENT.format(
        kafka=group.kafka,
        partitions=group.partitions,
        producers=f"count: {group.producers}" + (_TRANSACTIONS if group.transactional else ""),
        group=group.group,
        spec=", ".join(spec),
    )
    producers = [
        Client(id=f"p{number}", kind="producer", producer=number, topics=(TOPIC,))
        for number in range(group.producers)
    ]
    readers = [
        Client(id=f"f{number}", kind="final", reader=50 + number, topics=(TOPIC,))
        for number in range(1 + group.transactional)
    ]
    case = read_case(text, seed=1)
    return case_file(case, clients=(*producers, *readers), wall_ns=WALL_MS * MS)


def _records(group: HealthyGroup) -> dict[str, dict[str, Any]]:
    """Return the ledgers of producers and final readers; with transactions also the read at read_committed, and the
    ledger of transactions."""
    produced = {}
    for producer in range(group.producers):
        own = np.flatnonzero(group.producer == producer)
        sent = group.seq[own] * 1000
        columns = {"partition": group.partition[own], "offset": group.offset[own], "seq": group.seq[own]}
        columns |= {"sent_ns": sent, "done_ns": sent + 500, "topic": np.full(len(own), TOPIC)}
        columns |= {name: np.zeros(len(own), np.int64) for name in PRODUCED.names if name not in columns}
        table = pa.table([pa.array(columns[f.name]).cast(f.type) for f in PRODUCED], schema=PRODUCED)
        produced[f"p{producer}"] = _with(table, producer=producer, txn=0 if group.transactional else -1)
    read = group.final.table()
    consumed = {"f0": _with(read, phase=ReadPhase.FINAL, reader=50)}
    if not group.transactional:
        return {"produced": produced, "consumed": consumed}
    consumed["f1"] = _with(read, phase=ReadPhase.FINAL_COMMITTED, reader=51)
    ends = {"txn": 0, "commit_ns": 1, "ended_ns": 2}
    transactions = {f"p{producer}": [{**ends, "producer": producer}] for producer in range(group.producers)}
    return {"produced": produced, "consumed": consumed, "transactions": transactions}
