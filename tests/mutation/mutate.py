"""Mutation run: is each small change of the judge, the faults or the reference's core noticed by their fast tests?

    python tests/mutation/mutate.py judge
    python tests/mutation/mutate.py faults --sample 50 --seed 1
    python tests/mutation/mutate.py reference
    python tests/mutation/mutate.py judge --only verdict.py:17      (that mutant alone, with the tests' output)

The audit has a run of its own, tests/audit/mutation.py.

Each worker has a copy of the tree in a temporary folder, where one mutant at a time stands in place of its module.
The tests run in a child forked from a process that has imported what is slow to import and nothing that is mutated.
A mutant under which the tests hang counts as killed. Survivors are listed; those known to be equivalent stand in
`equivalent.txt`, a reason each, and do not count. The exit code is 0 when nobody else survives, else 1.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

from mutants import Mutant, mutants  # noqa: E402 - beside this script, which is no package

COPIED = ("harness", "reference_impl", "reports", "tests", "pyproject.toml", "experiments")
_CHILD_GRACE_S = 10.0


@dataclass(frozen=True)
class Room:
    """What is mutated, by which tests it is to be noticed, and what may be imported before."""

    package: str
    tests: tuple[str, ...]
    preload: tuple[str, ...]
    root: str = "harness/ackproof"
    options: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    """Only these; none: all of the package."""

    @property
    def folder(self) -> Path:
        """Where its modules are, within the tree."""
        return Path(self.root) / self.package

    @property
    def module(self) -> str:
        """How it is imported."""
        return self.package if self.root == "reference_impl" else f"ackproof.{self.package}"


ROOMS = {
    "judge": Room(
        "judge",
        ("tests/unit/judge",),
        ("pyarrow.dataset", "pyarrow.parquet", "pyarrow.compute", "ackproof.plan", "ackproof.plan.cases"),
    ),
    "reference": Room(
        "ackproof_reference",
        tuple(
            f"tests/model/test_{name}.py"
            for name in (
                "log",
                "leader",
                "isr",
                "follower",
                "controller",
                "rules",
                "transactions",
                "placement",
                "compaction",
            )
        ),
        (),
        root="reference_impl",
        options=("--confcutdir=tests/model",),
        modules=(
            *("log.py", "metadata.py", "messages.py", "broker.py", "leader.py", "follower.py", "node.py"),
            *("election.py", "controller.py", "producers.py", "transactions.py", "placement.py"),
        ),
    ),
    "strategies": Room(
        "ackproof_reference",
        tuple(f"tests/model/test_{name}.py" for name in ("zookeeper", "primaries", "quorum")),
        (),
        root="reference_impl",
        # The largest search is left out: what it finds is also asked of one state.
        options=("--confcutdir=tests/model", "-k", "not commits_own_epoch"),
        modules=("quorum.py", "pacifica.py", "zookeeper.py"),
    ),
    "faults": Room(
        "faults",
        ("tests/unit/faults",),
        ("ackproof.plan", "ackproof.plan.cases", "ackproof.cluster.protocol", "ackproof.rundir.timeline"),
    ),
}


@dataclass(frozen=True)
class Job:
    """A mutant of a module."""

    module: str
    mutant: Mutant

    @property
    def name(self) -> str:
        return f"{self.module}:{self.mutant.number}"


def jobs_of(room: Room) -> list[Job]:
    """All mutants of a room."""
    folder = ROOT / room.folder
    return [
        Job(path.name, mutant)
        for path in sorted(folder.glob("*.py"))
        if not room.modules or path.name in room.modules
        for mutant in mutants(path.read_text(encoding="utf-8"))
    ]


def known_equivalents(room: Room) -> dict[str, str]:
    """`module: what` of the mutants that no test can tell from the original, with the reason."""
    known: dict[str, str] = {}
    file = Path(__file__).with_name("equivalent.txt")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    for line in lines:
        if line.startswith(f"{room.package}/"):
            what, _, reason = line.partition(" :: ")
            known[what.removeprefix(f"{room.package}/")] = reason
    return known


class Worker:
    """One copy of the tree, and the process that tries mutants in it."""

    def __init__(self, room: Room, folder: Path) -> None:
        self.room = room
        self.folder = folder
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, folder / name)
        self.package = folder / room.folder

    def prepare(self) -> None:
        """In the process that forks: only the copy is on the path, what is slow is imported."""
        os.chdir(self.folder)
        sys.dont_write_bytecode = True
        own = [str(self.folder / name) for name in ("harness", "reference_impl", "reports")]
        replaced = (str(ROOT / "harness"), str(ROOT / "reference_impl"))
        sys.path[:] = own + [path for path in sys.path if not path.startswith(replaced)]
        os.environ["PYTHONPATH"] = os.pathsep.join(own)
        # A plugin that comes from ackproof itself would have to be loaded before what it is made of.
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        for name in ("pytest", *self.room.preload):
            importlib.import_module(name)
        wrong = [name for name in sys.modules if name.startswith(self.room.module)]
        assert not wrong, f"imported too early: {wrong}"

    def survives(self, job: Job | None, timeout_s: float, *, shown: bool = False) -> bool:
        """Whether the tests pass with this mutant (None: with the original)."""
        module = self.package / job.module if job is not None else None
        original = module.read_text(encoding="utf-8") if module is not None else ""
        if job is not None and module is not None:
            module.write_text(job.mutant.source, encoding="utf-8")
        try:
            return self._tests_pass(timeout_s, shown)
        finally:
            if module is not None:
                module.write_text(original, encoding="utf-8")

    def _tests_pass(self, timeout_s: float, shown: bool) -> bool:
        child = os.fork()
        if child == 0:
            code = 99
            try:
                os.setsid()
                if not shown:
                    null = os.open(os.devnull, os.O_RDWR)
                    for descriptor in (0, 1, 2):
                        os.dup2(null, descriptor)
                import pytest

                code = int(
                    pytest.main(
                        [
                            "-x",
                            "-q",
                            "-p",
                            "no:cacheprovider",
                            "-p",
                            "pytest_timeout",
                            *self.room.options,
                            *self.room.tests,
                        ]
                    )
                )
            except BaseException:  # noqa: BLE001 - the child ends here, whatever it was
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status) == 0
            time.sleep(0.01)  # a child of our own, and nothing else to do
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, 9)
        os.waitpid(child, 0)
        return False


def work(room: Room, todo: Sequence[Job], folder: Path, out: Path) -> None:
    """A worker process: tries its share, writes a line for each."""
    worker = Worker(room, folder)
    worker.prepare()
    began = time.monotonic()
    if not worker.survives(None, 600.0):
        raise SystemExit("the tests do not pass without any mutant")
    timeout_s = 3 * (time.monotonic() - began) + _CHILD_GRACE_S
    with out.open("w", encoding="utf-8") as lines:
        for number, job in enumerate(todo):
            fate = "survived" if worker.survives(job, timeout_s) else "killed"
            lines.write(f"{fate} {job.name}\n")
            lines.flush()
            if number % 25 == 24:
                print(f"{number + 1} of {len(todo)} tried", file=sys.stderr, flush=True)
    if not worker.survives(None, 600.0):
        raise SystemExit("the tests do not pass any more without a mutant: nothing was shown")


def run(room: Room, jobs: Sequence[Job], workers: int) -> list[Job]:
    """Try all; the survivors."""
    with tempfile.TemporaryDirectory(prefix="ackproof-mutation-") as temporary:
        folder = Path(temporary)
        children = []
        for index in range(workers):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    own = folder / f"tree-{index}"
                    own.mkdir()
                    work(room, jobs[index::workers], own, folder / f"{index}.txt")
                    code = 0
                except SystemExit as error:
                    print(error, file=sys.stderr)
                finally:
                    sys.stderr.flush()
                    os._exit(code)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        if any(codes):
            raise SystemExit("a worker failed")
        fates = [
            line.split(" ", 1) for path in folder.glob("*.txt") for line in path.read_text().splitlines()
        ]
    survived = {name for fate, name in fates if fate == "survived"}
    assert len(fates) == len(jobs)
    return [job for job in jobs if job.name in survived]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="mutation run over a room")
    parser.add_argument("room", choices=sorted(ROOMS))
    parser.add_argument("--sample", type=int, help="only so many mutants, drawn with the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--module", help="only mutants of this module, such as verdict.py")
    parser.add_argument("--only", help="one mutant by its name: show it and the tests' output")
    given = parser.parse_args(arguments)
    room = ROOMS[given.room]
    jobs = jobs_of(room)
    if given.module:
        jobs = [job for job in jobs if job.module == given.module]
    if given.only:
        return show(room, next(job for job in jobs if job.name == given.only))
    total = len(jobs)
    if given.sample and given.sample < total:
        jobs = sorted(random.Random(given.seed).sample(jobs, given.sample), key=lambda job: job.name)
    began = time.monotonic()
    survivors = run(room, jobs, given.jobs)
    known = known_equivalents(room)
    left = [job for job in survivors if f"{job.module}: {job.mutant.what}" not in known]
    for job in left:
        print(f"SURVIVED {job.name} line {job.mutant.line}: {job.module}: {job.mutant.what}")
    print(
        f"{given.room}: {len(jobs)} mutants of {total}, {len(jobs) - len(survivors)} killed, "
        f"{len(survivors) - len(left)} equivalent, {len(left)} survived, in {time.monotonic() - began:.0f} s"
    )
    return 1 if left else 0


def show(room: Room, job: Job) -> int:
    """One mutant as a diff, and what the tests say of it."""
    original = ROOT / room.folder / job.module
    with tempfile.TemporaryDirectory(prefix="ackproof-mutation-") as temporary:
        folder = Path(temporary)
        import ast

        (folder / "before").write_text(ast.unparse(ast.parse(original.read_text(encoding="utf-8"))))
        (folder / "after").write_text(job.mutant.source)
        subprocess.run(["diff", "-U2", folder / "before", folder / "after"], check=False)
        (folder / "tree").mkdir()
        worker = Worker(room, folder / "tree")
        worker.prepare()
        return int(worker.survives(job, 600.0, shown=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
