"""A counterexample that `ackproof force` leads real brokers through: its steps, with the model's state after each.

It is read from the output of `ackproof explore --json`, or searched for the prediction of a case.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from ackproof.base.errors import BadInput
from ackproof.experiment.case import Case
from ackproof.rundir.anomalies import MISSING
from ackproof.rundir.document import Document
from ackproof.rundir.model import StoryStep
from ackproof_model.explore import rules_in_words, scope_in_words
from ackproof_model.predict.answers import USUAL_STATES, smaller
from ackproof_model.predict.cases import rules_name, scope_for
from ackproof_reference.explore.model import StoryLine
from ackproof_reference.explore.scope import Scope
from ackproof_reference.explore.search import Search
from ackproof_reference.explore.world import world

KAFKA: Final = "kafka"
State = Mapping[str, Hashable]
"""A state of the model: the value of every cell, by the cell's name."""


@dataclass(frozen=True)
class Story:
    """A counterexample that the search found. `kind`: class of the finding. `text`: the finding, a sentence. `scope`:
    size and rules of the model in which it was found. `way`: its steps.
    """

    kind: str
    text: str
    scope: Scope
    way: tuple[StoryLine, ...]

    def states(self) -> list[State]:
        """Return the state before the first step, and after each step."""
        model = world(self.scope.in_stories)
        state: State = dict(zip(model.names, model.initial, strict=True))
        found = [state]
        for told in self.way:
            state = {**state, **{name: after for name, _, after in told.changed}}
            found.append(state)
        return found


class _Told(Document):
    text: str = ""
    steps: tuple[StoryStep, ...]


class _File(Document):
    """Output of `ackproof explore --json`, without fields that are not needed here.

    `of`: the protocol that was searched. `rules`: the release whose rules it has. `without`: protections that were
    taken out of these rules. `scope`: size of the model, as text. `found`: the counterexample of each class of finding.
    """

    of: str = KAFKA
    rules: str
    without: tuple[str, ...] = ()
    scope: str
    found: dict[str, _Told]


def read_story(path: Path, wanted: str | None = None) -> tuple[Story, str]:
    """Read a counterexample that `ackproof explore --json` wrote; return it with the release of its rules.

    `wanted`: its class; None if the file has only one. The model takes each step again, to get the states
    between them. Raises `BadInput` for a file without such a counterexample, for several classes without
    `wanted`, and for steps that this model cannot take.
    """
    try:
        file = _File.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise BadInput(f"{path}: not a story as `ackproof explore --json` writes it: {error}") from error
    if file.of != KAFKA:
        raise BadInput(f"{path}: a story of '{file.of}'; brokers can be walked through those of {KAFKA}")
    kinds = list(file.found)
    if not kinds or (wanted is not None and wanted not in kinds):
        raise BadInput(f"{path}: it holds {'no story' if not kinds else 'stories of ' + ', '.join(kinds)}")
    if wanted is None and len(kinds) > 1:
        raise BadInput(f"{path}: it holds stories of {', '.join(kinds)}; say which with --find")
    kind = wanted or kinds[0]
    scope = scope_in_words(file.scope, rules_in_words(file.rules, file.without))
    way = followed(scope, file.found[kind].steps)
    return Story(kind, file.found[kind].text, scope, way), file.rules


def followed(scope: Scope, steps: Sequence[StoryStep]) -> tuple[StoryLine, ...]:
    """Take the steps of a counterexample in the model of `scope`; return them, each with the parts of the
    state that it changes. Raises `BadInput` for a step that the model cannot take."""
    way = [(step.actor, step.text, step.target) for step in steps]
    try:
        return tuple(Search(world(scope.in_stories)).follow(way))
    except ValueError as error:
        raise BadInput(f"the story is none of this model: {error}") from error


IMPOSSIBLE: Final = "it is impossible"


def story_of(case: Case, anomaly: str, max_states: int | None = None) -> tuple[Story, str] | str:
    """Search for a counterexample of an anomaly class in the model of a case; return it with the name of its rules.

    If none is found, return the reason as text: `IMPOSSIBLE` if none exists. The model has one partition of the case's
    first topic. Models with one broker less (`smaller`) are searched first, then the full model. The counterexample is
    the shortest of the first model that has one. `max_states`: limit of each of these searches; None: the usual limit.
    """
    if anomaly not in MISSING:
        return f"a rule answers for {anomaly}, and no story"
    (topic, *_) = case.experiment.topic_names()
    try:
        scope, _ = scope_for(case, topic)
    except ValueError as error:
        return str(error)
    exhausted = False
    for world_of in (*(one for one, _ in smaller(scope)), scope):
        search = Search(world(world_of), frozenset({anomaly}))
        search.run(max_states=max_states or USUAL_STATES)
        if (found := search.findings.get(anomaly)) is not None:
            way = tuple(search.way_to(found.state))
            return Story(anomaly, found.text, world_of, way), rules_name(case)
        exhausted = search.exhausted
    return IMPOSSIBLE if exhausted else "no way was found within so many states"
