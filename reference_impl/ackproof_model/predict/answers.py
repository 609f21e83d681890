"""Answers of the explorer for a scope, bounded by states and not by seconds: the same question has the same answer.

Smaller worlds are searched first. A finding there is possible in the large world too, with a shorter counterexample.
Only the large world, searched completely, makes a class impossible.

Answers are cached, in memory and in the cache folder, by the scope (rules and budget included) and by the sources of
the reference implementation. An answer that decides every class holds for any higher bound too. An answer that leaves a
class unknown holds only for its own bound. So the cache never changes an answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Final, TypeVar

import ackproof_reference
from ackproof.base.environment import cache_root
from ackproof.base.errors import BadInput
from ackproof.rundir.anomalies import MISSING
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.document import Document
from ackproof.rundir.model import StoryStep
from ackproof_reference.explore.model import StoryLine
from ackproof_reference.explore.scope import Budget, Scope
from ackproof_reference.explore.search import Search
from ackproof_reference.explore.story import counterexample_lines, format_value
from ackproof_reference.explore.world import world

Task = TypeVar("Task")
Result = TypeVar("Result")

USUAL_STATES: Final = 240_000
"""Limit of distinct states for one scope of a case or run: up to 20 seconds of a core, and 150 MiB."""
FURTHER_STATES: Final = 1_500_000
"""Limit of distinct states for one scope if a prediction is repeated, because a class that the run shows stayed
unknown: up to two minutes of a core, and 650 MiB."""
_SMALLER_SHARE: Final = 8
"""Each smaller scope gets at most one eighth of the states. At most five of them have the full budget less one
incident, so three eighths are left for the full scope. The two with the budgets `_TWO_ENDS` need a few thousand states
only."""


class Answer(Document):
    """The answer for one anomaly class in one scope: possible, impossible or unknown.

    The counterexample of a possible class is in `story` as lines of text, in `steps` for a sequence diagram; `ending`
    is its finding. A consumer group has its counterexamples in `story` only.
    """

    chance: Chance
    steps: tuple[StoryStep, ...] = ()
    story: tuple[str, ...] = ()
    ending: str = ""
    scope: str = ""
    """The scope in which the counterexample was found, else the searched one, as for `ackproof explore --scope`. For a
    class of a consumer group: the reason of the answer, as a sentence."""


class Answers(Document):
    """The answers for a scope, by anomaly class. `states`: number of distinct states found, for this scope and for the
    smaller scopes that it contains (`smaller`). `bound`: limit of that number.

    `exhausted`: False if a limit ended the search before every class was decided."""

    classes: dict[str, Answer]
    states: int
    exhausted: bool
    bound: int

    @property
    def settled(self) -> bool:
        return all(answer.chance is not Chance.UNKNOWN for answer in self.classes.values())


_known: dict[str, Answers] = {}


def answers(scope: Scope, *, max_states: int = USUAL_STATES) -> Answers:
    """Return the answers for a scope, from the cache or by searches, which fill the cache.

    `max_states`: limit of all searches together, for this scope and for the smaller scopes that it contains
    (`smaller`). It is checked after slices of at most 8192 states."""
    found = remembered(scope, max_states)
    return found if found is not None else _keep(scope, _worked_out(scope, max_states))


def remembered(scope: Scope, max_states: int = USUAL_STATES) -> Answers | None:
    """Return the cached answers of a search with the limit `max_states`, or with a lower limit that was enough to
    decide every class. None if the cache has none."""
    return _recall([_key(scope, bound) for bound in (None, max_states)], max_states)


def _recall(keys: Sequence[str], bound: int) -> Answers | None:
    for key in keys:
        if key not in _known and (read := _read(_cache_path(key))) is not None:
            _known[key] = read
        if key in _known and _known[key].bound <= bound:
            return _known[key]
    return None


def _keep(scope: Scope, found: Answers) -> Answers:
    return _store(_key(scope, None if found.settled else found.bound), found)


def _store(key: str, found: Answers) -> Answers:
    _known[key] = found
    kept = _cache_path(key)
    with contextlib.suppress(OSError):
        if kept is not None:
            found.save(kept)
    return found


def cached(question: str, bound: int, work: Callable[[], Answers]) -> Answers:
    """Return the answers to a question from the cache, or else from `work`, a search of at most `bound`
    states, and cache them. Answers of a search that its bound did not cut short hold for every higher bound."""
    if (known := _recall([_key_of(question, limit) for limit in (None, bound)], bound)) is not None:
        return known
    found = work()
    return _store(_key_of(question, None if found.exhausted else bound), found)


def ask_ahead(scopes: Iterable[Scope], *, max_states: int = USUAL_STATES) -> Iterator[tuple[int, int]]:
    """Search several scopes in parallel and fill the cache, from which `answers` takes the results.

    Yields progress as (done, total); the search goes on only while the caller iterates. With fewer than two scopes to
    search, or a single core, it does nothing and yields nothing.
    """
    new = [scope for scope in dict.fromkeys(scopes) if remembered(scope, max_states) is None]
    if min(cores(), len(new)) < 2:
        return
    work = partial(_worked_out, max_states=max_states)
    for number, (scope, found) in enumerate(in_processes(work, new), start=1):
        _keep(scope, found)
        yield number, len(new)


def _key(scope: Scope, bound: int | None) -> str:
    """Return the cache key of a scope's answers. `bound`: limit of states with which they were found. None: they decide
    every class, and so hold for any higher limit too."""
    worlds = [one for one, _ in smaller(scope)]
    return _key_of(f"{MISSING}|{scope!r}|{worlds!r}", bound)


def _key_of(question: str, bound: int | None) -> str:
    return hashlib.sha256(f"{sources()}|{bound}|{question}".encode()).hexdigest()[:32]


def _cache_path(key: str) -> Path | None:
    """Return the path of the file with a cached answer; None without a writable cache folder: then nothing is
    cached.
    """
    try:
        return cache_root() / "predictions" / f"{key}.json"
    except BadInput:
        return None


def described(scope: Scope) -> str:
    """Return a scope on one line, as `ackproof explore --scope` accepts it: size and incidents, without the settings of
    its rules."""
    sizes = {
        "brokers": scope.brokers,
        "records": scope.records,
        "acks": {-1: "all"}.get(scope.acks, scope.acks),
    }
    wrong = {name: count for name, count in scope.budget._asdict().items() if count}
    return ",".join(f"{name}={value}" for name, value in {**sizes, **wrong}.items())


def steps_of(way: Iterable[StoryLine]) -> Iterator[StoryStep]:
    """Yield the steps of a counterexample as text, for a sequence diagram, each with the changed parts of the state.
    Changes of the budget are left out."""
    for told in way:
        changed = tuple((name, format_value(after)) for name, _, after in told.changed if name != "budget")
        action = told.action
        yield StoryStep(actor=action.actor, target=action.target, text=action.text, changed=changed)


@cache
def sources() -> str:
    """Return a hash of the reference implementation's sources, which is part of each cache key: answers of other
    sources are not used."""
    digest = hashlib.sha256()
    root = Path(ackproof_reference.__file__).parent
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


_TWO_ENDS: Final = (Budget(kills=1, power_losses=1), Budget(power_losses=2))
"""Budgets of two brokers (`smaller`) under which both may end, at least one of them in a power loss."""


def smaller(scope: Scope) -> Iterator[tuple[Scope, str]]:
    """Yield the smaller scopes of two brokers that a scope of three brokers contains. Each comes with a sentence on why
    the third broker is away.

    The loss of the third broker uses up one incident of the budget, such as a kill or a fencing. Scopes that allow only
    a kill and a power loss, or two power losses, come first (`_TWO_ENDS`). Yields nothing for a scope of another number
    of brokers.
    """
    if scope.brokers != 3:
        return
    two = [
        (replace(scope, brokers=2, budget=scope.budget._replace(**{name: left - 1})), name)
        for name in ("shrinks", "cuts", "clean_stops", "kills", "power_losses")
        if (left := getattr(scope.budget, name))
    ]
    # In a run with many incidents the short ways to a loss drown among everything else that may happen.
    few = [
        (replace(large, budget=budget), name)
        for large, name in two
        for budget in _TWO_ENDS
        if all(count <= most for count, most in zip(budget, large.budget, strict=True))
    ]
    away: dict[Scope, str] = {}
    for one, name in (*few, *two):
        away.setdefault(one, name)
    for one, name in away.items():
        why = {"shrinks": "was dropped as slow", "cuts": "was fenced"}.get(name, "is down")
        yield one, f"broker 3 {why} before, and stays away"


def _worked_out(scope: Scope, max_states: int) -> Answers:
    found: dict[str, Answer] = {}
    spent, exhausted = 0, True
    for one, before in (*smaller(scope), (scope, "")):
        wanted = frozenset(MISSING) - found.keys()
        if not wanted:
            continue
        search = Search(world(one), wanted)
        limit = max_states // _SMALLER_SHARE if before else max(1, max_states - spent)
        spent += search.run(max_states=limit).states
        for kind in search.findings.keys() & wanted:
            finding = search.findings[kind]
            way = search.way_to(finding.state)
            lines = [line.strip() for line in counterexample_lines(finding, way)]
            found[kind] = Answer(
                chance=Chance.POSSIBLE,
                steps=tuple(steps_of(way)),
                story=(*((f"({before})",) if before else ()), *lines),
                ending=f"{finding.kind}: {finding.text}",
                scope=described(one),
            )
        exhausted = search.exhausted or search.satisfied
    otherwise = Answer(chance=Chance.IMPOSSIBLE if exhausted else Chance.UNKNOWN, scope=described(scope))
    return Answers(
        classes={kind: found.get(kind, otherwise) for kind in MISSING},
        states=spent,
        exhausted=exhausted,
        bound=max_states,
    )


def _read(kept: Path | None) -> Answers | None:
    if kept is None or not kept.exists():
        return None
    try:
        return Answers.load(kept)
    except BadInput:
        return None  # torn or of another version: it is worked out again


# -- worker processes, which never outlive their caller ----------------------------------------------------------------


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def in_processes(work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[Task, Result]]:
    """Yield each task with its result as it finishes; one process per core, ended at once when the caller stops.

    `work` and the tasks (at least one) are pickled. Raises what `work` raises.
    """
    pool = ProcessPoolExecutor(min(cores(), len(tasks)), initializer=_deaf)
    try:
        asked = {pool.submit(work, task): task for task in tasks}
        for done in as_completed(asked):
            yield asked[done], done.result()
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _deaf() -> None:
    """Let a worker process ignore SIGINT, and end on SIGTERM: the parent handles Ctrl-C and ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
