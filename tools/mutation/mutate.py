"""Mutation tests of the packages in `ROOMS`, such as audit, judge and reference: does a test notice each small change?

mutmut makes the changes.

    python -m tools.mutation.mutate judge                    the whole room; an interrupted run is continued
    python -m tools.mutation.mutate reference --only log.py  one module of it

mutmut derives a module's name from its path, so packages and tests are first copied side by side into one folder. For
each change that survives its difference is printed; a reader decides whether it is equivalent or a test is missing. The
exit code is 0 if all mutants were tried, even if some survived."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "harness/ackproof",
    "lab/ackproof_lab",
    "reference_impl/ackproof_model",
    "reference_impl/ackproof_reference",
    "reference_impl/ackproof_simulator",
    "reports/ackproof_reports",
)
BESIDE = ("tests", "tools", "experiments", "docs", "README.md", "CHANGELOG.md")
OPTIONS = ("-p", "no:cacheprovider", "-o", "timeout=0", "-W", "ignore", "--hypothesis-profile=ci")
KILLED, SURVIVED = (1, 3), 0
"""Exit codes of pytest for a mutant that a test noticed, and for one that no test noticed."""
UNASKED = (5, 33)
"""Exit codes of mutmut for a mutant that no test executes."""

RULES = (
    *("log", "leader", "isr", "follower", "controller", "rules", "transactions", "placement"),
    *("reassignment", "invariants", "zookeeper", "primaries", "quorum"),
)
"""Test modules (`tests/model/test_NAME.py`) of the reference's rules; each tests single states or small searches."""


@dataclass(frozen=True)
class Room:
    """Modules to mutate, and the tests that must notice each mutant; none of these tests needs Java. `options`: further
    arguments of pytest."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    options: tuple[str, ...] = ()


ROOMS = {
    # Tests that start and end Spark's JVM are left out.
    "audit": Room(
        ("ackproof/audit/*", "ackproof/ledgers/*", "ackproof/spark/*", "ackproof_lab/sql/*"),
        ("tests/audit", "tests/lab/test_asking.py"),
        ("-m", "not audit", "--confcutdir=tests/audit"),
    ),
    # The explorer caches what it has found, and mutmut runs the tests several times in one process.
    "judge": Room(
        ("ackproof/judge/*",),
        ("tests/unit/judge", "tests/lab/test_claims.py", "tests/model/test_demands.py"),
        ("-k", "not seen_to_its_end", "--confcutdir=tests/unit"),
    ),
    # A replay and a prediction are functions of a run's files, as the judge is.
    "replay": Room(
        ("ackproof_model/replay/*", "ackproof_model/explain/*"),
        (
            "tests/model/test_conform.py",
            "tests/model/test_conform_zookeeper.py",
            "tests/model/test_recreated.py",
            "tests/model/test_excuses.py",
            "tests/model/test_fates.py",
            "tests/model/test_replay_rules.py",
            "tests/model/test_replay_steps.py",
            "tests/model/test_disturbances.py",
            "tests/model/test_simulated_conform.py",
        ),
        ("--confcutdir=tests/model",),
    ),
    "predict": Room(
        ("ackproof_model/predict/*",),
        (
            "tests/model/test_cases.py",
            "tests/model/test_counted.py",
            "tests/model/test_predictions.py",
            "tests/model/test_answers.py",
            "tests/model/test_demands.py",
            "tests/model/test_further_states.py",
            "tests/model/test_incidents.py",
        ),
        ("-k", "not seen_to_its_end", "--confcutdir=tests"),
    ),
    "quantities": Room(
        ("ackproof/quantities/*",),
        ("tests/unit/quantities",),
        ("--confcutdir=tests/unit", "--hypothesis-profile=mutants"),
    ),
    "repeats": Room(
        ("ackproof/repeats/*",),
        ("tests/unit/repeats",),
        ("--confcutdir=tests/unit", "--hypothesis-profile=mutants"),
    ),
    "rundir": Room(("ackproof/rundir/*",), ("tests/unit/rundir",), ("--confcutdir=tests/unit",)),
    "faults": Room(("ackproof/faults/*",), ("tests/unit/faults",), ("--confcutdir=tests/unit",)),
    # The largest search is left out: another test checks on a single state what it finds.
    "reference": Room(
        ("ackproof_reference/*.py",),
        tuple(f"tests/model/test_{name}.py" for name in RULES),
        ("-m", "not nightly", "-k", "not commits_own_epoch", "--confcutdir=tests/model"),
    ),
}


def lay(folder: Path, room: Room, only: str) -> None:
    """Prepare the folder in which mutmut works; results of an earlier run stay. `only`: name of one module to mutate,
    '' for all of the room."""
    for name in (*PACKAGES, *BESIDE):
        target = folder / Path(name).name
        if (ROOT / name).is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, target)
    modules = [
        f"{module.removesuffix('*.py').removesuffix('*')}{only}" if only else module
        for module in room.modules
    ]
    settings = {
        "source_paths": [Path(name).name for name in PACKAGES],
        "only_mutate": modules,
        "also_copy": list(BESIDE),
        "pytest_add_cli_args": [*OPTIONS, *room.options],
        "pytest_add_cli_args_test_selection": list(room.tests),
        "use_git_change_detection": False,
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (folder / "pyproject.toml").write_text("\n".join([text, "[tool.mutmut]", *lines, ""]), encoding="utf-8")


def fates(folder: Path) -> dict[str, int | None]:
    """Return the exit code of the tests for each mutant; None: not tried yet."""
    found: dict[str, int | None] = {}
    for file in sorted((folder / "mutants").rglob("*.meta")):
        found |= json.loads(file.read_text(encoding="utf-8"))["exit_code_by_key"]
    return found


def tell(folder: Path, found: dict[str, int | None]) -> None:
    """Print each surviving mutant with its difference, then the number of mutants by result."""
    for name in (name for name, code in found.items() if code == SURVIVED):
        done = mutmut(folder, ["show", name], capture=True)
        lines = done.stdout.splitlines()
        changed = [line for line in lines if line[:1] in "+-" and not line.startswith(("+++", "---"))]
        print("\n".join([f"SURVIVED {name}", *(f"    {line}" for line in changed)]))
    count = Counter(map(fate, found.values()))
    print(", ".join(f"{number} {name}" for name, number in count.most_common()))


def fate(code: int | None) -> str:
    """Return the result of a mutant in words, such as `killed`. `code`: exit code of the tests; None: not tried."""
    if code is None:
        return "not tried"
    if code in UNASKED:
        return "that no test runs through"
    return "killed" if code in KILLED else "survived" if code == SURVIVED else "stopped"


def mutmut(folder: Path, words: Iterable[str], *, capture: bool = False) -> subprocess.CompletedProcess[str]:
    """Run mutmut with these arguments in the folder. `capture`: True to return its output."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-m", "mutmut", *words],
        cwd=folder,
        env=environment,
        capture_output=capture,
        text=True,
        check=False,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="which small changes do the tests not notice?")
    parser.add_argument("room", choices=sorted(ROOMS))
    parser.add_argument("--only", default="", help="one module of it, such as log.py")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--folder", type=Path, help="default: $XDG_STATE_HOME/ackproof/mutation/ROOM")
    given = parser.parse_args()
    home = Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local" / "state"))
    folder = (given.folder or home / "ackproof" / "mutation" / given.room).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    lay(folder, ROOMS[given.room], given.only)
    done = mutmut(folder, ["run", "--max-children", str(given.jobs)])
    found = fates(folder)
    tell(folder, found)
    return done.returncode or int(not found or None in found.values())


if __name__ == "__main__":
    sys.exit(main())
