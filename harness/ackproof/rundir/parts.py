"""Descriptions of the parts of a ledger: `_END` and `_DELETED` in a client's folder, and Parquet footers.

`_END` says that the client closed, and lists its parts: `{"parts": [{"name", "rows", "first", "last", "bytes",
"sha256"}, …]}`. `first` and `last` are the least and greatest seq of a produced part, or read_seq of a consumed part;
-1 if a part has neither. An empty `_END`, which other tools may write, lists nothing. `_DELETED` lists parts that were
deleted during the run. Data sets (Arrow, Spark) skip names that begin with an underscore. Earlier versions wrote `END`,
which is still read.

The files are plain JSON, parsed without pydantic, which would cost each Spark worker 0.1 s.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ackproof.rundir import storage

if TYPE_CHECKING:
    import pyarrow.parquet as pq


END: Final = "_END"
ENDS: Final = (END, "END")
"""Names of the file that closes a client's folder. Both are read; the first is written."""
DELETED: Final = "_DELETED"
"""Name of the file in a client's folder that lists the parts deleted during the run. Each line is a JSON object with
the fields of `PartEnd`."""
ORDER: Final = ("read_seq", "seq", "txn")
"""Columns that number the rows of a ledger. The first one that a part has counts, because a consumed part
also has the producers' seq.
"""


class ClientLibrary(NamedTuple):
    """The client library that sent or read the rows of a part. The part's Parquet footer holds these fields."""

    name: str
    """Name of the library, such as `librdkafka`; `ackproof_simulator` for simulated runs."""
    version: str

    def metadata(self) -> dict[str, str]:
        """Return the pairs that name this library in a part's Parquet footer."""
        return {_LIBRARY: self.name, _LIBRARY_VERSION: self.version}

    @classmethod
    def read(cls, metadata: pq.FileMetaData) -> ClientLibrary | None:
        """Return the library that a footer names; None for parts of earlier versions or of other tools."""
        pairs = metadata.metadata or {}
        name, version = pairs.get(_LIBRARY.encode()), pairs.get(_LIBRARY_VERSION.encode())
        return None if name is None or version is None else cls(name.decode(), version.decode())


_LIBRARY: Final = "ackproof.client_library"
_LIBRARY_VERSION: Final = "ackproof.client_library_version"
SHARE: Final = 1 << 40
"""Processes that share a final read number their reads from 0, `SHARE`, 2 * `SHARE`, …"""


class PartEnd(NamedTuple):
    """One part of a ledger, as a client's `_END` (the parts that it had when it closed) or `_DELETED` lists it.

    `first`, `last`: least and greatest row number (`numbers_of_part`); -1 if the part has no rows or no such number.
    `bytes`, `sha256`: size and SHA-256 of the file.
    """

    name: str
    rows: int
    first: int
    last: int
    bytes: int
    sha256: str

    @classmethod
    def parse(cls, fields: Mapping[str, object]) -> PartEnd:
        """Return the part that a JSON object of `_END` describes. Raises TypeError if a field is missing, unknown or of
        another type."""
        part = cls(**fields)  # type: ignore[arg-type]
        for name, value in part._asdict().items():
            if type(value) is not (str if name in ("name", "sha256") else int):
                raise TypeError(f"{name} is {value!r}")
        return part

    def __str__(self) -> str:
        return f"{self.name} ({self.rows:,} rows, {self.first:,} to {self.last:,})"


def part_number(path: Path | str) -> int:
    """Return the number N of a part named `part-N.parquet`. Raises ValueError for a name without a number."""
    return int(Path(path).stem.rpartition("-")[2])


def mark_deleted(folder: Path, path: Path) -> None:
    """Add the part `path` to `_DELETED` in `folder`, then delete it. Raises OSError, and ArrowException if it is no
    Parquet file."""
    with (folder / DELETED).open("a", encoding="ascii") as file:
        file.write(json.dumps(_describe_part(path)._asdict()) + "\n")
    path.unlink()


def deleted_parts(folder: Path) -> tuple[PartEnd, ...]:
    """Return the parts of a client that were deleted during the run (`ackproof run --keep`); empty if none were. Raises
    `NotAnEnd` if `_DELETED` cannot be read."""
    path = folder / DELETED
    if not path.exists():
        return ()
    try:
        lines = path.read_text(encoding="ascii").splitlines()
        return tuple(PartEnd.parse(json.loads(line)) for line in lines)
    except (OSError, ValueError, TypeError) as error:
        raise NotAnEnd(f"{DELETED}: cannot be parsed") from error


class NotAnEnd(Exception):
    """Raised if `_END` or `_DELETED` cannot be read. The text names the file and the reason."""


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hex. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def numbers_of_part(metadata: pq.FileMetaData) -> tuple[int, int]:
    """Return the least and greatest value of a part's first column of `ORDER`, from its footer; (-1, -1) without such a
    column, rows or statistics."""
    there = {metadata.schema.column(at).path for at in range(metadata.num_columns)}
    column = next((name for name in ORDER if name in there), None)
    return (column_span(Footer.read_all(metadata), column) if column is not None else None) or (-1, -1)


def mark_end(folder: Path) -> None:
    """Write `_END`, which lists the folder's parts and shows that the client closed. Creates the folder if it is
    missing. Raises OSError, and ArrowException for a broken part."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for path in sorted(folder.glob("part-*.parquet")):
        with suppress(FileNotFoundError):  # deleted just now, and listed in `_DELETED`
            parts.append(_describe_part(path)._asdict())
    temporary = folder / f".{END}.tmp"
    temporary.write_text(json.dumps({"parts": parts}, indent=1) + "\n", encoding="ascii")
    temporary.replace(folder / END)


def _describe_part(path: Path) -> PartEnd:
    with storage.open_parquet(path) as file:
        metadata = file.metadata
    return PartEnd(
        path.name, metadata.num_rows, *numbers_of_part(metadata), path.stat().st_size, digest(path)
    )


def has_end(folder: Path) -> bool:
    """Return True if the folder has an `_END` (or `END`, of earlier versions), which shows that the client closed."""
    return _end_file(folder).exists()


def _end_file(folder: Path) -> Path:
    """Return the path of `_END`, or of `END` if only that exists. Neither need exist."""
    return next((folder / name for name in ENDS if (folder / name).exists()), folder / END)


def read_end(folder: Path) -> tuple[PartEnd, ...] | None:
    """Return the parts that a client's `_END` lists; None if the file is missing or empty. Raises `NotAnEnd` if it
    cannot be read or parsed."""
    try:
        text = _end_file(folder).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise NotAnEnd(f"{_end_file(folder).name}: cannot be read ({error})") from error
    if not text.strip():
        return None
    try:
        return tuple(PartEnd.parse(part) for part in json.loads(text)["parts"])
    except (ValueError, TypeError, KeyError) as error:
        raise NotAnEnd(f"{_end_file(folder).name}: cannot be parsed") from error


Span: TypeAlias = tuple[float, float]
"""Least and greatest value of a column of integers; -inf and inf if they are unknown (`ANYTHING`)."""
ANYTHING: Span = (float("-inf"), float("inf"))


@dataclass(frozen=True)
class Footer:
    """Statistics of one row group of a part. A column without statistics may hold any value."""

    rows: int
    numbers: Mapping[str, Span]
    """Least and greatest value of each column of integers or bools (0 and 1), by column."""
    texts: Mapping[str, str]
    """The value of each text column that has one value in all rows, by column."""

    @classmethod
    def read(cls, metadata: pq.FileMetaData, group: int) -> Footer:
        """Return the statistics of row group number `group` (from 0) of a part."""
        found = metadata.row_group(group)
        numbers: dict[str, Span] = {}
        texts: dict[str, str] = {}
        for leaf in range(metadata.num_columns):
            statistics = found.column(leaf).statistics
            if statistics is None or not statistics.has_min_max:
                continue
            name = metadata.schema.column(leaf).path
            if isinstance(statistics.min, int):
                numbers[name] = int(statistics.min), int(statistics.max)
            elif isinstance(statistics.min, str) and statistics.min == statistics.max:
                texts[name] = statistics.min
        return cls(found.num_rows, numbers, texts)

    @classmethod
    def read_all(cls, metadata: pq.FileMetaData) -> list[Footer]:
        return [cls.read(metadata, group) for group in range(metadata.num_row_groups)]

    def least(self, column: str) -> float:
        """Return a lower bound of the column's values; -inf if unknown."""
        return self.numbers.get(column, ANYTHING)[0]

    def most(self, column: str) -> float:
        """Return an upper bound of the column's values; inf if unknown."""
        return self.numbers.get(column, ANYTHING)[1]

    def may_be(self, column: str, value: int) -> bool:
        return self.least(column) <= value <= self.most(column)

    def is_all(self, column: str, value: int) -> bool:
        return self.numbers.get(column) == (value, value)


def column_span(footers: Sequence[Footer], name: str) -> tuple[int, int] | None:
    """Return the least and greatest value of a column over a part's row groups; None without rows or if a row
    group has no statistics.
    """
    spans = [footer.numbers[name] for footer in footers if name in footer.numbers]
    if not spans or len(spans) < len(footers):
        return None
    return int(min(first for first, _ in spans)), int(max(last for _, last in spans))
