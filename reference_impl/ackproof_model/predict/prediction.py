"""Prediction: case → each class of the audit impossible, possible (with a counterexample if replication decides) or
unknown.

`predict_case` uses the planned faults of a case, `predict_run` those that a run showed. Classes that the exploration
does not reach are decided by the settings alone (`experiment.promises`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.promises import Promises
from ackproof.judge.oracle import add_settings
from ackproof.rundir.anomalies import MISSING, PREDICTED_WITH
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.documents import AuditFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.metadata import MetadataRecord, read_metadata
from ackproof.rundir.model import PredictedClass, PredictionFile
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Event, read_timeline
from ackproof_model.predict.answers import (
    FURTHER_STATES,
    USUAL_STATES,
    Answer,
    Answers,
    answers,
    described,
)
from ackproof_model.predict.cases import CaseBudget, rules_name, scope_for
from ackproof_model.predict.groups import predict_groups
from ackproof_reference.explore.scope import ALL, Reductions, Scope

GROUP_STATES: Final = 8_000
"""Limit of distinct states of a consumer group's worlds that a prediction of a run visits: up to a second of a core."""
FURTHER_GROUP_STATES: Final = 60_000
"""Limit of distinct states of a consumer group's worlds that a prediction of a case visits. A prediction of a run is
repeated with it if `GROUP_STATES` left a class unknown that the run shows."""
_UNACKNOWLEDGED = (
    "acks=0 counts as acknowledged what was handed to the connection; when that breaks, or the broker behind it is "
    "gone, nobody tells the producer"
)


@dataclass(frozen=True)
class SearchOptions:
    """Options of a prediction's searches. `max_states`: limit of distinct states for one scope (size of a model) and
    the smaller scopes in it together. `reductions`: ways to search fewer states with the same answer."""

    max_states: int = USUAL_STATES
    reductions: Reductions = ALL
    group_states: int = FURTHER_GROUP_STATES
    """Limit of distinct states for all searches of one consumer group's worlds together."""

    def answer(self, scope: Scope) -> Answers:
        return answers(self.reduce(scope), max_states=self.max_states)

    def reduce(self, scope: Scope) -> Scope:
        return replace(scope, reductions=self.reductions)


def predict_case(case: Case, options: SearchOptions | None = None) -> PredictionFile:
    """Predict the anomalies that are possible under a case's settings and planned faults. `options` None: the
    usual limit of states, and all reductions."""
    options = options or SearchOptions()
    file = _explored(case, None, (), options)
    return add_settings(case, predict_groups(case, file, options.answer, max_states=options.group_states))


def predict_run(
    case: Case,
    run: CaseDir,
    seen: Collection[str] | None = None,
    *,
    max_states: int | None = None,
    reductions: Reductions = ALL,
) -> PredictionFile:
    """Predict the anomalies that are possible under a case's settings and the incidents that a run of it showed.

    The run directory is read and not changed. `seen`: classes that the run shows; None: as its audit says.
    `max_states`: limit of a search. None: the usual one; if it leaves a class of `seen` unknown, the search is repeated
    with a higher limit. Raises `BadInput` for a broken metadata log or a missing audit, OSError or ArrowException for
    another file that cannot be read."""
    if seen is None:
        counts = AuditFile.load(run.audit_json).counts
        seen = {anomaly for anomaly, count in counts.items() if count}
    events, decided = _evidence(run)
    options = SearchOptions(max_states or USUAL_STATES, reductions)
    file = _explored(case, events, decided, options)
    shown = [one for one in file.classes if one.explored and one.anomaly in seen]
    if max_states is None and any(one.chance is Chance.UNKNOWN for one in shown):
        file = _explored(case, events, decided, replace(options, max_states=FURTHER_STATES))
    if case.experiment.workload.groups:
        of_run = partial(predict_groups, case, file, options.answer, run=run, events=events, decided=decided)
        file = of_run(max_states=max_states or GROUP_STATES)
        if max_states is None and any(
            one.chance is Chance.UNKNOWN and one.anomaly in seen for one in file.groups
        ):
            file = of_run(max_states=FURTHER_GROUP_STATES)
    return add_settings(case, file)


def scopes_of(cases: Iterable[Case], options: SearchOptions | None = None) -> Iterator[Scope]:
    """Yield the scopes that a prediction of these cases searches, one per topic. A case that cannot be predicted, a
    topic that the case deletes, and a release without rules have none. `options` None: with all reductions."""
    for case in cases:
        if any(_refusals(case, None, ())):
            continue
        for topic in case.experiment.topic_names():
            with contextlib.suppress(ValueError):
                if not Promises.from_experiment(case.planned, topic).dropped:
                    yield (options or SearchOptions()).reduce(scope_for(case, topic)[0])


def _evidence(run: CaseDir) -> tuple[list[Event], tuple[MetadataRecord, ...]]:
    """Return a run's timeline without its broken lines, and its metadata log (() if it has none). Raises `BadInput` for
    a broken metadata log, OSError if the timeline cannot be read."""
    events, _ = read_timeline(run.timeline)
    return list(events), tuple(read_metadata(run.metadata_log)) if run.metadata_log.exists() else ()


def _explored(
    case: Case,
    events: Sequence[Event] | None,
    decided: Sequence[MetadataRecord],
    options: SearchOptions,
) -> PredictionFile:
    began = time.perf_counter()
    refused = list(_refusals(case, events, decided))
    found: dict[tuple[PredictedClass, ...], list[str]] = {}
    faults: dict[str, None] = {}
    clamped: dict[str, None] = {}
    scopes: dict[str, None] = {}
    states = 0
    for topic in case.experiment.topic_names() if not refused else ():
        if Promises.from_experiment(case.planned, topic).dropped:
            refused.append(f"{topic}: the topic is deleted on the way, and what it held goes with it")
            continue
        try:
            scope, counted = scope_for(case, topic, events, decided=decided)
        except ValueError as error:
            refused.append(f"{topic}: {error}")
            continue
        said = options.answer(scope)
        states += said.states
        scopes[described(scope)] = None
        faults.update(dict.fromkeys(counted.faults))
        clamped.update(dict.fromkeys(counted.clamped))
        classes = tuple(
            _classes(said, described(scope), scope.acks == 0 and _anything_broke(case, events, counted))
        )
        found.setdefault(classes, []).append(topic)
    together = len(found) == 1 and not refused
    rotten = tuple(_of_rot(case, events, decided, None if refused else options))
    refused += dict.fromkeys(
        f"{', '.join(one.partitions)}: {one.why}" for one in rotten if one.chance is Chance.UNKNOWN
    )
    return PredictionFile(
        classes=(
            *(
                one if together else one.model_copy(update={"topics": tuple(topics)})
                for classes, topics in found.items()
                for one in classes
            ),
            *rotten,
        ),
        rules=rules_name(case),
        scope="; ".join(scopes),
        faults=tuple(faults),
        observed=events is not None,
        states=states,
        seconds=round(time.perf_counter() - began, 3),
        reductions=options.reductions.names if scopes else None,
        clamped=tuple(clamped),
        not_predicted=tuple(refused),
    )


def _refusals(case: Case, events: Sequence[Event] | None, decided: Sequence[MetadataRecord]) -> Iterator[str]:
    """Yield each reason, as text, for which a case or run cannot be predicted at all; none: it can. `events`: the run's
    timeline, None for a case."""
    if case.experiment.ground.foreign and not decided:
        yield "a cluster that someone else runs: what its controllers decided is not seen"
    for fault in _faults(case, events):
        if why := fault.unpredictable():
            yield f"{fault.kind}: {why}"


def _faults(case: Case, events: Sequence[Event] | None) -> list[FaultSpec]:
    """Return the faults that a case plans, or that a run's events name."""
    asked = None if events is None else {event.fault for event in events}
    return [fault for fault in case.faults if asked is None or fault.number in asked]


def _of_rot(
    case: Case,
    events: Sequence[Event] | None,
    decided: Sequence[MetadataRecord],
    options: SearchOptions | None,
) -> Iterator[PredictedClass]:
    """Yield the predictions for partitions from whose logs a fault removed something. A class is possible if a search
    that counts the fault as a power loss finds it, else unknown.

    `options`: limits of the search. None: nothing is searched, and each class is unknown.
    """
    faults = _faults(case, events)
    for topic, spec in case.experiment.topics.items():
        for place in (TopicPartition(topic, number) for number in range(spec.partitions)):
            if not (rotted := [fault for fault in faults if fault.rots(place)]):
                continue
            kinds = ", ".join(sorted({fault.kind for fault in rotted}))
            why = f"{kinds} took from its log what the protocol counts on"
            said: Answers | None = None
            with contextlib.suppress(ValueError):
                scope, _ = scope_for(case, topic, events, decided=decided, rotted=rotted)
                said = options.answer(scope) if options else None
            yield from _rotted_classes(place, why, said)


def _rotted_classes(place: TopicPartition, why: str, said: Answers | None) -> Iterator[PredictedClass]:
    for explored in MISSING:
        one = PredictedClass(
            anomaly=explored,
            chance=Chance.UNKNOWN,
            why=why,
            explored=False,
            by_settings=False,
            partitions=(str(place),),
        )
        if said is not None and (answer := said.classes[explored]).chance is Chance.POSSIBLE:
            possible = f"{why}, as a loss of power does: {_why(answer, said, answer.scope)}"
            told = {"story": answer.story, "ending": answer.ending, "steps": answer.steps, "explored": True}
            one = one.model_copy(update={"chance": Chance.POSSIBLE, "why": possible, **told})
        yield one
        yield one.model_copy(update={"anomaly": PREDICTED_WITH[explored]})


def _anything_broke(case: Case, events: Sequence[Event] | None, counted: CaseBudget) -> bool:
    """Return True if a client's connection may have broken. Any fault can break one: a planned fault of the case, or
    with `events` (a run's timeline) a fault that they name. So can any incident in `counted`."""
    struck = case.faults if events is None else [event for event in events if event.fault is not None]
    return bool(struck) or any(counted.budget)


def _classes(said: Answers, scope: str, breaks: bool) -> Iterator[PredictedClass]:
    for anomaly in MISSING:
        answer = said.classes[anomaly]
        one = PredictedClass(
            anomaly=anomaly,
            chance=answer.chance,
            why=_why(answer, said, scope),
            by_settings=False,
            story=answer.story,
            ending=answer.ending,
            steps=answer.steps,
        )
        if anomaly == "lost" and breaks and one.chance is not Chance.POSSIBLE:
            update = {"chance": Chance.POSSIBLE, "why": _UNACKNOWLEDGED, "explored": False}
            one = one.model_copy(update=update)
        yield one
        yield one.model_copy(update={"anomaly": PREDICTED_WITH[anomaly], "why": f"as {anomaly}: {one.why}"})


def _why(answer: Answer, said: Answers, scope: str) -> str:
    if answer.chance is Chance.POSSIBLE:
        return f"{len(answer.steps)} steps lead to it ({answer.scope})"
    if answer.chance is Chance.IMPOSSIBLE:
        return f"none of {said.states} states shows it, and there are no others ({scope})"
    return f"none of {said.states} states shows it, and there are more ({scope})"
