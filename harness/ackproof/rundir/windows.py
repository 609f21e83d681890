"""The windows of a soak, one folder each: `windows/<number>/`.

`window.json`: times, offsets and counts of the window, and whether its files were deleted. `findings.parquet`: its
findings; missing if there are none. `ledger/consumed/client=f0/`: records that the follower read, until they are
deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from ackproof.rundir.document import Document
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.partition import TopicPartition

FOLLOWER = "f0"
"""Id of the follower: the reader that reads each window back."""


class WindowRead(Document):
    """Offsets of one partition that a window of a soak read back: `start` … `end - 1`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class WindowTask(Document):
    """Input for the audit of one window of a soak: new parts of the ledgers (Parquet files), and what was read back.
    Paths are absolute.

    `last`: all clients have closed. `produced`: new parts of the produced ledger, by client id. `consumed`: new parts
    of live readers. `followed`: parts of the follower, the reader that reads the window back; for the last window those
    of the final read. `producers`: numbers of all producers, by client id. `readers`: numbers of the live readers that
    run.

    `chunk_rows`: number of seqs in each part of a producer. `stride`: distance of a producer's seqs within one
    partition (round-robin). `sent`: number of attempts of each producer when the window closed, by client id; empty in
    the last window. `state`: file that the audit of the previous window wrote; '' for the first window. `left`:
    sentences on records that the window does not cover and the next one will. `reasons`: sentences on why the audit of
    the window is incomplete.
    """

    number: int
    last: bool = False
    from_ns: int
    to_ns: int
    read: tuple[WindowRead, ...]
    chunk_rows: int
    stride: int
    produced: dict[str, tuple[str, ...]]
    producers: dict[str, int]
    sent: dict[str, int]
    readers: tuple[int, ...] = ()
    consumed: tuple[str, ...]
    followed: tuple[str, ...]
    state: str = ""
    left: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


class WindowFile(Document):
    """`window.json`: result of the audit of one window of a soak. Times are ns since the run's start.

    `last`: it is the last window. `audited_ns`: time at which its audit ended; -1: not recorded. `counts`: findings by
    class, without zeros. `live`: new reads of live readers. `followed`: records that were read back. `open`:
    acknowledged attempts that the next window decides: their offsets were not read yet, or are unknown. `late`: live
    reads of offsets of earlier windows, which the audit at the end covers. `found_late`: (producer, seq) of records
    that an earlier window called lost and that exist after all. `pinned`: by producer, the numbers of its ledger parts
    that have open attempts or lost records, and so must be kept. `left`, `reasons`: as in `WindowTask`.
    """

    format: Literal[1] = 1
    number: int
    last: bool = False
    from_ns: int
    to_ns: int
    audited_ns: int = -1
    read: tuple[WindowRead, ...]
    counts: dict[str, int]
    produced: int
    acked: int
    failed: int
    indeterminate: int
    live: int
    followed: int
    open: int
    late: int
    found_late: tuple[tuple[int, int], ...] = ()
    pinned: dict[int, tuple[int, ...]]
    left: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    """Parts of producers that were audited in this window: `client=p0/part-000000.parquet`."""
    deleted: bool = False
    """True if its parts of the ledgers and its records were deleted or are about to be (`--keep`). It then had no
    findings, except of class `surfaced`."""


def window_dir(run: CaseDir, number: int) -> CaseDir:
    """Return the folder of a soak's window. It is laid out as a run directory, whose ledger has the records that the
    reader `FOLLOWER` read back."""
    return CaseDir(run.windows / f"{number:06d}")


def window_json(run: CaseDir, number: int) -> Path:
    """Return the path of a window's result (`WindowFile`), which its audit writes."""
    return window_dir(run, number).path / "window.json"


def window_state(run: CaseDir, number: int) -> Path:
    """Return the path of the state that the audit of this window leaves for the audit of the next one. The file exists
    until the next window is audited."""
    return window_dir(run, number).path / "state"


def window_findings(run: CaseDir, number: int) -> Path:
    """Return the path of a window's findings (`schema.FINDINGS`). The file is missing if nothing was found."""
    return window_dir(run, number).path / "findings.parquet"


def read_windows(run: CaseDir) -> Iterator[WindowFile]:
    """Yield the results of a soak's audited windows, in order. Raises `BadInput` for a result that cannot be read."""
    for path in sorted(run.windows.glob("*/window.json")):
        yield WindowFile.load(path)
