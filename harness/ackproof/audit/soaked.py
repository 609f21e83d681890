"""The windows of a soak, as the audit of the whole sees them: what was deleted of it, and what was counted of that."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ackproof.audit.deleted import NOTHING_DELETED, Deleted
from ackproof.audit.findings_file import findings_file
from ackproof.base.errors import BadInput
from ackproof.ledgers.directory import Ledger, Rejected
from ackproof.ledgers.runs import Runs
from ackproof.rundir import storage
from ackproof.rundir.documents import DeletedWindows, RecordCounts
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.parts import DELETED
from ackproof.rundir.windows import WindowFile, window_findings, windows

_OUTCOMES: Final = ("produced", "acked", "failed", "indeterminate")


def windows_of(case: CaseDir) -> tuple[WindowFile, ...]:
    """Those of a soak of which some were deleted; nothing of any other run. Raises `Rejected`."""
    try:
        found = tuple(windows(case))
    except BadInput as error:
        raise Rejected(str(error)) from error
    return found if any(one.deleted for one in found) else ()


def unexplained(found: Sequence[WindowFile], ledger: Ledger) -> list[str]:
    """Clients of which parts are said to be deleted, where a soak deleted none: nobody counted what they held."""
    return [
        f"ledger/{kind}/{client_folder(client)}: {DELETED} lists parts, and no window of a soak was deleted"
        for (kind, client), parts in ledger.deleted.items()
        if parts and not found
    ]


def deleted_of(found: Sequence[WindowFile], ledger: Ledger) -> Deleted:
    """What the passes must know of these windows."""
    gone = [one for one in found if one.deleted]
    if not gone:
        return NOTHING_DELETED
    starts = {one.place: one.end for one in gone[-1].read}
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for producer, first, last in _spans(ledger, {name for one in gone for name in one.parts}):
        spans[producer].append((first, last))
    return Deleted(starts, {producer: Runs.of(found) for producer, found in spans.items()})


def _spans(ledger: Ledger, audited: set[str]) -> Iterator[tuple[int, int, int]]:
    """Of the parts of producers that were deleted, and of those of these names that are there."""
    for client, producer in ledger.producers.items():
        for first, last, rows in ledger.deleted.get(("produced", client), ()):
            if rows:
                yield producer, first, last
    for part in ledger.parts:
        name = f"{client_folder(part.client)}/{Path(part.path).name}"
        if part.kind == "produced" and name in audited and part.client in ledger.producers:
            yield ledger.producers[part.client], *part.numbers


def sums_of(found: Sequence[WindowFile], ledger: Ledger, spared: int) -> DeletedWindows | None:
    """What all windows counted. `spared`: attempts that the ledgers have, of records that were deleted."""
    if not found:
        return None
    sums = {name: sum(getattr(one, name) for one in found) for name in _OUTCOMES}
    read = RecordCounts(
        **sums,
        consumed_live=sum(one.live for one in found),
        consumed_final=sum(one.followed for one in found),
    )
    gone = sum(
        rows for (kind, _), parts in ledger.deleted.items() if kind == "produced" for _, _, rows in parts
    )
    deleted = sum(one.deleted for one in found)
    return DeletedWindows(windows=deleted, records=read, gone=gone, spared=spared)


def findings_of(case: CaseDir, found: Sequence[WindowFile], into: Path) -> Counter[str]:
    """Write what deleted windows found (what no configuration forbids) into a file; how many of each class.

    Raises OSError.
    """
    counts: Counter[str] = Counter()
    paths = [window_findings(case, one.number) for one in found if one.deleted and one.counts]
    if paths:
        with findings_file(into) as writer:
            for path in paths:
                table = storage.table(path)
                counts.update(table["class"].to_pylist())
                writer.write_table(table)
    return counts
