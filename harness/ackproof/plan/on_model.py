"""What the backend `model` can do, and why it cannot do the rest: said when a file is checked, never passed over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from pydantic import ValidationError

from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.problems import Path
from ackproof.faults.registry import fault_kinds
from ackproof.faults.storm import Storm, roles_for, sample
from ackproof.plan.diagnostics import Problems

MODEL: Final = "model"


def check_on_model(spec: ExperimentSpec, found: Problems) -> None:
    """Report what an experiment with `backend: model` asks for and the model does not have."""
    if spec.backend != MODEL or not found.sound(("backend",)):
        return
    for lack in _lacking(spec):
        if found.sound(lack.path):
            said = f"{lack.what} is not possible" if lack.drawn else "not possible"
            found.report(lack.path, f"{said} on the backend model, because {lack.why}", key=lack.key)


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
        if why := fault.not_on(MODEL):
            yield _Lack(body, fault.kind, why, key=True)
        elif lack := fault.not_simulated(spec):
            field, why = lack
            yield _Lack((*body, field) if field else body, fault.kind, why, key=True)
        if isinstance(fault, Storm):
            for kind in fault.menu or {}:
                if why := _of_dish(spec, fault, kind):
                    yield _Lack(body, kind, why, key=True, drawn=True)
    for name, topic in spec.topics.items():
        if "compact" in topic.config.get("cleanup.policy", "delete"):
            policy: Path = ("topics", name, "config", "cleanup.policy")
            yield _Lack(policy, "cleanup.policy", "its records have no keys")


def _of_dish(spec: ExperimentSpec, storm: Storm, kind: str) -> str | None:
    """Why a storm's faults of a kind cannot be done, with the fields that its menu gives."""
    if why := fault_kinds()[kind].not_on(MODEL):
        return why
    try:
        lack = sample(storm, kind, roles_for(storm, kind, spec), spec).not_simulated(spec)
    except ValidationError:
        return None  # said where the menu is checked
    return None if lack is None else lack[1]
