"""What a backend and this machine can do: of the faults of an experiment, of a storm's menu, of topics.

What cannot be is said when a file is checked, never passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple

from pydantic import ValidationError

from ackproof.base.errors import BadInput
from ackproof.cluster.disks.file_systems import refusal
from ackproof.experiment.backends import Ability, Need
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.problems import Path
from ackproof.faults.registry import fault_kinds
from ackproof.faults.storm import Storm, roles_for, sample
from ackproof.plan.diagnostics import Problems, ordered, path_of
from ackproof.plan.reader import own_fields
from ackproof.provision.tools import find_compiler, find_nft


@cache
def lack_of(need: Need) -> str:
    """Why a cluster on this machine cannot be given it; '' where it can. Packets and disks take root, clocks a
    compiler."""
    if need is Need.DISKS:
        return refusal() or ""
    try:
        if need is Need.PACKETS:
            find_nft()
        elif need is Need.CLOCKS:
            find_compiler()
    except BadInput as error:
        return str(error)
    return ""


def check_on_model(spec: ExperimentSpec, found: Problems) -> None:
    """Report what an experiment with `backend: model` asks for and the model does not have."""
    if not spec.ground.simulated or not found.sound(("backend",)):
        return
    for lack in _lacking(spec):
        if found.sound(lack.path):
            said = f"{lack.what} is not possible" if lack.drawn else "not possible"
            found.report(lack.path, f"{said} on the backend {spec.backend}, because {lack.why}", key=lack.key)


def check_observed(spec: ExperimentSpec, found: Problems) -> None:
    """Report what is to be looked at, and the backend does not show."""
    asked = {"metrics": Ability.METRICS, "brokers": Ability.ASKED}
    for name, ability in asked.items():
        where: Path = ("observe", name)
        why = spec.ground.lacks.get(ability)
        if getattr(spec.observe, name) and why is not None and found.sound(("backend",), where):
            found.report(where, f"not possible on the backend {spec.backend}, because {why}", key=True)


def lacks(spec: ExperimentSpec) -> str | None:
    """Why the model cannot run an experiment of another backend; None if it can."""
    return next((f"{lack.what}: {lack.why}" for lack in _lacking(spec)), None)


class _Lack(NamedTuple):
    """What the model lacks: where the file asks for it, by what name, why it cannot; whether a key is to blame."""

    path: Path
    what: str
    why: str
    key: bool = False
    drawn: bool = False


def _lacking(spec: ExperimentSpec) -> Iterator[_Lack]:
    for fault in spec.faults:
        body: Path = ("faults", fault.number - 1, fault.kind)
        if why := fault.not_on("model"):
            yield _Lack(body, fault.kind, why, key=True)
        elif lack := fault.not_simulated(spec):
            field, why = lack
            yield _Lack((*body, field) if field else body, fault.kind, why, key=True)
        if isinstance(fault, Storm):
            for kind in fault.menu or {}:
                if why := _of_dish(spec, fault, kind):
                    yield _Lack(body, kind, why, key=True, drawn=True)
    if spec.workload.producers.keys is not None:
        yield _Lack(
            ("workload", "producers", "keys"), "keys", "its records have none, and its logs are not compacted"
        )


def _of_dish(spec: ExperimentSpec, storm: Storm, kind: str) -> str | None:
    """Why a storm's faults of a kind cannot be done, with the fields that its menu gives."""
    if why := fault_kinds()[kind].not_on("model"):
        return why
    try:
        lack = sample(storm, kind, roles_for(storm, kind, spec), spec).not_simulated(spec)
    except ValidationError:
        return None  # said where the menu is checked
    return None if lack is None else lack[1]


def check_possible(spec: ExperimentSpec, kind: type[FaultSpec], path: Path, found: Problems) -> None:
    """Report a kind that the backend or the cluster's mode has not."""
    why, mode = kind.not_on(spec.backend), spec.cluster.mode
    if why is not None and found.sound(("backend",)):
        found.report(path, f"not possible on the backend {spec.backend}, because {why}", key=True)
    elif mode in kind.NOT_IN and found.sound(("cluster", "mode")):
        found.report(path, f"not possible with cluster.mode: {mode}, because {kind.NOT_IN[mode]}", key=True)


CheckFields = Callable[[ExperimentSpec, FaultSpec, Path, Problems], None]


def check_storm(
    spec: ExperimentSpec, storm: Storm, body: Path, found: Problems, check_fields: CheckFields
) -> None:
    """Report what is wrong with a storm; `body` is where its fields stand."""
    if storm.at_least is not None and storm.at_least > storm.count and found.sound((*body, "at_least")):
        found.report(
            (*body, "at_least"), f"only {storm.count} faults are drawn; {storm.at_least} cannot bite"
        )
    if storm.pairs is not None:
        _check_pairs(spec, storm, body, found)
    for name, dish in (storm.menu or {}).items():
        path: Path = (*body, "menu", name)
        kind = fault_kinds()[name]
        check_possible(spec, kind, path, found)
        own = own_fields(kind)
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


def _check_pairs(spec: ExperimentSpec, storm: Storm, body: Path, found: Problems) -> None:
    """Report what a storm of pairs cannot be beside."""
    others = [one.number for one in spec.faults if isinstance(one, Storm) and one.pairs is not None]
    if others[0] != storm.number:
        found.report((*body, "pairs"), f"storm {others[0]} has all pairs already", key=True)
    elif spec.repeat > 1 and found.sound(("repeat",)):
        found.report(
            ("repeat",), "a storm of pairs has as many cases as it takes to have all pairs; leave it out"
        )
    elif spec.soak is not None:
        found.report((*body, "pairs"), "the windows of a soak share no pairs among them", key=True)
    elif storm.count % 2 and found.sound((*body, "count")):
        found.report((*body, "count"), f"{storm.count} faults are not whole pairs; write an even number")


def able_on(spec: ExperimentSpec) -> Callable[[FaultSpec], bool]:
    """Whether the backend can do a fault, on whatever machine it is."""

    def able(fault: FaultSpec) -> bool:
        alone = fault.model_copy(update={"number": 1})
        return not spec.ground.simulated or lacks(spec.model_copy(update={"faults": (alone,)})) is None

    return able


def unable_here(spec: ExperimentSpec, faults: Iterable[FaultSpec]) -> dict[int, str]:
    """Why this machine cannot lay what a fault needs, by the fault's number."""
    if not spec.ground.lays:
        return {}
    whys = ((fault.number, next(filter(None, map(lack_of, sorted(fault.needs))), "")) for fault in faults)
    return {number: why for number, why in whys if why}
