"""Prints the table of protections: for each, a search with this protection switched off, and one with all on, in the
same scope.

    PYTHONPATH=tests/support python tools/bench/protection_table.py [name of a protection]

Prints a Markdown row as soon as it is known. Seconds are CPU time, so that other load on the machine does not count."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

from ackproof_reference.explore.scope import Budget, Scope
from ackproof_reference.explore.search import Search
from ackproof_reference.explore.world import world
from ackproof_reference.rules import PROTECTIONS, Truncation, without
from protections import CASES, LARGER, LATER, MASKED, PAIRS

MOST = 12_000_000
"""Limit of states of one search; the row shows if a search reached it."""


def searched(scope: Scope, *wanted: str) -> tuple[Search, float]:
    """Search a scope until the `wanted` classes are found, or all states or `MOST` states are visited; without
    `wanted`, classes do not end the search. Return the search and its CPU seconds."""
    search = Search(world(scope), frozenset(wanted) or frozenset({"nothing, all are looked at"}))
    began = time.process_time()
    search.run(max_states=MOST)
    return search, time.process_time() - began


def described(scope: Scope) -> str:
    """Return a scope in a few words: release of its rules, size and incidents."""
    rules = "2.1" if scope.rules.truncation is not Truncation.ON_FETCH else "4.1"
    wrong = ", ".join(
        f"{name.replace('_', ' ')} {count}"
        for name, count in zip(Budget._fields, scope.budget, strict=True)
        if count
    )
    parts = [f"{rules}, min ISR {scope.rules.min_insync}: {scope.brokers} brokers", f"{scope.records} rec."]
    if scope.started_isr:
        parts.append(f"ISR {', '.join(map(str, scope.started_isr))} at first")
    return ", ".join([*parts, wrong])


def row(name: str, scope: Scope, kind: str, note: str = "") -> str:
    """Return the Markdown row of one protection. `kind`: the class that must be found without it; '' if nothing may be
    found. `note`: text that follows its name."""
    off, off_seconds = searched(replace(scope, rules=without(scope.rules, name)), *([kind] if kind else []))
    on, on_seconds = searched(scope)
    found = off.findings.get(kind)
    if found is not None:
        said, steps = kind, str(len(off.way_to(found.state)))
    else:
        said, steps = "nothing" if off.exhausted and not off.findings else "open", "–"
    clean = "none" if on.exhausted and not on.findings else f"open: {sorted(on.findings)}"
    return (
        f"| {name}{note} | {described(scope)} | {said} | {steps} | {len(off.seen):,} in {off_seconds:.1f} s "
        f"| {clean} | {len(on.seen):,} in {on_seconds:.1f} s |"
    )


def rows() -> Iterator[tuple[str, Scope, str, str]]:
    """Yield (protection, scope, class, note) for all cases of `tests/support/protections.py`, in the order of
    `PROTECTIONS`. The class is '' if other protections mask this one."""
    for name in PROTECTIONS:
        for scope, kind in (table[name] for table in (CASES, LARGER, LATER) if name in table):
            yield name, scope, kind, ""
        if name in MASKED:
            yield name, MASKED[name], "", " (masked)"
        if name in PAIRS:
            yield name, *PAIRS[name], " (in a pair)"


def main() -> None:
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", file=sys.stderr)
    print("| taken away | scope | found | steps | states until then | with all on | states, all of them |")
    print("|---|---|---|---|---|---|---|")
    for name, scope, kind, note in rows():
        if len(sys.argv) < 2 or sys.argv[1] == name:
            print(row(name, scope, kind, note), flush=True)


if __name__ == "__main__":
    main()
