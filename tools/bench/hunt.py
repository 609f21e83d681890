"""Searches scopes under the newest release's rules with all protections on, and reports which invariants break.

    python tools/bench/hunt.py [--most 12000000] [part of a theme's name]

Prints a Markdown row per scope as soon as its search ends: the number of states, and whether all were visited. The row
also has each class that was found, with the length of its shortest counterexample. `as Kafka does`: leaders do not
notice skipped epochs (docs/found.md). The counterexamples can be forced by `ackproof explore --force` with the same
scope, if its options can express the scope. Transactions have a model of their own (`explore --of transactions`), with
the protocol of the Java client and with that of librdkafka."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ackproof_reference.explore.model import Model
from ackproof_reference.explore.scope import NOTHING, Budget, Scope
from ackproof_reference.explore.search import Search
from ackproof_reference.explore.transactional import Bounds, transactions
from ackproof_reference.explore.world import world
from ackproof_reference.rules import Rules, without

ONE, TWO = Rules(min_insync=1), Rules(min_insync=2)
_CUT_LOSS_KILL: Final = Budget(cuts=1, power_losses=1, kills=1)


def _moving(target: tuple[int, ...], budget: Budget, *more: tuple[int, ...]) -> Scope:
    """Return a scope with replicas on brokers 1 and 2 that are reassigned to `target` (or to one of `more`)."""
    return Scope(TWO, assigned=(1, 2), targets=(target, *more), settled=True, budget=budget)


SCOPES: Final = {
    "two cuts": [
        Scope(TWO, settled=True, budget=Budget(cuts=2)),
        Scope(TWO, settled=True, budget=Budget(cuts=2, shrinks=1)),
        Scope(TWO, settled=True, budget=Budget(cuts=1, kills=1)),
        Scope(ONE, settled=True, budget=Budget(cuts=2)),
    ],
    "reassignment under AlterPartition": [
        _moving((2, 3), Budget(reassignments=1, shrinks=1, cuts=1)),
        _moving((2, 3), Budget(reassignments=1, shrinks=1, kills=1)),
        _moving((2, 3), Budget(reassignments=1, power_losses=1, cuts=1)),
        _moving((2, 3), Budget(reassignments=1, hand_overs=2, shrinks=1)),
        _moving((3,), Budget(reassignments=1, shrinks=1, cuts=1)),
        _moving((3, 2), Budget(reassignments=2, shrinks=1, cuts=1), (2, 1)),
        _moving((3, 2), Budget(reassignments=2, hand_overs=1, kills=1), (1, 2)),
    ],
    "ELR and unclean shutdowns": [
        Scope(TWO, brokers=2, settled=True, budget=_CUT_LOSS_KILL),
        Scope(TWO, brokers=2, settled=True, budget=Budget(power_losses=1, cuts=2, shrinks=1)),
        Scope(TWO, settled=True, budget=Budget(power_losses=1, cuts=1)),
        Scope(TWO, settled=True, budget=Budget(power_losses=1, clean_stops=2)),
        Scope(TWO, settled=True, budget=Budget(power_losses=1, shrinks=1, unclean=1)),
    ],
    "old checkpoints of the high watermark": [
        Scope(replace(TWO, checkpointed_at_once=False), brokers=2, settled=True, budget=Budget(kills=2)),
        Scope(
            replace(TWO, checkpointed_at_once=False),
            brokers=2,
            records=2,
            settled=True,
            budget=Budget(kills=1, shrinks=1),
        ),
        Scope(replace(TWO, checkpointed_at_once=False), settled=True, budget=Budget(kills=1, cuts=1)),
        Scope(
            replace(ONE, checkpointed_at_once=False),
            brokers=2,
            settled=True,
            budget=Budget(kills=2, hand_overs=1),
        ),
    ],
    "idempotent retries over elections": [
        Scope(TWO, brokers=2, idempotent=True, settled=True, budget=Budget(retries=2, hand_overs=2)),
        Scope(TWO, brokers=2, idempotent=True, settled=True, budget=Budget(retries=2, kills=2)),
        Scope(TWO, idempotent=True, settled=True, budget=Budget(retries=1, hand_overs=1, cuts=1)),
    ],
    "controllers that fail half way": [
        Scope(TWO, settled=True, budget=Budget(failovers=1, kills=2)),
        Scope(TWO, settled=True, budget=Budget(failovers=1, kills=1, cuts=1)),
        Scope(TWO, settled=True, budget=Budget(failovers=2, cuts=1, shrinks=1)),
        Scope(TWO, settled=True, budget=Budget(failovers=2, clean_stops=1, shrinks=1)),
        Scope(TWO, settled=True, budget=Budget(failovers=1, clean_stops=1, kills=1)),
        Scope(TWO, brokers=2, settled=True, budget=Budget(failovers=2, power_losses=1, cuts=1)),
        Scope(ONE, settled=True, budget=Budget(failovers=1, kills=1, hand_overs=1)),
    ],
    "as Kafka does": [
        Scope(without(TWO, "noticed epochs"), brokers=2, settled=True, budget=Budget(hand_overs=3)),
        Scope(without(TWO, "noticed epochs"), settled=True, budget=Budget(kills=1, cuts=1)),
        Scope(without(TWO, "noticed epochs"), settled=True, budget=Budget(cuts=2)),
        Scope(
            without(TWO, "noticed epochs"),
            brokers=2,
            idempotent=True,
            settled=True,
            budget=Budget(retries=2, hand_overs=2),
        ),
    ],
}


_OWN: Final = {
    "4.2's": Rules(),
    "4.2's without strict markers (4.0, 4.1)": replace(Rules(), strict_markers=False),
}
_LASTING: Final = {"4.2's, epochs that last": replace(Rules(), bump_every_transaction=False)}
TRANSACTIONS: Final = {
    "transactions whose coordinator moves": [
        (_OWN, 1, 2, Bounds(moves=2)),
        (_OWN, 2, 1, Bounds(moves=1)),
        (_OWN, 2, 2, Bounds(moves=1)),
        (_LASTING, 1, 2, Bounds(moves=1)),
    ],
    "markers that come again late": [
        (_OWN, 1, 3, Bounds(repeats=2)),
        (_OWN, 2, 2, Bounds(repeats=1)),
        (_OWN, 1, 2, Bounds(moves=1, repeats=1)),
        (_LASTING, 1, 2, Bounds(repeats=1)),
    ],
}
"""By theme: (rules by name, number of clients, transactions per client, bounds of the incidents)."""


def words(scope: Scope) -> str:
    """Return a scope in words: its size, and the incidents that may happen."""
    told = [f"min ISR {scope.rules.min_insync}", f"{scope.brokers} brokers", f"{scope.records} rec."]
    if scope.assigned:
        told.append(f"on {list(scope.assigned)} to {' or '.join(str(list(one)) for one in scope.targets)}")
    told += ["idempotent"] if scope.idempotent else []
    budget = zip(Budget._fields, scope.budget, NOTHING, strict=True)
    return ", ".join(
        [*told, *(f"{name.replace('_', ' ')} {now}" for name, now, none in budget if now != none)]
    )


def hunted(part: str) -> Iterator[tuple[str, str, Model]]:
    """Yield (theme, scope in words, model) for each scope of the themes whose name contains `part`."""
    for theme, scopes in SCOPES.items():
        for scope in scopes if part in theme else ():
            yield theme, words(scope), world(scope)
    for theme, worlds in TRANSACTIONS.items():
        for by, clients, in_turn, bounds in worlds if part in theme else ():
            wrong = ", ".join(f"{name} {count}" for name, count in bounds._asdict().items() if count)
            for name, rules in by.items():
                told = f"rules {name}, clients {clients}, transactions {in_turn}, {wrong}"
                yield theme, told, transactions(rules, clients, in_turn, bounds)


def rows(most: int, part: str) -> Iterator[str]:
    """Yield the lines of the Markdown table: its head, and a row for each scope of `hunted(part)`. `most`: limit of
    states per search."""
    yield "| theme | scope | states | reached |"
    yield "|---|---|---|---|"
    for theme, told, model in hunted(part):
        search, began = Search(model, frozenset({"nothing, all are looked at"})), time.process_time()
        search.run(max_states=most)
        size = f"{len(search.seen):,}{' (all)' if search.exhausted else ', and more'}"
        found = ", ".join(
            f"{kind} in {len(search.way_to(one.state))} steps" for kind, one in search.findings.items()
        )
        seconds = time.process_time() - began
        yield f"| {theme} | {told} | {size} in {seconds:.0f} s | {found or 'nothing'} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", default="")
    parser.add_argument("--most", type=int, default=12_000_000)
    asked = parser.parse_args()
    for line in rows(asked.most, asked.part):
        print(line, flush=True)


if __name__ == "__main__":
    main()
