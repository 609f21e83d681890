"""Why a bug that somebody could see was not found: a sentence for each, which the page shows."""

from __future__ import annotations

from typing import Final

WHY: Final[dict[str, str]] = {
    "alter-partition-not-validated": (
        "The rule took effect, and nothing in the run shows it; the cause is not known yet."
    ),
    "deposed-leader-goes-on": (
        "Its log moved until 36 s before the watch ended, and what has moved within 37 s is slow, not stuck."
    ),
    "isr-expanded-too-early": "The follower catches up before the next sample of its log.",
    "produce-purgatory-forgets": (
        "Nothing is acknowledged, and a run with 99 % of indeterminate attempts has too little evidence."
    ),
    "producer-id-block-given-twice": (
        "Producers that die keep no rate, and new ones keep the processors busy: the run counts as starved."
    ),
    "producer-id-given-twice": (
        "Producers that die keep no rate, and new ones keep the processors busy: the run counts as starved."
    ),
    "reassignment-completed-too-early": "The reassignment itself is not confirmed, so the fault did not take effect.",
}
