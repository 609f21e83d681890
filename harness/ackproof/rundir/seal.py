"""`seal.json`: digests of the files that a run had written when it ended. The judge compares the files with them first.

The seal covers the inputs of a verdict: `case.json`, the timeline, the ledgers, observations, and the windows of a
soak. It does not cover derived files (audit, replay, prediction): they name the digests of their inputs, or are
computed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from ackproof.base.errors import UnreadableFile
from ackproof.rundir import storage
from ackproof.rundir.document import Document
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.parts import digest


class SealedFile(Document):
    """Size and digest of a file at the end of the run. `rows`: lines of a .jsonl or rows of a .parquet file; -1 for
    other files."""

    bytes: int
    rows: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.rows:,} rows" if self.rows >= 0 else f"{self.bytes:,} bytes"


class SealFile(Document):
    """Content of `seal.json`. `files`: path in the run directory → size and digest of the file when the run ended."""

    format: Literal[1] = 1
    run_id: str
    files: dict[str, SealedFile]


def seal(run: CaseDir, run_id: str) -> None:
    """Write `seal.json`: size, number of rows and SHA-256 of each input of the verdict, by which `find_changes` later
    detects changes. Call it when no process writes to the run directory any more. Raises OSError, and ArrowException
    for a broken Parquet file."""
    files = {
        str(path.relative_to(run.path)): SealedFile(
            bytes=path.stat().st_size, rows=_rows(path), sha256=digest(path)
        )
        for path in _sealed_paths(run)
    }
    SealFile(run_id=run_id, files=files).save(run.seal)


def find_changes(run: CaseDir) -> tuple[str, ...]:
    """Return every difference between the run's files and its seal, one sentence each; empty without any.

    A difference is a changed, missing, unreadable or new file. If the seal cannot be read or is of another run, that is
    the difference, and no files are compared. A missing seal is a difference if `case.json` says that the run has one;
    otherwise, as in runs of older versions, the result is empty."""
    case, why = _case(run)
    if not run.seal.exists():
        unsealed = case is not None and case.sealed
        return (
            "seal.json: missing: the harness stopped before the run ended, or the file was removed",
        ) * unsealed
    try:
        sealed = SealFile.load(run.seal)
    except UnreadableFile as error:
        return (f"seal.json: {error.why}", *why)
    if case is not None and case.run_id != sealed.run_id:
        return (f"seal.json: of run {sealed.run_id}, and case.json of run {case.run_id}",)
    return tuple(dict.fromkeys([*_compare_files(run, sealed), *why]))


def _case(run: CaseDir) -> tuple[CaseFile | None, list[str]]:
    try:
        return CaseFile.load(run.case_json), []
    except UnreadableFile as error:
        return None, [f"case.json: {error.why}"]


def _compare_files(run: CaseDir, sealed: SealFile) -> Iterator[str]:
    here = {str(path.relative_to(run.path)): path for path in _sealed_paths(run)}
    by_digest = {written.sha256: name for name, written in sealed.files.items()}
    for name, written in sealed.files.items():
        if name not in here:
            yield f"{name}: missing; the run wrote {written}"
    for name, path in here.items():
        try:
            yield from _changes_of(name, path, sealed.files.get(name), by_digest)
        except OSError as error:
            yield f"{name}: cannot be read: {error.strerror}"


def _changes_of(name: str, path: Path, then: SealedFile | None, by_digest: dict[str, str]) -> Iterator[str]:
    size, sha256 = path.stat().st_size, digest(path)
    if then is not None and (size, sha256) == (then.bytes, then.sha256):
        return
    same = by_digest.get(sha256)
    is_same = "" if same is None else f"; it is {same}"
    if then is None:
        yield f"{name}: did not exist when the run ended{is_same}"
    elif size < then.bytes:
        yield f"{name}: {size:,} bytes of {then.bytes:,} that were written ({then})"
    else:
        yield f"{name}: not what the run wrote ({then}){is_same}"


def _sealed_paths(run: CaseDir) -> list[Path]:
    """Return the files that the seal covers, sorted: `case.json`, the timeline, and all files of ledger, observations
    and windows. Temporary files of a killed writer are left out."""
    found = [path for path in (run.case_json, run.timeline) if path.exists()]
    for folder in (run.ledger, run.observed, run.windows):
        found += [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return sorted(found)


def _rows(path: Path) -> int:
    if path.suffix == ".jsonl":
        with path.open("rb") as file:
            return sum(1 for _ in file)
    if path.suffix != ".parquet":
        return -1
    with storage.open_parquet(path) as file:
        return int(file.metadata.num_rows)
