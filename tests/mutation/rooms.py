"""What can be mutated, and by which tests each change is to be noticed."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

from mutants import Mutant, mutants  # noqa: E402 - beside this script, which is no package

COPIED = ("harness", "reference_impl", "reports", "tests", "pyproject.toml", "experiments")
"""What a worker's copy of the tree holds."""


@dataclass(frozen=True)
class Room:
    """What is mutated, by which tests it is to be noticed, and what may be imported before."""

    package: str
    tests: tuple[str, ...]
    preload: tuple[str, ...] = ()
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

    def name_of(self, module: str) -> str:
        """How one of its modules is imported."""
        return f"{self.module}.{module.removesuffix('.py').replace('/', '.')}"

    def state(self) -> str:
        """A hash of what decides on a mutant's fate: the package, its tests, and what supports them."""
        found = {*(ROOT / self.folder).rglob("*.py"), *(ROOT / "tests" / "support").rglob("*.py")}
        for test in self.tests:
            path = ROOT / test
            found |= {path} if path.is_file() else set(path.rglob("*.py"))
        digest = hashlib.sha256()
        for path in sorted(found):
            digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:16]


def _model(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/model/test_{name}.py" for name in names)


ROOMS = {
    "judge": Room(
        "judge",
        ("tests/unit/judge",),
        ("pyarrow.dataset", "pyarrow.parquet", "pyarrow.compute", "ackproof.plan", "ackproof.plan.cases"),
    ),
    "reference": Room(
        "ackproof_reference",
        (
            *_model("log", "leader", "isr", "follower", "controller", "rules", "transactions", "placement"),
            *_model("compaction", "reassignment", "invariants", "zookeeper", "primaries", "quorum"),
        ),
        root="reference_impl",
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
    """A mutant of a module."""

    module: str
    mutant: Mutant

    @property
    def name(self) -> str:
        """What `--only` takes."""
        return f"{self.module}:{self.mutant.number}"

    @property
    def key(self) -> str:
        """What it is known by in the log and in equivalent.txt."""
        return f"{self.module}: {self.mutant.key}"


def jobs_of(room: Room) -> list[Job]:
    """All mutants of a room."""
    folder = ROOT / room.folder
    modules = room.modules or tuple(path.name for path in sorted(folder.glob("*.py")))
    return [
        Job(module, mutant)
        for module in modules
        for mutant in mutants((folder / module).read_text(encoding="utf-8"))
    ]


def known_equivalents(room: Room) -> dict[str, str]:
    """The keys of the mutants that no test can tell from the original, with the reason."""
    known: dict[str, str] = {}
    for line in Path(__file__).with_name("equivalent.txt").read_text(encoding="utf-8").splitlines():
        what, _, reason = line.partition(" :: ")
        if what.startswith(f"{room.package}/"):
            known[what.removeprefix(f"{room.package}/")] = reason
    return known
