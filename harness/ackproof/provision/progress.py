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


ProgressSink = Callable[[Progress], None]
"""Who listens. Called on the thread that provisions; what it raises ends the step."""


def ignore(event: Progress) -> None:
    """Listen to nothing."""
