"""The story of a case's prediction, as it can be forced."""

from __future__ import annotations

from typing import Final

from ackproof.experiment.case import Case
from ackproof_model.force.story import Story
from ackproof_model.predict.answers import EXPLORED, USUAL_STATES, smaller
from ackproof_model.predict.cases import rules_name, scope_for
from ackproof_reference.explore.search import Search
from ackproof_reference.explore.world import world

IMPOSSIBLE: Final = "it is impossible"


def story_of(case: Case, anomaly: str, max_states: int | None = None) -> tuple[Story, str] | str:
    """The shortest way to a class in the world of a case's first topic, or one that it contains, and the name of its
    rules; or why there is none."""
    if anomaly not in EXPLORED:
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
