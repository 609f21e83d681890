"""Process that audits one window: ``python -m ackproof_lab.soak.window ORDER.json``.

The file is a `WindowTask`. The process reads the ledger parts that it names, and the state of the window before. It
writes `findings.parquet`, the state for the next window, and `window.json` last. It changes no input, so an interrupted
audit can be repeated. It is a separate process with low priority, so that a soak's memory does not grow and the cluster
loses little processor time."""

from __future__ import annotations

import os
import pickle
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow.parquet as pq

from ackproof.ledgers.directory import LedgerKind, Part, Rejected, RowGroup
from ackproof.ledgers.load import Piece, Stream, UnreadablePart, read_piece
from ackproof.ledgers.lookup import NumberRuns
from ackproof.ledgers.rows import FINAL, LIVE, PRODUCED, Rows, Schema, concat_rows
from ackproof.rundir.arrow import limit_arrow_threads
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import part_number
from ackproof.rundir.windows import WindowFile, WindowTask
from ackproof_lab.soak.rolling import CarriedState, LedgerProgress, NewRows, audit

_NICE: Final = 10


@dataclass(frozen=True)
class _SoakState:
    """State that the audit of one window passes to the audit of the next: `places`, the state of each partition, and
    `chunks`, the numbers of each producer's audited ledger parts."""

    places: dict[TopicPartition, CarriedState] = field(default_factory=dict)
    chunks: dict[int, NumberRuns] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str) -> _SoakState:
        """Load the state from a file; '' (the first window) returns an empty state."""
        if not path:
            return cls()
        state = pickle.loads(Path(path).read_bytes())
        assert isinstance(state, cls)
        return state


def audit_window(order: WindowTask, folder: Path) -> WindowFile:
    """Audit the ledger parts that a task names. Write `findings.parquet` (if there are findings), `state` (unless it is
    the last window) and, last, `window.json` into the window's `folder`; return the content of `window.json`.

    Raises `Rejected` for rows that cannot be audited, `UnreadablePart` for a part with unreadable data, OSError or
    ArrowException for another file that cannot be read.
    """
    state = _SoakState.load(order.state)
    chunks = dict(state.chunks)
    for client, parts in order.produced.items():
        known = chunks.get(order.producers[client], NumberRuns())
        numbers = np.array([part_number(part) for part in parts], np.int64)
        chunks[order.producers[client]] = known.union(numbers)
    chunks = {number: chunks.get(number, NumberRuns()) for number in order.producers.values()}
    told = LedgerProgress(
        order.chunk_rows,
        order.stride,
        chunks,
        {order.producers[client]: sent for client, sent in order.sent.items()},
        order.last,
        frozenset(order.readers),
    )
    produced = _rows(
        [part for parts in order.produced.values() for part in parts], "produced", "produced", PRODUCED
    )
    live = _rows(order.consumed, "consumed", "live", LIVE)
    starts = {one.place: one.start for one in order.read}
    followed = _rows(order.followed, "consumed", "final", FINAL, starts)
    given, empty = {}, NewRows(0, 0)
    for one in order.read:
        read = followed.get(one.place, empty.read)
        # Give each window's read its own assignment number: carried reads must not be ordered among those of this
        # window.
        assignment = np.full(len(read), order.number, np.int32)
        given[one.place] = NewRows(
            one.start,
            one.end,
            produced.get(one.place, empty.produced),
            live.get(one.place, empty.live),
            Rows({**read.columns, "assignment": assignment}, len(read)),
        )
    found = audit(folder / "findings.parquet", given, state.places, told)
    if not order.last:
        (folder / "state").write_bytes(pickle.dumps(_SoakState(found.carried, chunks)))
    outcomes = np.bincount(
        np.concatenate([rows["outcome"] for rows in produced.values()] or [np.empty(0, np.int8)]),
        minlength=len(Outcome),
    )
    behind = tuple(
        f"{one.place}: a live reader has read up to {found.reached[one.place]} of {one.end}"
        for one in order.read
        if found.reached[one.place] < one.end
    )
    flaws = f"the follower went back, or skipped offsets that another read has, {found.flaws} times"
    file = WindowFile(
        number=order.number,
        last=order.last,
        from_ns=order.from_ns,
        to_ns=order.to_ns,
        read=tuple(one.model_copy(update={"end": found.ends[one.place]}) for one in order.read),
        counts={name: count for name, count in sorted(found.counts.items()) if count},
        produced=int(outcomes.sum()),
        acked=int(outcomes[Outcome.ACKED]),
        failed=int(outcomes[Outcome.FAILED]),
        indeterminate=int(outcomes[Outcome.INDETERMINATE]),
        live=sum(map(len, live.values())),
        followed=found.followed,
        open=sum(len(one.open) for one in found.carried.values()),
        late=found.late,
        found_late=found.found_late,
        pinned=_pinned(found.carried.values(), order.chunk_rows),
        left=(*order.left, *behind),
        reasons=(*order.reasons, *([flaws] if found.flaws else [])),
        parts=tuple("/".join(Path(part).parts[-2:]) for parts in order.produced.values() for part in parts),
    )
    file.save(folder / "window.json")
    return file


def _rows(
    parts: Iterable[str],
    kind: LedgerKind,
    stream: Stream,
    schema: Schema,
    starts: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, Rows]:
    """Return the rows of one `stream` in these parts of the ledger `kind`, by partition. `schema`: its columns.
    `starts`: offset of the first row to return, by partition; None: all rows."""
    found: dict[TopicPartition, list[Rows]] = defaultdict(list)
    for path in parts:
        metadata = pq.read_metadata(path)
        groups = tuple(
            RowGroup(number, metadata.row_group(number).num_rows, None, None, None, transactional=False)
            for number in range(metadata.num_row_groups)
        )
        for of, place, rows in read_piece(Piece(Part(path, kind, "", groups, ()), groups)):
            if of == stream:
                some = rows if starts is None else rows.take(rows["offset"] >= starts.get(place, 0))
                found[place].append(some.copied())
    return {place: concat_rows(rows, schema) for place, rows in found.items()}


def _pinned(carried: Iterable[CarriedState], chunk_rows: int) -> dict[int, tuple[int, ...]]:
    found: dict[int, set[int]] = defaultdict(set)
    for one in carried:
        for rows in (one.open, one.lost):
            for producer, seq in zip(rows["producer"].tolist(), rows["seq"].tolist(), strict=True):
                found[producer].add(seq // chunk_rows)
    return {producer: tuple(sorted(chunks)) for producer, chunks in found.items()}


def main(arguments: list[str]) -> int:
    """Audit one window in this process, with low priority. The only argument is the path of its `WindowTask`. Return
    the exit code, 0 or 1; on failure the last line of output is the error. Raises `BadInput` for an unreadable task,
    ArrowException for another unreadable file."""
    path = Path(arguments[0])
    os.nice(_NICE)
    limit_arrow_threads()
    try:
        audit_window(WindowTask.load(path), path.parent)
    except (Rejected, UnreadablePart, OSError) as error:
        sys.stdout.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
