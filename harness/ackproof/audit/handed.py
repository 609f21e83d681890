"""What a bucket hands on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ackproof.ledgers.rows import Rows
from ackproof.rundir.partition import TopicPartition


@dataclass(frozen=True)
class Handed:
    """Rows that one bucket hands on, since it cannot judge alone of what they are about (`ackproof.audit.unmatched`).

    identities: those it produced, in order, and whether its final rows hold them intact; unmatched: final rows, each
    once, of identities that it did not produce (nobody's are not among them); transactions: what a range has of each.
    """

    place: TopicPartition
    about: Literal["identities", "unmatched", "transactions"]
    rows: Rows
