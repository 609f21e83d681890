"""The windows of a soak: `windows/<number>/`, one folder each.

`window.json` says what the window is, what was counted in it, and what became of its files; `findings.parquet` has its
findings, if there are any; `ledger/consumed/client=f0/` what the follower reader was handed, until it is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from ackproof.rundir.documents import Document
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.partition import TopicPartition

FOLLOWER = "f0"
"""The reader that reads a window back."""


class WindowRead(Document):
    """What was read of one partition: offsets from `start` up to `end`, which is behind the last."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class WindowTask(Document):
    """What the audit of a window is to look at. Paths are absolute.

    `chunk_rows`: seqs in a part of a producer; `stride`: every `stride`th of its seqs is of one partition. `last`: all
    clients have closed.
    """

    number: int
    last: bool = False
    from_ns: int
    to_ns: int
    read: tuple[WindowRead, ...]
    chunk_rows: int
    stride: int
    produced: dict[str, tuple[str, ...]]
    """New parts by the client's id."""
    producers: dict[str, int]
    """Numbers of all producers by their ids."""
    sent: dict[str, int]
    """How many attempts each had made when the window closed."""
    readers: tuple[int, ...] = ()
    """Numbers of the live readers that run."""
    consumed: tuple[str, ...]
    """New parts of live readers."""
    followed: tuple[str, ...]
    """Parts of the follower's read, or at the end of the final read."""
    state: str = ""
    """What the window before left to this one; of the first nothing."""
    left: tuple[str, ...] = ()
    """What could not be read and is left to the next window, and why."""
    reasons: tuple[str, ...] = ()
    """Why not all of it can be told."""


class WindowFile(Document):
    """`window.json`. Times are nanoseconds of the run's clock.

    `counts`: findings by class; `open`: attempts that are acknowledged behind what was read, `late`: live reads of
    offsets of earlier windows, which the end's audit alone looks at. `pinned`: chunks, by producer, of open attempts.
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
    """Identities (producer, seq) that a window before called lost, and that are there after all."""
    pinned: dict[int, tuple[int, ...]]
    left: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    """Parts of producers that were audited in it, `client=p0/part-000000.parquet`."""
    deleted: bool = False
    """It was found clean, and its parts of the ledgers and its records were deleted, or were about to be."""

    @property
    def complete(self) -> bool:
        """Whether all that belongs to it was looked at."""
        return not self.reasons


def window_dir(run: CaseDir, number: int) -> CaseDir:
    """The folder of a window: a run directory of its own, of which the follower's ledger is there."""
    return CaseDir(run.windows / f"{number:06d}")


def window_json(run: CaseDir, number: int) -> Path:
    """What a window came to."""
    return window_dir(run, number).path / "window.json"


def window_state(run: CaseDir, number: int) -> Path:
    """What it leaves to the next one, until that is audited."""
    return window_dir(run, number).path / "state"


def window_findings(run: CaseDir, number: int) -> Path:
    """Its findings (`schema.FINDINGS`); not there where nothing was found."""
    return window_dir(run, number).path / "findings.parquet"


def read_windows(run: CaseDir) -> Iterator[WindowFile]:
    """All windows of a run in their order. Raises `BadInput` for one that cannot be read."""
    for path in sorted(run.windows.glob("*/window.json")):
        yield WindowFile.load(path)
