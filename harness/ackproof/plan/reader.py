"""Converts the nodes of a file into an `ExperimentSpec`. Reading continues after a problem, so that all problems are
found in one pass. A broken field is reported and removed, so that it has its default in the checks that follow.

An entry of `faults:` is a mapping. One key names the kind, and its value holds the kind's own fields. The siblings of
that key are the trigger (`at` | `when` [+ `at_latest`] | `after`) and the duration (`for` or `restart_after`).
Pydantic's discriminated unions need a field that holds the kind's name, which these entries do not have. So entries are
taken apart here, and pydantic reads the parts.

In the short form (`isolate: leader(t/0)` with the sibling `from: clients`) the kind's key has a value without braces.
It stands for the field that the kind names (`FaultSpec.SHORT`). The kind's other fields are then siblings of the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pydantic import ValidationError

from ackproof.base.advice import Advice
from ackproof.base.units import FROM_FILE
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import COMMON, FaultSpec
from ackproof.experiment.problems import (
    Data,
    InvalidExperiment,
    ListNode,
    MapNode,
    Node,
    Path,
    ScalarNode,
    nearest,
    nodes_of,
    plain,
    root_of,
)
from ackproof.experiment.triggers import TRIGGER_KEYS, Frame, TimeTrigger
from ackproof.faults.registry import fault_kinds
from ackproof.plan.diagnostics import NO_VALUE, Problems, describe, ordered, path_of
from ackproof.rundir.timeline import DRAWN_FROM


def read_experiment(found: Problems) -> ExperimentSpec | None:
    """Return the experiment in the document `found.root`, and add its problems to `found`. None if it is too broken to
    be read."""
    data: dict[str, object] = {
        name: plain(node) for name, node in found.root.entries.items() if name != "faults"
    }
    data["faults"] = tuple(fault for fault in _read_faults(found) if fault is not None)
    for _ in range(8):  # each round removes the broken fields
        try:
            return ExperimentSpec.model_validate(data, context=FROM_FILE)
        except ValidationError as error:
            for detail in ordered(error):
                path = path_of(detail)
                found.refuse(detail, path)
                found.breaks(_take_out(data, path))
    return None


def reread(name: str, data: dict[str, Data]) -> ExperimentSpec:
    """Return the experiment of a planned cell from its stored data. `name`: name of the document in messages.

    The cell was checked when it was planned. It is not checked again (`checks.check`), because the case ran with its
    settings. Raises `InvalidExperiment` if the data cannot be read or has a matrix.
    """
    found = Problems(name, root_of(data))
    spec = read_experiment(found)
    if spec is not None and spec.matrix:
        found.report(("matrix",), "a resolved case has no matrix", key=True)
    if spec is None or found.problems:
        raise InvalidExperiment(found.problems)
    return spec


def _take_out(data: dict[str, object], path: Path) -> Path:
    """Remove the broken value at `path`, so that its default applies, and return the removed path. If the
    value is in a list, the whole list is removed.

    A required field gets a substitute. A topic that is no mapping becomes one with defaults, so that roles
    still find the topic. A broken expectation becomes an empty one, so that the others keep their numbers. A
    topic whose name is refused is removed.
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


MAX_FAULTS: Final = 200
MAX_OF_SOAK: Final = DRAWN_FROM - 1
"""Maximum number of faults in all windows of a soak together. They are numbered from 1, and numbers from `DRAWN_FROM`
on belong to faults that storms draw."""
HOLD_KEYS: Final = ("for", "restart_after")
SIBLINGS: Final = (*TRIGGER_KEYS, "at_latest", *HOLD_KEYS)
"""Keys of an entry of `faults:` that stand next to the fault's kind: trigger and duration."""
EXAMPLE: Final = "{kill: {target: leader(orders/0)}, at: 5s, restart_after: 5s}"


def own_fields(kind: type[FaultSpec], *, required: bool = False) -> tuple[str, ...]:
    """Return the fields in the braces of `kind: {…}`, by their names in a file. They are the fields of this kind of
    fault that are not common to all kinds. `required`: only fields without a default."""
    return tuple(
        field.alias or name
        for name, field in kind.model_fields.items()
        if name not in COMMON and (field.is_required() or not required)
    )


def short_form_fields(kind: type[FaultSpec]) -> tuple[str, ...]:
    """Return the fields of a kind that a file writes next to the kind's key in the short form. `from` is such a field
    in `{isolate: leader(t/0), from: clients}`. Fields that the value of the key stands for (`FaultSpec.SHORT`), and
    fields with the name of a kind, are not among them. Empty if the kind has no short form."""
    if not kind.SHORT:
        return ()
    return tuple(name for name in own_fields(kind) if name not in kind.SHORT and name not in fault_kinds())


def spelt_out(root: MapNode) -> MapNode:
    """Return the experiment with each fault in its long form (`kill: {target: leader(t/0)}`). Nodes keep their
    positions."""
    faults = root.entries.get("faults")
    if not isinstance(faults, ListNode):
        return root
    items = [_spelt_out(item) if isinstance(item, MapNode) else item for item in faults.items]
    return replace(root, entries=root.entries | {"faults": replace(faults, items=items)})


def _spelt_out(entry: MapNode) -> MapNode:
    kinds = [name for name in entry.entries if name in fault_kinds()]
    if len(kinds) != 1:
        return entry  # reported when the entry is read
    (name,) = kinds
    kind, value = fault_kinds()[name], entry.entries[name]
    fields = _fields_of(kind, value)
    if not fields:
        return entry
    siblings = [field for field in short_form_fields(kind) if field in entry.entries]
    body = MapNode(
        mark=value.mark,
        entries=fields | {field: entry.entries[field] for field in siblings},
        keys=dict.fromkeys(fields, entry.keys[name]) | {field: entry.keys[field] for field in siblings},
    )
    kept = {key: node for key, node in entry.entries.items() if key not in siblings}
    return replace(entry, entries=kept | {name: body})


def _fields_of(kind: type[FaultSpec], value: Node) -> dict[str, Node]:
    """Return the fields that the value of a fault kind's key stands for in the short form, without braces: `kill:
    leader(orders/0)` sets `target`. Empty for a value with braces, for no value, and for a value that is no short form
    of this kind."""
    if isinstance(value, MapNode) or (isinstance(value, ScalarNode) and value.value is None):
        return {}
    if len(kind.SHORT) == 1:
        return {kind.SHORT[0]: value}
    if kind.SHORT and isinstance(value, ListNode) and len(value.items) == 3:
        # two groups, and between them the node that connects them
        groups, over = kind.SHORT
        first, between, second = value.items
        return {groups: replace(value, items=[first, second]), over: between}
    return {}


def _read_faults(found: Problems) -> list[FaultSpec | None]:
    """Return one spec per entry of `faults` in the document, None for an entry of which too little could be read. The
    result is empty if `faults` is missing, is no list or has too many entries. Problems are added to `found`."""
    node = found.root.entries.get("faults")
    if node is None:
        return []
    if not isinstance(node, ListNode):
        found.report(
            ("faults",), f"expected a list of faults, not {describe(node)}", f"write each as - {EXAMPLE}"
        )
        return []
    most = MAX_OF_SOAK if "soak" in found.root.entries else MAX_FAULTS
    if len(node.items) > most:
        found.report(("faults",), f"{len(node.items)} faults are too many", f"at most {most}", key=True)
        return []
    return [_read_fault(found, ("faults", index), item) for index, item in enumerate(node.items)]


def read_drawn(storm: int, entries: Sequence[Data]) -> tuple[FaultSpec, ...]:
    """Return the faults that a storm (a fault that starts randomly chosen faults) drew, from their `FaultSpec.entry`.

    `storm`: number of the storm. The k-th fault, from 1, gets the number `storm` × 1000 (`DRAWN_FROM`) + k. Raises
    `InvalidExperiment` if an entry cannot be read.
    """
    found = Problems(f"storm {storm}", MapNode(entries={"faults": nodes_of(list(entries))}))
    faults = _read_faults(found)
    if found.problems:
        raise InvalidExperiment(found.problems)
    return tuple(
        fault.model_copy(update={"number": storm * DRAWN_FROM + index})
        for index, fault in enumerate(faults, 1)
        if fault is not None
    )


def _read_fault(found: Problems, path: Path, node: Node) -> FaultSpec | None:
    if not isinstance(node, MapNode):
        found.report(path, f"expected a fault, not {describe(node)}", f"write it as {EXAMPLE}")
        return None
    kind = _kind_of(found, path, node)
    frame = _read_frame(found, path, node)
    if kind is None:
        return None
    for name in HOLD_KEYS:
        if name in node.entries and name != kind.HOLD_KEY:
            fact, hint = f"a {kind.KIND} has no '{name}'", ""
            if kind.HOLD_KEY is None:
                fact, hint = f"a {kind.KIND} ends by itself", f"it has no '{name}'"
            found.report((*path, name), fact, hint, suggestion=kind.HOLD_KEY, key=True)
    return _read_body(found, path, node, kind, frame)


def _kind_of(found: Problems, path: Path, node: MapNode) -> type[FaultSpec] | None:
    kinds = [name for name in node.entries if name in fault_kinds()]
    strangers = [name for name in node.entries if name not in fault_kinds() and name not in SIBLINGS]
    for name in strangers:
        if _said_elsewhere(found, path, node, name, kinds):
            continue
        if not kinds and isinstance(node.entries[name], MapNode):
            found.unknown((*path, name), "fault kind", fault_kinds())
        else:
            valid = SIBLINGS if kinds else [*fault_kinds(), *SIBLINGS]
            found.unknown((*path, name), "field of a fault", valid)
    for second in kinds[1:]:
        fact, hint = "a fault has one kind", f"this one is already '{kinds[0]}'"
        found.report((*path, second), fact, hint, suggestion=nearest(second, HOLD_KEYS), key=True)
    if not kinds and not strangers:
        found.report(path, "the fault has no kind", f"expected one of {', '.join(fault_kinds())}")
    return fault_kinds()[kinds[0]] if kinds else None


def _said_elsewhere(found: Problems, path: Path, node: MapNode, name: str, kinds: Sequence[str]) -> bool:
    value = node.entries[name]
    if not kinds and isinstance(value, ScalarNode) and value.text in fault_kinds():
        why = Advice(f"'{name}' is no field of a fault", f"its kind is a key: '{value.text}: {{…}}'")
        found.report((*path, name), why, key=True)
        return True
    for kind in kinds or fault_kinds():
        if name in own_fields(fault_kinds()[kind]) and nearest(name, SIBLINGS, cutoff=0.8) is None:
            inside = f"{kind}: {{{name}: …}}" if kinds else f"KIND: {{{name}: …}}"
            why = Advice(f"'{name}' stands inside a kind", f"write {inside}, or indent it below the kind")
            found.report((*path, name), why, key=True)
            return True
    return False


def _read_frame(found: Problems, path: Path, node: MapNode) -> Frame:
    """Return the trigger and duration of an entry of `faults`. A broken field is reported and left out, because the
    file is refused anyway."""
    given = [name for name in node.entries if name in TRIGGER_KEYS]
    if not given and not any(found.misspelt((*path, name)) for name in TRIGGER_KEYS):
        why = "when does the fault begin? Give one of at: 5s, when: acked >= 2000, after: {fault: 1}"
        found.report(path, why)
    for second in given[1:]:
        found.report(
            (*path, second), "a fault has one trigger", f"this one already has '{given[0]}'", key=True
        )
    if given and "at_latest" in node.entries and "when" not in given:
        found.report((*path, "at_latest"), "'at_latest' goes with 'when' only", key=True)
    said = [name for name in SIBLINGS if name in node.entries and found.sound((*path, name))]
    for name in said:
        if isinstance(value := node.entries[name], ScalarNode) and value.value is None:
            found.report((*path, name), NO_VALUE)
    data: dict[str, object] = {name: plain(node.entries[name]) for name in said if found.sound((*path, name))}
    return found.validated(path, Frame, data) or Frame()


def _read_body(
    found: Problems, path: Path, node: MapNode, kind: type[FaultSpec], frame: Frame
) -> FaultSpec | None:
    body_path: Path = (*path, kind.KIND)
    body = node.entries[kind.KIND]
    own = own_fields(kind)
    if not isinstance(body, MapNode):
        fields = ", ".join(f"{name}: …" for name in own_fields(kind, required=True) or own[:1])
        found.report(body_path, f"expected its fields in braces, {{{fields}}}, not {describe(body)}")
        return None
    for name in body.entries:
        if name in SIBLINGS:
            why = f"'{name}' belongs next to '{kind.KIND}', not inside it"
            found.report((*body_path, name), why, key=True)
        elif name not in own:
            found.unknown((*body_path, name), "field", own)
    data: dict[str, object] = {name: plain(body.entries[name]) for name in own if name in body.entries}
    data |= {"number": int(path[-1]) + 1, "trigger": frame.trigger or TimeTrigger(0.0)}
    fault = found.validated(body_path, kind, data)
    hold = frame.for_ if kind.HOLD_KEY == "for" else frame.restart_after
    return fault and fault.model_copy(update={"hold": hold})
