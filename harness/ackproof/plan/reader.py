"""Nodes → an `ExperimentSpec`. Goes on after a problem, so that all of them are found in one pass.

What is broken is reported, taken out, and stands at its default for the checks that follow.
"""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError

from ackproof.experiment.expectations import ExpectSpec
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.nodes import Data, ListNode, MapNode, Node, ScalarNode, plain, root_of
from ackproof.experiment.problems import InvalidExperiment, Path
from ackproof.experiment.quantities import FROM_FILE
from ackproof.plan.diagnostics import Problems, describe
from ackproof.plan.fault_reader import read_faults
from ackproof.plan.refusals import ordered, report_error
from ackproof.rundir.anomalies import TABLE
from ackproof.rundir.bounds import Bound
from ackproof.rundir.documents import Scalar

MAX_EXPECTATIONS: Final = 200

_BY_HAND: Final = ("matrix", "faults", "expect")
_PASSES: Final = 8


def read_experiment(found: Problems) -> ExperimentSpec | None:
    """The experiment that the nodes say, problems going into `found`. None when too little of it is left."""
    whole = plain(MapNode(entries={k: v for k, v in found.root.entries.items() if k not in _BY_HAND}))
    assert isinstance(whole, dict)
    data: dict[str, object] = {**whole}
    data["matrix"] = _read_matrix(found)
    data["faults"] = tuple(fault for fault in read_faults(found) if fault is not None)
    data["expect"] = _read_expectations(found)
    for _ in range(_PASSES):
        try:
            return ExperimentSpec.model_validate(data, context=FROM_FILE)
        except ValidationError as error:
            for detail in ordered(error):
                path = tuple(part for part in detail["loc"] if part != "[key]")
                report_error(found, detail, (), path)
                _take_out(data, path, found)
    return None


def reread(name: str, data: dict[str, Data]) -> ExperimentSpec:
    """A resolved cell from what `experiment_data` wrote. Raises `InvalidExperiment`.

    It was checked when it was planned; what no longer fits (a setting that is refused by now) ran all the same.
    """
    found = Problems(name, root_of(data))
    spec = read_experiment(found)
    if spec is not None and spec.matrix:
        found.report(("matrix",), "a resolved case has no matrix", key=True)
    if spec is None or found.problems:
        raise InvalidExperiment(found.problems)
    return spec


def _take_out(data: dict[str, object], path: Path, found: Problems) -> None:
    """Remove what is broken, so that its default stands there; what is in a list takes the list with it.

    A required field gets a stand-in. A topic that is no mapping becomes one with defaults, so that roles still find
    it; one whose name is refused goes.
    """
    if path == ("name",):
        data["name"] = "unnamed"
    elif path == ("topics",):
        data["topics"] = {}
    else:
        parent, depth = data, 0
        while depth + 1 < len(path) and isinstance(below := parent.get(str(path[depth])), dict):
            parent, depth = below, depth + 1
        broken, name = path[: depth + 1], str(path[depth])
        found.breaks(broken)
        if broken[:-1] == ("topics",) and not isinstance(parent.get(name), dict):
            parent[name] = {}
        else:
            parent.pop(name, None)


def _read_matrix(found: Problems) -> dict[str, tuple[Scalar, ...]]:
    node = found.root.entries.get("matrix")
    if node is None:
        return {}
    if not isinstance(node, MapNode):
        found.report(("matrix",), f"expected settings and their values, not {describe(node)}")
        return {}
    axes: dict[str, tuple[Scalar, ...]] = {}
    for name, values in node.entries.items():
        path = ("matrix", name)
        if not isinstance(values, ListNode) or not values.items:
            what = "an empty list" if isinstance(values, ListNode) else describe(values)
            found.report(path, f"expected a list of values such as [1, 2], not {what}")
            continue
        for index, item in enumerate(values.items):
            if not isinstance(item, ScalarNode):
                found.report((*path, index), f"expected a single value, not {describe(item)}")
        if all(isinstance(item, ScalarNode) for item in values.items):
            axes[name] = tuple(item.value for item in values.items if isinstance(item, ScalarNode))
    return axes


def _read_expectations(found: Problems) -> tuple[ExpectSpec, ...]:
    node = found.root.entries.get("expect")
    if node is None:
        return ()
    if not isinstance(node, ListNode):
        found.report(
            ("expect",), f"expected a list such as [{{given: {{acks: all}}, lost: 0}}], not {describe(node)}"
        )
        return ()
    if len(node.items) > MAX_EXPECTATIONS:
        message = f"{len(node.items)} expectations are too many; at most {MAX_EXPECTATIONS}"
        found.report(("expect",), message, key=True)
        return ()
    read = []
    for index, item in enumerate(node.items):
        expectation = _read_expectation(found, ("expect", index), item)
        # One that cannot be read keeps its place, so that the numbers of the others are those of the file.
        read.append(expectation or ExpectSpec())
    return tuple(read)


def _read_expectation(found: Problems, path: Path, node: Node) -> ExpectSpec | None:
    if not isinstance(node, MapNode):
        found.report(path, f"expected e.g. {{given: {{acks: all}}, lost: 0}}, not {describe(node)}")
        return None
    bounds: dict[str, Bound] = {}
    for name, value in node.entries.items():
        if name == "given":
            continue
        if name not in TABLE:
            found.unknown((*path, name), "anomaly class", [*TABLE, "given"])
            continue
        try:
            bound = Bound.parse(value.value if isinstance(value, ScalarNode) else None)
        except ValueError as error:
            found.report((*path, name), f"{error}, not {describe(value)}")
            continue
        if TABLE[name].always_forbidden and bound.highest != 0:
            found.report(
                (*path, name), f"'{name}' is forbidden in every configuration; only 0 can be expected"
            )
            continue
        bounds[name] = bound
    if not bounds and found.sound(path) and not any(n != "given" for n in node.entries):
        found.report(path, "nothing is expected: name a class and its bound, such as lost: 0")
    return ExpectSpec(given=_read_given(found, (*path, "given"), node.entries.get("given")), bounds=bounds)


def _read_given(found: Problems, path: Path, node: Node | None) -> dict[str, Scalar]:
    if node is None:
        return {}
    if not isinstance(node, MapNode):
        found.report(path, f"expected settings such as {{acks: all}}, not {describe(node)}")
        return {}
    given: dict[str, Scalar] = {}
    for name, value in node.entries.items():
        if isinstance(value, ScalarNode):
            given[name] = value.value
        else:
            found.report((*path, name), f"expected a single value, not {describe(value)}")
    return given
