"""Writes the run directory of a group made by `healthy_group`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ackproof.plan.cases import case_to_json, cases, load
from ackproof.rundir.committed import GroupOffsets
from ackproof.rundir.documents import CaseFile, Client
from ackproof.rundir.groups import GroupEnd, GroupsFile, MemberEnd, OffsetsHistory
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import write_table
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.parts import mark_end
from ackproof.rundir.schema import CONSUMED, PRODUCED, TRANSACTIONS

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
    folder.mkdir(parents=True, exist_ok=True)
    run = CaseDir(folder)
    run.observed.mkdir()
    _write_case(group, run)
    _write_records(group, run, options)
    for name, table in (
        ("deliveries", group.deliveries), ("commits", group.commits), ("membership", group.membership),
    ):  # fmt: skip
        rows = table.table()
        member = rows["member"].to_numpy()
        for number in range(group.members):
            into = run.ledger / name / f"client=g{number}"
            into.mkdir(parents=True)
            own = rows.filter(pa.array(member == number))
            _write_file(into / "part-000000.parquet", own, options, by_place=name != "membership")
    log = group.log.table().sort_by("log_offset")
    at = log.schema.get_field_index("node")
    of_nodes = [
        log.set_column(at, log.schema.field(at), pa.repeat(pa.scalar(node, pa.int32()), len(log)))
        for node in NODES
    ]
    _write_file(run.offsets_log, pa.concat_tables(of_nodes), options)
    if group.output:
        _write_file(run.group_output(group.group), group.copies.table(), options)
    _groups_file(group).save(run.groups)
    return run


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


def _write_case(group: HealthyGroup, run: CaseDir) -> None:
    spec = [
        f"members: {group.members}", f"protocol: {group.protocol}", f"commit: {group.commit}",
        f"batch: {group.batch}",
    ]  # fmt: skip
    spec += [f"output: {OUTPUT_TOPIC}"] if group.output else []
    spec += [] if group.group_metadata else ["group_metadata: false"]
    spec += [group.spec] if group.spec else []
    path = run.path / "planted.yaml"
    text = EXPERIMENT.format(
        kafka=group.kafka,
        partitions=group.partitions,
        producers=f"count: {group.producers}" + (_TRANSACTIONS if group.transactional else ""),
        group=group.group,
        spec=", ".join(spec),
    )
    path.write_text(text)
    (case,) = cases(load(path), seed=1)
    producers = [
        Client(id=f"p{number}", kind="producer", producer=number, topics=(TOPIC,))
        for number in range(group.producers)
    ]
    readers = [
        Client(id=f"f{number}", kind="final", reader=50 + number, topics=(TOPIC,))
        for number in range(1 + group.transactional)
    ]
    CaseFile(
        run_id="r",
        case=case.id,
        experiment="planted-groups",
        settings={},
        repeat=1,
        seed=1,
        backend="process",
        replay="",
        resolved=case_to_json(case),
        clients=(*producers, *readers),
        wall_ns=WALL_MS * MS,
    ).save(run.case_json)


def _write_records(group: HealthyGroup, run: CaseDir, options: dict[str, Any]) -> None:
    for producer in range(group.producers):
        own = np.flatnonzero(group.producer == producer)
        count, sent = len(own), group.seq[own] * 1000
        columns = {
            "producer": np.full(count, producer),
            "seq": group.seq[own],
            "topic": np.full(count, TOPIC),
            "partition": group.partition[own],
            "outcome": np.zeros(count),
            "error": np.zeros(count),
            "offset": group.offset[own],
            "sent_ns": sent,
            "done_ns": sent + 500,
            "txn": np.full(count, 0 if group.transactional else -1),
        }
        _write_part(run.produced / f"client=p{producer}", PRODUCED, columns, options)
        if group.transactional:
            ends = {"outcome": 0, "first_seq": 0, "begun_ns": 0, "commit_ns": 1, "ended_ns": 2}
            columns = {"producer": [producer], "txn": [0], **{name: [end] for name, end in ends.items()}}
            _write_part(run.transactions / f"client=p{producer}", TRANSACTIONS, columns, options)
    readers = {"f0": (ReadPhase.FINAL, 50)}
    if group.transactional:
        readers["f1"] = (ReadPhase.FINAL_COMMITTED, 51)
    for client, (phase, reader) in readers.items():
        read, folder = group.final.table(), run.consumed / f"client={client}"
        folder.mkdir(parents=True)
        for name, value in (("phase", phase), ("reader", reader)):
            at = CONSUMED.get_field_index(name)
            read = read.set_column(
                at, CONSUMED.field(at), pa.repeat(pa.scalar(int(value), CONSUMED.field(at).type), len(read))
            )
        _write_file(folder / "part-000000.parquet", read, options, by_place=True)
        mark_end(folder)


def _write_part(folder: Path, schema: pa.Schema, columns: dict[str, Any], options: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    arrays = [pa.array(columns[f.name]).cast(f.type) for f in schema]
    _write_file(folder / "part-000000.parquet", pa.Table.from_arrays(arrays, schema=schema), options)
    mark_end(folder)


def _write_file(path: Path, table: pa.Table, options: dict[str, Any], *, by_place: bool = False) -> None:
    """Write a file as ackproof does; with `options` as another tool may: rows in their order, partitions mixed."""
    if options:
        pq.write_table(table, path, **options)
    else:
        write_table(path, table, by_place=by_place)
