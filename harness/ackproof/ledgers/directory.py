"""Examines a directory before any row is read: part files, footers, clients.

Everything that a footer shows is checked here: a missing folder or column, a wrong type, a null that the statistics
count. Errors in the data (an unreadable page, a null without statistics) are found later, by `load`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from ackproof.ledgers.clients import ListedClient, compare_with_end, find_hole, read_clients
from ackproof.rundir import storage
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.parts import (
    ANYTHING,
    ENDS,
    Footer,
    NotAnEnd,
    PartEnd,
    deleted_parts,
    digest,
    has_end,
    numbers_of_part,
    read_end,
)
from ackproof.rundir.payload import Keys
from ackproof.rundir.schema import CONSUMED, PRODUCED

if TYPE_CHECKING:
    import pyarrow.parquet as pq

LedgerKind = Literal["produced", "consumed"]
SCHEMAS: dict[LedgerKind, pa.Schema] = {"produced": PRODUCED, "consumed": CONSUMED}
CUT_KEYS: dict[LedgerKind, dict[str, tuple[str, ...]]] = {
    "produced": {"seq": ("seq",), "offset": ("offset",), "at_ns": ("sent_ns", "done_ns")},
    "consumed": {"seq": ("seq",), "offset": ("offset",), "read_seq": ("read_seq",), "read_ns": ("read_ns",)},
}
"""By ledger: columns by which the audit can cut a bucket of rows into ranges, and for each the Parquet
columns whose statistics bound it. A record is sent before its report, so the least `sent_ns` bounds `at_ns`.
"""


class Rejected(Exception):
    """A directory that cannot be audited at all (exit 254). The text says why."""


class _ClientClosing(Enum):
    """State of a client's ledger folder by its file `_END`, in which a client that closes lists its parts.

    NONE: there is no `_END`. BROKEN: it differs from the folder, or a part is unreadable. WHOLE: it matches the folder,
    or it is empty: then it lists nothing.
    """

    NONE = "no _END"
    BROKEN = "an _END that differs from the folder"
    WHOLE = "an _END that matches"


@dataclass(frozen=True)
class RowGroup:
    """Footer of one row group. `topic`, `partition` and `phase` (of reads only) hold for all of its rows. They are None
    if the rows differ, or if the footer does not tell. `number`: position in its file, from 0. `spans`: least and
    greatest value of each of the `CUT_KEYS` (such as `offset`) in this row group; empty if one is unknown."""

    number: int
    rows: int
    topic: str | None
    partition: int | None
    phase: int | None
    transactional: bool = True
    """True if some of its rows may belong to a transaction; always True in the consumed ledger."""
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Part:
    """One readable Parquet file of a ledger, with the footers of its row groups. `unsure`: columns that may have nulls
    according to the footer, and that are always read. `numbers`: least and greatest row number (seq of a produced part,
    read_seq of a consumed one); -1: unknown."""

    path: str
    kind: LedgerKind
    client: str
    groups: tuple[RowGroup, ...]
    unsure: tuple[str, ...]
    numbers: tuple[int, int] = (-1, -1)

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)


@dataclass
class Ledger:
    """The ledgers of one directory: all readable parts, and the reasons why the evidence is incomplete.

    `producers`: numbers of producers by client, from `case.json`. `open_producers`: numbers of producers without a
    valid `_END`; if `case.json` has no number for such a client, all producers in the client's rows. `keys`: keys of
    producers whose records have keys. `deleted`: (first row number, last row number, number of rows) of each part that
    was deleted during the run, by ledger and client. `digests`: SHA-256 of each counted part, by its path in the
    directory.
    """

    directory: Path
    parts: list[Part] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    open_producers: frozenset[int] = frozenset()
    deleted: dict[tuple[LedgerKind, str], list[tuple[int, int, int]]] = field(default_factory=dict)
    producers: dict[str, int] = field(default_factory=dict)
    keys: dict[int, Keys] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)

    def rows(self, kind: LedgerKind) -> int:
        return sum(part.rows for part in self.parts if part.kind == kind)


def examine_directory(directory: Path, *, set_aside: dict[str, str]) -> Ledger:
    """Examine one directory by its files and their footers.

    A part that cannot be read or differs from its client's `_END` is left out, and `Ledger.reasons` says why.
    `set_aside`: path → reason, of parts that an earlier round of the audit found unreadable: they are left out too.
    Raises `Rejected` if the directory, `ledger/produced` or `ledger/consumed` is missing, or if a column of a part is
    missing, exists twice, has another type or has nulls.
    """
    case = CaseDir(directory)
    if not directory.is_dir():
        raise Rejected(f"{directory}: no such directory")
    folders: dict[LedgerKind, Path] = {"produced": case.produced, "consumed": case.consumed}
    for folder in folders.values():
        if not folder.is_dir():
            raise Rejected(f"{directory}: no folder {folder.relative_to(directory)}")
    ledger = Ledger(directory)
    # Report these files even if they were removed meanwhile: they did exist.
    ledger.reasons += [
        f"{_relative(storage.locate(path), directory)}: {why}" for path, why in sorted(set_aside.items())
    ]
    clients = {kind: _read_ledger(ledger, kind, folder, set_aside) for kind, folder in folders.items()}
    if case.case_json.exists():
        listed, problems = read_clients(case.case_json)
        ledger.reasons += problems
        _check_ends(ledger, listed, clients)
    if case.journal.is_dir() and any(case.journal.iterdir()):
        ledger.reasons.append(
            "journal: a client was killed and its journal is not converted; run ackproof clean"
        )
    if ledger.rows("produced") == 0:
        ledger.reasons.append("ledger/produced: no rows")
    if ledger.rows("consumed") == 0 and _ClientClosing.WHOLE not in clients["consumed"].values():
        ledger.reasons.append("ledger/consumed: no rows, and no reader that closed (_END)")
    return ledger


def _read_ledger(
    ledger: Ledger, kind: LedgerKind, folder: Path, set_aside: Mapping[str, str]
) -> dict[str, _ClientClosing]:
    """Add the parts of the produced or of the consumed ledger. Return the state of each client's folder."""
    found: dict[str, _ClientClosing] = {}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("client=") and entry.is_dir():
            client = entry.name.removeprefix("client=")
            found[client] = _read_client(ledger, kind, client, entry, set_aside)
        else:
            _report_strays(entry, ledger)
    return found


def _read_client(
    ledger: Ledger, kind: LedgerKind, client: str, folder: Path, set_aside: Mapping[str, str]
) -> _ClientClosing:
    """Add the parts in one client's `folder` to the ledger, and return the state of the folder. Parts that cannot be
    read, or that differ from its `_END` (missing, not listed, other content), become reasons instead."""
    parts: dict[str, Part] = {}
    digests: dict[str, str] = {}
    torn: set[str] = set()
    for path in _part_files(folder, ledger):
        try:
            digests[path.name] = digest(path)
            if str(path) not in set_aside:
                parts[path.name] = _footer(path, kind, client, ledger.directory)
        except (OSError, pa.ArrowException) as error:
            torn.add(path.name)
            ledger.reasons.append(f"{_relative(path, ledger.directory)}: {describe_unreadable(error)}")
    flaws: list[str] = []
    gone: tuple[PartEnd, ...] = ()
    try:
        gone = deleted_parts(folder)
        end = read_end(folder)
    except NotAnEnd as error:
        end = None
        flaws.append(f"{_relative(folder, ledger.directory)}/{error}")
    ledger.deleted[kind, client] = [(part.first, part.last, part.rows) for part in gone]
    deleted = {part.name for part in gone}
    if end is not None:
        for name, flaw in compare_with_end([part for part in end if part.name not in deleted], digests):
            parts.pop(name, None)
            if name not in torn:
                flaws.append(f"{_relative(folder / name, ledger.directory)}: {flaw}")
    ledger.parts += parts.values()
    ledger.digests |= {_relative(folder / name, ledger.directory): digests[name] for name in parts}
    if end is not None and not flaws and parts.keys() == digests.keys():
        flaws += _find_holes(ledger, kind, client)
    ledger.reasons += flaws
    if not has_end(folder):
        return _ClientClosing.NONE
    return _ClientClosing.BROKEN if flaws or parts.keys() != digests.keys() else _ClientClosing.WHOLE


def _find_holes(ledger: Ledger, kind: LedgerKind, client: str) -> list[str]:
    own = [part for part in ledger.parts if (part.kind, part.client) == (kind, client)]
    there = [(*part.numbers, part.rows) for part in own if part.rows]
    found = find_hole([*there, *ledger.deleted.get((kind, client), ())])
    return [f"ledger/{kind}/{client_folder(client)}: {found}"] if found else []


def describe_unreadable(error: BaseException) -> str:
    """Return one line that says why a file is not counted, from the error that reading it raised."""
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"torn or unreadable, not counted ({first[:200]})"


def _relative(path: Path, directory: Path) -> str:
    return str(path.relative_to(directory))


def _part_files(folder: Path, ledger: Ledger) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("part-") and entry.suffix == ".parquet":
            yield entry
        elif entry.name not in ENDS:
            _report_strays(entry, ledger)


def _report_strays(entry: Path, ledger: Ledger) -> None:
    """Add a reason to `ledger.reasons` for each Parquet file that `entry` is or contains: these files are not counted.

    `entry`: a file or folder that is neither a client's folder nor a part in one. Names that begin with `.` or `_` are
    ignored.
    """
    if entry.name.startswith((".", "_")):
        return
    strays = [entry] if entry.suffix == ".parquet" else []
    if not strays and entry.is_dir():
        strays = sorted(entry.rglob("*.parquet"))
    ledger.reasons.extend(
        f"{_relative(stray, ledger.directory)}: outside the clients' folders, not counted" for stray in strays
    )


def _check_ends(
    ledger: Ledger, listed: Sequence[ListedClient], clients: dict[LedgerKind, dict[str, _ClientClosing]]
) -> None:
    killed = {client.id for client in listed if client.killed}
    for kind, closings in clients.items():
        for name in sorted(name for name, closing in closings.items() if closing is _ClientClosing.NONE):
            missing = [f"ledger/{kind}/{client_folder(name)}: no _END"]
            ledger.reasons += _find_holes(ledger, kind, name) if name in killed else missing
    ledger.reasons.extend(
        f"client {client.id}: listed in case.json, but has no folder in the ledgers"
        for client in listed
        if all(client.id not in closings for closings in clients.values()) and not client.killed
    )
    ledger.producers = {client.id: client.producer for client in listed if client.producer is not None}
    ledger.keys = {
        client.producer: client.keys
        for client in listed
        if client.producer is not None and client.keys is not None
    }
    producers: set[int] = set()
    for client in listed:
        closing = clients["produced"].get(client.id, clients["consumed"].get(client.id))
        if closing is _ClientClosing.WHOLE:
            continue
        if client.producer is not None:
            producers.add(client.producer)
        else:
            producers |= _producers_in(ledger, client.id)
    ledger.open_producers = frozenset(producers)


def _producers_in(ledger: Ledger, client: str) -> set[int]:
    found: set[int] = set()
    for part in ledger.parts:
        if (part.kind, part.client) != ("produced", client):
            continue
        try:
            with storage.open_parquet(part.path) as file:
                for batch in file.iter_batches(columns=["producer"]):
                    found.update(batch.column(0).unique().to_pylist())
        except (OSError, pa.ArrowException):
            continue  # the pass over the data will report the same error with the file's name
    return found


def _footer(path: Path, kind: LedgerKind, client: str, directory: Path) -> Part:
    with storage.open_parquet(path) as file:
        metadata, unsure = file.metadata, check_columns(file, SCHEMAS[kind], _relative(path, directory))
    groups = tuple(_row_group(at, footer, kind) for at, footer in enumerate(Footer.read_all(metadata)))
    return Part(str(path), kind, client, groups, unsure, numbers_of_part(metadata))


def check_columns(file: pq.ParquetFile, required: pa.Schema, path: str) -> tuple[str, ...]:
    """Return the required columns that may have nulls according to the footer. `path`: the file's name in messages.
    Raises `Rejected` for a column that is missing, exists twice, has another type, or has nulls."""
    metadata, found = file.metadata, file.schema_arrow
    leaves = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    unsure: list[str] = []
    for name, type_ in zip(required.names, required.types, strict=True):
        here = [i for i, other in enumerate(found.names) if other == name]
        where = f"{path}: column {name}"
        if not here:
            raise Rejected(f"{where} is missing")
        if len(here) > 1:
            raise Rejected(f"{where} is there {len(here)} times")
        if not _is_same_type(found.types[here[0]], type_):
            raise Rejected(f"{where} is {found.types[here[0]]}, not {type_}")
        leaf = leaves[name]
        if metadata.schema.column(leaf).max_definition_level == 0:
            continue
        nulls = _count_nulls(metadata, leaf)
        if nulls is None:
            unsure.append(name)
        elif nulls:
            raise Rejected(f"{where} has {nulls} null" + ("s" if nulls > 1 else ""))
    return tuple(unsure)


def _is_same_type(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return True if two Arrow types are the same Parquet type: Arrow has several types for strings, Parquet
    one.
    """
    if pa.types.is_dictionary(found):
        found = found.value_type
    strings = (pa.string(), pa.large_string(), pa.string_view())
    return bool(found == wanted or (wanted == pa.string() and found in strings))


def _count_nulls(metadata: pq.FileMetaData, leaf: int) -> int | None:
    total = 0
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(leaf).statistics
        if statistics is None or not statistics.has_null_count:
            if metadata.row_group(number).num_rows:
                return None
            continue
        total += statistics.null_count
    return total


def _row_group(number: int, footer: Footer, kind: LedgerKind) -> RowGroup:
    def only(name: str) -> int | None:
        least, greatest = footer.numbers.get(name, ANYTHING)
        return int(least) if least == greatest else None

    spans: dict[str, tuple[int, int]] = {}
    for key, columns in CUT_KEYS[kind].items():
        found = [footer.numbers[name] for name in columns if name in footer.numbers]
        if len(found) == len(columns):
            spans[key] = int(found[0][0]), int(max(greatest for _, greatest in found))
    return RowGroup(
        number,
        footer.rows,
        footer.texts.get("topic"),
        only("partition"),
        only("phase") if kind == "consumed" else None,
        kind == "consumed" or footer.most("txn") >= 0,
        spans if len(spans) == len(CUT_KEYS[kind]) else {},
    )
