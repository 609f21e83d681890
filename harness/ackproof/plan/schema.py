"""The JSON Schema of experiment files, which editors use for completion and checks.

It is generated from the types. It accepts everything that `ackproof.plan.load` accepts. Rules that it cannot express
(roles that name topics, factors above the number of brokers, …) are left to `ackproof validate`. This module adds the
rules for an entry of `faults`: the fields of its kind, its trigger, its duration, and the short forms. It also adds the
anomaly classes in an expectation.
"""

from __future__ import annotations

import json
import re
from typing import Final, cast

from pydantic import BaseModel, JsonValue
from pydantic.json_schema import models_json_schema

from ackproof.base.units import (
    DURATION_PATTERN,
    RATE_PATTERN,
    SIZE_PATTERN,
    duration_text,
    size_text,
)
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.triggers import TRIGGER_KEYS, Frame
from ackproof.faults.registry import fault_kinds
from ackproof.plan.reader import HOLD_KEYS, own_fields, short_form_fields
from ackproof.quantities.vocabulary import VOCABULARY, is_count
from ackproof.rundir.anomalies import TABLE

Schema = dict[str, JsonValue]
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_BOUND: Final = r"^ *(>=|<=|==|>|<)? *[0-9]+ *$"
_OVER_REPEATS: Final = r"^ *(mean|median|max|p[1-9][0-9]?([.][0-9]{1,2})?)( +(of|in|[<>=]).*)? *$"
_NOTHING_FOUND: Final = r"^ *((==|<=)? *0+|< *0*1) *$"


def schema_text() -> str:
    """Return the schema as the text of `experiments/experiment.schema.json`."""
    return json.dumps(experiment_schema(), indent=2, ensure_ascii=False) + "\n"


def experiment_schema() -> Schema:
    """Return the JSON schema of experiment files (Draft 2020-12), as nested dictionaries and lists."""
    models: tuple[type[BaseModel], ...] = (ExperimentSpec, Frame, *fault_kinds().values())
    whole = cast(Schema, models_json_schema([(model, "validation") for model in models])[1])
    parts = _mapping(whole, "$defs")
    _mend_texts(parts)
    schema, frame = _mapping(parts, "ExperimentSpec"), _mapping(_mapping(parts, "Frame"), "properties")
    for kind in fault_kinds().values():
        _inside_braces(kind, _mapping(parts, kind.__name__))
    for name in frame:  # each may be left out, but not be null
        field = _mapping(frame, name)
        (given,) = (choice for choice in _choices(field) if choice.get("type") != "null")
        frame[name] = {**given, "title": name, "description": field["description"]}
    parts["FaultSpec"] = _fault(parts, frame)
    parts["ExpectSpec"] = _expectation(_mapping(parts, "ExpectSpec"))
    return {
        "$schema": DIALECT,
        **schema,
        "title": "ackproof experiment",
        "$defs": _find_used_parts(schema, parts),
    }


def _mapping(schema: Schema, name: str) -> Schema:
    inside = schema[name]
    assert isinstance(inside, dict)
    return inside


def _mend_texts(schema: JsonValue) -> None:
    """Adapt durations, sizes and rates, which are texts in a file: drop the bounds of their numbers, write defaults
    as texts."""
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


def _find_used_parts(schema: Schema, parts: Schema) -> Schema:
    used: set[str] = set()
    text = [json.dumps(schema)]
    while text:
        for name in re.findall(r'"#/\$defs/([A-Za-z_]+)"', text.pop()):
            if name not in used:
                used.add(name)
                text.append(json.dumps(parts[name]))
    return {name: part for name, part in sorted(parts.items()) if name in used}


def _inside_braces(kind: type[FaultSpec], part: Schema) -> None:
    """Reduce the schema of a fault kind (`part`), in place, to the fields that a file writes in the braces of `kind:
    {…}`."""
    own = own_fields(kind)
    part |= {"title": kind.KIND, "description": kind.SUMMARY, "required": [*own_fields(kind, required=True)]}
    part["properties"] = {name: field for name, field in _mapping(part, "properties").items() if name in own}


def _fault(parts: Schema, frame: Schema) -> Schema:
    kinds: Schema = {
        name: {
            "anyOf": [{"$ref": f"#/$defs/{kind.__name__}"}, *_short_schemas(kind, parts)],
            "title": name,
            "description": kind.SUMMARY,
        }
        for name, kind in fault_kinds().items()
    }
    # the kind's own schema says what these keys accept
    loose: Schema = {
        name: {"title": name, "description": "Of a kind in its short form."}
        for kind in fault_kinds().values()
        for name in short_form_fields(kind)
    }
    return {
        "type": "object",
        "title": "Fault",
        "description": f"One fault: its kind ({', '.join(fault_kinds())}), when it begins, how long it lasts.",
        "properties": {**loose, **kinds, **frame},
        "additionalProperties": False,
        "dependentRequired": {"at_latest": ["when"]},
        "dependentSchemas": {
            name: _siblings_schema(kind, parts, set(loose)) for name, kind in fault_kinds().items()
        },
        "allOf": [
            {"oneOf": [{"required": [kind]} for kind in fault_kinds()]},
            {"oneOf": [{"required": [key]} for key in TRIGGER_KEYS]},
        ],
    }


def _siblings_schema(kind: type[FaultSpec], parts: Schema, loose: set[str]) -> Schema:
    """Return the schema of the keys that stand next to a fault kind's own key, as in `{kill: leader(orders/0), at: 5s,
    restart_after: 5s}`.

    Of the duration keys `for` and `restart_after`, only that of this kind is allowed. Short-form fields
    (`short_form_fields`) are allowed only if they are the kind's own and the fault is in the short form, without
    braces. `loose`: short-form fields of all kinds. `parts`: schemas of all types, by class name.
    """
    siblings = short_form_fields(kind)
    closed: Schema = {
        key: False for key in (*HOLD_KEYS, *sorted(loose - set(siblings))) if key != kind.HOLD_KEY
    }
    if not kind.SHORT:
        return {"properties": closed}
    own = _mapping(_mapping(parts, kind.__name__), "properties")
    return {
        "properties": closed,
        "if": {"properties": {kind.KIND: {"type": "object"}}},
        "then": {"properties": dict.fromkeys(siblings, False)},
        "else": {
            "properties": {name: own[name] for name in siblings},
            "required": [name for name in own_fields(kind, required=True) if name not in kind.SHORT],
        },
    }


def _short_schemas(kind: type[FaultSpec], parts: Schema) -> list[JsonValue]:
    if len(kind.SHORT) != 1:
        return [{"type": "array", "minItems": 3, "maxItems": 3}] if kind.SHORT else []
    return [_mapping(_mapping(parts, kind.__name__), "properties")[kind.SHORT[0]]]


def _expectation(part: Schema) -> Schema:
    classes: Schema = {}
    for name, row in TABLE.items():
        always = row.always_forbidden
        number: Schema = {"const": 0} if always else {"type": "integer", "minimum": 0}
        text: Schema = {"type": "string", "pattern": _NOTHING_FOUND if always else _BOUND}
        classes[name] = {
            "title": name,
            "description": "Forbidden in every configuration: only 0 can be expected."
            if always
            else "Exactly so many, or a bound.",
            "anyOf": [number, text, {"type": "string", "pattern": _OVER_REPEATS}],
            "examples": [0] if always else [0, "> 0", "<= 2"],
        }
    given = _mapping(part, "properties")["given"]
    names = "|".join(dict.fromkeys(one.name for one in VOCABULARY.values() if not is_count(one.name)))
    measured: Schema = {
        "title": "quantity",
        "description": "A quantity of docs/quantities.md: exactly so many, or a bound with its unit.",
        "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}],
        "examples": [
            "< 6s",
            "p95 < 6s",
            "always >= 2",
            "eventually == 3 by 10s after fault 1",
            "settles == 3 by 10s after fault 1",
        ],
    }
    return {
        **part,
        "properties": {"given": given, **classes},
        "patternProperties": {rf"^ *({names}) *(\([^()]*\))? *$": measured},
        "anyOf": [{"minProperties": 2}, {"not": {"required": ["given"]}, "minProperties": 1}],
    }
