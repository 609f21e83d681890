"""Mutation run: is each small change of the audit, the judge, the faults or the reference's core noticed by the tests?

    python -m tests.mutation.mutate judge                         what was not tried yet on this very state
    python -m tests.mutation.mutate audit --again new             only what has changed since it was tried
    python -m tests.mutation.mutate audit --again survivors --sample 100       and so many of the killed ones
    python -m tests.mutation.mutate reference --module quorum.py --again all   each asked first what killed it
    python -m tests.mutation.mutate judge --only verdict.py:17    that one, with its difference and what the tests say

`changes.py` says which changes there are, `rooms.py` what is mutated and which tests are asked, `exams.py` how.
What kills many mutants of a function, or of its module, for little time is asked first. A log has a line for each
mutant; a run that was broken off goes on from it. Survivors that `equivalent.txt` names with a reason do not count.
All exams must pass without a mutant, before and after: a run in which everything dies of something else looks perfect.
The exit code is 0 when all were tried, nobody else survives, and all that is named there does survive, else 1.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .exams import DIED, HUNG, SAME, SURVIVED
from .fates import Fate, Fates
from .rooms import ROOMS, ROOT, Job, Room, jobs_of, known_equivalents
from .trial import Run, run, show


def chosen_of(jobs: Sequence[Job], fates: Fates, given: argparse.Namespace, room: Room) -> list[Job]:
    """Which of them are to be tried now."""
    if given.unnamed:
        known = known_equivalents(room)
        jobs = [job for job in jobs if job.key not in known]
    if given.again == "all":
        return list(jobs)
    tried = {job.key: fate for job in jobs if (fate := fates.of(job)) is not None}
    wanted = {job.key for job in jobs} - tried.keys()
    if given.again == "changed":
        wanted |= {job.key for job in jobs if not fates.is_of_today(job)}
    if given.again == "survivors":
        wanted |= {key for key, fate in tried.items() if fate.kind == SURVIVED}
    killed = sorted(key for key, fate in tried.items() if fate.kind != SURVIVED)
    wanted |= set(random.Random(given.seed).sample(killed, min(given.sample, len(killed))))
    return [job for job in jobs if job.key in wanted]


def tell(jobs: Sequence[Job], fates: Fates, room: Room) -> bool:
    """List survivors and what stands wrongly among the equivalent ones, and a table; whether all is well."""
    named = known_equivalents(room)
    well = True
    known = {job.key: fate for job in jobs if (fate := fates.of(job)) is not None}
    for job in jobs:
        fate = known.get(job.key)
        if fate is None:
            well = False
        elif fate.kind == SURVIVED and job.key not in named:
            print(f"SURVIVED {job.name} line {job.mutant.line}: {job.key}")
            well = False
        elif fate.kind not in (SURVIVED, SAME) and job.key in named:
            print(f"NOT EQUIVALENT {job.name}: {job.key}: {fate.kind} by {fate.by}")
            well = False
    for key in named.keys() - {job.key for job in jobs_of(room)}:
        print(f"NO SUCH MUTANT {key}")
        well = False
    heads = (
        "module",
        "mutants",
        "killed",
        "of these stopped",
        "equivalent",
        "survived",
        "not tried",
        "CPU seconds",
    )
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for module in dict.fromkeys(job.module for job in jobs):
        print(_row(module, [job for job in jobs if job.module == module], known, named))
    print(_row("**all**", jobs, known, named))
    by = Counter(
        "import" if fate.by == "import" else "tests" if "::" in fate.by else "random ledgers"
        for fate in known.values()
        if fate.kind not in (SURVIVED, SAME)
    )
    print("killed by " + ", ".join(f"{name}: {number}" for name, number in by.most_common()))
    today = sum(fates.is_of_today(job) for job in jobs)
    short = sum(not fate.whole for fate in known.values())
    print(f"{today} tried on this state; {short} survived within the budget alone")
    return well


def _row(name: str, jobs: Sequence[Job], known: dict[str, Fate], named: dict[str, str]) -> str:
    tried = [(job, known[job.key]) for job in jobs if job.key in known]
    survivors = [job for job, fate in tried if fate.kind in (SURVIVED, SAME)]
    equivalent = sum(job.key in named or known[job.key].kind == SAME for job in survivors)
    cells = [
        name,
        len(jobs),
        len(tried) - len(survivors),
        sum(fate.kind in (HUNG, DIED) for _, fate in tried),
    ]
    cells += [equivalent, len(survivors) - equivalent, len(jobs) - len(tried)]
    cells.append(f"{sum(fate.seconds for _, fate in tried):.0f}")
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description="mutation run over a room")
    parser.add_argument("room", choices=sorted(ROOMS))
    parser.add_argument("--again", choices=("changed", "new", "survivors", "all"), default="changed")
    parser.add_argument("--sample", type=int, default=0, help="so many of the killed ones too")
    parser.add_argument(
        "--draw", type=int, help="of those that are to be tried only so many, drawn with the seed"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--module", action="append", help="only mutants of this module, such as verdict.py")
    parser.add_argument("--only", help="one mutant by its name or key: show it and what the tests say")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds of exams for one mutant")
    parser.add_argument("--unnamed", action="store_true", help="pass over what is known as equivalent")
    parser.add_argument("--log", type=Path, help="default: $XDG_STATE_HOME/ackproof/mutation/ROOM.jsonl")
    given = parser.parse_args()
    room = ROOMS[given.room]
    home = Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local" / "state"))
    log = (given.log or home / "ackproof" / "mutation" / f"{given.room}.jsonl").absolute()
    log.parent.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    jobs = [job for job in jobs_of(room) if not given.module or job.module in given.module]
    began, state = time.monotonic(), room.state()
    with tempfile.TemporaryDirectory(prefix="ackproof-mutation-") as folder:
        whole = Run(room, Path(folder), log, log.with_suffix(".measured"), given.budget, state)
        for name in room.preload:
            importlib.import_module(name)
        early = [name for name in sys.modules if name.startswith(room.module)]
        assert not early, f"imported too early: {early}"
        if whole.beside is not None and not whole.make_beside():
            return 1
        if given.only:
            return show(whole, next(job for job in jobs if given.only in (job.name, job.key)))
        todo = chosen_of(jobs, whole.fates(), given, room)
        if given.draw is not None and given.draw < len(todo):
            todo = sorted(random.Random(given.seed).sample(todo, given.draw), key=lambda job: job.name)
        print(f"{len(todo)} of {len(jobs)} mutants", flush=True)
        if todo and not run(whole, todo, given.jobs):
            print("not all exams pass without a mutant, or do not pass any more", file=sys.stderr)
            return 1
    well = tell(todo if given.draw is not None else jobs, Fates(log, state), room)
    print(f"{given.room}: {len(todo)} tried now in {time.monotonic() - began:.0f} s")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
