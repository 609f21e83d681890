"""What a long step tells while it goes on. The console shows it; this room prints nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Stage = Literal["wait", "download", "verify", "archive", "format", "check", "image"]


@dataclass(frozen=True)
class Progress:
    """One step forward. `done` of `total` in the stage's own units; `total` 0 if it is not known."""

    stage: Stage
    message: str
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        """The message, and how far it is in quarters."""
        quarters = 4 * self.done // self.total if self.total else 0
        return f"{self.message}, {25 * quarters} %" if quarters else self.message


ProgressSink = Callable[[Progress], None]
"""Who listens. Called on the thread that provisions; what it raises ends the step."""


def in_words(say: Callable[[str], None]) -> ProgressSink:
    """Says each step once, and how far it is when that has changed by a quarter."""
    said = ""

    def tell(progress: Progress) -> None:
        nonlocal said
        if str(progress) != said:
            said = str(progress)
            say(said)

    return tell


def ignore(event: Progress) -> None:
    """Listen to nothing."""
