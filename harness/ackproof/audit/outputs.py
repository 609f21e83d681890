"""Where the tasks of one audit write, so that nobody writes a file of another.

Spark may run a task twice, even both at once, and two audits of one directory may meet: every attempt writes files of
its own, and only those count that the answer names which came back.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import uuid4

from ackproof.base.processes import here, left_behind, mark
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.storage import located, remove_empty, remove_tree

Unfinished = Literal["rows", "series"]
"""Rows put aside by bucket; series of each unit."""
_WORK, _PART, _SERIES = ".audit-", "part-", "series-"


@dataclass(frozen=True)
class Outputs:
    """Of one audit of one directory."""

    directory: str
    audit: str

    @classmethod
    def of(cls, directory: Path) -> Outputs:
        """Those of an audit that begins: no other has their names, also none of this process."""
        return cls(str(directory), f"{here()}-{mark()}-{uuid4().hex[:8]}")

    @property
    def case(self) -> CaseDir:
        return CaseDir(located(self.directory))

    @property
    def work(self) -> Path:
        """A folder for what is needed only until the audit ends."""
        return self.case.path / f"{_WORK}{self.audit}"

    def unfinished(self, kind: Unfinished, unit: str) -> Path:
        """A file in it, of one attempt of a task."""
        return self.work / kind / f"{unit}-{uuid4().hex[:8]}"

    def findings(self, unit: str) -> Path:
        """A file of findings, of one attempt of a task."""
        return self.case.findings / f"{_PART}{self.audit}-{unit}-{uuid4().hex[:8]}.parquet"

    @property
    def series(self) -> Path:
        """The file of all series."""
        return self.case.path / f"{_SERIES}{self.audit}.parquet"

    def begin(self) -> None:
        """Make the folders. Tasks make none in one that is gone: it must stay gone. Raises OSError.

        What audits left goes that were killed on this machine, but not what they had published.
        """
        self.leave()
        for left in left_behind(self.case.path, f"{_WORK}{here()}-"):
            remove_tree(left)
        files = [
            *left_behind(self.case.findings, f"{_PART}{here()}-"),
            *left_behind(self.case.path, f"{_SERIES}{here()}-"),
        ]
        # Asked only now: what an audit published that is dead, it had published by then.
        published = self.case.published
        for left in files:
            if left not in published:
                left.unlink(missing_ok=True)
        for folder in (self.work, self.work / "rows", self.work / "series"):
            folder.mkdir()
        self.case.findings.mkdir(exist_ok=True)

    def leave(self, published: Collection[str] = ()) -> None:
        """Remove what this audit wrote, but for files of these names. Raises OSError."""
        remove_tree(self.work)
        for path in (*self.case.findings.glob(f"{_PART}{self.audit}-*"), self.series):
            if path.name not in published:
                path.unlink(missing_ok=True)
        remove_empty(self.case.findings)
