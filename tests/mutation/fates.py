"""What became of each mutant: a log that a broken run goes on from, and what it teaches about whom to ask first."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rooms import Job

KILLED, STOPPED, SURVIVED = "killed", "stopped", "survived"
"""A test failed; the tests took more than their processor time; all passed."""


@dataclass(frozen=True)
class Fate:
    """What became of a mutant, which test killed it, and the processor seconds that this took."""

    kind: str
    by: str = ""
    cpu_s: float = 0.0


@dataclass
class Fates:
    """The log: a JSON object a line, appended as it happens. Only what was tried on `state` counts as tried.

    What was tried on other states still says which tests to ask first.
    """

    path: Path
    state: str
    known: dict[str, Fate] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each test takes without a mutant."""
    _of_key: dict[str, str] = field(default_factory=dict)
    _killers: dict[str, dict[str, Counter[str]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Counter))
    )
    """For each module and function which tests have killed its mutants, and how many."""

    @classmethod
    def read(cls, path: Path, state: str) -> Fates:
        """What the log says, also with its last line cut off."""
        fates = cls(path, state)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # the line at which a run was cut off
            if "anew" in entry:
                fates.known.clear()
            elif "seconds" in entry:
                fates.seconds = entry["seconds"]
            else:
                fate = Fate(entry["fate"], entry["by"], entry["cpu_s"])
                fates._learn(entry["key"], fate)
                if entry["state"] == state:
                    fates.known[entry["key"]] = fate
        return fates

    def forget(self) -> None:
        """From here on nothing counts as tried."""
        self.known.clear()
        self._write({"anew": True})

    def note(self, job: Job, fate: Fate) -> None:
        """Write down what became of a mutant."""
        self.known[job.key] = fate
        self._learn(job.key, fate)
        self._write(
            {
                "state": self.state,
                "key": job.key,
                "fate": fate.kind,
                "by": fate.by,
                "cpu_s": round(fate.cpu_s, 3),
            }
        )

    def note_seconds(self, seconds: dict[str, float]) -> None:
        """Write down how long the tests take."""
        self.seconds = seconds
        self._write({"seconds": {test: round(took, 4) for test, took in seconds.items()}})

    def left(self, jobs: Iterable[Job]) -> list[Job]:
        """Those not tried yet."""
        return [job for job in jobs if job.key not in self.known]

    def order(self, job: Job | None, tests: Sequence[str]) -> list[str]:
        """Who is asked first: its killer of last time, then its function's, then its module's, then the quickest."""
        groups: list[Iterable[str]] = [tests]
        if job is not None:
            module = self._killers[job.module]
            groups = [
                [self._of_key.get(job.key, "")],
                module[job.mutant.function],
                sum(module.values(), Counter()),
            ]
            groups.append(tests)
        there = set(tests)
        ordered = (test for group in groups for test in sorted(group, key=self._seconds_of))
        return [test for test in dict.fromkeys(ordered) if test in there]

    def likely(self, job: Job) -> str:
        """The file of tests that is to be collected alone at first; "" if nothing is known of this module."""
        counted = sum(self._killers[job.module].values(), Counter())
        often = counted.most_common(1)[0][0] if counted else ""
        return self._of_key.get(job.key, often).partition("::")[0]

    def _seconds_of(self, test: str) -> float:
        return self.seconds.get(test, 0.0)

    def _learn(self, key: str, fate: Fate) -> None:
        if fate.kind == KILLED and fate.by:
            module, function, _ = key.split(": ", 2)
            self._of_key[key] = fate.by
            self._killers[module][function][fate.by] += 1

    def _write(self, entry: dict[str, object]) -> None:
        with self.path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(entry, ensure_ascii=False) + "\n")
