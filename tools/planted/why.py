"""Why a bug that somebody could see was not found: a sentence for each, which the page shows."""

from __future__ import annotations

from typing import Final

WHY: Final[dict[str, str]] = {
    "batch-corrupted-on-followers": (
        "A broken checksum in a replica's log counts as missing evidence: a disk can break it as well as Kafka."
    ),
    "broker-never-fenced": (
        "The demand on the time without acknowledgements was not judged: the machine was starved in this run."
    ),
    "deposed-leader-goes-on": (
        "Nothing is called stuck on a starved machine, and the bug itself makes acknowledgements late."
    ),
    "follower-starts-at-zero": (
        "The leader never answered again, so the final read had no end and nothing was called stuck."
    ),
    "isr-expanded-too-early": ("The follower catches up within 50 ms, between two samples."),
    "isr-never-grows": ("Nothing is called stuck on a starved machine: the acknowledgements took 1.7 s."),
    "newest-of-a-key-compacted": (
        "A final reader that lacks what a live reader got counts as a contradiction in the evidence."
    ),
    "offset-index-points-too-far": (
        "The final reader is served less than the logs hold, which counts as a contradiction in the evidence."
    ),
    "produce-purgatory-forgets": (
        "The demand on the time without acknowledgements was not judged: the machine was starved in this run."
    ),
    "producer-id-block-given-twice": (
        "The demand on errors was not judged: the machine was starved in this run."
    ),
    "producer-id-given-twice": ("The demand on errors was not judged: the machine was starved in this run."),
    "throttled-without-quota": (
        "The demand on the time without acknowledgements was not judged: the machine was starved in this run."
    ),
}
