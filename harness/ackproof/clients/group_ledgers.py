"""Ledgers of a group member, made of the lines that it printed (docs/clients.md, `rundir.groups`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ackproof.clients.command.events import LINES, Breach, BreachKind, EventName, ProgramLines
from ackproof.clients.contract import EXIT_CLEAN, MemberSettings
from ackproof.rundir import storage
from ackproof.rundir.groups import (
    COMMITS,
    DELIVERIES,
    MEMBERSHIP,
    CommitResult,
    MembershipEvent,
    ProcessingState,
)
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.parts import mark_end

PART: Final = "part-000000.parquet"
REFUSED: Final = frozenset(
    {
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "REBALANCE_IN_PROGRESS",
        "FENCED_INSTANCE_ID",
        "FENCED_MEMBER_EPOCH",
        "STALE_MEMBER_EPOCH",
        "GROUP_ID_NOT_FOUND",
        "INVALID_GROUP_ID",
        "GROUP_AUTHORIZATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "OFFSET_METADATA_TOO_LARGE",
        "INVALID_COMMIT_OFFSET_SIZE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COMMIT_FAILED",
    }
)
"""Errors of a commit that a coordinator throws before it appends anything (OffsetMetadataManager.validateOffsetCommit,
GroupCoordinatorService.commitOffsets), by their names in Kafka. NOT_COORDINATOR is none: a coordinator that resigns
fails commits with it that wait for replication (CoordinatorRuntime). COMMIT_FAILED is the Java consumer's
CommitFailedException, which stands for those of member and generation."""
_ROWS: Final = pa.schema(
    [
        ("e", pa.string()),
        ("t", pa.int64()),
        ("g", pa.int64()),
        ("topic", pa.string()),
        ("p", pa.int64()),
        ("o", pa.int64()),
        ("batch", pa.int64()),
        ("id", pa.list_(pa.int64())),
    ]
)
"""Fields of the events that come once for each record. The others are parsed one by one."""
_BLOCK: Final = 1 << 24
"""Bytes that Arrow parses at once; a line must fit in."""
_Numbers: TypeAlias = npt.NDArray[np.int64]
_Event: TypeAlias = Mapping[str, Any]
_Row: TypeAlias = tuple[object, ...]


def convert(run: CaseDir, settings: MemberSettings, started_ns: int, status: int) -> list[Breach]:
    """Write the three ledgers of a member that has ended, each with `_END` if it said `closed` and ended with 0.

    `started_ns`: its start on CLOCK_MONOTONIC. `status`: its exit status. A torn last line is left out. Return the
    breaches of the contract; lines that break it are left out, too. Raises OSError.
    """
    path = run.clients / settings.client / LINES
    lines, breaches = _lines(path, settings, started_ns, status)
    ledger = _MemberLedger(settings, lines)
    if ledger.stray:
        text = f"{ledger.stray} records were processed twice, or without being delivered before"
        breaches.append(Breach(BreachKind.UNDELIVERED, 0, text))
    tables = {
        run.deliveries: ledger.deliveries,
        run.commits_ledger: ledger.commits(),
        run.membership: ledger.membership(),
    }
    for folder, table in tables.items():
        own = folder / client_folder(settings.client)
        own.mkdir(parents=True, exist_ok=True)
        with storage.create_parquet(own / PART, table.schema) as file:
            file.write_table(table)
        if ledger.closed and status == EXIT_CLEAN:
            mark_end(own)
    return breaches


def _lines(
    path: Path, settings: MemberSettings, started_ns: int, status: int
) -> tuple[list[bytes], list[Breach]]:
    """Return the whole lines of a member, and breaches. Only programs of the user are held against the contract."""
    raw = path.read_bytes()
    lines = raw[: raw.rfind(b"\n") + 1].splitlines()
    if not settings.command:
        return lines, []
    program = ProgramLines(path, started_ns, live=False)
    kept = [lines[event.line - 1] for event in program.take()]
    program.end(status)
    return kept, program.breaches


@dataclass
class _Transaction:
    """A transaction of a member, by the numbers of its lines."""

    number: int
    begin: int
    end: int
    state: ProcessingState = ProcessingState.UNKNOWN


@dataclass
class _MemberLedger:
    """The lines of a member, as rows. `stray`: number of processed records without a delivery of their own."""

    settings: MemberSettings
    lines: Sequence[bytes]
    stray: int = 0
    closed: bool = False
    deliveries: pa.Table = field(init=False)

    def __post_init__(self) -> None:
        if self.lines:
            options = pj.ParseOptions(explicit_schema=_ROWS, unexpected_field_behavior="ignore")
            rows = pj.read_json(
                pa.BufferReader(b"\n".join(self.lines)),
                read_options=pj.ReadOptions(block_size=_BLOCK),
                parse_options=options,
            ).combine_chunks()
        else:
            rows = _ROWS.empty_table()
        delivered = _where(pc.equal(rows["e"], EventName.DELIVERED.value))
        processed = _where(pc.equal(rows["e"], EventName.PROCESSED.value))
        others = np.setdiff1d(np.arange(len(self.lines)), np.union1d(delivered, processed), True)
        self._events: list[tuple[int, _Event]] = [(at, json.loads(self.lines[at])) for at in others.tolist()]
        self.closed = any(event["e"] == EventName.CLOSED for _, event in self._events)
        self._answers = {
            event["n"]: event
            for _, event in self._events
            if event["e"] in (EventName.COMMITTED, EventName.ENDED)
        }
        self._transactions = list(self._read_transactions())
        self.deliveries = self._deliver(rows, delivered, processed)

    def _read_transactions(self) -> Iterable[_Transaction]:
        open_ = None
        for at, event in self._events:
            if event["e"] == EventName.BEGIN:
                if open_ is not None:
                    yield open_
                open_ = _Transaction(event["n"], at, len(self.lines))
            elif event["e"] == EventName.ENDED and open_ is not None:
                open_.end = at
                if not event.get("x"):
                    open_.state = ProcessingState.EFFECTIVE
                elif event.get("aborted"):
                    open_.state = ProcessingState.ABORTED
                yield open_
                open_ = None
        if open_ is not None:
            yield open_

    def _time(self, event: _Event) -> int:
        return int(event["t"]) - self.settings.origin_ns

    # -- deliveries -------------------------------------------------------------------------------------------------

    def _deliver(self, rows: pa.Table, delivered: _Numbers, processed: _Numbers) -> pa.Table:
        """Return the rows of `DELIVERIES`. A processed record belongs to the last delivery of its offset before it."""
        topic = rows["topic"].combine_chunks().dictionary_encode()
        codes = _filled(topic.indices)
        places, offsets, times = _filled(rows["p"]), _filled(rows["o"]), _filled(rows["t"])
        both = np.concatenate([delivered, processed])
        order = both[np.lexsort((both, offsets[both], places[both], codes[both]))]
        is_delivered = np.zeros(len(rows), np.bool_)
        is_delivered[delivered] = True
        before, after = order[:-1], order[1:]
        same = (
            (codes[before] == codes[after])
            & (places[before] == places[after])
            & (offsets[before] == offsets[after])
        )
        pairs = same & is_delivered[before] & ~is_delivered[after]
        done = np.full(len(rows), -1, np.int64)
        done[before[pairs]] = after[pairs]
        self.stray = len(processed) - int(pairs.sum())
        by = done[delivered]
        processed_ns = np.where(by >= 0, times[by] - self.settings.origin_ns, -1)
        state, number = self._decide(by)
        identity = _identities(rows["id"].combine_chunks())
        columns: dict[str, Any] = {
            "group": pa.repeat(self.settings.group, len(delivered)),
            "member": np.full(len(delivered), self.settings.member),
            "generation": _filled(rows["g"])[delivered],
            "batch": _filled(rows["batch"])[delivered],
            "topic": topic.dictionary.take(pa.array(codes[delivered])) if len(delivered) else [],
            "partition": places[delivered],
            "offset": offsets[delivered],
            "producer": identity[delivered, 0],
            "seq": identity[delivered, 1],
            "delivered_ns": times[delivered] - self.settings.origin_ns,
            "processed_ns": processed_ns,
            "state": state,
            "commit": number,
        }
        arrays = [_cast(columns[column.name], column.type) for column in DELIVERIES]
        return pa.Table.from_arrays(arrays, schema=self._schema(DELIVERIES))

    def _decide(self, by: _Numbers) -> tuple[_Numbers, _Numbers]:
        """Return the `ProcessingState` of deliveries, and the number of the transaction that processed each (-1).
        `by`: number of the line that says that it was processed, -1 for none."""
        state = np.where(by >= 0, ProcessingState.EFFECTIVE, ProcessingState.NOT_PROCESSED).astype(np.int64)
        number = np.full(len(by), -1, np.int64)
        if self._transactions:
            begins = np.array([one.begin for one in self._transactions])
            ends = np.array([one.end for one in self._transactions])
            at = np.searchsorted(begins, by) - 1
            inside = (by >= 0) & (at >= 0) & (by < ends[at])
            state[inside] = np.array([one.state for one in self._transactions], np.int64)[at[inside]]
            number[inside] = np.array([one.number for one in self._transactions], np.int64)[at[inside]]
        return state, number

    # -- commits and membership -------------------------------------------------------------------------------------

    def commits(self) -> pa.Table:
        """Return the rows of `COMMITS`."""
        transactions = {one.number: one for one in self._transactions}
        rows: list[_Row] = []
        for _, event in self._events:
            if event["e"] != EventName.COMMIT:
                continue
            number, answer = event["n"], self._answers.get(event["n"])
            error = "" if answer is None else answer.get("x", "")
            if answer is None:
                result = CommitResult.UNKNOWN
            elif not error:
                result = CommitResult.ACCEPTED
            elif number in transactions:
                aborted = transactions[number].state is ProcessingState.ABORTED
                result = CommitResult.REFUSED if aborted else CommitResult.UNKNOWN
            else:
                result = CommitResult.REFUSED if error in REFUSED else CommitResult.UNKNOWN
            head = self.settings.group, self.settings.member, number, event.get("g", -1)
            after = -1 if answer is None else answer.get("g", -1)
            begun, ended = self._time(event), -1 if answer is None else self._time(answer)
            tail = begun, ended, result.value, error, number in transactions
            rows += [(*head, after, topic, place, offset, *tail) for topic, place, offset in event["os"]]
        return self._table(COMMITS, rows)

    def membership(self) -> pa.Table:
        """Return the rows of `MEMBERSHIP`."""
        rows: list[_Row] = []
        member_id, generation = "", -1
        for _, event in self._events:
            if event["e"] not in _MEMBERSHIP:
                continue
            member_id, generation = event.get("m") or member_id, event.get("g", generation)
            head = self.settings.group, self.settings.member, event["e"], member_id, generation
            match event["e"]:
                case EventName.POSITION:
                    cells = [(topic, place, -1, offset, "") for topic, place, offset in event["os"]]
                case EventName.RESET:
                    cells = [(event["topic"], event["p"], event["from"], event["to"], event.get("why", ""))]
                case _:
                    cells = [(topic, place, -1, -1, "") for topic, place in event.get("ps", ())]
            rows += [(*head, *cell, self._time(event)) for cell in cells or [("", -1, -1, -1, "")]]
        return self._table(MEMBERSHIP, rows)

    def _schema(self, schema: pa.Schema) -> pa.Schema:
        return schema.with_metadata(self.settings.client_library.metadata())

    def _table(self, schema: pa.Schema, rows: Sequence[_Row]) -> pa.Table:
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        arrays = [pa.array(column, type_) for column, type_ in zip(columns, schema.types, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self._schema(schema))


_MEMBERSHIP: Final = frozenset(MembershipEvent)


def _where(mask: pa.ChunkedArray) -> _Numbers:
    return np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False))


def _filled(column: pa.Array | pa.ChunkedArray) -> _Numbers:
    """Return a column of numbers, with -1 where there is none."""
    return np.asarray(pc.fill_null(column, -1).to_numpy(zero_copy_only=False), np.int64)


def _cast(values: object, type_: pa.DataType) -> pa.Array:
    return values.cast(type_) if isinstance(values, pa.Array) else pa.array(values).cast(type_)


def _identities(column: pa.ListArray) -> _Numbers:
    """Return producer and seq of each row, as an array (rows, 2); -1 where there are none."""
    found = np.full((len(column), 2), -1, np.int64)
    pairs = pc.fill_null(pc.equal(pc.list_value_length(column), 2), False)
    values = column.filter(pairs).flatten().to_numpy(zero_copy_only=False)
    found[pairs.to_numpy(zero_copy_only=False)] = values.reshape(-1, 2)
    return found
