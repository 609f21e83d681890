"""What a mutant of the audit is asked, and how: random ledgers against the plain audit, and the tests without a JVM.

Each is asked in a forked child that has all imports done. An exam of which the unchanged audit shows that it never runs
a changed statement is not asked: everything in it is derandomized, so that it would say the same as before.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import pickle
import random
import resource
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from . import reference
from .agreement import WAYS, agree, write
from .local import LocalContext
from .mutants import AUDIT, ROOT
from .strategies import Drawn, directories

TESTS = (
    *("test_classes.py", "test_transactions.py", "test_parts.py", "test_bad_ledgers.py", "test_session.py"),
    *(
        "test_planted_ledgers.py",
        "test_other_ledgers.py",
        "test_edges.py",
        "test_rounds.py",
        "test_tables.py",
    ),
)
"""Not test_agreement.py: the random ledgers are its, always the same ones."""
LEDGERS = ((0, 2), (2, 8), (8, 24), (24, 40))
DRAWN = 1000
"""So many are drawn, of which the richest are asked."""
RUNNERS = ("exams", "mutants", "mutation")
WALL_S = 600
MEMORY = 4 << 30
settings.register_profile(
    "mutation",
    database=None,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True)
class Exam:
    """`ask` says whether it went well, or raises."""

    name: str
    ask: Callable[[], bool]


@dataclass(frozen=True)
class Measured:
    """What an exam does with the unchanged audit."""

    seconds: float
    """Of CPU, while its lines were noted, which is slower."""
    lines: frozenset[tuple[str, int]]
    """(module, line) of the audit that it runs."""


@dataclass(frozen=True)
class Answer:
    """`fate`: survived, killed (it failed), hung (far more CPU than it should need), died (a crash of the process)."""

    fate: str
    by: str
    asked: tuple[str, ...]
    seconds: float


def features(one: Drawn) -> set[tuple]:
    """What there is to find in a ledger, and which roads lead there."""
    found = reference.audit(one.produced, one.reads, one.open_producers, one.transactions, one.read_committed)
    kind = (bool(one.transactions), any(read.offset > 2**52 for read in one.reads))
    some = {(name, min(number, 3), *kind) for name, number in found.counts.items()}
    some |= {("unledgered", min(found.unledgered, 2)), ("final read", min(len(found.final_read), 2))}
    some |= {("both acked", min(len(found.both_acked), 2)), ("untold", min(found.untold, 2))}
    some |= {("epochs", *sorted({min(max(read.leader_epoch, -1), 1) for read in one.reads}))}
    return some | {("size", len(one.produced) // 5, len(one.reads) // 10)}


def richest(drawn: list[Drawn], count: int) -> list[Drawn]:
    """Those that together hold the most, each thing up to six times; what holds most comes first."""
    left = [(one, features(one)) for one in drawn]
    seen: Counter[tuple] = Counter()
    chosen: list[Drawn] = []
    while len(chosen) < count:
        at = max(range(len(left)), key=lambda at: sum(seen[feature] < 6 for feature in left[at][1]))
        one, held = left.pop(at)
        seen.update(held)
        chosen.append(one)
    return chosen


def draw(count: int) -> list[Drawn]:
    """Always the same ledgers."""
    drawn: list[Drawn] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(directories())
    def each(one: Drawn) -> None:
        drawn.append(one)

    each()
    return drawn


def write_corpus(root: Path) -> None:
    """The random ledgers, as files and as what they were drawn as."""
    drawn, shuffle = richest(draw(DRAWN), LEDGERS[-1][1]), random.Random(1)
    for number, one in enumerate(drawn):
        write(root / str(number), one, shuffle)
    (root / "drawn").write_bytes(pickle.dumps(drawn))


def ledger_exams(root: Path) -> list[Exam]:
    drawn = pickle.loads((root / "drawn").read_bytes())

    def exam(first: int, last: int, way: str) -> Exam:
        def ask() -> bool:
            from ackproof.audit.pipeline import audit_all
            from ackproof.audit.units import Limits

            paths = [root / str(number) for number in range(first, last)]
            results = audit_all(paths, LocalContext, lambda _: None, Limits(**WAYS[way]))
            for one, path, result in zip(drawn[first:last], paths, results, strict=True):
                agree(one, path, result)
            return True

        return Exam(f"ledgers {first}-{last} {way}", ask)

    return [exam(first, last, way) for first, last in LEDGERS for way in WAYS]


class Tests:
    """A pytest plugin that does something else with the tests than to run them one after the other."""

    def __init__(self, work: Callable[[list[Exam]], None]) -> None:
        self._work = work
        self._failed = False

    @pytest.hookimpl
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        def exam(item: pytest.Item) -> Exam:
            def ask() -> bool:
                self._failed = False
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                return not self._failed

            return Exam(item.nodeid.removeprefix("tests/audit/"), ask)

        assert not session.testsfailed, "not all tests could be collected"
        self._work([exam(item) for item in session.items])
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed


def with_tests(root: Path, work: Callable[[list[Exam]], None]) -> None:
    """Collect the tests in this process, and do `work` with them and the random ledgers."""
    settings.load_profile("mutation")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # With rewritten assertions pytest would load the modules of a plugin's package itself, and not the mutant.
    options = [
        "-q",
        "-s",
        "-m",
        "not audit",
        "--assert=plain",
        "-p",
        "no:cacheprovider",
        "-p",
        "pytest_timeout",
    ]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning", f"--basetemp={root / 'pytest'}"]
    tests = [str(ROOT / "tests" / "audit" / name) for name in TESTS]
    ledgers = ledger_exams(root)
    assert pytest.main([*options, *tests], plugins=[Tests(lambda exams: work([*ledgers, *exams]))]) == 0


def measure(exams: Iterable[Exam], root: Path, kept: Path) -> dict[str, Measured]:
    """Each in a child of its own, so that each makes what they share; all must go well.

    `kept`: measured before, and what is measured now; good as long as neither the audit nor the exam was changed.
    """
    known: dict[tuple[str, str], Measured] = pickle.loads(kept.read_bytes()) if kept.exists() else {}
    found: dict[str, Measured] = {}
    file = root / "measured"
    for exam in exams:
        key = exam.name, stamp(exam.name)
        if key in known:
            found[exam.name] = known[key]
            continue
        answer = in_child([exam], lambda _: 3600.0, before=lambda: _trace(file))
        assert answer.fate == "survived", f"without a mutant {exam.name} {answer.fate}"
        found[exam.name] = Measured(answer.seconds, pickle.loads(file.read_bytes()))
        known[key] = found[exam.name]
    kept.write_bytes(pickle.dumps(known))
    return found


@cache
def _texts(name: str) -> str:
    own = Path(__file__).parent
    helpers = [path for path in sorted(own.glob("*.py")) if path.name.startswith("test_") is False]
    texts = [path.read_text() for path in [*sorted(AUDIT.glob("*.py")), *helpers] if path.stem not in RUNNERS]
    if (own / name).is_file():
        texts.append((own / name).read_text())
    return hashlib.sha256("".join(texts).encode()).hexdigest()


def stamp(exam: str) -> str:
    """Another one where the audit, the exam or what it is made of reads differently."""
    return _texts(exam.partition("::")[0]) + str((LEDGERS, DRAWN) if exam.startswith("ledgers ") else "")


def _trace(file: Path) -> Callable[[], None]:
    hits: set[tuple[str, int]] = set()
    names = {str(path): path.stem for path in AUDIT.glob("*.py")}

    def trace(frame, event, _):
        module = names.get(frame.f_code.co_filename)
        if module is None:
            return None
        hits.add((module, frame.f_lineno))
        return trace

    sys.settrace(trace)

    def done() -> None:
        sys.settrace(None)
        file.write_bytes(pickle.dumps(frozenset(hits)))

    return done


def in_child(
    exams: Iterable[Exam],
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
            if not shown:
                null = os.open(os.devnull, os.O_RDWR)
                for descriptor in (0, 1, 2):
                    os.dup2(null, descriptor)
            _answer(exams, limit_s, before, lambda text: os.write(into, f"{text}\n".encode()))
        except BaseException:  # noqa: BLE001 - the child ends here, whatever it was
            traceback.print_exc()
        os._exit(0)
    os.close(into)
    text = _all_of(out, pid)
    _, status, usage = os.wait4(pid, 0)
    seconds = usage.ru_utime + usage.ru_stime
    lines = [json.loads(line) for line in text.splitlines()]
    asked = tuple(line["asked"] for line in lines if "asked" in line)
    if lines and "fate" in lines[-1]:
        return Answer(lines[-1]["fate"], "" if lines[-1]["fate"] == "survived" else asked[-1], asked, seconds)
    hung = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
    return Answer("hung" if hung else "died", asked[-1] if asked else "", asked, seconds)


def _answer(exams, limit_s, before, say) -> None:
    done = before()
    gc.freeze()  # what was there before is not looked at, and its pages are not copied
    resource.setrlimit(resource.RLIMIT_AS, (_virtual() + MEMORY, resource.RLIM_INFINITY))
    for exam in exams:
        say(json.dumps({"asked": exam.name}))
        used = time.process_time() + limit_s(exam.name)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used) + 1, resource.RLIM_INFINITY))
        try:
            good = exam.ask()
        except Exception:  # noqa: BLE001 - a mutant may do anything
            traceback.print_exc()
            good = False
        if not good:
            say(json.dumps({"fate": "killed"}))
            return
    if done is not None:
        done()
    say(json.dumps({"fate": "survived"}))


def _virtual() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _all_of(out: int, pid: int) -> str:
    """What the child says until it ends; it is ended where it does nothing for long."""
    said = b""
    while True:
        ready, _, _ = select.select([out], [], [], WALL_S)
        if not ready:
            os.kill(pid, signal.SIGKILL)
        elif piece := os.read(out, 1 << 16):
            said += piece
        else:
            os.close(out)
            return said.decode()
