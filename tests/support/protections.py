"""By protection of the reference implementation: a scope in which it prevents a finding, and the finding without it.

Scopes have at most three brokers and two records. `tests/model/test_protections.py` searches them, and
`tools/bench/protection_table.py` makes the README's table of them."""

from __future__ import annotations

from ackproof_reference.explore.scope import Budget, Scope
from ackproof_reference.rules import VERSIONS, Rules

ONE = Rules(min_insync=1)
TWO = Rules(min_insync=2)
EARLY = VERSIONS["2.1"]

MOVES_2 = Budget(hand_overs=2)
MOVES_3 = Budget(hand_overs=3)
CUT_AND_POWER = Budget(cuts=1, power_losses=1)

CASES = {
    "eligible leader replicas": (Scope(TWO, brokers=2, budget=CUT_AND_POWER), "lost"),
    "unclean shutdown leaves the ELR": (Scope(TWO, brokers=2, budget=CUT_AND_POWER), "lost"),
    "clean elections only": (Scope(ONE, brokers=2, budget=Budget(kills=2)), "lost"),
    "replicated by the next fetch": (Scope(TWO, brokers=2, budget=Budget(kills=1)), "lost"),
    "strict minimum ISR": (Scope(TWO, brokers=2, budget=Budget(kills=1, shrinks=1)), "vanished"),
    "bounded high watermark": (Scope(ONE, brokers=2, records=2, budget=Budget(kills=1)), "diverged"),
    "maximal ISR": (Scope(ONE, brokers=2, budget=Budget(kills=1, shrinks=1)), "lost"),
    "broker epochs": (
        Scope(
            ONE,
            brokers=2,
            assigned=(2, 1),
            started_isr=(1,),
            victims=(2,),
            budget=Budget(preferred=1, power_losses=1),
        ),
        "lost",
    ),
    "truncation by epoch": (Scope(EARLY, brokers=2, settled=True, budget=MOVES_3), "lost"),
    "walking back": (Scope(EARLY, brokers=2, records=2, settled=True, budget=MOVES_2), "diverged"),
    "fetch fencing": (Scope(EARLY, brokers=2, records=2, settled=True, budget=MOVES_3), "lost"),
    "sequence numbers": (
        Scope(ONE, brokers=2, settled=True, idempotent=True, budget=Budget(kills=1, retries=1)),
        "duplicate",
    ),
}
"""Scopes of two brokers, as (scope, class); all states are visited in a second or two each."""

LARGER = {
    "noticed epochs": (Scope(ONE, settled=True, budget=MOVES_2), "invalid ISR"),
    "forgotten followers": (Scope(ONE, settled=True, budget=MOVES_2), "invalid ISR"),
    "expansion from the epoch's start": (
        Scope(ONE, started_isr=(1, 2), settled=True, budget=MOVES_2),
        "lost",
    ),
    "partition epoch compare and set": (
        Scope(ONE, started_isr=(1, 3), settled=True, victims=(3,), budget=Budget(cuts=1, hand_overs=1)),
        "lost",
    ),
}
"""Scopes of three brokers, which take longer. An invalid ISR becomes a loss at the next election."""

LATER = {
    "noticed epochs": (Scope(ONE, settled=True, budget=MOVES_3), "lost"),
}
"""Scopes with one more election, by which an invalid ISR becomes a loss: millions of states, for the table and the
night."""

MASKED = {
    "assignment order": Scope(ONE, started_isr=(1, 3, 2), settled=True, victims=(1,), budget=Budget(cuts=1)),
    "unfenced last known leader": Scope(TWO, brokers=2, settled=True, budget=Budget(kills=2)),
    "matched responses": Scope(ONE, brokers=2, budget=Budget(kills=1, cuts=1)),
}
"""Protections without which nothing is lost, although other states are reached. Any member of the ISR may be elected. A
broker that is elected while fenced leads nothing. A late answer is detected by the next fetch (KIP-595)."""

PAIRS = {
    # Before KIP-595 nothing but the matching kept an old leader's batch out of a new leader's log.
    "matched responses": (Scope(EARLY, brokers=2, records=2, settled=True, budget=MOVES_3), "invalid ISR"),
}
"""Protections of `MASKED`, with scopes whose rules lack the protection that makes them redundant."""
