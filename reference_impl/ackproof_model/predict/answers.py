"""What the explorer says of a scope, bounded by states and not by seconds: the same question has the same answer.

Smaller worlds are looked at first. What is possible there is possible in the large one too, and its story is shorter;
only the large one, seen to its end, makes a class impossible. Answers are kept, in memory and in the cache folder, by
the scope (rules and budget are part of it) and by the sources of the reference implementation. One that says possible
or impossible of every class is the answer at any higher bound too; one that leaves a class unknown only at the bound
that it was asked with. So what is kept never changes an answer.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Final

import ackproof_reference
from ackproof.base.environment import cache_root
from ackproof.base.errors import BadInput
from ackproof.rundir.documents import Document
from ackproof.rundir.model import Chance, StoryStep
from ackproof_model.predict.workers import cores, in_processes
from ackproof_reference.explore.invariants import LOST, VANISHED
from ackproof_reference.explore.model import StoryLine
from ackproof_reference.explore.scope import Budget, Scope
from ackproof_reference.explore.search import Search
from ackproof_reference.explore.story import format_value, tell
from ackproof_reference.explore.world import world

EXPLORED: Final = (LOST, VANISHED)
"""The classes of the audit that the exploration answers."""
USUAL_STATES: Final = 240_000
"""Distinct states that a prediction looks at, of a case and of a run: up to 20 seconds of a core, and 150 MiB."""
FURTHER_STATES: Final = 1_500_000
"""… and before it stays unknown for a class that a run has shown: two minutes, and 650 MiB."""
_SMALLER_SHARE: Final = 8
"""Each smaller world gets this part of them at most: the five with all that happens leave three eighths at
least, and the two with little need a few thousand states."""


class Answer(Document):
    """The answer for one class in one scope."""

    chance: Chance
    steps: tuple[StoryStep, ...] = ()
    story: tuple[str, ...] = ()
    scope: str = ""
    """The world in which its story plays."""


class Answers(Document):
    """All answers for a scope. `states`: number visited in all its worlds; `bound`: the limit of that."""

    classes: dict[str, Answer]
    states: int
    exhausted: bool
    bound: int

    @property
    def settled(self) -> bool:
        return all(answer.chance is not Chance.UNKNOWN for answer in self.classes.values())


_known: dict[str, Answers] = {}


def answers(scope: Scope, *, max_states: int = USUAL_STATES) -> Answers:
    """Search a scope, or return the answer that is remembered."""
    found = remembered(scope, max_states)
    return found if found is not None else _keep(scope, _worked_out(scope, max_states))


def remembered(scope: Scope, max_states: int = USUAL_STATES) -> Answers | None:
    """The answer, if it was worked out before."""
    for bound in (None, max_states):
        key = _key(scope, bound)
        if key not in _known and (read := _read(_cache_path(key))) is not None:
            _known[key] = read
        if key in _known and _known[key].bound <= max_states:
            return _known[key]
    return None


def _keep(scope: Scope, found: Answers) -> Answers:
    key = _key(scope, None if found.settled else found.bound)
    _known[key] = found
    kept = _cache_path(key)
    with contextlib.suppress(OSError):
        if kept is not None:
            found.save(kept)
    return found


def ask_ahead(scopes: Iterable[Scope], *, max_states: int = USUAL_STATES) -> Iterator[tuple[int, int]]:
    """Work out in several processes what is not remembered, so that `answers` knows it; (done, of how many) as it goes.

    With one to be worked out, or one core, nothing is done here: `answers` works it out itself.
    """
    new = [scope for scope in dict.fromkeys(scopes) if remembered(scope, max_states) is None]
    if min(cores(), len(new)) < 2:
        return
    work = partial(_worked_out, max_states=max_states)
    for number, (scope, found) in enumerate(in_processes(work, new), start=1):
        _keep(scope, found)
        yield number, len(new)


def _key(scope: Scope, bound: int | None) -> str:
    """`bound` None: of an answer that leaves nothing open."""
    worlds = [one for one, _ in smaller(scope)]
    return hashlib.sha256(f"{sources()}|{bound}|{EXPLORED}|{scope!r}|{worlds!r}".encode()).hexdigest()[:32]


def _cache_path(key: str) -> Path | None:
    """Return the path of a kept answer; None without a writable cache folder, which costs time and nothing else."""
    try:
        return cache_root() / "predictions" / f"{key}.json"
    except BadInput:
        return None


def described(scope: Scope) -> str:
    """A scope in a line, as `ackproof explore --scope` takes it."""
    sizes = {
        "brokers": scope.brokers,
        "records": scope.records,
        "acks": {-1: "all"}.get(scope.acks, scope.acks),
    }
    wrong = {name: count for name, count in scope.budget._asdict().items() if count}
    return ",".join(f"{name}={value}" for name, value in {**sizes, **wrong}.items())


def steps_of(way: Iterable[StoryLine]) -> Iterator[StoryStep]:
    """A way as plain steps, for a sequence diagram."""
    for told in way:
        changed = tuple((name, format_value(after)) for name, _, after in told.changed if name != "budget")
        action = told.action
        yield StoryStep(actor=action.actor, target=action.target, text=action.text, changed=changed)


@cache
def sources() -> str:
    """A fingerprint of the reference implementation's sources: an answer of other ones is none."""
    digest = hashlib.sha256()
    root = Path(ackproof_reference.__file__).parent
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


_TWO_ENDS: Final = (Budget(kills=1, power_losses=1), Budget(power_losses=2))
"""Budgets in which only the last two of three replicas end, and one of them loses what was not flushed."""


def smaller(scope: Scope) -> Iterator[tuple[Scope, str]]:
    """Worlds of two brokers that this one contains, each with a sentence about the broker that is away."""
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
        wanted = frozenset(EXPLORED) - found.keys()
        if not wanted:
            continue
        search = Search(world(one), wanted)
        limit = max_states // _SMALLER_SHARE if before else max(1, max_states - spent)
        spent += search.run(max_states=limit).states
        for kind in search.findings.keys() & wanted:
            finding = search.findings[kind]
            way = search.way_to(finding.state)
            lines = [line.strip() for line in tell(finding, way)]
            found[kind] = Answer(
                chance=Chance.POSSIBLE,
                steps=tuple(steps_of(way)),
                story=(*((f"({before})",) if before else ()), *lines),
                scope=described(one),
            )
        exhausted = search.exhausted or search.satisfied
    otherwise = Answer(chance=Chance.IMPOSSIBLE if exhausted else Chance.UNKNOWN, scope=described(scope))
    return Answers(
        classes={kind: found.get(kind, otherwise) for kind in EXPLORED},
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
