"""What to do about a value of the wrong shape: what people write who know YAML, or Kafka, a little less well."""

from __future__ import annotations

import re
from typing import Final

from ackproof.experiment.nodes import ListNode, MapNode, Node, ScalarNode, shorten
from ackproof.experiment.problems import Path, path_text

MAPPING: Final = frozenset({"dict_type", "mapping_type", "model_type", "model_attributes_type"})
LIST: Final = frozenset({"list_type", "tuple_type"})
_UNQUOTED: Final = frozenset({"int_type", "float_type", "bool_type"})
_GLUED: Final = re.compile(r"([A-Za-z][\w.-]*)[:=] ?(\S.*)")
_SEVERAL: Final = re.compile(r"\s+or\s+|\s*[,|]\s*")
_LITERAL: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?|true|false")
_VARIED: Final = frozenset({"cluster", "topics", "workload", "observe", "evidence"})


def remedy(kind: str, node: Node | None, path: Path) -> str:
    """What to do where pydantic refuses `node` with an error of this kind; empty where nothing is known."""
    match node:
        case ListNode() if kind in MAPPING:
            names = [f"{item.text}: …" for item in node.items if isinstance(item, ScalarNode)]
            return f"write {{{', '.join(names) or 'NAME: VALUE'}}}, or NAME: VALUE below it without dashes"
        case ListNode():
            return _vary([item.text for item in node.items if isinstance(item, ScalarNode)], path)
        case MapNode() if path[:1] == ("matrix",):
            return f"write the whole path: {'.'.join([*map(str, path[1:]), *_first_keys(node)])}: [1, 2]"
        case MapNode():
            return "begin each item with a dash: '- NAME: VALUE'" if kind in LIST else ""
        case ScalarNode(value=str()):
            return _of_text(kind, node.text, path)
        case ScalarNode() if kind == "string_type":
            return f'put it in quotes: "{shorten(node.text)}"'
        case ScalarNode() if kind in LIST:
            return f"write [{shorten(node.text)}]"
        case _:
            return ""


def _first_keys(node: Node) -> list[str]:
    key = next(iter(node.entries), None) if isinstance(node, MapNode) else None
    return [key, *_first_keys(node.entries[key])] if isinstance(node, MapNode) and key is not None else []


def _of_text(kind: str, text: str, path: Path) -> str:
    if text[:1] in "“”„‘’«":
        return 'these quotes are none for YAML, write straight ones: "…"'
    if kind in MAPPING:
        glued = _GLUED.fullmatch(text)
        return (
            f"write {{{glued[1]}: {shorten(glued[2])}}}"
            if glued
            else "write its fields as NAME: VALUE below it"
        )
    if kind in LIST:
        return f"write [{', '.join(_SEVERAL.split(shorten(text)))}]"
    value, sign, _ = text.partition("#")
    if sign and value.strip():
        return "a comment needs a blank before its '#'"
    if text.endswith(","):
        return "take the comma away"
    if kind in _UNQUOTED and _LITERAL.fullmatch(text):
        return "take the quotes away"
    return _vary(_SEVERAL.split(text), path)


def _vary(values: list[str], path: Path) -> str:
    if len(values) < 2 or not all(values) or (path[:1] and path[0] not in _VARIED):
        return ""
    return f"one value stands here; to try several, matrix: {{'{path_text(path)}': [{', '.join(values)}]}}"
