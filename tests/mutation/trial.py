"""How mutants are tried: in children forked from a process in which all is imported and collected.

Most mutants lie in the body of one function: there the compiled body is exchanged and the exams are asked, which takes
milliseconds. The others (defaults, constants of a module, what a decorator hides, what runs at the import) are imported
anew, in a child for each. Either way a child ends at the first exam that fails. Limits are of processor time; the clock
on the wall counts only for one that hangs, for this may run beside other work.
"""

from __future__ import annotations

import difflib
import gc
import importlib
import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from .corpus import RandomLedgers
from .exams import KILLED, SAME, SURVIVED, Answer, Exam, in_child, measure, silence, with_exams
from .fates import Asking, Fates
from .mutants import Function
from .putting import Mutated, can_be_exchanged, put_in, run_at_import
from .rooms import Job, Room

_LONG_S = 120.0
_WATCHED = 50


@dataclass(frozen=True)
class Run:
    """One process of a run: its room, its own folder, the log, and what was measured."""

    room: Room
    root: Path
    log: Path
    measured: Path
    budget: float
    state: str

    @property
    def beside(self) -> RandomLedgers | None:
        """The exams beside the tests."""
        return self.room.beside(self.root / "corpus") if self.room.beside else None

    def fates(self) -> Fates:
        """As the log says now."""
        return Fates(self.log, self.state)

    def in_exams(self, work: Callable[[list[Exam]], None], *, quiet: bool = False, only: str = "") -> bool:
        """Collect the tests in a child, and do `work` with all exams there; whether it went well."""
        return _forked(lambda: with_exams(self.room, self.root, self.beside, work, only), quiet=quiet)

    def make_beside(self) -> bool:
        """Make them, once for all workers."""
        beside = self.beside
        if beside is None:
            return True

        def make() -> bool:
            beside.make()
            return True

        return _forked(make)

    def measure(self) -> bool:
        """Ask all exams without a mutant, and write down what they run."""

        def work(exams: list[Exam]) -> None:
            measure(self.room, exams, self.root, self.measured)

        return self.in_exams(work)

    def try_(self, todo: Sequence[Job]) -> bool:
        """Try them all and write down what became of each."""
        called = self._called_at_import()
        if not self.in_exams(lambda exams: self._exchange(todo, exams, called)):
            return False
        exchanged = set((self.root / "exchanged").read_text(encoding="utf-8").splitlines())
        return self._import([job for job in todo if job.key not in exchanged], self.fates())

    def _called_at_import(self) -> set[tuple[str, Function]]:
        """Functions that are run while modules are imported: exchanging them comes too late."""
        out = self.root / "called"

        def look() -> bool:
            called = run_at_import(self.room)
            out.write_text(json.dumps([(module, one.qualname, one.line) for module, one in called]))
            return True

        assert _forked(look)
        return {(module, Function(name, line)) for module, name, line in json.loads(out.read_text())}

    def _asking(self, exams: list[Exam], jobs: Sequence[Job], fates: Fates) -> Asking:
        asking = Asking(measure(self.room, exams, self.root, self.measured), self.budget)
        for job in jobs:
            if (fate := fates.before(job)) is not None:
                asking.learn(job, fate.by)
        return asking

    def _exchange(self, todo: Sequence[Job], exams: list[Exam], called: set[tuple[str, Function]]) -> None:
        """All is imported and collected once, and a child forked for each mutant that lies in a function's body."""
        for module in dict.fromkeys(job.module for job in todo):
            importlib.import_module(self.room.name_of(module))
        fates = self.fates()
        asking = self._asking(exams, todo, fates)
        gc.collect()
        gc.freeze()  # what was there before is not looked at, and its pages are not copied
        inside = [
            job
            for job in todo
            if can_be_exchanged(self.room, job) and (job.module, job.mutant.body) not in called
        ]
        (self.root / "exchanged").write_text("\n".join(job.key for job in inside), encoding="utf-8")
        started = time.monotonic()
        for number, job in enumerate(inside):
            if number % _WATCHED == _WATCHED - 1:
                print(f"{number + 1} of {len(inside)} in {time.monotonic() - started:.0f} s", flush=True)
            if job.mutant.changes_nothing(str(self.room.folder / job.module)):
                fates.note(job, Answer(SAME, "", (), 0.0))
                continue
            before = fates.before(job)
            order, whole = asking.order(job, exams, before.by if before is not None else "")
            answer = in_child(order, asking.limit_s, before=partial(put_in, self.room, job))
            fates.note(job, answer, whole=whole)
            asking.learn(job, answer.by, answer.asked)
        control = in_child(sorted(exams, key=lambda exam: exam.name), asking.limit_s)
        if control.fate != SURVIVED:
            raise SystemExit(f"without a mutant {control}: nothing was shown")

    def _import(self, todo: Sequence[Job], fates: Fates) -> bool:
        """What is run at the import is imported anew, in a child for each, and asked everything."""
        asking = Asking({}, self.budget)
        for job in todo:
            if (fate := fates.before(job)) is not None:
                asking.learn(job, fate.by)
        for job in todo:
            before = fates.before(job)
            likely = (before.by if before is not None else "") or asking.likely(job)
            answer = self.imported(job, likely)
            fates.note(job, answer)
            asking.learn(job, answer.by)
        return not todo or self.imported(None).fate == SURVIVED

    def imported(self, job: Job | None, likely: str = "", *, shown: bool = False) -> Answer:
        """What becomes of a mutant when all is imported anew; the file of the likely test is asked alone at first."""
        file = likely.partition("::")[0] if "::" in likely else ""
        for only in [file, ""] if file else [""]:
            out = self.root / "answer"
            out.unlink(missing_ok=True)

            def work(exams: list[Exam], out: Path = out) -> None:
                ordered = sorted(exams, key=lambda exam: exam.name != likely)
                answer = in_child(ordered, lambda _: _LONG_S, shown=shown)
                out.write_text(json.dumps([answer.fate, answer.by, answer.asked, answer.seconds]))

            def first(only: str = only, work: Callable[[list[Exam]], None] = work) -> bool:
                if job is not None:
                    sys.meta_path.insert(0, Mutated(self.room, job))
                return with_exams(self.room, self.root, self.beside, work, only)

            _forked(first, quiet=not shown)
            if not out.exists():
                return Answer(KILLED, "import", (), 0.0)
            fate, by, asked, seconds = json.loads(out.read_text())
            answer = Answer(fate, by, tuple(asked), seconds)
            if answer.fate != SURVIVED:
                break
        return answer


def _forked(work: Callable[[], bool], *, quiet: bool = False) -> bool:
    """Whether `work` goes well in a child, which may import what it likes."""
    return _ended_well(_start(work, quiet=quiet))


def _start(work: Callable[[], bool], *, quiet: bool = False) -> int:
    """A child's process id."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if quiet:
                silence()
            code = 0 if work() else 1
        except BaseException:  # noqa: BLE001 - the child ends here
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return pid


def _ended_well(pid: int) -> bool:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def run(whole: Run, todo: Sequence[Job], workers: int) -> bool:
    """Try all, each worker its share in a folder of its own."""
    if not whole.measure():
        return False
    children = []
    for number in range(workers):
        root = whole.root / f"worker-{number}"
        root.mkdir()
        if whole.beside is not None:
            shutil.copytree(whole.root / "corpus", root / "corpus")
        share = replace(whole, root=root)
        children.append(_start(partial(share.try_, todo[number::workers])))
    return all([_ended_well(child) for child in children])  # noqa: C419 - each is waited for


def show(whole: Run, job: Job) -> int:
    """One mutant as a difference, and what those say who notice it; all are asked that could."""
    before, after = job.mutant.original_text().splitlines(), job.mutant.text().splitlines()
    print("\n".join(difflib.unified_diff(before, after, lineterm="", n=2)))

    def work(exams: list[Exam]) -> None:
        if not can_be_exchanged(whole.room, job):
            return
        out = whole.root / "shown"
        with out.open("w") as file:
            for exam in exams:
                answer = in_child(
                    [exam], lambda _: _LONG_S, before=partial(put_in, whole.room, job), shown=True
                )
                if answer.fate != SURVIVED:
                    print(answer.fate, exam.name, flush=True)
                file.write(answer.fate + "\n")

    if not whole.in_exams(work):
        return 1
    out = whole.root / "shown"
    fates = out.read_text().splitlines() if out.exists() else [whole.imported(job, shown=True).fate]
    survived = set(fates) == {SURVIVED}
    print(f"{SURVIVED if survived else KILLED}: {job.key}")
    return int(survived)
