"""Progress and failure of a long step of provisioning. The console shows them; this package prints nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ackproof.base.errors import AckproofError


@dataclass(frozen=True)
class Progress:
    """A step of provisioning. `done` of `total` units (bytes, files, …) are finished; `total` 0:
    unknown."""

    message: str
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        """Return the message with the percentage that is done, rounded down to 25, 50, 75 or 100; below 25 %,
        return the message alone."""
        quarters = 4 * self.done // self.total if self.total else 0
        return f"{self.message}, {25 * quarters} %" if quarters else self.message


ProgressSink = Callable[[Progress], None]
"""Receiver of progress. It runs on the thread that provisions; an exception from it ends the step."""


def in_words(say: Callable[[str], None]) -> ProgressSink:
    """Return a receiver of progress that passes the text of each step to `say`, unless it equals the previous text. The
    text changes with every 25 % (`Progress.__str__`)."""
    last = ""

    def report(progress: Progress) -> None:
        nonlocal last
        if str(progress) != last:
            last = str(progress)
            say(last)

    return report


def ignore(event: Progress) -> None:
    """Receive a progress event and do nothing, for callers that show no progress."""


class ProvisionFailed(AckproofError):
    """Something that a run needs could not be provided: a failed download, a wrong checksum, a class-data archive."""
