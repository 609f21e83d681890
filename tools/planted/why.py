"""Reasons why observable bugs are not found: by name of the bug a sentence, which the page shows."""

from __future__ import annotations

from typing import Final

WHY: Final[dict[str, str]] = {
    "producer-id-given-twice": (
        "Producers that die keep no rate, and new ones keep the processors busy: the run counts as starved."
    ),
}
