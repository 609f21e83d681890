"""Mutations of the audit, each of which the tests must notice.

    .venv/bin/python -m tests.audit.mutation --log LOG                         goes on where LOG ends
    .venv/bin/python -m tests.audit.mutation --log LOG --again survivors       and 100 of the killed: --sample 100
    .venv/bin/python -m tests.audit.mutation --log LOG --again all             each asked first what killed it
    .venv/bin/python -m tests.audit.mutation --only 'lookup.Lookup.find: …'    one, with what the tests say

mutants.py says which changes are made, exams.py what they are asked. What kills many mutants of a function, or of its
module, for little time is asked first. A line of the log is a mutant's fate; the last one counts. Survivors that
tests/mutation/equivalent.txt names with a reason do not count. All of it must pass without a mutant, before and after:
a run in which everything dies of something else looks perfect.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from .exams import Answer, Exam, Measured, in_child, measure, with_tests, write_corpus
from .mutants import MODULES, ROOT, Mutant, Mutated, mutants, run_at_import

PRELOADED = ("ackproof.errors", "ackproof.processes", "ackproof.rundir.documents", "ackproof.rundir.schema")
"""What the audit imports and is not mutated."""
EQUIVALENT = ROOT / "tests" / "mutation" / "equivalent.txt"


def known() -> dict[str, str]:
    """`module.function: line [change]` of mutants that no test can tell from the original, with the reason.

    `*` as line or as change stands for all of the function.
    """
    lines = (line.partition(" :: ") for line in EQUIVALENT.read_text(encoding="utf-8").splitlines())
    return {what.removeprefix("audit/"): reason for what, _, reason in lines if what.startswith("audit/")}


def reason_for(name: str, reasons: dict[str, str]) -> str | None:
    where, _, rest = name.partition(": ")
    line, _, what = rest.rpartition(" [")
    wild = (name, f"{where}: {line} [*]", f"{where}: * [{what}", f"{where}: *")
    return next((reasons[one] for one in wild if one in reasons), None)


class Log:
    """What became of each mutant, a line each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.entries: dict[str, dict] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                self.entries[entry["name"]] = entry

    def of(self, mutant: Mutant) -> dict | None:
        """None too where its function has changed since."""
        entry = self.entries.get(mutant.name)
        return entry if entry is not None and entry["digest"] == mutant.digest else None

    def add(self, mutant: Mutant, answer: Answer, *, whole: bool = True) -> None:
        entry = {
            "name": mutant.name,
            "digest": mutant.digest,
            "fate": answer.fate,
            "by": answer.by,
            "asked": len(answer.asked),
            "all": whole,
            "seconds": round(answer.seconds, 2),
        }
        self.entries[mutant.name] = entry
        if answer.fate != "killed":
            print(f"{answer.fate} {answer.by} :: {mutant.name}", flush=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


@dataclass
class Asking:
    """Which exams to ask of a mutant, in which order."""

    measured: dict[str, Measured]
    budget: float
    """So many seconds of exams for one mutant, as measured."""
    asked: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    killed: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def learn(self, mutant: Mutant, by: str, asked: Iterable[str]) -> None:
        for area in areas(mutant):
            self.asked[area].update(asked)
            if by:
                self.killed[area][by] += 1

    def order(self, mutant: Mutant, exams: Sequence[Exam], first: str) -> tuple[list[Exam], bool]:
        """Those that run the changed statement, what kills most for its time first; and whether that is all."""

        def price(exam: Exam) -> float:
            if first and first in exam.name:
                return -1.0
            few = 0.5 if exam.name == "ledgers 0-2 whole" else 0.1
            rate = max(
                (self.killed[area][exam.name] + few) / (self.asked[area][exam.name] + 2)
                for area in areas(mutant)
            )
            return (self.measured[exam.name].seconds + 0.01) / rate

        statement = {(mutant.module, line) for line in range(mutant.lines[0], mutant.lines[1] + 1)}
        covering = (
            exam
            for exam in exams
            if mutant.function is None or not statement.isdisjoint(self.measured[exam.name].lines)
        )
        ordered = sorted(covering, key=price)
        spent = accumulate(self.measured[exam.name].seconds for exam in ordered)
        chosen = [exam for exam, seconds in zip(ordered, spent, strict=True) if seconds <= self.budget]
        return chosen, len(chosen) == len(ordered)

    def limit_s(self, name: str) -> float:
        return 3 + 6 * self.measured[name].seconds


def areas(mutant: Mutant) -> tuple[str, str]:
    return mutant.module, mutant.name.partition(":")[0]


def host(todo: Sequence[Mutant], log: Log, root: Path, kept: Path, budget: float, exams: list[Exam]) -> None:
    """In a process that has collected the tests: ask of each mutant what runs it."""
    called = run_at_import()
    started = time.monotonic()
    asking = Asking(measure(exams, root, kept), budget)
    print(f"{len(exams)} exams measured in {time.monotonic() - started:.0f} s", flush=True)
    inside = [mutant for mutant in todo if mutant.function is not None]
    assert not called & {mutant.function for mutant in inside}, "its exchange would come too late"
    for mutant in todo:
        entry = log.of(mutant)
        if entry is not None:
            asking.learn(mutant, entry["by"], [])
    for number, mutant in enumerate(inside):
        if number % 50 == 49:
            print(f"{number + 1} of {len(inside)} asked in {time.monotonic() - started:.0f} s", flush=True)
        if mutant.changes_nothing():
            log.add(mutant, Answer("same", "", (), 0.0))
            continue
        entry = log.of(mutant)
        order, whole = asking.order(mutant, exams, entry["by"] if entry is not None else "")
        answer = in_child(order, asking.limit_s, before=mutant.put_in)
        log.add(mutant, answer, whole=whole)
        asking.learn(mutant, answer.by, answer.asked)
    control = in_child(sorted(exams, key=lambda exam: asking.measured[exam.name].seconds), asking.limit_s)
    assert control.fate == "survived", f"without a mutant {control}: nothing was shown"
    print("and all is well without a mutant", flush=True)


def at_import(mutant: Mutant | None, root: Path, out: Path) -> None:
    """In a process that has imported nothing of the audit: what is run at import is asked everything."""
    if mutant is not None:
        sys.meta_path.insert(0, Mutated(mutant))

    def work(exams: list[Exam]) -> None:
        answer = in_child(exams, lambda _: 120.0)
        out.write_text(json.dumps([answer.fate, answer.by, answer.asked, answer.seconds]))

    with_tests(root, work)


def forked(work: Callable[[], None], *, quiet: bool = False) -> bool:
    """Whether `work` goes well in a child, which may import what it likes."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if quiet:
                null = os.open(os.devnull, os.O_RDWR)
                for descriptor in (0, 1, 2):
                    os.dup2(null, descriptor)
            work()
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def ask_at_import(mutant: Mutant | None, root: Path) -> Answer:
    out = root / "answer"
    out.unlink(missing_ok=True)
    forked(lambda: at_import(mutant, root, out), quiet=True)
    if not out.exists():
        return Answer("killed", "import", (), 0.0)
    fate, by, asked, seconds = json.loads(out.read_text())
    return Answer(fate, by, tuple(asked), seconds)


def show(mutant: Mutant, root: Path) -> None:
    """One mutant, and what those say who notice it; all are asked."""

    def work(exams: list[Exam]) -> None:
        for exam in exams:
            answer = in_child([exam], lambda _: 120.0, before=mutant.put_in, shown=True)
            print(answer.fate, exam.name, flush=True)

    assert forked(lambda: with_tests(root, work))


def chosen_of(all_: Sequence[Mutant], log: Log, given: argparse.Namespace) -> list[Mutant]:
    if given.unnamed:
        reasons = known()
        all_ = [mutant for mutant in all_ if reason_for(mutant.name, reasons) is None]
    if given.again == "all":
        return list(all_)
    fates = {mutant.name: entry["fate"] for mutant in all_ if (entry := log.of(mutant)) is not None}
    wanted = {mutant.name for mutant in all_} - fates.keys()
    if given.again == "survivors":
        wanted |= {name for name, fate in fates.items() if fate == "survived"}
    killed = sorted(name for name, fate in fates.items() if fate != "survived")
    wanted |= set(random.Random(given.seed).sample(killed, min(given.sample, len(killed))))
    return [mutant for mutant in all_ if mutant.name in wanted]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--modules", default=",".join(MODULES), help="all, unless said otherwise")
    parser.add_argument("--log", type=Path, help="what is known already, and goes on to be written")
    parser.add_argument("--again", choices=("new", "survivors", "all"), default="new")
    parser.add_argument("--sample", type=int, default=0, help="so many of the killed ones too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds of exams for one mutant")
    parser.add_argument("--inside", action="store_true", help="only what stands in functions")
    parser.add_argument("--unnamed", action="store_true", help="pass over what is known as equivalent")
    parser.add_argument("--only", help="one mutant by its name, with what those say who notice it")
    given = parser.parse_args()
    all_ = [mutant for module in given.modules.split(",") for mutant in mutants(module)]
    started = time.monotonic()
    kept = given.log.absolute() if given.log else None
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory(prefix="ackproof-mutation-") as folder:
        root = Path(folder)
        path = kept or root / "log"
        log = Log(path)
        for name in PRELOADED:
            importlib.import_module(name)
        assert not [name for name in sys.modules if name.startswith("ackproof.audit.")], "imported too early"
        assert forked(lambda: write_corpus(root))
        if given.only:
            show(next(mutant for mutant in all_ if mutant.name == given.only), root)
            return 0
        todo = chosen_of(all_, log, given)
        print(f"{len(todo)} of {len(all_)} mutants", flush=True)
        assert forked(
            lambda: with_tests(
                root, lambda exams: host(todo, log, root, path.with_suffix(".measured"), given.budget, exams)
            )
        )
        log = Log(path)  # with what the child has written
        outside = [mutant for mutant in todo if mutant.function is None]
        for mutant in outside if not given.inside else ():
            log.add(mutant, ask_at_import(mutant, root))
        assert given.inside or not outside or ask_at_import(None, root).fate == "survived", (
            "nothing was shown"
        )
    return conclude(all_, todo, log, time.monotonic() - started)


def conclude(all_: Sequence[Mutant], todo: Sequence[Mutant], log: Log, seconds: float) -> int:
    """Everything that the log knows of the mutants as they are now."""
    entries = [entry for mutant in all_ if (entry := log.of(mutant)) is not None]
    reasons = known()
    survived = [entry["name"] for entry in entries if entry["fate"] == "survived"]
    named = [name for name in survived if reason_for(name, reasons) is not None]
    left = [name for name in survived if name not in named]
    for name in left:
        print(f"SURVIVED {name}")
    for entry in entries:
        if entry["fate"] not in ("survived", "same") and reason_for(entry["name"], reasons) is not None:
            print(f"KILLED, though it is called equivalent: {entry['name']} by {entry['by']}")
    fates = Counter(entry["fate"] for entry in entries)
    ledgers = sum(entry["by"].startswith("ledgers ") for entry in entries)
    print(
        f"{len(entries)} of {len(all_)} mutants are known: {fates['killed']} killed, {fates['hung']} hung, "
        f"{fates['died']} died ({ledgers} of these over random ledgers), {fates['same']} compile to the same, "
        f"{len(named)} equivalent, {len(left)} survived; {len(todo)} asked in {seconds:.0f} s"
    )
    return 1 if left or len(entries) < len(all_) else 0


if __name__ == "__main__":
    sys.exit(main())
