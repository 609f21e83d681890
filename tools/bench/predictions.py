"""What the catalogue's predictions come to: for each world that a case is asked about the answers, and what they cost.

    python tools/bench/predictions.py [states, default 240,000] [a word of the case's file, default all of them]

Prints Markdown, a row for each world with the cases that it stands for, then how many cases are left unknown. Each
world is looked at by a process of its own with an empty cache; seconds are of its processor, MiB what its peak grew by.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from ackproof.experiment.case import Case
from ackproof.run.options import BatchOptions, plan_cases
from ackproof.rundir.anomalies import MISSING
from ackproof.rundir.model import Chance
from ackproof_model.predict.answers import USUAL_STATES, Answers, answers, described
from ackproof_model.predict.prediction import scopes_of
from ackproof_reference.explore.scope import Scope

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


class Looked(NamedTuple):
    """What a world's answers are, and what they cost: seconds of processor, bytes."""

    found: Answers
    seconds: float
    grown: int


def cases(word: str) -> Iterator[tuple[str, Case]]:
    """Every case of the catalogue and of the claims, repeats left out, with the name of its file."""
    for file in sorted(EXPERIMENTS.rglob("*.yaml")):
        if word in file.name:
            for _, case in plan_cases(BatchOptions((file,))):
                if case.repeat == 1:
                    yield file.stem, case


def look(scope: Scope, states: int) -> Looked:
    """Ask as `ackproof predict` does; nothing is remembered from before."""
    with tempfile.TemporaryDirectory() as empty:
        os.environ["ACKPROOF_CACHE"] = empty
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.process_time()
        found = answers(scope, max_states=states)
        seconds = time.process_time() - began
        return Looked(found, seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)


def settings(scope: Scope) -> str:
    """A world in a line, with the settings that tell it from others."""
    rules = scope.rules
    parts = [described(scope).replace("brokers=3,records=1,", ""), f"min ISR {rules.min_insync}"]
    marks = {
        "unclean elections": rules.unclean_election,
        "no ELR": not rules.elr,
        "idempotent": scope.idempotent,
    }
    return ", ".join([*parts, *(mark for mark, holds in marks.items() if holds)])


def row(names: Counter[str], scope: Scope, looked: Looked) -> str:
    """One line of the table."""
    which = ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in names.items())
    chances = " | ".join(looked.found.classes[kind].chance.value for kind in MISSING)
    cost = f"{looked.found.states:,} | {looked.seconds:.1f} | {looked.grown / (1 << 20):.0f}"
    return f"| {which} | {settings(scope)} | {chances} | {cost} |"


def main() -> None:
    states = int(sys.argv[1].replace(",", "")) if len(sys.argv) > 1 else USUAL_STATES
    worlds: dict[Scope, Counter[str]] = {}
    for name, case in cases(sys.argv[2] if len(sys.argv) > 2 else ""):
        for scope in scopes_of([case]):
            worlds.setdefault(scope, Counter())[name] += 1
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", file=sys.stderr)
    print(f"| cases | world of 3 brokers, 1 record | {' | '.join(MISSING)} | states | s | MiB |")
    print("|---|---|---|---|---|---|---|")
    unknown, seconds = 0, 0.0
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as alone:
        for scope, names in worlds.items():
            looked = alone.submit(look, scope, states).result()
            print(row(names, scope, looked), flush=True)
            seconds += looked.seconds
            if any(answer.chance is Chance.UNKNOWN for answer in looked.found.classes.values()):
                unknown += names.total()
    of = sum(names.total() for names in worlds.values())
    print(f"\n{unknown} of {of} cases are unknown, in {len(worlds)} worlds; {seconds:.0f} s of processor.")


if __name__ == "__main__":
    main()
