"""What a mutant is asked, and how: the tests of a room, and what it has beside them.

Each is asked in a forked child that has all imports done. An exam of which the unchanged package shows that it never
runs a changed statement is not asked: everything in it is derandomized, so that it would say the same as before.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import HealthCheck, Phase, settings

from .corpus import RandomLedgers
from .rooms import ROOT, Room

if TYPE_CHECKING:
    from _typeshed import TraceFunction

_WALL_S = 600
_MEMORY = 4 << 30
"""A mutant may make a search endless; this many bytes of addresses are enough for each exam."""
settings.register_profile(
    "mutation",
    database=None,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)

SURVIVED, KILLED, HUNG, DIED, SAME = "survived", "killed", "hung", "died", "same"
"""All passed; one failed; far more CPU than it should need; a crash of the process; compiles to the same."""


@dataclass(frozen=True)
class Exam:
    """`ask` raises or says False where it does not go well. `item`: it is a test, told which test is next."""

    name: str
    ask: Callable[[pytest.Item | None], bool]
    item: pytest.Item | None = None


@dataclass(frozen=True)
class Measured:
    """What an exam does with the unchanged package. `seconds`: of CPU, while its lines were noted, which is slower."""

    seconds: float
    lines: frozenset[tuple[str, int]]
    """(module, line) of the package that it runs."""


@dataclass(frozen=True)
class Answer:
    """What became of a mutant, by which exam, which were asked, and the CPU seconds that it took."""

    fate: str
    by: str
    asked: tuple[str, ...]
    seconds: float


class _Tests:
    """A pytest plugin that does something else with the tests than to run them one after the other."""

    def __init__(self, work: Callable[[list[Exam]], None]) -> None:
        self._work = work
        self._failed = False

    @pytest.hookimpl
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of running the tests once."""
        if session.testsfailed or not session.items:
            raise session.Interrupted("not all could be collected")
        self._work([self._exam(item) for item in session.items])
        return True

    def _exam(self, item: pytest.Item) -> Exam:
        def ask(following: pytest.Item | None) -> bool:
            self._failed = False
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            return not self._failed

        return Exam(item.nodeid, ask, item)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Whether something failed; said in full where somebody looks on."""
        if report.failed:
            self._failed = True
            print(report.longreprtext)


def with_exams(
    room: Room, root: Path, beside: RandomLedgers | None, work: Callable[[list[Exam]], None], only: str = ""
) -> bool:
    """Collect the tests in this process (`only`: one file of them), and do `work` with all exams; whether it could.

    `root`: a folder for what the tests write.
    """
    settings.load_profile("mutation")
    # A plugin that comes from ackproof itself would have to be loaded before what it is made of; with rewritten
    # assertions pytest would load the modules of a plugin's package itself, and not the mutant.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ["-qq", "-s", "--tb=native", "--assert=plain", "-p", "no:cacheprovider", "-p", "pytest_timeout"]
    options += ["--timeout=0", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    options += [f"--basetemp={root / f'pytest-{os.getpid()}'}", *room.options]
    options += [f"--rootdir={ROOT}", "-c", str(ROOT / "pyproject.toml")]
    tests = [str(ROOT / name) for name in ([only] if only else room.tests)]
    others = [Exam(name, _asked(ask)) for name, ask in (beside.exams() if beside and not only else ())]
    return pytest.main([*options, *tests], plugins=[_Tests(lambda exams: work([*others, *exams]))]) == 0


def _asked(ask: Callable[[], None]) -> Callable[[pytest.Item | None], bool]:
    def answered(following: pytest.Item | None) -> bool:
        del following
        ask()
        return True

    return answered


def measure(room: Room, exams: Iterable[Exam], root: Path, kept: Path) -> dict[str, Measured]:
    """Each in a child of its own, so that each makes what they share; all must go well.

    `kept`: measured before, and what is measured now; good as long as neither the package nor the exam was changed.
    """
    known: dict[tuple[str, str], Measured] = pickle.loads(kept.read_bytes()) if kept.exists() else {}
    found: dict[str, Measured] = {}
    file = root / "measured"
    try:
        for exam in exams:
            key = exam.name, room.stamp(exam.name)
            if key not in known:
                answer = in_child([exam], lambda _: 3600.0, before=lambda: _trace(room, file))
                if answer.fate != SURVIVED:
                    raise SystemExit(f"without a mutant {exam.name} {answer.fate}")
                known[key] = Measured(answer.seconds, pickle.loads(file.read_bytes()))
            found[exam.name] = known[key]
    finally:
        kept.write_bytes(pickle.dumps({(exam, room.stamp(exam)): one for exam, one in found.items()}))
    return found


def _trace(room: Room, file: Path) -> Callable[[], None]:
    hits: set[tuple[str, int]] = set()
    names = {str(room.folder / path): path for path in room.paths}

    def trace(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        del event
        module = names.get(frame.f_code.co_filename)
        if module is None:
            return None
        hits.add((module, frame.f_lineno))
        return trace

    threading.settrace(trace)
    sys.settrace(trace)

    def done() -> None:
        sys.settrace(None)
        file.write_bytes(pickle.dumps(frozenset(hits)))

    return done


def in_child(
    exams: Sequence[Exam],
    limit_s: Callable[[str], float],
    *,
    before: Callable[[], Callable[[], None] | None] = lambda: None,
    shown: bool = False,
) -> Answer:
    """Ask in a forked child, after `before`, until one is not passed. `limit_s`: how much CPU one may take."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(out)
        try:
            os.setsid()
            if not shown:
                silence()
            _answer(exams, limit_s, before, lambda text: _write_all(into, f"{text}\n".encode()))
        except BaseException:  # noqa: BLE001 - the child ends here, whatever it was
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(0)
    os.close(into)
    text = _all_of(out, pid)
    _, status, usage = os.wait4(pid, 0)
    seconds = usage.ru_utime + usage.ru_stime
    lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    asked = tuple(line["asked"] for line in lines if "asked" in line)
    if lines and "fate" in lines[-1]:
        return Answer(lines[-1]["fate"], "" if lines[-1]["fate"] == SURVIVED else asked[-1], asked, seconds)
    hung = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
    return Answer(HUNG if hung else DIED, asked[-1] if asked else "", asked, seconds)


def silence() -> None:
    """Let nobody hear what this process says."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)


def _answer(
    exams: Sequence[Exam],
    limit_s: Callable[[str], float],
    before: Callable[[], Callable[[], None] | None],
    say: Callable[[str], None],
) -> None:
    done = before()
    resource.setrlimit(resource.RLIMIT_AS, (_virtual() + _MEMORY, resource.RLIM_INFINITY))
    for number, exam in enumerate(exams):
        say(json.dumps({"asked": exam.name}))
        used = time.process_time() + limit_s(exam.name)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used) + 1, resource.RLIM_INFINITY))
        following = next((other.item for other in exams[number + 1 :] if other.item is not None), None)
        try:
            good = exam.ask(following)
        except Exception:  # noqa: BLE001 - a mutant may do anything
            traceback.print_exc()
            good = False
        if not good:
            say(json.dumps({"fate": KILLED}))
            return
    if done is not None:
        done()
    say(json.dumps({"fate": SURVIVED}))


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _virtual() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _all_of(out: int, pid: int) -> str:
    """What the child says until it ends; it is ended, with what it started, where it does nothing for long.

    On a busy machine it may be slow: as long as it gets on at all it is waited for.
    """
    said, used = b"", 0.0
    while True:
        ready, _, _ = select.select([out], [], [], _WALL_S)
        if ready:
            piece = os.read(out, 1 << 16)
            if not piece:
                os.close(out)
                return said.decode()
            said += piece
        elif (now := _cpu_of(pid)) > used:
            used = now
        else:
            os.killpg(pid, signal.SIGKILL)


def _cpu_of(pid: int) -> float:
    """Of a process and of all that it started, as far as that is still there."""
    seconds = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        own = psutil.Process(pid)
        for process in (own, *own.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                seconds += times.user + times.system + times.children_user + times.children_system
    return seconds
