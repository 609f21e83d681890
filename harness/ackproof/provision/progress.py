"""Progress and failure of a long step of provisioning. The console shows it; this room prints nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ackproof.base.errors import AckproofError

Stage = Literal["wait", "download", "verify", "archive", "format", "check", "image"]


@dataclass(frozen=True)
class Progress:
    """One step forward. `done` of `total` in the stage's own units; `total` 0 if it is not known."""

    stage: Stage
    message: str
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        """Return the message, with the share that is done in steps of 25 %."""
        quarters = 4 * self.done // self.total if self.total else 0
        return f"{self.message}, {25 * quarters} %" if quarters else self.message


ProgressSink = Callable[[Progress], None]
"""A listener, called on the thread that provisions; an exception from it ends the step."""


def in_words(say: Callable[[str], None]) -> ProgressSink:
    """Return a sink that passes each step to `say` once, and again for each further 25 %."""
    last = ""

    def report(progress: Progress) -> None:
        nonlocal last
        if str(progress) != last:
            last = str(progress)
            say(last)

    return report


def ignore(event: Progress) -> None:
    """Drop the event."""


class ProvisionFailed(AckproofError):
    """Something that a run needs could not be provided: a failed download, a wrong checksum, a class-data archive."""
