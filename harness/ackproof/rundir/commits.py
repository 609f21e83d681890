"""`clients/<reader>/commits.jsonl`: what a live reader with `commit_every` committed to its group. A line as an attempt
begins, and one as it ends.
"""

from __future__ import annotations

from pathlib import Path

from ackproof.rundir.documents import Document, read_lines


class Commit(Document):
    """An OffsetCommit of a reader, of `offsets` (topic, partition, offset).

    `done_ns`: when it was answered or given up, -1 not yet; then `error` is why it was not granted, '' it was.
    """

    begun_ns: int
    offsets: tuple[tuple[str, int, int], ...]
    done_ns: int = -1
    error: str = ""

    @property
    def good(self) -> bool:
        """Whether the group coordinator took it."""
        return self.done_ns >= 0 and not self.error


def read_commits(path: Path) -> list[Commit]:
    """All attempts in their order, each as far as it came; none without such a file. Raises as `read_lines`."""
    return list({one.begun_ns: one for one in read_lines(path, Commit)}.values())
