"""What became of each mutant: a log that a broken run goes on from, and what it teaches about whom to ask first."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from .exams import KILLED, SURVIVED, Answer, Exam, Measured
from .rooms import Job


@dataclass(frozen=True)
class Fate:
    """What became of a mutant, and which exam killed it.

    `digest`: of the mutated function as it then was; `state`: of package and tests. `whole`: all were asked that run
    the changed statement, or one killed it; else the budget came first.
    """

    kind: str
    by: str
    seconds: float
    digest: str
    state: str
    whole: bool = True


class Fates:
    """The log: a JSON object a line, appended as it happens; the last one of a mutant counts."""

    def __init__(self, path: Path, state: str) -> None:
        self._path = path
        self._state = state
        self._known: dict[str, Fate] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # the line at which a run was cut off
            key = entry.pop("key")
            self._known[key] = Fate(**entry)

    def before(self, job: Job) -> Fate | None:
        """What became of it last, though its function may have changed since."""
        return self._known.get(job.key)

    def of(self, job: Job) -> Fate | None:
        """None too where its function has changed since."""
        fate = self._known.get(job.key)
        return fate if fate is not None and fate.digest == job.mutant.digest else None

    def is_of_today(self, job: Job) -> bool:
        """Whether it was tried on this very package, with these very tests."""
        fate = self.of(job)
        return fate is not None and fate.state == self._state

    def note(self, job: Job, answer: Answer, *, whole: bool = True) -> None:
        """Write down what became of a mutant."""
        whole = whole or answer.fate != SURVIVED
        fate = Fate(answer.fate, answer.by, round(answer.seconds, 2), job.mutant.digest, self._state, whole)
        self._known[job.key] = fate
        if answer.fate != KILLED:
            print(f"{answer.fate} {answer.by} :: {job.key}", flush=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": job.key, **vars(fate)}, ensure_ascii=False) + "\n")


@dataclass
class Asking:
    """Which exams to ask of a mutant, in which order."""

    measured: dict[str, Measured]
    budget: float
    """So many seconds of exams for one mutant, as measured."""
    _asked: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _killed: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def learn(self, job: Job, by: str, asked: Iterable[str] = ()) -> None:
        """Who was asked of a mutant, and who killed it."""
        for area in job.areas:
            self._asked[area].update(asked)
            if by:
                self._killed[area][by] += 1

    def order(self, job: Job, exams: Sequence[Exam], first: str = "") -> tuple[list[Exam], bool]:
        """Those that run the changed statement, what kills most for its time first; and whether that is all.

        `first`: who killed it last time.
        """

        def price(exam: Exam) -> float:
            if exam.name == first:
                return -1.0
            rate = max(
                (self._killed[area][exam.name] + 0.1) / (self._asked[area][exam.name] + 2)
                for area in job.areas
            )
            return (self.measured[exam.name].seconds + 0.01) / rate

        lines = job.mutant.lines
        statement = {(job.module, line) for line in range(lines[0], lines[1] + 1)}
        covering = (
            exam
            for exam in exams
            if job.mutant.body is None or not statement.isdisjoint(self.measured[exam.name].lines)
        )
        ordered = sorted(covering, key=price)
        spent = accumulate(self.measured[exam.name].seconds for exam in ordered)
        chosen = [exam for exam, seconds in zip(ordered, spent, strict=True) if seconds <= self.budget]
        return chosen, len(chosen) == len(ordered)

    def likely(self, job: Job) -> str:
        """The exam that has killed most mutants of this module; "" if nothing is known of it."""
        often = self._killed[job.module].most_common(1)
        return often[0][0] if often else ""

    def limit_s(self, name: str) -> float:
        """So much CPU may an exam take."""
        return 5 + 6 * self.measured[name].seconds
