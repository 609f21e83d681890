"""Faults in short, as people say them: `isolate: leader(t/0)` with `from: clients` beside it, `split: [[1, 2], [3]]`.

A value without braces stands for the field that its kind names (`FaultSpec.SHORT`); the kind's other fields then stand
beside it. Nodes keep their places, so that whatever is wrong is reported where it stands; from here on only the long
forms exist.
"""

from __future__ import annotations

from dataclasses import replace

from ackproof.experiment.fault import COMMON, FaultSpec
from ackproof.experiment.nodes import ListNode, MapNode, Node, ScalarNode
from ackproof.faults.registry import fault_kinds


def spelt_out(root: MapNode) -> MapNode:
    """The experiment with each of its faults in its long form."""
    faults = root.entries.get("faults")
    if not isinstance(faults, ListNode):
        return root
    items = [_spelt_out(item) if isinstance(item, MapNode) else item for item in faults.items]
    return replace(root, entries=root.entries | {"faults": replace(faults, items=items)})


def fields_beside(kind: type[FaultSpec]) -> tuple[str, ...]:
    """The fields that stand beside a kind in its short form, as a file names them."""
    if not kind.SHORT:
        return ()
    names = (field.alias or name for name, field in kind.model_fields.items() if name not in COMMON)
    return tuple(name for name in names if name not in kind.SHORT and name not in fault_kinds())


def _spelt_out(entry: MapNode) -> MapNode:
    kinds = [name for name in entry.entries if name in fault_kinds()]
    if len(kinds) != 1:
        return entry  # said when it is read
    (name,) = kinds
    kind, value = fault_kinds()[name], entry.entries[name]
    fields = _fields_of(kind, value)
    if not fields:
        return entry
    beside = [field for field in fields_beside(kind) if field in entry.entries]
    body = MapNode(
        mark=value.mark,
        entries=fields | {field: entry.entries[field] for field in beside},
        keys=dict.fromkeys(fields, entry.keys[name]) | {field: entry.keys[field] for field in beside},
        nodes=value.nodes + 1,
        depth=value.depth + 1,
    )
    kept = {key: node for key, node in entry.entries.items() if key not in beside}
    return replace(
        entry,
        entries=kept | {name: body},
        keys={key: node for key, node in entry.keys.items() if key in kept},
    )


def _fields_of(kind: type[FaultSpec], value: Node) -> dict[str, Node]:
    """What a value without braces stands for; empty where it stands for nothing."""
    if isinstance(value, MapNode) or (isinstance(value, ScalarNode) and value.value is None):
        return {}
    if len(kind.SHORT) == 1:
        return {kind.SHORT[0]: value}
    if kind.SHORT and isinstance(value, ListNode) and len(value.items) == 3:
        # two groups, and between them what connects them
        groups, over = kind.SHORT
        first, between, second = value.items
        return {groups: replace(value, items=[first, second]), over: between}
    return {}
