"""Lists the predictions of the catalogue's cases: the answers for each scope that is searched, and their cost.

    python tools/bench/predictions.py [states, default 240,000] [a word of the case's file, default all of them]

Prints a Markdown row per scope with the cases that search it, then the number of pairs of case and scope with unknown
classes. Each scope is searched in a process of its own with an empty cache. Seconds are CPU time, MiB is the growth of
peak memory."""

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
from ackproof.rundir.anomaly_terms import Chance
from ackproof_model.predict.answers import USUAL_STATES, Answers, answers, described
from ackproof_model.predict.prediction import scopes_of
from ackproof_reference.explore.scope import Scope

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


class Looked(NamedTuple):
    """Answers of the explorer for one scope, with their cost: CPU seconds, and growth of peak memory in bytes."""

    found: Answers
    seconds: float
    grown: int


def cases(word: str) -> Iterator[tuple[str, Case]]:
    """Yield (name of the file, case) for every case of the catalogue and of the claims whose file name contains `word`.
    Only the first repeat of a case is yielded."""
    for file in sorted(EXPERIMENTS.rglob("*.yaml")):
        if word in file.name:
            for _, case in plan_cases(BatchOptions((file,))):
                if case.repeat == 1:
                    yield file.stem, case


def look(scope: Scope, states: int) -> Looked:
    """Search a scope as `ackproof predict` does, with an empty cache and at most `states` states."""
    with tempfile.TemporaryDirectory() as empty:
        os.environ["ACKPROOF_CACHE"] = empty
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.process_time()
        found = answers(scope, max_states=states)
        seconds = time.process_time() - began
        return Looked(found, seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)


def settings(scope: Scope) -> str:
    """Return a scope as one line, with the settings that distinguish it from other scopes of the table."""
    rules = scope.rules
    parts = [described(scope).replace("brokers=3,records=1,", ""), f"min ISR {rules.min_insync}"]
    marks = {
        "unclean elections": rules.unclean_election,
        "no ELR": not rules.elr,
        "idempotent": scope.idempotent,
    }
    return ", ".join([*parts, *(mark for mark, holds in marks.items() if holds)])


def row(names: Counter[str], scope: Scope, looked: Looked) -> str:
    """Return the Markdown row of one scope. `names`: number of cases that search it, by file."""
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
    print(
        f"\n{unknown} of {of} pairs of case and scope are unknown, in {len(worlds)} scopes; {seconds:.0f} s of CPU."
    )


if __name__ == "__main__":
    main()
