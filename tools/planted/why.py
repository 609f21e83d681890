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
    "offset-index-points-too-far": (
        "The final reader is served less than the logs hold, which counts as a contradiction in the evidence."
    ),
    "produce-purgatory-forgets": (
        "The demand on the time without acknowledgements was not judged: the machine was starved in this run."
    ),
}
