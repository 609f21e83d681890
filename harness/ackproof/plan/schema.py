"""The JSON Schema of experiment files, by which editors complete and check while one is being written.

Made from the types themselves. It accepts whatever `ackproof.plan.load` accepts; what it cannot say (roles that name
topics, factors above the number of brokers, …) is left to `ackproof validate`. The frame of a fault and the short forms
are no types, and are written here.
"""

from __future__ import annotations

import json
import re
from typing import Final, cast

from pydantic import JsonValue

from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import COMMON, FaultSpec
from ackproof.experiment.quantities import (
    DURATION_PATTERN,
    RATE_PATTERN,
    SIZE_PATTERN,
    duration_text,
    size_text,
)
from ackproof.experiment.triggers import CONDITION_PATTERN, TRIGGER_KEYS
from ackproof.faults.registry import fault_kinds
from ackproof.plan.entries import HOLD_KEYS, fields_beside
from ackproof.rundir.anomalies import TABLE

Schema = dict[str, JsonValue]
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_SCALAR: Final[Schema] = {"type": ["string", "number", "boolean", "null"]}
BOUND_PATTERN: Final = r"^ *(>=|<=|==|>|<)? *[0-9]+ *$"
_NOTHING_FOUND: Final = r"^ *((==|<=)? *0+|< *0*1) *$"


def schema_text() -> str:
    """The schema as the text of `experiments/experiment.schema.json`."""
    return json.dumps(experiment_schema(), indent=2, ensure_ascii=False) + "\n"


def experiment_schema() -> Schema:
    """The schema (Draft 2020-12)."""
    schema = cast(Schema, ExperimentSpec.model_json_schema())
    parts = _mapping(schema, "$defs")
    for part in parts.values():
        _mend_texts(part)
    parts["Expectation"] = _expectation()
    parts["Fault"] = _fault()
    parts |= {fields_of(kind): _body(kind, parts) for kind in fault_kinds().values()}
    properties = _mapping(schema, "properties")
    _mapping(properties, "faults")["items"] = {"$ref": "#/$defs/Fault"}
    _mapping(properties, "expect")["items"] = {"$ref": "#/$defs/Expectation"}
    matrix = _mapping(properties, "matrix")
    matrix["additionalProperties"] = {"type": "array", "minItems": 1, "items": _SCALAR}
    matrix["examples"] = [{"workload.producers.acks": [0, 1, "all"]}]
    for field in ("faults", "expect"):
        _mapping(properties, field).pop("default", None)
    _mend_texts(properties)
    schema["$defs"] = _used(schema, parts)
    return {
        "$schema": DIALECT,
        "title": "ackproof experiment",
        **{k: v for k, v in schema.items() if k != "title"},
    }


def fields_of(kind: type[FaultSpec]) -> str:
    """The name of the schema of a kind's own fields: `KillFields`, `ElectPreferredFields`."""
    return "".join(part.capitalize() for part in kind.KIND.split("_")) + "Fields"


def _mapping(schema: Schema, name: str) -> Schema:
    inside = schema[name]
    assert isinstance(inside, dict)
    return inside


def _mend_texts(schema: JsonValue) -> None:
    """Durations, sizes and rates are texts in a file: bounds of their numbers mean nothing, defaults become texts."""
    if isinstance(schema, list):
        for item in schema:
            _mend_texts(item)
    if not isinstance(schema, dict):
        return
    default = schema.get("default")
    texts = {str(part.get("pattern")) for part in (schema, *_choices(schema))}
    if isinstance(default, (int, float)) and not isinstance(default, bool):
        if DURATION_PATTERN in texts:
            schema["default"] = duration_text(default)
        elif SIZE_PATTERN in texts:
            schema["default"] = size_text(int(default))
    elif default is None and RATE_PATTERN in texts:
        schema["default"] = "full"
    if schema.get("type") == "string":
        for bound in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "ge", "gt", "le", "lt"):
            schema.pop(bound, None)
    for inside in schema.values():
        _mend_texts(inside)


def _choices(schema: Schema) -> list[Schema]:
    options = schema.get("anyOf")
    return [option for option in options if isinstance(option, dict)] if isinstance(options, list) else []


def _used(schema: Schema, parts: Schema) -> Schema:
    """Those of `parts` that `schema` refers to, directly or through others."""
    used: set[str] = set()
    text = [json.dumps({name: part for name, part in schema.items() if name != "$defs"})]
    while text:
        for name in re.findall(r'"#/\$defs/([A-Za-z_]+)"', text.pop()):
            if name not in used:
                used.add(name)
                text.append(json.dumps(parts[name]))
    return {name: part for name, part in sorted(parts.items()) if name in used}


def _duration(title: str, description: str) -> Schema:
    return {
        "type": "string",
        "pattern": DURATION_PATTERN,
        "title": title,
        "description": description,
        "examples": ["5s", "200ms"],
    }


def _fault() -> Schema:
    """An entry of `faults`: one kind, one trigger, and how long it lasts if the kind lasts."""
    kinds: Schema = {
        kind.KIND: {
            "anyOf": [{"$ref": f"#/$defs/{fields_of(kind)}"}, *_short(kind)],
            "title": kind.KIND,
            "description": kind.SUMMARY,
        }
        for kind in fault_kinds().values()
    }
    # what may stand there is said by the kind
    loose: Schema = {
        name: {"title": name, "description": "Of a kind in its short form."}
        for kind in fault_kinds().values()
        for name in fields_beside(kind)
    }
    beside: Schema = {
        "at": _duration("At", "Begins at this time after the start of the workload."),
        "when": {
            "type": "string",
            "pattern": CONDITION_PATTERN,
            "title": "When",
            "description": "Begins in this state: acked, read, isr(t/p) or lag(t/p), compared with a number.",
            "examples": ["acked >= 2000", "isr(orders/0) == 1", "lag(orders/0) > 1000"],
        },
        "at_latest": _duration("At latest", "Begins at this time even if the state of 'when' did not come."),
        "after": {
            "type": "object",
            "title": "After",
            "description": "Begins after another fault is confirmed.",
            "properties": {
                "fault": {
                    "type": "integer",
                    "minimum": 1,
                    "title": "Fault",
                    "description": "Number of a fault before this one; the first is 1.",
                },
                "by": _duration("By", "How long after its confirmation."),
            },
            "required": ["fault"],
            "additionalProperties": False,
        },
        "for": _duration("For", "How long it lasts; without it until the end of the run."),
        "restart_after": _duration(
            "Restart after", "When the node is started again; without it at the end of the run."
        ),
    }
    return {
        "type": "object",
        "title": "Fault",
        "description": f"One fault: its kind ({', '.join(fault_kinds())}), when it begins, how long it lasts.",
        "properties": {**loose, **kinds, **beside},
        "additionalProperties": False,
        "dependentRequired": {"at_latest": ["when"]},
        "dependentSchemas": {kind.KIND: _ends(kind) for kind in fault_kinds().values()},
        "allOf": [
            {"oneOf": [{"required": [kind]} for kind in fault_kinds()]},
            {"oneOf": [{"required": [key]} for key in TRIGGER_KEYS]},
        ],
    }


def _ends(kind: type[FaultSpec]) -> Schema:
    """What may not stand beside a kind: how long it lasts but for its own way, and fields but in its short form."""
    foreign = {name for other in fault_kinds().values() for name in fields_beside(other)} - set(
        fields_beside(kind)
    )
    closed: Schema = {key: False for key in (*HOLD_KEYS, *sorted(foreign)) if key != kind.HOLD_KEY}
    if not kind.SHORT:
        return {"properties": closed}
    whole = _own(kind)
    return {
        "properties": closed,
        "if": {"properties": {kind.KIND: {"type": "object"}}},
        "then": {"properties": dict.fromkeys(fields_beside(kind), False)},
        "else": {
            "properties": {name: whole[name] for name in fields_beside(kind)},
            "required": [name for name in _required(kind) if name not in kind.SHORT],
        },
    }


def _short(kind: type[FaultSpec]) -> list[JsonValue]:
    """What may stand in the place of the braces."""
    if len(kind.SHORT) != 1:
        return [{"type": "array", "minItems": 3, "maxItems": 3}] if kind.SHORT else []
    return [_own(kind)[kind.SHORT[0]]]


def _own(kind: type[FaultSpec]) -> Schema:
    """The fields of its own."""
    properties = _mapping(cast(Schema, kind.model_json_schema()), "properties")
    return {name: part for name, part in properties.items() if name not in COMMON}


def _required(kind: type[FaultSpec]) -> list[str]:
    own = _own(kind)
    return [name for name in cast(list[str], kind.model_json_schema().get("required", [])) if name in own]


def _body(kind: type[FaultSpec], parts: Schema) -> Schema:
    """The fields inside the braces after a kind."""
    whole = cast(Schema, kind.model_json_schema())
    parts |= {
        name: part for name, part in _mapping({"$defs": {}, **whole}, "$defs").items() if name not in parts
    }
    return {
        "type": "object",
        "title": kind.KIND,
        "description": kind.SUMMARY,
        "properties": _own(kind),
        "required": cast(list[JsonValue], _required(kind)),
        "additionalProperties": False,
    }


def _expectation() -> Schema:
    classes: Schema = {}
    for name, row in TABLE.items():
        always = row.always_forbidden
        what = (
            "Forbidden in every configuration: only 0 can be expected."
            if always
            else "Exactly so many, or a bound."
        )
        number: Schema = {"const": 0} if always else {"type": "integer", "minimum": 0}
        text: Schema = {"type": "string", "pattern": _NOTHING_FOUND if always else BOUND_PATTERN}
        classes[name] = {
            "title": name,
            "description": what,
            "anyOf": [number, text],
            "examples": [0] if always else [0, "> 0", "<= 2"],
        }
    given: Schema = {
        "type": "object",
        "title": "Given",
        "description": "The settings of the cases that this speaks of, by their path or the end of it.",
        "additionalProperties": _SCALAR,
        "examples": [{"acks": "all"}],
    }
    return {
        "type": "object",
        "title": "Expectation",
        "description": "Bounds on what the audit counts, for the cases that have the given settings.",
        "properties": {"given": given, **classes},
        "anyOf": [{"required": [name]} for name in TABLE],
        "additionalProperties": False,
    }
