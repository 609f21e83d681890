"""Trying one mutant: in a child forked from a process in which all is imported and collected.

Most mutants lie in the body of one function: there the compiled body is exchanged and the collected tests are asked,
which takes milliseconds. The others (defaults, constants of a module, what a decorator hides) are written into a copy
of the tree, which a fresh child imports and collects. Either way a child ends at the first test that fails. It may use
so much processor time; the clock on the wall counts only for one that hangs, for this may run beside other work.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import json
import math
import os
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType

import pytest
from fates import KILLED, STOPPED, SURVIVED, Fate, Fates
from mutants import mutated
from rooms import COPIED, ROOT, Job, Room

_GRACE_S = 5.0
_NOTHING_ASKED = (
    pytest.ExitCode.INTERNAL_ERROR,
    pytest.ExitCode.USAGE_ERROR,
    pytest.ExitCode.NO_TESTS_COLLECTED,
)
"""What a child must not end with: it would count as a kill."""
_MEMORY = 4 * 1024**3
"""A mutant may make a search endless; this many bytes of addresses are enough for each test."""


class Worker:
    """One copy of the tree, and the process that tries mutants in it."""

    def __init__(self, room: Room, folder: Path, fates: Fates) -> None:
        self.room = room
        self.folder = folder
        self.fates = fates
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, folder / name)
        self.package = folder / room.folder
        self.limit_s = 600.0

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
        for name in self.room.preload:
            importlib.import_module(name)
        wrong = [name for name in sys.modules if name.startswith(self.room.module)]
        assert not wrong, f"imported too early: {wrong}"

    def work(self, todo: list[Job], watch: Callable[[], None]) -> None:
        """Try them all and write down what became of each. The tests must pass before and after without a mutant."""
        pid = os.fork()
        if pid == 0:
            session = _Session(self, [job for job in todo if job.mutant.inside], watch)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            _end_with(lambda: self._pytest(session) or session.failure)
        if os.waitpid(pid, 0)[1]:
            raise SystemExit("the tests do not pass without any mutant, or do not pass any more")
        self.fates = Fates.read(self.fates.path, self.fates.state)
        plain = self._afresh_without()
        self.limit_s = 3 * plain.cpu_s + 2 * _GRACE_S
        for job in self.fates.left(todo):
            self.fates.note(job, self.afresh(job))
            watch()
        self._afresh_without()

    def _afresh_without(self) -> Fate:
        plain = self._asked_afresh(None)
        if plain.kind != SURVIVED:
            raise SystemExit(f"imported anew the tests do not pass without any mutant: {plain}")
        return plain

    def afresh(self, job: Job, *, shown: bool = False) -> Fate:
        """What becomes of a mutant that is written down and imported."""
        module = self.package / job.module
        original = module.read_text(encoding="utf-8")
        module.write_text(mutated(original, job.mutant.number), encoding="utf-8")
        for stale in (module.parent / "__pycache__").glob(f"{module.stem}.*"):
            stale.unlink()
        try:
            likely = self.fates.likely(job)
            fate = self._asked_afresh(job, likely, shown)
            return fate if fate.kind != SURVIVED or not likely else self._asked_afresh(job, "", shown)
        finally:
            module.write_text(original, encoding="utf-8")

    def _asked_afresh(self, job: Job | None, only: str = "", shown: bool = False) -> Fate:
        return self.tried(lambda tell: self._pytest(_Asked(self.fates, job, tell), only), shown=shown)

    def tried(self, ask: Callable[[Callable[[str], None]], int], *, shown: bool = False) -> Fate:
        """Fork, ask the tests there, and say what became of it; `ask` tells who fails."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            os.setsid()
            soft = math.ceil(self.limit_s)
            resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 5))
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            if not shown:
                _silence()
            _end_with(lambda: ask(lambda text: _write_all(writing, text.encode())))
        os.close(writing)
        told, kill_at = b"", time.monotonic() + 120 + 20 * self.limit_s
        done = 0
        while not done:
            if select.select([reading], [], [], 1.0)[0]:
                more = os.read(reading, 1 << 20)
                told += more
                done, status, used = os.wait4(child, 0 if not more else os.WNOHANG)
            else:
                done, status, used = os.wait4(child, os.WNOHANG)
            if not done and time.monotonic() > kill_at:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child, signal.SIGKILL)
        os.close(reading)
        cpu_s = used.ru_utime + used.ru_stime
        code = os.waitstatus_to_exitcode(status)
        assert code not in _NOTHING_ASKED, f"no test was asked: exit code {code}"
        if code == 0:
            return Fate(SURVIVED, told.decode(), cpu_s)
        return Fate(STOPPED if code < 0 else KILLED, told.decode(), cpu_s)

    def _pytest(self, plugin: object, only: str = "") -> int:
        options = ["-q", "-s", "--tb=native", "-p", "no:cacheprovider", "-p", "pytest_timeout", "--timeout=0"]
        tests = [only] if only else self.room.tests
        return int(pytest.main([*options, *self.room.options, *tests], plugins=[plugin]))


class _Asked:
    """Within a child that has imported a mutant: the tests in the order that is thought best, to the first failure."""

    def __init__(self, fates: Fates, job: Job | None, tell: Callable[[str], None]) -> None:
        self._fates, self._job, self._tell = fates, job, tell

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run them, and say who failed."""
        if session.testsfailed:
            raise session.Interrupted("not all could be collected")
        failed = _ask(session, self._fates, self._job)
        self._tell(failed)
        return True


class _Session:
    """All is imported and collected once, and a child forked for each mutant."""

    def __init__(self, worker: Worker, jobs: list[Job], watch: Callable[[], None]) -> None:
        self._worker, self._jobs, self._watch = worker, jobs, watch
        self.failure = 0

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of running the tests once."""
        if session.testsfailed or not session.items:
            raise session.Interrupted("not all could be collected")
        worker, room = self._worker, self._worker.room
        for module in {job.module for job in self._jobs}:
            importlib.import_module(room.name_of(module))
        gc.collect()
        gc.freeze()
        plain = worker.tried(lambda tell: _timed(session, tell))
        if plain.kind != SURVIVED:
            self.failure = 1
            print(f"without a mutant: {plain.kind} {plain.by}", file=sys.stderr)
            return True
        worker.fates.note_seconds(json.loads(plain.by))
        worker.limit_s = 3 * plain.cpu_s + 2 * _GRACE_S
        for job in self._jobs:
            swap = _swap(room.name_of(job.module), job, worker.package / job.module)
            if swap is None:
                continue
            function, code = swap

            def ask(
                tell: Callable[[str], None],
                function: FunctionType = function,
                code: CodeType = code,
                job: Job = job,
            ) -> int:
                function.__code__ = code
                failed = _ask(session, worker.fates, job)
                tell(failed)
                return int(bool(failed))

            worker.fates.note(job, worker.tried(ask))
            self._watch()
        if worker.tried(lambda tell: _timed(session, tell)).kind != SURVIVED:
            self.failure = 1
        return True


def _ask(session: pytest.Session, fates: Fates, job: Job | None) -> str:
    """Run the collected tests, those first that are likely to fail; the one that failed, or ""."""
    items = {item.nodeid: item for item in session.items}
    order = fates.order(job, list(items))
    for number, name in enumerate(order):
        item = items[name]
        following = items[order[number + 1]] if number + 1 < len(order) else None
        _allow(_GRACE_S + 3 * fates.seconds.get(name, _GRACE_S))
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return name
    return ""


def _allow(seconds: float) -> None:
    """Let this process end when it has used so much more of the processor: a mutant's loop may be without end."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(time.process_time() + seconds)
    resource.setrlimit(
        resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard)
    )


def _timed(session: pytest.Session, tell: Callable[[str], None]) -> int:
    """Run the collected tests as they come, and tell how long each took, or who failed."""
    seconds = {}
    for number, item in enumerate(session.items):
        following = session.items[number + 1] if number + 1 < len(session.items) else None
        began = time.process_time()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        seconds[item.nodeid] = round(time.process_time() - began, 4)
        if session.testsfailed:
            tell(item.nodeid)
            return 1
    tell(json.dumps(seconds))
    return 0


def _swap(module: str, job: Job, path: Path) -> tuple[FunctionType, CodeType] | None:
    """The function whose body a mutant changes, and its new body; None where it cannot be exchanged."""
    name = job.mutant.function
    there: object = sys.modules[module]
    for part in name.split("."):
        there = vars(there).get(part)
        if there is None:
            return None
        if isinstance(there, property):
            there = there.fget
        elif isinstance(there, staticmethod | classmethod):
            there = there.__func__
    function = inspect.unwrap(there) if callable(there) else None
    if not isinstance(function, FunctionType):
        return None
    source = mutated(path.read_text(encoding="utf-8"), job.mutant.number)
    found = [code for code in _codes(compile(source, str(path), "exec")) if code.co_qualname == name]
    if len(found) != 1 or found[0].co_freevars != function.__code__.co_freevars:
        return None
    return function, found[0]


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _silence() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _end_with(run: Callable[[], int]) -> None:
    """The end of a child, whatever happens in it."""
    code = 99
    try:
        code = run()
    except BaseException:  # noqa: BLE001 - the child ends here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
