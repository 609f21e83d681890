"""What pydantic refuses, said in the words of the file: path, what was expected, what stands there."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.nodes import ListNode, ScalarNode
from ackproof.experiment.problems import Path, nearest
from ackproof.experiment.quantities import WRONG
from ackproof.experiment.spec import (
    ClusterSpec,
    ConsumerSpec,
    EvidenceSpec,
    ProducerSpec,
    TopicSpec,
    WorkloadSpec,
)
from ackproof.plan.diagnostics import Problems, describe

GROUPS: Final[dict[Path, type[BaseModel]]] = {
    (): ExperimentSpec,
    ("cluster",): ClusterSpec,
    ("topics", "*"): TopicSpec,
    ("workload",): WorkloadSpec,
    ("workload", "producers"): ProducerSpec,
    ("workload", "consumers"): ConsumerSpec,
    ("evidence",): EvidenceSpec,
}
"""The parts of an experiment that have named fields, by their path; `*` is any name."""

_EXPECTED: Final = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "finite_number": "a finite number",
    "string_too_long": "at most {max_length} characters",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "int_parsing_size": "a smaller number",
}


def group_of(path: Path) -> type[BaseModel] | None:
    """The type whose fields stand right below `path`, None if they have no fixed names."""
    return GROUPS.get(("topics", "*") if len(path) == 2 and path[0] == "topics" else path)


def ordered(error: ValidationError) -> list[ErrorDetails]:
    """Unknown fields before missing ones: what is misspelt is not missing."""
    return sorted(error.errors(include_url=False), key=lambda detail: detail["type"] == "missing")


def report_error(found: Problems, detail: ErrorDetails, prefix: Path, path: Path) -> None:
    """Turn one of pydantic's errors at `path` (below `prefix`) into a problem."""
    full = prefix + path
    if found.full:
        found.breaks(full)
        return
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        model = group_of(full[:-1])
        found.unknown(full, "field", _fields(model), hint=_belongs(str(full[-1]), _fields(model)))
        return
    if kind == "missing":
        if not found.misspelt(full):
            found.report(full, f"the field '{path[-1]}' is missing")
        return
    node = found.node(full)
    empty = isinstance(node, ScalarNode) and node.value is None
    if empty and "config" not in full:
        found.report(full, "expected a value, not nothing; leave the field out to have its default")
        return
    suggestion = None
    if kind == WRONG:
        message = str(context["text"])
    elif kind == "literal_error":
        message = f"expected {context['expected']}, not {describe(node)}"
        valid = [name.strip("'") for name in str(context["expected"]).replace(" or ", ", ").split(", ")]
        suggestion = nearest(node.text, valid) if isinstance(node, ScalarNode) else None
    elif kind in _EXPECTED:
        there = (
            f"one of {context['actual_length']}"
            if isinstance(node, ListNode) and "actual_length" in context
            else describe(node)
        )
        message = f"expected {_EXPECTED[kind].format(**context)}, not {there}"
        if kind == "bool_type" and isinstance(node, ScalarNode):
            suggestion = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(node.text.lower())
    else:
        message = detail["msg"]
    found.report(full, message, suggestion, key=detail["loc"][-1:] == ("[key]",))


def _fields(model: type[BaseModel] | None) -> list[str]:
    return list(model.model_fields) if model is not None else []


def _belongs(name: str, siblings: list[str]) -> str:
    """Where a field of this name would be right, if it is wrong here and near to nothing here."""
    if nearest(name, siblings):
        return ""
    homes = [path for path, model in GROUPS.items() if path and name in model.model_fields]
    shown = [".".join("NAME" if part == "*" else str(part) for part in path) for path in homes]
    return f"it belongs under {' or '.join(shown)}" if shown else ""
