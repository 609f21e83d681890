"""Mutation run: is each small change of the judge, the faults or the reference's core noticed by their fast tests?

    python tests/mutation/mutate.py judge
    python tests/mutation/mutate.py faults --sample 50 --seed 1
    python tests/mutation/mutate.py reference --module quorum.py
    python tests/mutation/mutate.py judge --only verdict.py:17      (that mutant alone, with the tests' output)

The audit has a run of its own, tests/audit/mutation.py.

A log has a line for each mutant; a run that was broken off goes on from it, as long as neither the package nor its
tests have changed (`--anew`: from the beginning). How a mutant is tried stands in `trial.py`. One under which the tests
take too long counts as killed. Survivors are listed; those known to be equivalent stand in `equivalent.txt`, a reason
each. The exit code is 0 when nobody else survives and all that stands there does survive, else 1.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fates import STOPPED, SURVIVED, Fates
from mutants import mutated
from rooms import ROOMS, ROOT, Job, Room, jobs_of, known_equivalents
from trial import Worker


def run(room: Room, jobs: Sequence[Job], fates: Fates, workers: int) -> None:
    """Try all that are left, each worker its share."""
    left = fates.left(jobs)
    if not left:
        return
    with tempfile.TemporaryDirectory(prefix="ackproof-mutation-") as temporary:
        children = []
        for index in range(workers):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    folder = Path(temporary) / f"tree-{index}"
                    folder.mkdir()
                    worker = Worker(room, folder, fates)
                    worker.prepare()
                    worker.work(left[index::workers], _Watch(len(left[index::workers])))
                    code = 0
                except SystemExit as error:
                    print(error, file=sys.stderr)
                finally:
                    sys.stderr.flush()
                    os._exit(code)
            children.append(child)
        codes = [os.waitpid(child, 0)[1] for child in children]
        if any(codes):
            raise SystemExit("a worker failed")


class _Watch:
    """Says now and then how far a worker has come."""

    def __init__(self, total: int) -> None:
        self.total, self.tried = total, 0

    def __call__(self) -> None:
        self.tried += 1
        if self.tried % 50 == 0:
            print(f"{self.tried} of {self.total} tried", file=sys.stderr, flush=True)


def tell(jobs: Sequence[Job], fates: Fates, room: Room) -> bool:
    """List survivors and what stands wrongly among the equivalent ones, and a table; whether all is well."""
    known = known_equivalents(room)
    well = True
    for job in jobs:
        fate = fates.known[job.key]
        if fate.kind == SURVIVED and job.key not in known:
            print(f"SURVIVED {job.name} line {job.mutant.line}: {job.key}")
            well = False
        elif fate.kind != SURVIVED and job.key in known:
            print(f"NOT EQUIVALENT {job.name}: {job.key}: killed by {fate.by or 'the import'}")
            well = False
    there = {job.key for job in jobs_of(room)}
    for key in known:
        if key not in there:
            print(f"NO SUCH MUTANT {key}")
            well = False
    print(
        "| module | mutants | killed | of these stopped | equivalent | survived | killed, % | CPU seconds |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for module in dict.fromkeys(job.module for job in jobs):
        print(_row(module, [job for job in jobs if job.module == module], fates, known))
    print(_row("**all**", jobs, fates, known))
    return well


def _row(name: str, jobs: Sequence[Job], fates: Fates, known: dict[str, str]) -> str:
    survivors = [job for job in jobs if fates.known[job.key].kind == SURVIVED]
    stopped = sum(fates.known[job.key].kind == STOPPED for job in jobs)
    equivalent = sum(job.key in known for job in survivors)
    killed = len(jobs) - len(survivors)
    cells = [name, len(jobs), killed, stopped, equivalent, len(survivors) - equivalent]
    cells += [f"{100 * killed / max(len(jobs), 1):.1f}", f"{sum(fates.known[j.key].cpu_s for j in jobs):.0f}"]
    return "| " + " | ".join(map(str, cells)) + " |"


def show(room: Room, job: Job, fates: Fates) -> int:
    """One mutant as a diff, and what the tests say of it."""
    source = (ROOT / room.folder / job.module).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="ackproof-mutation-") as temporary:
        folder = Path(temporary)
        (folder / "before").write_text(ast.unparse(ast.parse(source)))
        (folder / "after").write_text(mutated(source, job.mutant.number))
        subprocess.run(["diff", "-U2", folder / "before", folder / "after"], check=False)
        (folder / "tree").mkdir()
        worker = Worker(room, folder / "tree", fates)
        worker.prepare()
        fate = worker.afresh(job, shown=True)
    print(f"{fate.kind} {fate.by}: {job.key}")
    return int(fate.kind == SURVIVED)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="mutation run over a room")
    parser.add_argument("room", choices=sorted(ROOMS))
    parser.add_argument("--sample", type=int, help="only so many mutants, drawn with the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--module", help="only mutants of this module, such as verdict.py")
    parser.add_argument("--only", help="one mutant by its name: show it and the tests' output")
    parser.add_argument("--anew", action="store_true", help="try again what the log says was tried")
    parser.add_argument("--log", type=Path, help="default: $XDG_STATE_HOME/ackproof/mutation/ROOM.jsonl")
    given = parser.parse_args(arguments)
    room = ROOMS[given.room]
    state = Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local" / "state"))
    log = given.log or state / "ackproof" / "mutation" / f"{given.room}.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    fates = Fates.read(log, room.state())
    jobs = jobs_of(room)
    if given.module:
        jobs = [job for job in jobs if job.module == given.module]
    if given.only:
        return show(room, next(job for job in jobs if job.name == given.only), fates)
    total = len(jobs)
    if given.sample and given.sample < total:
        jobs = sorted(random.Random(given.seed).sample(jobs, given.sample), key=lambda job: job.name)
    if given.anew:
        fates.forget()
    began = time.monotonic()
    tried = len(fates.left(jobs))
    run(room, jobs, fates, given.jobs)
    well = tell(jobs, Fates.read(log, fates.state), room)
    print(
        f"{given.room}: {len(jobs)} mutants of {total}, {tried} of them tried now in {time.monotonic() - began:.0f} s"
    )
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
