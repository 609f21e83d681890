"""Generates the reference part of `docs/faults.md` from the registry of faults: `python tests/support/fault_page.py`.

The part above the mark is written by hand, everything below is generated. `tests/repo/test_docs.py` compares the page
with the registry."""

from __future__ import annotations

from pathlib import Path

from annotated_types import Ge, Gt, Le, Lt
from pydantic import JsonValue
from pydantic.fields import FieldInfo

from ackproof.base.units import (
    BYTE_RATE_PATTERN,
    DURATION_PATTERN,
    SHARE_PATTERN,
    SHIFT_PATTERN,
    SIZE_PATTERN,
    duration_text,
    size_text,
)
from ackproof.experiment.backends import BACKENDS
from ackproof.experiment.fault import COMMON, FaultSpec
from ackproof.experiment.links import APIS
from ackproof.faults.code.points import table
from ackproof.faults.registry import fault_kinds

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
MARK = "<!-- Generated from here on: python tests/support/fault_page.py -->\n"
_TITLES = {
    "processes": "Processes",
    "crashes": "Crashes and starvation",
    "code": "Points of the code",
    "quorum": "Quorum of controllers",
    "clocks": "Clocks",
    "links": "Links",
    "requests": "Single requests",
    "disks": "Disks and power",
    "planned": "Planned work",
    "rolling": "Rolling restart and upgrade",
    "clients": "Clients",
    "groups": "Consumer groups",
    "zookeeper": "ZooKeeper",
    "command": "Your own commands",
    "storm": "Storms",
}
_TEXTS = {
    DURATION_PATTERN: "duration",
    SHIFT_PATTERN: "duration, with a sign",
    SIZE_PATTERN: "size",
    BYTE_RATE_PATTERN: "bytes per second, as `50KB/s`",
    SHARE_PATTERN: "share, as `20%`",
}
_ROLE = "a [role](experiments.md#roles)"
_NAMES = {
    "target": _ROLE,
    "over": _ROLE,
    "link": "a [link](experiments.md#roles)",
    "api": "an [API](#which-requests-are-sent-where)",
    "partition": "partition, as `orders/0`",
    "groups": "groups of nodes",
    "point": "a [named point](#named-points), or a map",
}


def family_of(kind: type[FaultSpec]) -> str:
    """Return the name of a kind's folder below `ackproof.faults`."""
    return kind.__module__.split(".")[2]


def reference() -> str:
    """Return the generated part of the page: all kinds, family by family."""
    families: dict[str, list[type[FaultSpec]]] = {name: [] for name in _TITLES}
    for kind in fault_kinds().values():
        families.setdefault(family_of(kind), []).append(kind)
    parts = []
    for family, members in families.items():
        if members:
            parts.append(f"## {_TITLES.get(family, family.capitalize())}\n")
            parts += [_section(kind) for kind in members]
        if family == "requests":
            parts.append(_apis())
        if family == "code":
            parts.append("\n".join(["### Named points\n", *table(), ""]))
    return "\n".join(parts)


def _apis() -> str:
    """Return the table of the APIs that a fault of requests may name, and of the connections that carry them."""
    rows = [
        f"| `{api.name}` | {', '.join(sorted(api.flows))} | {f'from {api.since} on' if api.since else ''} |"
        for api in APIS.values()
    ]
    return (
        "\n".join(["### Which requests are sent where\n", "| API | sent from | |", "|---|---|---|", *rows])
        + "\n"
    )


def page() -> str:
    """Return the text that `docs/faults.md` must have: its part above the mark, and the generated reference."""
    return PAGE.read_text("utf-8").split(MARK)[0] + MARK + "\n" + reference()


def _section(kind: type[FaultSpec]) -> str:
    lines = [f"### `{kind.KIND}`\n", kind.SUMMARY, ""]
    rows = [_row(field.alias or name, field, kind) for name, field in _own(kind).items()]
    lines += ["| field | takes | default | |", "|---|---|---|---|", *rows, ""]
    ends = (
        f"`{kind.HOLD_KEY}` says how long it lasts; then: {kind.HEALING}."
        if kind.HOLD_KEY
        else "It ends by itself."
    )
    lines.append(f"{ends}{_short(kind)}")
    refused = [f"backend `{name}`: {why}" for name in BACKENDS if (why := kind.not_on(name))]
    refused += [f"`mode: {name}`: {why}" for name, why in kind.NOT_IN.items()]
    if refused:
        lines += ["Not on " + "; ".join(refused) + "."]
    return "\n".join(lines) + "\n"


def _own(kind: type[FaultSpec]) -> dict[str, FieldInfo]:
    return {name: field for name, field in kind.model_fields.items() if name not in COMMON}


def _short(kind: type[FaultSpec]) -> str:
    if not kind.SHORT:
        return ""
    return f" In short: `{kind.KIND}: …` names its {' and '.join(kind.SHORT)}."


def _row(name: str, field: FieldInfo, kind: type[FaultSpec]) -> str:
    properties = kind.model_json_schema()["properties"]
    takes, unit = _takes(name, properties[name])
    ranges = _range(field, unit)
    default = "required" if field.is_required() else _default(properties[name].get("default"), unit)
    said = (field.description or "").replace("|", "\\|")
    return f"| `{name}` | {takes}{ranges} | {default} | {said} |"


def _takes(name: str, schema: dict[str, JsonValue]) -> tuple[str, str]:
    """Return in words which values a field accepts, and the word that tells `_in_unit` how to print its bounds and
    default: `duration`, `size`, `bytes` (per second) or `share`; '' for plain numbers and texts."""
    options = schema.get("anyOf")
    choices = [one for one in options if isinstance(one, dict)] if isinstance(options, list) else [schema]
    for one in choices:
        pattern = str(one.get("pattern", ""))
        if pattern in _TEXTS:
            return _TEXTS[pattern], _TEXTS[pattern].split(",")[0].split()[0]
        if name in _NAMES:
            return _NAMES[name], ""
        values = one.get("enum")
        if isinstance(values, list):
            return ", ".join(f"`{value}`" for value in values), ""
    kind = str(choices[0].get("type", "text"))
    return {
        "string": "text",
        "integer": "number",
        "boolean": "true or false",
        "array": "list",
        "object": "map",
    }.get(kind, kind), ""


def _in_unit(value: object, unit: str) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if unit == "duration":
            return duration_text(float(value))
        if unit in ("size", "bytes"):
            return size_text(int(value)) + ("/s" if unit == "bytes" else "")
        if unit == "share":
            return f"{value:.0%}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _range(field: FieldInfo, unit: str) -> str:
    """Return the bounds of a number as text, such as `, ≥ 1, ≤ 30`; '' without bounds."""
    said = []
    for bound in field.metadata:
        if isinstance(bound, Ge):
            said.append(f"≥ {_in_unit(bound.ge, unit)}")
        elif isinstance(bound, Gt):
            said.append(f"> {_in_unit(bound.gt, unit)}")
        elif isinstance(bound, Le):
            said.append(f"≤ {_in_unit(bound.le, unit)}")
        elif isinstance(bound, Lt):
            said.append(f"< {_in_unit(bound.lt, unit)}")
    return f", {', '.join(said)}" if said else ""


def _default(value: JsonValue, unit: str) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(f"`{one}`" for one in value)
    return f"`{_in_unit(value, unit)}`"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
