"""Benchmark of the explorer: distinct states per second and bytes per state, invariants on, one process.

    python tools/bench/explorer.py [million states of each model, default 1]

Prints wall time and CPU time: on a busy machine only CPU time is meaningful. A plain loop is timed in the same process
before and after, so that figures of other machines, or of a throttled one, can be compared."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from dataclasses import replace

from ackproof_reference.explore.model import Model
from ackproof_reference.explore.scope import Budget, Scope
from ackproof_reference.explore.search import Search
from ackproof_reference.explore.transactional import transactions
from ackproof_reference.explore.world import world
from ackproof_reference.rules import rules_of

MODELS: dict[str, Model] = {
    "before KRaft (2.1, three brokers, two records)": world(
        Scope(replace(rules_of("2.1"), min_insync=2), records=2, budget=Budget(kills=2, shrinks=1))
    ),
    "richest (4.1, ELR, idempotence, three brokers, two records)": world(
        Scope(
            replace(rules_of("4.1"), min_insync=2),
            records=2,
            idempotent=True,
            budget=Budget(1, 1, 1, 1, 1, 1, 1, 1, 1, 1),
        )
    ),
    "transactions (4.1, four clients of one id, two partitions)": transactions(rules_of("4.1"), clients=4),
}


LOOPS = 1_000_000


def calibrated() -> float:
    """Return rounds per CPU second of a plain loop with a multiplication, a look-up and rare insertions."""
    seen: dict[int, int] = {}
    began, value = time.process_time(), 1
    for number in range(LOOPS):
        value = value * 1_103_515_245 + number & 0xFFFFFFFFFFFFFFFF
        if value & 0xFFFF not in seen:
            seen[value & 0xFFFF] = number
    return LOOPS / (time.process_time() - began)


def measure(name: str, states: int) -> None:
    loops = calibrated()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    search = Search(MODELS[name], frozenset({"nothing, all are counted"}))
    wall, processor = time.perf_counter(), time.process_time()
    search.run(max_states=states)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    seen = len(search.seen)
    ended = "all of them" if search.exhausted else f"to depth {search.progress.depth}"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(
        f"{name}: {seen:,} states, {ended}, {seen / processor:,.0f} a second of processor, "
        f"{seen / wall:,.0f} a second of wall clock, {grown / seen:.0f} bytes a state (peak, all of the process), "
        f"{(loops + calibrated()) / 2 / (seen / processor):.1f} rounds of a plain loop a state"
    )


def main() -> None:
    millions = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    if len(sys.argv) > 2:
        measure(sys.argv[2], int(millions * 1e6))
        return
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for name in MODELS:
        subprocess.run([sys.executable, __file__, str(millions), name], check=True)


if __name__ == "__main__":
    main()
