"""Writes the ledgers of a group member from the JSON lines that it printed (docs/clients.md, `rundir.groups`,
`rundir.shares`)."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ackproof.clients.command.events import LINES, Breach, BreachKind, EventName, ProgramLines
from ackproof.clients.contract import EXIT_CLEAN, GroupSettings, MemberSettings, ShareSettings
from ackproof.rundir.groups import (
    COMMITS,
    DELIVERIES,
    MEMBERSHIP,
    CommitResult,
    MembershipEvent,
    ProcessingState,
)
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.ledger import write_table
from ackproof.rundir.parts import mark_end
from ackproof.rundir.shares import SHARES, ShareResult

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
GroupCoordinatorService.commitOffsets), by their names in Kafka. NOT_COORDINATOR is not among them: a coordinator that
resigns answers with it to commits that wait for replication (CoordinatorRuntime). COMMIT_FAILED is the Java consumer's
CommitFailedException, which stands for errors of member and generation."""
_SHARE_REFUSED: Final = frozenset(
    {
        "INVALID_RECORD_STATE",
        "INVALID_REQUEST",
        "INVALID_SHARE_SESSION_EPOCH",
        "SHARE_SESSION_NOT_FOUND",
        "SHARE_SESSION_LIMIT_REACHED",
        "UNKNOWN_MEMBER_ID",
        "UNKNOWN_TOPIC_ID",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "NOT_LEADER_OR_FOLLOWER",
        "FENCED_LEADER_EPOCH",
        "GROUP_ID_NOT_FOUND",
        "GROUP_AUTHORIZATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
    }
)
"""Errors of an acknowledgement that a broker returns before it changes the record's state (SharePartition.acknowledge,
SharePartitionManager)."""
_ROWS: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("e", "topic")),
        *((name, pa.int64()) for name in ("t", "g", "p", "o", "batch")),
        ("id", pa.list_(pa.int64())),
    ]
)
"""Fields of the events `delivered` and `processed`, which Arrow parses together. Other events are parsed one by one."""
_BLOCK: Final = 1 << 24
"""Number of bytes that Arrow parses at once. No line may be longer."""
_MEMBERSHIP: Final = frozenset(MembershipEvent)
_Numbers: TypeAlias = npt.NDArray[np.int64]
_Event: TypeAlias = Mapping[str, Any]
_Row: TypeAlias = dict[str, object]


@dataclass
class _Transaction:
    """A transaction of a member. `begin`, `end`: indices of its first and last event among the member's lines; its
    records lie between. Without a last event, `end` is the number of lines."""

    number: int
    begin: int
    end: int
    state: ProcessingState = ProcessingState.UNKNOWN


def convert(run: CaseDir, settings: MemberSettings, started_ns: int, status: int) -> list[Breach]:
    """Write the ledgers `DELIVERIES`, `COMMITS` and `MEMBERSHIP` of a group member that has ended, from the events that
    it printed (docs/clients.md).

    `started_ns`: its start on CLOCK_MONOTONIC. `status`: its exit status. A torn last line is left out. Each ledger
    gets `_END`, the mark of a complete one, if the member printed `closed` and ended with status 0. Return the breaches
    of docs/clients.md, which matter only for a user's program; its lines that break the rules are left out. Raises
    OSError if a file cannot be written.
    """
    lines, breaches = _whole_lines(run, settings), []
    if settings.command:
        program = ProgramLines(run.clients / settings.client / LINES, started_ns, live=False)
        lines = [lines[event.line - 1] for event in program.take()]
        program.end(status)
        breaches = program.breaches
    rows = _ROWS.empty_table()
    if lines:
        rows = pj.read_json(
            pa.BufferReader(b"\n".join(lines)),
            read_options=pj.ReadOptions(block_size=_BLOCK),
            parse_options=pj.ParseOptions(explicit_schema=_ROWS, unexpected_field_behavior="ignore"),
        ).combine_chunks()
    delivered, processed = (
        np.flatnonzero(pc.fill_null(pc.equal(rows["e"], name.value), False).to_numpy())
        for name in (EventName.DELIVERED, EventName.PROCESSED)
    )
    others = np.setdiff1d(np.arange(len(lines)), np.union1d(delivered, processed), True)
    events: dict[int, _Event] = {at: json.loads(lines[at]) for at in others.tolist()}
    transactions = list(_read_transactions(events, len(lines)))
    deliveries, stray = _deliver(rows, delivered, processed, transactions, settings)
    if stray:
        text = f"{stray} records were processed twice, or without being delivered before"
        breaches.append(Breach(BreachKind.UNDELIVERED, 0, text))
    tables: Mapping[Path, tuple[pa.Schema, _Row | list[_Row]]] = {
        run.deliveries: (DELIVERIES, deliveries),
        run.commits_ledger: (COMMITS, list(_commits(events.values(), transactions, settings))),
        run.membership: (MEMBERSHIP, list(_memberships(events.values(), settings))),
    }
    closed = status == EXIT_CLEAN and any(event["e"] == EventName.CLOSED for event in events.values())
    for ledger, (schema, found) in tables.items():
        _write(ledger, settings, schema, found, whole=closed)
    return breaches


def _whole_lines(run: CaseDir, settings: GroupSettings) -> list[bytes]:
    raw = (run.clients / settings.client / LINES).read_bytes()
    return raw[: raw.rfind(b"\n") + 1].splitlines()


def _write(
    ledger: Path, settings: GroupSettings, schema: pa.Schema, rows: _Row | list[_Row], *, whole: bool
) -> None:
    """Write `rows` (a dict of columns, or a list of rows) as the member's only part of the ledger in the folder
    `ledger`. `whole`: True if the member closed cleanly; then `_END` is written, which marks the ledger as complete.
    Raises OSError if a file cannot be written."""
    schema = schema.with_metadata(settings.client_library.metadata())
    make = pa.Table.from_pydict if isinstance(rows, dict) else pa.Table.from_pylist
    folder = ledger / client_folder(settings.client)
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / PART, make(rows, schema=schema), by_place=schema in (DELIVERIES, COMMITS))
    if whole:
        mark_end(folder)


def _read_transactions(events: Mapping[int, _Event], end: int) -> Iterable[_Transaction]:
    current = None
    for at, event in events.items():
        if event["e"] == EventName.BEGIN:
            if current is not None:
                yield current
            current = _Transaction(event["n"], at, end)
        elif event["e"] == EventName.ENDED and current is not None:
            current.end = at
            if not event.get("x"):
                current.state = ProcessingState.EFFECTIVE
            elif event.get("aborted"):
                current.state = ProcessingState.ABORTED
            yield current
            current = None
    if current is not None:
        yield current


def _deliver(
    rows: pa.Table,
    delivered: _Numbers,
    processed: _Numbers,
    transactions: Sequence[_Transaction],
    settings: MemberSettings,
) -> tuple[_Row, int]:
    """Return the columns of `DELIVERIES`, and the number of `processed` events that match no delivery. `delivered`,
    `processed`: indices of these events in `rows`.

    A `processed` event matches a delivery if, of all events about the same record, the delivery comes directly before
    it.
    """
    topic = rows["topic"].combine_chunks().dictionary_encode()
    codes = _filled(topic.indices)
    places, offsets, times = _filled(rows["p"]), _filled(rows["o"]), _filled(rows["t"])
    both = np.concatenate([delivered, processed])
    order = both[np.lexsort((both, offsets[both], places[both], codes[both]))]
    before, after = order[:-1], order[1:]
    pairs = np.isin(before, delivered) & np.isin(after, processed)
    for column in (codes, places, offsets):
        pairs &= column[before] == column[after]
    done = np.full(len(rows), -1, np.int64)
    done[before[pairs]] = after[pairs]
    by = done[delivered]
    state = np.where(by >= 0, ProcessingState.EFFECTIVE, ProcessingState.NOT_PROCESSED).astype(np.int64)
    number = np.full(len(by), -1, np.int64)
    if transactions:
        begins, ends, numbers, states = (
            np.array(column, np.int64)
            for column in zip(
                *((one.begin, one.end, one.number, one.state) for one in transactions), strict=True
            )
        )
        at = np.searchsorted(begins, by) - 1
        inside = (by >= 0) & (at >= 0) & (by < ends[at])
        state[inside], number[inside] = states[at[inside]], numbers[at[inside]]
    identity = np.full((len(rows), 2), -1, np.int64)
    known = np.flatnonzero(_filled(pc.list_value_length(rows["id"])) == 2)
    identity[known] = rows["id"].take(known).combine_chunks().flatten().to_numpy().reshape(-1, 2)
    return {
        "group": pa.repeat(settings.group, len(delivered)),
        "member": np.full(len(delivered), settings.member),
        "generation": _filled(rows["g"])[delivered],
        "batch": _filled(rows["batch"])[delivered],
        "topic": topic.dictionary.take(pa.array(codes[delivered])) if len(delivered) else [],
        "partition": places[delivered],
        "offset": offsets[delivered],
        "producer": identity[delivered, 0],
        "seq": identity[delivered, 1],
        "delivered_ns": times[delivered] - settings.origin_ns,
        "processed_ns": np.where(by >= 0, times[by] - settings.origin_ns, -1),
        "state": state,
        "commit": number,
    }, len(processed) - int(pairs.sum())


def _commits(
    events: Iterable[_Event], transactions: Sequence[_Transaction], settings: MemberSettings
) -> Iterable[_Row]:
    """Yield the rows of `COMMITS`, one for each partition of each commit.

    `result` is ACCEPTED after an answer without error. It is REFUSED after an error that shows that nothing was
    committed: an error in `REFUSED` or, in a transaction, an error after which the transaction was aborted. It is
    UNKNOWN after any other error, and without an answer.
    """
    answered = (EventName.COMMITTED, EventName.ENDED)
    answers = {event["n"]: event for event in events if event["e"] in answered}
    states = {one.number: one.state for one in transactions}
    for event in events:
        if event["e"] != EventName.COMMIT:
            continue
        number, answer = event["n"], answers.get(event["n"], {})
        error = answer.get("x", "")
        refused = error in REFUSED if number not in states else states[number] is ProcessingState.ABORTED
        result = CommitResult.REFUSED if error and refused else CommitResult.UNKNOWN
        for topic, partition, offset in event["os"]:
            yield {
                "group": settings.group,
                "member": settings.member,
                "number": number,
                "generation": event.get("g", -1),
                "generation_after": answer.get("g", -1),
                "topic": topic,
                "partition": partition,
                "offset": offset,
                "begun_ns": event["t"] - settings.origin_ns,
                "done_ns": answer["t"] - settings.origin_ns if answer else -1,
                "result": CommitResult.ACCEPTED if answer and not error else result,
                "error": error,
                "transaction": number in states,
            }


def _memberships(events: Iterable[_Event], settings: MemberSettings) -> Iterable[_Row]:
    """Yield the rows of `MEMBERSHIP`: one for each partition of each membership event, and one with partition
    -1 for an event that names none."""
    member_id, generation = "", -1
    for event in events:
        if event["e"] not in _MEMBERSHIP:
            continue
        member_id, generation = event.get("m") or member_id, event.get("g", generation)
        match event["e"]:
            case EventName.POSITION:
                cells = [(topic, place, -1, offset, "") for topic, place, offset in event["os"]]
            case EventName.RESET:
                cells = [(event["topic"], event["p"], event["from"], event["to"], event.get("why", ""))]
            case _:
                cells = [(topic, place, -1, -1, "") for topic, place in event.get("ps", ())]
        head = settings.group, settings.member, event["e"], member_id, generation
        for cell in cells or [("", -1, -1, -1, "")]:
            row = (*head, *cell, event["t"] - settings.origin_ns)
            yield dict(zip(MEMBERSHIP.names, row, strict=True))


def _filled(column: pa.Array | pa.ChunkedArray) -> _Numbers:
    """Return a column of numbers, with -1 where there is none."""
    return np.asarray(pc.fill_null(column, -1).to_numpy(zero_copy_only=False), np.int64)


def convert_shares(run: CaseDir, settings: ShareSettings, status: int) -> None:
    """Write the ledger `SHARES` of a share group member that has ended, from the events that it printed. A torn last
    line is left out. `status`: its exit status.

    The event `answered` names records, not acknowledgements. So it counts for the oldest acknowledgement of each record
    that has no answer yet. The ledger gets `_END`, the mark of a complete one, if the member printed `closed` and ended
    with status 0. Raises OSError if a file cannot be written.
    """
    rows: list[_Row] = []
    handed: dict[tuple[str, int, int], _Row] = {}
    waiting: defaultdict[tuple[str, int, int], deque[_Row]] = defaultdict(deque)
    closed = False
    for line in _whole_lines(run, settings):
        event = json.loads(line)
        t_ns = event["t"] - settings.origin_ns
        match event["e"]:
            case "delivered":
                place = event["topic"], event["p"], event["o"]
                producer, seq = event.get("id", (-1, -1))
                values = (settings.group, settings.member, event["batch"], *place, producer, seq, event["d"])
                times = event["q"] - settings.origin_ns, t_ns
                rest = "", -1, -1, ShareResult.UNKNOWN.value, ""
                handed[place] = dict(zip(SHARES.names, (*values, *times, *rest), strict=True))
                rows.append(handed[place])
            case "acknowledge":
                row = handed[event["topic"], event["p"], event["o"]]
                row |= {"ack": event["how"], "ack_ns": t_ns}
                waiting[event["topic"], event["p"], event["o"]].append(row)
            case "answered":
                error = event.get("x", "")
                result = (
                    ShareResult.ACKNOWLEDGED
                    if not error
                    else ShareResult.REFUSED
                    if error in _SHARE_REFUSED
                    else ShareResult.UNKNOWN
                )
                for topic, partition, offset in event["os"]:
                    if waiting[topic, partition, offset]:
                        row = waiting[topic, partition, offset].popleft()
                        row |= {"answered_ns": t_ns, "result": result.value, "error": error}
            case "closed":
                closed = True
    _write(run.shares_ledger, settings, SHARES, rows, whole=closed and status == EXIT_CLEAN)
