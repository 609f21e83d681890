"""Paths of settings in a matrix or an expectation: `workload.producers.acks`,
`topics.orders.config[min.insync.replicas]`, `faults[1].for`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Final, get_args

from pydantic import BaseModel

from ackproof.base.advice import Advice
from ackproof.experiment.client import COMMAND, JAVA
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.group import GroupSpec, ShareGroupSpec
from ackproof.experiment.kafka import ELR
from ackproof.experiment.problems import Data, ListNode, MapNode, Node, Path, ScalarNode, nearest, path_text
from ackproof.experiment.settings import TOPIC_SETTINGS
from ackproof.experiment.spec import TopicSpec
from ackproof.experiment.triggers import ChainTrigger
from ackproof.faults.registry import fault_kinds
from ackproof.rundir.documents import Scalar

_PART: Final = re.compile(r"\.?([A-Za-z0-9_-]+)|\[([^\[\]]+)\]")
ROOTS: Final = ("cluster", "topics", "workload", "faults", "observe", "evidence")
_MAPS: Final = ("config", "broker_config", "features")
_NAMED: Final[dict[Path, str]] = {
    ("topics",): "topic",
    ("workload", "groups"): "consumer group",
    ("workload", "share_groups"): "share group",
}
"""Path below which the user chooses the names → what is named there, for messages."""


def _groups(model: type[BaseModel], path: Path = ()) -> Iterator[tuple[Path, tuple[str, ...]]]:
    yield path, tuple(model.model_fields)
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _groups(field.annotation, (*path, name))


GROUPS: Final[dict[Path, tuple[str, ...]]] = {
    **dict(_groups(ExperimentSpec)),
    ("topics", "*"): tuple(TopicSpec.model_fields),
    ("workload", "groups", "*"): tuple(GroupSpec.model_fields),
    ("workload", "share_groups", "*"): tuple(ShareGroupSpec.model_fields),
}
"""The fields of each group of an experiment, by the path of the group; `*` stands for any name."""


def group_of(path: Path) -> tuple[str, ...]:
    """Return the names of the fields directly below `path`; empty if their names are free, or if a single value is
    there."""
    if path[:1] == ("faults",) and path[2:] == ("after",):
        return tuple(field.name for field in fields(ChainTrigger))
    if path[:1] == ("faults",) and len(path) > 3 and path[2] in fault_kinds():
        return _below(fault_kinds()[str(path[2])], path[3:])
    return GROUPS.get(named if (named := (*path[:-1], "*")) in GROUPS else path, ())


def _below(model: type[BaseModel], path: Path) -> tuple[str, ...]:
    """Return the fields at `path` of a model (through lists of models); none if there is no model at `path`."""
    for part in path:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part)
        inside = () if field is None else (field.annotation, *get_args(field.annotation))
        models = [one for one in inside if isinstance(one, type) and issubclass(one, BaseModel)]
        if not models:
            return ()
        model = models[0]
    return tuple(model.model_fields)


def may_be_at(path: Path, node: Node) -> bool:
    """Return True if a matrix may vary the setting at `path` by a value like `node`.

    Single values are possible at every path, and a list only at `assignment`. A mapping is possible only for a Kafka
    build, a broker file, or the client library of producers or readers.
    """
    if isinstance(node, MapNode):
        read = path in (("cluster", "kafka"), ("cluster", "settings_from"))
        read |= path[0] == "workload" and path[2:] == ("client",)
        return read or (path[0] == "faults" and path[2:] == ("upgrade", "to"))
    return isinstance(node, ScalarNode) or path[-1] == "assignment"


def may_stand_at(text: str, node: Node) -> bool:
    """Return True if a matrix may vary the setting at the path `text` by a value like `node`.

    False if `text` is no path.
    """
    try:
        return may_be_at(parse_path(text), node)
    except ValueError:
        return False


def label_of(node: Node) -> str:
    """Return the text that stands for a value in the name of a case. A build is named by its name or path (`build`
    without these), a broker file by its path. A client is named as `java-4.3.1` or by the file name of its program, an
    assignment as `1-2-3+2-3-1`."""
    if isinstance(node, ScalarNode):
        return value_text(node.value)
    if isinstance(node, ListNode):
        return "+".join(
            "-".join(label_of(one) for one in row.items if isinstance(one, ScalarNode))
            for row in node.items
            if isinstance(row, ListNode)
        )
    if isinstance(command := node.entries.get(COMMAND), ListNode):
        first = command.items[0] if command.items else command
        return first.text.rpartition("/")[2] if isinstance(first, ScalarNode) else COMMAND
    if isinstance(release := node.entries.get(JAVA), ScalarNode):
        return f"{JAVA}-{release.text}"
    name = node.entries.get("name", node.entries.get("path"))
    return name.text if isinstance(name, ScalarNode) else "build"


def parse_path(text: str) -> Path:
    """Parse a path such as `topics.orders.config[min.insync.replicas]`: the name of a Kafka setting is in brackets, or
    follows a dot. The fault of `faults[1]` has the index 0 in the result. Raises ValueError if the text is no path."""
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        holds_settings = (
            parts[-1:] == ["config"]
            or parts == ["cluster", "features"]
            or (len(parts) == 3 and parts[1] == "broker_config")
        )
        if holds_settings and text[position] == "." and "[" not in text[position:]:
            parts.append(text[position + 1 :])
            break
        match = _PART.match(text, position)
        if match is None or (position == 0) == (text[position] in ".["):
            raise ValueError(
                "expected a path such as workload.producers.acks or topics.orders.config[retention.ms]"
            )
        inside = match[2]
        if parts == ["faults"] and inside is not None and inside.isdecimal() and len(inside) < 6:
            parts.append(int(inside) - 1)
        else:
            parts.append(match[1] or inside)
        position = match.end()
    if not parts or parts[-1] == "":
        raise ValueError("expected a path such as workload.producers.acks")
    return tuple(parts)


def wrong_path(path: Path, root: MapNode) -> Advice | None:
    """Return why `path` does not lead to a setting of the experiment `root`; None if it does. Fields
    of a fault are not checked, only its number."""
    if path[0] not in ROOTS:
        near = _find_topic_setting(path, root) or nearest(str(path[0]), ROOTS) or _deep_match(path)
        return Advice(f"settings stand below {', '.join(ROOTS)}", suggestion=near)
    if path[0] == "faults":
        faults = root.entries.get("faults")
        count = len(faults.items) if isinstance(faults, ListNode) else 0
        if len(path) < 3:
            return Advice("name a field of one fault, such as faults[1].for")
        if not isinstance(path[1], int) or not 0 <= path[1] < count:
            numbers = (
                f"give its number, 1 to {count}, as in faults[1].for" if count else "the file has no faults"
            )
            return Advice("there is no such fault", numbers)
        return None
    for above, what in _NAMED.items():
        depth = len(above)
        names = _names_below(root, above) if path[:depth] == above else []
        if names and len(path) > depth and path[depth] not in names:
            near = nearest(str(path[depth]), names)
            there = near and path_text((*above, near, *path[depth + 1 :]))
            return Advice(f"the {what} '{path[depth]}' does not exist", suggestion=there)
    near = _find_topic_setting(path, root)
    return _wrong_below(path) if near is None else Advice("it is a setting of a topic", suggestion=near)


def _names_below(node: Node | None, above: Path) -> list[str]:
    for part in above:
        node = node.entries.get(str(part)) if isinstance(node, MapNode) else None
    return list(node.entries) if isinstance(node, MapNode) else []


def _find_topic_setting(path: Path, root: MapNode) -> str | None:
    """Return the full path of a topic setting that was written without `topics.NAME.config`, such as `retention.ms`. It
    is for the topic that `path` names, else for the first topic. None for other paths, and without topics."""
    topics = root.entries.get("topics")
    first = next(iter(topics.entries), None) if isinstance(topics, MapNode) else None
    below = path[0] == "topics" and len(path) > 2
    name, topic = ".".join(map(str, path[2 if below else 0 :])), path[1] if below else first
    return (
        path_text(("topics", topic, "config", name)) if topic is not None and name in TOPIC_SETTINGS else None
    )


def _wrong_below(path: Path) -> Advice | None:
    for depth in range(1, len(path)):
        above: Path = path[:depth]
        fields = group_of(above)
        name = path[depth]
        if above in _NAMED:
            continue
        if not fields and above[-1] not in _MAPS:
            return Advice(f"'{path_text(above)}' is a single value, it has nothing below it")
        if not fields:
            right = len(path) == depth + (2 if above[-1] == "broker_config" else 1)
            return None if right else Advice(f"expected one setting below '{path_text(above)}'")
        if name not in fields:
            near = nearest(str(name), fields)
            there = near and path_text((*above, near, *path[depth + 1 :]))
            fact = f"'{path_text(above)}' has no field '{name}'"
            return Advice(fact, suggestion=there or _deep_match(path))
    if group_of(path) or path in _NAMED:
        return Advice("this is a group of settings", "name one of its fields")
    if path[-1] in _MAPS:
        example = ELR if path[-1] == "features" else "min.insync.replicas"
        return Advice(f"name one setting, such as {path_text(path)}[{example}]")
    return None


def _deep_match(path: Path) -> str | None:
    """Return a full path that ends in the last name of `path`: `acks` → `workload.producers.acks`; None if none
    does."""
    for above, names in GROUPS.items():
        there = (*above, path[-1])
        if above and "*" not in above and path[-1] in names and there not in GROUPS:
            return path_text(there)
    return None


def override(root: MapNode, path: Path, value: Node) -> MapNode:
    """Return a copy of `root` with `value` at `path`, whose missing parents become mappings. Nodes off the path are
    shared with `root`. If a parent on the path is a single value, or a list without that item, it stays as it is. Then
    `value` is not set, and nothing is raised."""
    result = _override(root, path, value)
    assert isinstance(result, MapNode)
    return result


def _override(node: Node | None, path: Path, value: Node) -> Node:
    if not path:
        return value
    part = path[0]
    if isinstance(node, ListNode) and isinstance(part, int) and part < len(node.items):
        items = list(node.items)
        items[part] = _override(items[part], path[1:], value)
        return ListNode(node.mark, items, node.nodes, node.depth)
    if node is not None and not isinstance(node, MapNode):
        # The path needs a mapping or a list here: the node stays, and is reported later.
        return node
    old = node or MapNode(value.mark)
    name = str(part)
    key = old.keys.get(name) or ScalarNode(name, name, value.mark)
    child = _override(old.entries.get(name), path[1:], value)
    return MapNode(old.mark, {**old.entries, name: child}, {**old.keys, name: key}, old.nodes, old.depth)


def value_at(data: Data, path: Path) -> Data:
    """Return the value of `data` at `path`; None if `data` has no such path."""
    for part in path:
        if isinstance(data, dict):
            data = data.get(str(part))
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data


def leaves(data: Mapping[str, Data], above: Path = ()) -> list[Path]:
    """Return the paths of the single values in the data of an experiment that a matrix may vary. Values in lists, such
    as fields of faults, and in `settings_from` are left out.

    `above`: path of `data` in the experiment.
    """
    found: list[Path] = []
    for name, value in data.items():
        path: Path = (*above, name)
        if isinstance(value, dict) and name != "settings_from":
            found += leaves(value, path)
        elif not isinstance(value, list | dict) and path[0] in ROOTS:
            found.append(path)
    return found


def is_called(path: Path, name: str) -> bool:
    """Return True if `name` is a name of the path: its whole text or an end of it. `workload.producers.acks` has the
    names `acks`, `producers.acks` and `workload.producers.acks`."""
    return any(name == end for end in ends(path))


def ends(path: Path) -> list[str]:
    """Return all names of a path, which are its ends (`acks`, `producers.acks`, …), the shortest first."""
    names = [str(path[-1]) if isinstance(path[-1], str) else path_text(path[-1:])]
    return names + [path_text(path[-length:]) for length in range(2, len(path) + 1)]


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return for each path its shortest end that is not also an end of another path in `paths`; the whole path if there
    is none."""
    names = []
    for path in paths:
        others = [other for other in paths if other != path]
        fitting = (name for name in ends(path) if not any(is_called(other, name) for other in others))
        names.append(next(fitting, path_text(path)))
    return names


def value_text(value: Scalar) -> str:
    """Return a single value as text for the name of a case. None, True and False become `null`, `true` and `false`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
