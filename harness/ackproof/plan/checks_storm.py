"""What a storm's menu may say: every kind on it must be drawable, with what the menu gives of it, on this backend."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import ValidationError

from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import COMMON, FaultSpec
from ackproof.experiment.problems import Path
from ackproof.faults.registry import fault_kinds
from ackproof.faults.storm import Storm, roles_for, sample
from ackproof.plan.diagnostics import Problems, ordered, path_of
from ackproof.plan.ground import has
from ackproof.plan.on_model import MODEL, lacks

CheckFields = Callable[[ExperimentSpec, FaultSpec, Path, Problems], None]


def check_storm(
    spec: ExperimentSpec, storm: Storm, body: Path, found: Problems, check_fields: CheckFields
) -> None:
    """Report what is wrong with a storm; `body` is where its fields stand."""
    if storm.at_least is not None and storm.at_least > storm.count and found.sound((*body, "at_least")):
        found.report(
            (*body, "at_least"), f"only {storm.count} faults are drawn; {storm.at_least} cannot bite"
        )
    for name, dish in (storm.menu or {}).items():
        path: Path = (*body, "menu", name)
        kind = fault_kinds()[name]
        why = kind.not_on(spec.backend)
        if why is not None and found.sound(("backend",)):
            found.report(path, f"not possible on the backend {spec.backend}, because {why}", key=True)
        mode = spec.cluster.mode
        if mode in kind.NOT_IN and found.sound(("cluster", "mode")):
            why = kind.NOT_IN[mode]
            found.report(path, f"not possible with cluster.mode: {mode}, because {why}", key=True)
        own = [field for field in kind.model_fields if field not in COMMON]
        strangers = [field for field in dish.fields if field not in own]
        for field in strangers:
            found.unknown((*path, field), "field", [*own, "weight", "lasting"])
        if strangers or not spec.topics:
            continue
        try:
            one = sample(storm, name, roles_for(storm, name, spec), spec)
        except ValidationError as error:
            for detail in ordered(error):
                below = path_of(detail)
                if detail["type"] == "missing":
                    say = f"a storm cannot draw '{below[-1]}' of a {name}: give it here"
                    found.report(path, f"{say}, {name}: {{weight: {dish.weight}, {below[-1]}: …}}", key=True)
                else:
                    found.refuse(detail, path + below)
            continue
        if dish.fields:
            check_fields(spec, one, path, found)


def able_here(spec: ExperimentSpec) -> Callable[[FaultSpec], bool]:
    """Whether the backend can do a fault, and this machine what has to be laid for it."""

    def able(fault: FaultSpec) -> bool:
        if spec.backend == MODEL:
            return (
                lacks(spec.model_copy(update={"faults": (fault.model_copy(update={"number": 1}),)})) is None
            )
        return all(has(need) for need in fault.needs)

    return able
