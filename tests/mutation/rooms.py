"""What can be mutated, how, and by which exams each change is to be noticed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .changes import DECIDED, WIDE, Changes
from .corpus import RandomLedgers
from .mutants import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Room:
    """What is mutated, by which tests it is to be noticed, and what may be imported before."""

    package: str
    tests: tuple[str, ...]
    """Files or folders, from the root of the repository."""
    preload: tuple[str, ...] = ()
    root: str = "harness/ackproof"
    prefix: str = "ackproof."
    """What stands before the package where it is imported."""
    options: tuple[str, ...] = ()
    """Of pytest."""
    modules: tuple[str, ...] = ()
    """Only these; none: all of the package."""
    changes: Changes = WIDE
    beside: Callable[[Path], RandomLedgers] | None = None
    """Exams beside the tests, made in the folder given."""

    @property
    def folder(self) -> Path:
        """Where its modules are."""
        return ROOT / self.root / self.package

    @property
    def module(self) -> str:
        """How it is imported."""
        return self.prefix + self.package

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of its modules within its folder."""
        return self.modules or tuple(path.name for path in sorted(self.folder.glob("*.py")))

    def name_of(self, module: str) -> str:
        """How one of its modules is imported."""
        inner = module.removesuffix(".py").replace("/", ".")
        return self.module if inner == "__init__" else f"{self.module}.{inner}"

    def state(self) -> str:
        """A hash of all that decides on a mutant's fate: the package, its tests, and what supports them."""
        return _hash(sorted({*self.supporting(), *self._tests()}))

    def stamp(self, test: str) -> str:
        """Another one where the package, what supports the tests, or this test's file reads differently."""
        return _stamp(self, test.partition("::")[0])

    def _tests(self) -> set[Path]:
        found: set[Path] = set()
        for test in self.tests:
            path = ROOT / test
            found |= {path} if path.is_file() else set(path.rglob("test_*.py"))
        return found

    def supporting(self) -> set[Path]:
        """The package, and the helpers of its tests."""
        found = {*self.folder.rglob("*.py"), *(ROOT / "tests" / "support").rglob("*.py")}
        for folder in {path.parent for path in self._tests()}:
            found |= {path for path in folder.glob("*.py") if not path.name.startswith("test_")}
        if self.beside is not None:
            found.add(Path(__file__).with_name("corpus.py"))
        return found


@cache
def _stamp(room: Room, file: str) -> str:
    return _hash(sorted({*room.supporting(), *([ROOT / file] if (ROOT / file).is_file() else [])}))


def _hash(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(os.path.relpath(path, ROOT).encode() + b"\0" + _read(path))
    return digest.hexdigest()[:16]


@cache
def _read(path: Path) -> bytes:
    return path.read_bytes()


def _tests_of(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/{folder}/test_{name}.py" for name in names)


ROOMS = {
    "audit": Room(
        "audit",
        # Not test_agreement.py: the random ledgers are its, always the same ones.
        (
            *_tests_of(
                "audit", "classes", "transactions", "parts", "bad_ledgers", "session", "planted_ledgers"
            ),
            *_tests_of("audit", "other_ledgers", "edges", "rounds", "tables"),
        ),
        (
            "ackproof.base.errors",
            "ackproof.base.processes",
            "ackproof.rundir.documents",
            "ackproof.rundir.schema",
        ),
        options=("-m", "not audit"),
        # All that counts. The others start and end Spark's JVM (archive, frames, jvm, session).
        modules=(
            *("identity.py", "places.py", "order.py", "unmatched.py", "series.py", "lookup.py", "rows.py"),
            *(
                "spill.py",
                "load.py",
                "ledger.py",
                "clients.py",
                "transactions.py",
                "commits.py",
                "planning.py",
            ),
            *("units.py", "bucket.py", "results.py", "pipeline.py", "stages.py", "anomalies.py", "arrow.py"),
        ),
        changes=DECIDED,
        beside=RandomLedgers,
    ),
    "judge": Room(
        "judge",
        ("tests/unit/judge",),
        ("pyarrow.dataset", "pyarrow.parquet", "pyarrow.compute", "ackproof.plan", "ackproof.plan.cases"),
    ),
    "reference": Room(
        "ackproof_reference",
        (
            *_tests_of("model", "log", "leader", "isr", "follower", "controller", "rules", "transactions"),
            *_tests_of("model", "placement", "compaction", "reassignment", "invariants", "zookeeper"),
            *_tests_of("model", "primaries", "quorum"),
        ),
        root="reference_impl",
        prefix="",
        # Of the searches the largest is left out: what it finds is also asked of one state.
        options=("--confcutdir=tests/model", "-k", "not commits_own_epoch", "-m", "not nightly"),
        modules=(
            *("log.py", "metadata.py", "messages.py", "broker.py", "leader.py", "follower.py", "node.py"),
            *("election.py", "controller.py", "producers.py", "transactions.py", "placement.py", "rules.py"),
            *("quorum.py", "pacifica.py", "zookeeper.py", "explore/invariants.py", "explore/witness.py"),
        ),
    ),
    "faults": Room(
        "faults",
        ("tests/unit/faults",),
        ("ackproof.plan", "ackproof.plan.cases", "ackproof.cluster.protocol", "ackproof.rundir.timeline"),
    ),
}


@dataclass(frozen=True)
class Job:
    """A mutant of a module. `module`: its path within the room's folder."""

    module: str
    mutant: Mutant

    @property
    def name(self) -> str:
        """What `--only` takes."""
        return f"{self.module}:{self.mutant.number}"

    @property
    def key(self) -> str:
        """What it is known by in the log and in equivalent.txt, and what `--only` takes too."""
        return f"{self.module}: {self.mutant.key}"

    @property
    def areas(self) -> tuple[str, str]:
        """Who killed others here is asked early."""
        return self.module, f"{self.module}: {self.mutant.function}"


def jobs_of(room: Room) -> list[Job]:
    """All mutants of a room."""
    return [
        Job(module, mutant)
        for module in room.paths
        for mutant in mutants((room.folder / module).read_text(encoding="utf-8"), room.changes)
    ]


def known_equivalents(room: Room) -> dict[str, str]:
    """The keys of the mutants that no test can tell from the original, with the reason."""
    known: dict[str, str] = {}
    for line in Path(__file__).with_name("equivalent.txt").read_text(encoding="utf-8").splitlines():
        what, _, reason = line.partition(" :: ")
        if what.startswith(f"{room.package}/"):
            known[what.removeprefix(f"{room.package}/")] = reason
    return known
