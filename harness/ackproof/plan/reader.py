"""Nodes → an `ExperimentSpec`. Goes on after a problem, so that all of them are found in one pass.

What is broken is reported, taken out, and stands at its default for the checks that follow.
"""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError

from ackproof.base.units import FROM_FILE
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.nodes import Data, plain, root_of
from ackproof.experiment.problems import InvalidExperiment, Path
from ackproof.plan.diagnostics import Problems, ordered, path_of
from ackproof.plan.entries import read_faults

_PASSES: Final = 8


def read_experiment(found: Problems) -> ExperimentSpec | None:
    """The experiment that the nodes say, problems going into `found`. None when too little of it is left."""
    data: dict[str, object] = {
        name: plain(node) for name, node in found.root.entries.items() if name != "faults"
    }
    data["faults"] = tuple(fault for fault in read_faults(found) if fault is not None)
    for _ in range(_PASSES):
        try:
            return ExperimentSpec.model_validate(data, context=FROM_FILE)
        except ValidationError as error:
            for detail in ordered(error):
                path = path_of(detail)
                found.refuse(detail, path)
                found.breaks(_take_out(data, path))
    return None


def reread(name: str, data: dict[str, Data]) -> ExperimentSpec:
    """A resolved cell as it was written. Raises `InvalidExperiment`.

    It was checked when it was planned; what no longer fits (a setting that is refused by now) ran all the same.
    """
    found = Problems(name, root_of(data))
    spec = read_experiment(found)
    if spec is not None and spec.matrix:
        found.report(("matrix",), "a resolved case has no matrix", key=True)
    if spec is None or found.problems:
        raise InvalidExperiment(found.problems)
    return spec


def _take_out(data: dict[str, object], path: Path) -> Path:
    """Remove what is broken, so that its default stands there; what is in a list takes the list with it. Its path.

    A required field gets a stand-in. A topic that is no mapping becomes one with defaults, so that roles still find
    it, and so does an expectation, so that the others keep their numbers; a topic whose name is refused goes.
    """
    if path == ("name",):
        data["name"] = "unnamed"
    if path == ("topics",):
        data["topics"] = {}
    if path in (("name",), ("topics",)):
        return path
    node: object = data
    holder, depth = data, 0
    for at, part in enumerate(path):
        if isinstance(node, dict) and part in node:
            holder, depth = node, at
            node = node[part]
        elif isinstance(node, list) and isinstance(part, int):
            node = node[part]
    expectations = data.get("expect")
    if path[:1] == ("expect",) and len(path) > 1 and depth == 0 and isinstance(expectations, list):
        expectations[int(path[1])] = {}
        return path[:2]
    if path[:-1] == ("topics",) and not isinstance(holder.get(str(path[depth])), dict):
        holder[str(path[depth])] = {}
    else:
        holder.pop(str(path[depth]), None)
    return path[: depth + 1]
