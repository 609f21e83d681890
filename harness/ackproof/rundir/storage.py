"""Run directories on this machine or in an object store, named by a URI.

`locate` returns a `Path` for either. Paths in a store behave like other paths (pathlib); Arrow reads and writes
through `open_parquet`, `read_table`, `open_dataset` and `create_parquet`. Endpoint and region are in the URI's query,
in Arrow's syntax (`s3://bucket/runs?region=eu-west-1&endpoint_override=…`). Credentials come from the environment
(`AWS_ACCESS_KEY_ID`, `GOOGLE_APPLICATION_CREDENTIALS`, …) or the libraries' own files, never from a URI, because URIs
are printed.

A store has no atomic rename and no lock: a result is published by one file that is written last.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import stat
from collections.abc import Generator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from ackproof.base.errors import BadInput

if TYPE_CHECKING:  # Arrow takes a second to import, and most commands do not need it
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    import pyarrow.fs as pafs
    import pyarrow.parquet as pq

SCHEMES: Final = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")


def locate(where: str | os.PathLike[str]) -> Path:
    """Return the path of a file or folder, given its local name or a URI (`file:`, or of an object store). Raises
    `BadInput` for a URI that cannot be used."""
    if isinstance(where, Path):
        return where
    text = os.fspath(where)
    scheme = _URI.match(text)
    if scheme is None:
        return Path(text)
    if scheme[1] == "file":
        return Path(unquote(urlsplit(text).path))
    if scheme[1] not in SCHEMES:
        raise BadInput(f"{scheme[1]}:// is not a supported store; use file, {', '.join(SCHEMES)}")
    address, _, query = text[scheme.end() :].partition("?")
    root, _, key = address.partition("/")
    if ":" in root.rpartition("@")[0]:
        raise BadInput(
            f"{scheme[1]}://…@{root.rpartition('@')[2]}: give credentials in the environment; URIs are printed"
        )
    if not root and scheme[1] not in ("hdfs", "viewfs"):
        raise BadInput(f"{text}: has no {'container' if scheme[1].startswith('abfs') else 'bucket'}")
    return Stored(f"{scheme[1]}:", f"{root}?{query.replace('/', '%2F')}", key)


def is_stored(path: Path) -> bool:
    """Return True for a path in an object store."""
    return isinstance(path, Stored)


class Stored(PosixPath):
    """A file or folder in an object store, with the parts `("s3:", "bucket?query", "key", …)`.

    Operations that a store lacks (links, modes, appending) raise TypeError or `io.UnsupportedOperation`. `__fspath__`
    raises, so that pathlib never reaches a local file by mistake.
    """

    __slots__ = ()

    def __str__(self) -> str:
        if len(self.parts) < 2 or not self.parts[0].endswith(":"):
            return "/".join(self.parts) or "."  # a path relative to another
        root, _, query = self.parts[1].partition("?")
        return f"{self.parts[0]}//{'/'.join((root, *self.parts[2:]))}{query and '?' + query}"

    def __fspath__(self) -> str:
        raise TypeError(f"{self} is not on this machine")

    @property
    def location(self) -> tuple[pafs.FileSystem, str]:
        """Arrow's file system and the path in it. Raises `BadInput` if Arrow cannot use the URI, OSError if the store
        cannot be reached."""
        filesystem, root = _open_store(self.parts[0], self.parts[1])
        return filesystem, "/".join((root, *self.parts[2:]))

    def _info(self) -> pafs.FileInfo:
        filesystem, key = self.location
        return filesystem.get_file_info(key)

    def _there(self) -> pafs.FileInfo:
        found = self._info()
        if not (found.is_file or found.type.name == "Directory"):
            raise FileNotFoundError(2, "No such file or directory", str(self))
        return found

    def absolute(self) -> Stored:
        return self

    def resolve(self, strict: bool = False) -> Stored:
        if strict:
            self._there()
        return self

    def is_absolute(self) -> bool:
        return True

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        return bool(self._info().type.name != "NotFound")

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return bool(self._info().type.name == "Directory")

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return bool(self._info().is_file)

    def is_symlink(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        found = self._there()
        mode, size = (stat.S_IFREG, found.size) if found.is_file else (stat.S_IFDIR, 0)
        changed = found.mtime_ns // 1_000_000_000 if found.mtime_ns else 0
        return os.stat_result((mode, 0, 0, 1, 0, 0, size, changed, changed, changed))

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any:  # noqa: ANN401 - pathlib's own has eight overloads
        """Open the file for reading, or for replacing its content. Other modes raise
        `io.UnsupportedOperation`.
        """
        filesystem, key = self.location
        if set(mode) <= set("rbt"):
            raw: io.BufferedIOBase = io.BufferedReader(filesystem.open_input_file(key), 1 << 20)
        elif set(mode) <= set("wbt"):
            raw = io.BufferedWriter(filesystem.open_output_stream(key), 1 << 20)
        else:
            raise io.UnsupportedOperation(f"{self}: a store has no mode {mode!r}")
        return raw if "b" in mode else io.TextIOWrapper(raw, encoding, errors, newline)

    def _listed(self, *, deep: bool = False) -> list[tuple[str, ...]]:
        """Return the entries of the folder (`deep`: of all folders below it, too), sorted. Each has the components of
        its relative path. Raises OSError if the folder is missing, or if the store cannot be reached."""
        import pyarrow.fs as pafs

        filesystem, key = self.location
        found = filesystem.get_file_info(pafs.FileSelector(key, recursive=deep))
        return sorted(tuple(entry.path[len(key) :].strip("/").split("/")) for entry in found)

    def iterdir(self) -> Generator[Stored, None, None]:
        for names in self._listed():
            yield self.joinpath(*names)

    def glob(self, pattern: str, **_: object) -> Generator[Stored, None, None]:
        """Yield matches as pathlib does, except that `**` works as the first component only. A missing folder yields
        nothing."""
        wanted = pattern.split("/")
        deep = wanted[0] == "**"
        wanted = wanted[1:] if deep else wanted
        try:
            listed = self._listed(deep=deep or len(wanted) > 1)
        except FileNotFoundError:
            return
        for names in listed:
            tail = names[-len(wanted) :]
            as_deep = len(names) >= len(wanted) if deep else len(names) == len(wanted)
            if as_deep and all(map(fnmatchcase, tail, wanted)):
                yield self.joinpath(*names)

    def rglob(self, pattern: str, **_: object) -> Generator[Stored, None, None]:
        yield from self.glob(f"**/{pattern}")

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        if not exist_ok and self.exists():
            raise FileExistsError(17, "File exists", str(self))
        filesystem, key = self.location
        filesystem.create_dir(key)

    def unlink(self, missing_ok: bool = False) -> None:
        filesystem, key = self.location
        if missing_ok and not self.exists():
            return
        filesystem.delete_file(key)

    def replace(self, target: str | os.PathLike[str]) -> Stored:
        """Move the file to `target`, a path in the same store, by a copy and a deletion: for a moment both may exist.
        Return the path `target`. Raises TypeError if `target` is in no store."""
        filesystem, key = self.location
        there = locate(target)
        if not isinstance(there, Stored):
            raise TypeError(f"{there} is not in a store")
        filesystem.move(key, there.location[1])
        return there


@lru_cache
def _open_store(scheme: str, address: str) -> tuple[pafs.FileSystem, str]:
    import pyarrow as pa
    import pyarrow.fs as pafs

    root, _, query = address.partition("?")
    if scheme == "s3:" and "allow_delayed_open" not in query:
        query += "&allow_delayed_open=true"  # so that a small file takes one request instead of three
    uri = f"{scheme}//{root}/{query and '?' + query}"
    try:
        filesystem, path = pafs.FileSystem.from_uri(uri)
    except (pa.ArrowException, ValueError) as error:
        raise BadInput(f"{uri}: {str(error).splitlines()[0]}") from error
    return filesystem, path.rstrip("/")


def remove_tree(path: Path) -> None:
    """Remove a folder and its content; do nothing if it is missing. Local entries that cannot be removed are left;
    in a store they raise OSError."""
    if not isinstance(path, Stored):
        shutil.rmtree(path, ignore_errors=True)
        return
    filesystem, key = path.location
    if path.is_dir():
        filesystem.delete_dir(key)


def remove_empty(folder: Path) -> None:
    """Remove a folder if it is empty; one that is not empty or is missing is no error. On the local file system this is
    atomic."""
    if not isinstance(folder, Stored):
        with suppress(OSError):  # not empty, or missing
            folder.rmdir()
    elif folder.is_dir() and not any(folder.iterdir()):
        remove_tree(folder)


def rename_unless_taken(path: Path, name: str) -> Path:
    """Rename a file unless the new name is taken. Return the file's path, new or old.

    The file also keeps its name if the local file system has no hard links. A local rename never replaces another file.
    In a store, another writer can take the name between the check and the rename.
    """
    other = path.with_name(name)
    if isinstance(path, Stored):
        return path if other.exists() else path.replace(other)
    try:
        os.link(path, other)
    except OSError:  # the name is taken, or this file system has no links
        return path
    path.unlink()
    return other


def _address(path: str | Path) -> tuple[str, pafs.FileSystem | None]:
    found = locate(path)
    if isinstance(found, Stored):
        filesystem, key = found.location
        return key, filesystem
    return str(found), None


def open_parquet(path: str | Path, **options: object) -> pq.ParquetFile:
    """Return a Parquet file, opened with the options of `pyarrow.parquet.ParquetFile`; in a store always with
    `pre_buffer`. Raises OSError or ArrowException if it cannot be read."""
    import pyarrow.parquet as pq

    name, filesystem = _address(path)
    if filesystem is not None:
        options["pre_buffer"] = True  # else each page would take one round trip to the store
    return pq.ParquetFile(name, filesystem=filesystem, **options)


def read_table(path: str | Path, columns: Sequence[str] | None = None, **options: object) -> pa.Table:
    """Return the content of a Parquet file, without partition columns from folder names. `columns`: names of the
    columns to read; None: all. Raises OSError or ArrowException if it cannot be read."""
    import pyarrow.parquet as pq

    name, filesystem = _address(path)
    return pq.read_table(name, columns=columns, filesystem=filesystem, partitioning=None, **options)


def open_dataset(paths: Sequence[str | Path], schema: pa.Schema | None = None) -> ds.Dataset:
    """Return Parquet files of one file system, opened as one data set. `schema` None: the schema of the first file.
    Raises OSError or ArrowException if one cannot be read."""
    # Imported here because it imports pandas, which takes half the time of an `ackproof validate`.
    import pyarrow.dataset as ds

    sources = [_address(path) for path in paths]
    return ds.dataset(
        [name for name, _ in sources],
        filesystem=sources[0][1] if sources else None,
        format="parquet",
        schema=schema,
    )


def read_rows(
    paths: Sequence[str | Path],
    columns: Sequence[str],
    wanted: pc.Expression | None = None,
    schema: pa.Schema | None = None,
) -> pa.Table:
    """Return these columns of the rows of Parquet files that match `wanted` (None: all rows). `schema` None: the schema
    of the first file. Raises OSError or ArrowException if one cannot be read."""
    return open_dataset(paths, schema).to_table(columns=list(columns), filter=wanted)


def create_parquet(path: str | Path, schema: pa.Schema, **options: object) -> pq.ParquetWriter:
    """Create a Parquet file with zstd compression and return its writer. `options`: further options of
    `pyarrow.parquet.ParquetWriter`. Raises OSError if it cannot be created."""
    import pyarrow.parquet as pq

    name, filesystem = _address(path)
    return pq.ParquetWriter(name, schema, filesystem=filesystem, compression="zstd", **options)
