"""What can be explored beside Kafka's partitions, and how each small world of it is asked for in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ackproof_model.explore import World, named
from ackproof_model.words import counts_in_words, known
from ackproof_reference.explore.model import Model
from ackproof_reference.explore.protocol_worlds import (
    PacificaBounds,
    QuorumBounds,
    controllers,
    pacifica,
    quorum,
)
from ackproof_reference.explore.transactional import CLASSES as OF_TRANSACTIONS
from ackproof_reference.explore.transactional import Bounds as TransactionBounds
from ackproof_reference.explore.transactional import transactions
from ackproof_reference.pacifica import PacificaRules
from ackproof_reference.quorum import QuorumRules
from ackproof_reference.rules import Rules
from ackproof_reference.zookeeper import ZooKeeperRules


@dataclass(frozen=True)
class Protocol:
    """`counts`: by word the least, the most and the usual number of it. `make` takes what of its rules is off."""

    title: str
    protections: Mapping[str, str]
    """By name the field of its rules."""
    counts: Mapping[str, tuple[int, int, int]]
    classes: tuple[str, ...]
    make: Callable[[Mapping[str, bool], Mapping[str, int]], Model]

    def world(self, words: str, taken_away: Sequence[str]) -> World:
        """Raises `BadInput` for words that it does not know."""
        off = {
            self.protections[known("--without", "protection", name, self.protections)]: False
            for name in taken_away
        }
        counts = counts_in_words(words, self.counts)
        said = ",".join(f"{name}={count}" for name, count in counts.items())
        return World(named(self.title, taken_away), said, self.classes, self.make(off, counts))


def _quorum(off: Mapping[str, bool], counts: Mapping[str, int]) -> Model:
    bounds = QuorumBounds(counts["elections"], counts["crashes"], counts["entries"])
    return quorum(replace(QuorumRules(), **off), bounds, counts["servers"])


def _pacifica(off: Mapping[str, bool], counts: Mapping[str, int]) -> Model:
    bounds = PacificaBounds(counts["suspicions"], counts["entries"])
    return pacifica(replace(PacificaRules(), **off), bounds, counts["replicas"])


def _zookeeper(off: Mapping[str, bool], counts: Mapping[str, int]) -> Model:
    return controllers(
        replace(ZooKeeperRules(), **off), counts["brokers"], counts["expiries"], counts["decisions"]
    )


def _transactions(off: Mapping[str, bool], counts: Mapping[str, int]) -> Model:
    bounds = TransactionBounds(counts["moves"], counts["repeats"])
    return transactions(replace(Rules(), **off), counts["clients"], counts["transactions"], bounds)  # type: ignore[arg-type]


PROTOCOLS: Final[Mapping[str, Protocol]] = {
    "quorum": Protocol(
        "a majority quorum",
        {
            "votes for newer logs": "votes_for_newer_logs",
            "commits of the own epoch": "commits_own_epoch",
            "durable votes": "durable_votes",
            "durable log": "durable_log",
        },
        {"servers": (1, 5, 3), "elections": (0, 9, 2), "crashes": (0, 9, 1), "entries": (0, 4, 1)},
        ("lost", "conflict", "two leaders"),
        _quorum,
    ),
    "pacifica": Protocol(
        "PacificA",
        {"leases": "leases", "version check": "version_check", "reconciliation": "reconciliation"},
        {"replicas": (1, 5, 3), "suspicions": (0, 9, 1), "entries": (0, 4, 1)},
        ("lost", "conflict", "stale read"),
        _pacifica,
    ),
    "zookeeper": Protocol(
        "the race for the controller in ZooKeeper",
        {"epoch check": "epoch_check", "watch before reading": "watch_before_reading"},
        {"brokers": (1, 5, 3), "expiries": (0, 9, 1), "decisions": (0, 9, 2)},
        ("overwritten", "nobody"),
        _zookeeper,
    ),
    "transactions": Protocol(
        "the protocol of transactions",
        {
            "transaction verification": "verify_transactions",
            "epochs of their own": "bump_every_transaction",
            "strict markers": "strict_markers",
            "coordinator epochs": "coordinator_epochs",
        },
        {"clients": (1, 3, 1), "transactions": (1, 3, 2), "moves": (0, 3, 0), "repeats": (0, 3, 1)},
        OF_TRANSACTIONS,
        _transactions,
    ),
}
"""By what `--of` calls it."""
