"""Settings given on the command line, over what a file says: `--set cluster.kafka=4.2.1`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ackproof.base.errors import BadInput
from ackproof.experiment.nodes import NOWHERE, MapNode, ScalarNode, nodes_of, plain
from ackproof.experiment.problems import InvalidExperiment, Path, path_text
from ackproof.plan.axes import matrix_of
from ackproof.plan.diagnostics import Problems
from ackproof.plan.paths import may_stand_at, override, parse_path, wrong_path
from ackproof.plan.source import parse, plain_scalar

EXAMPLE: Final = "cluster.kafka=4.2.1"
_TEXTS: Final = frozenset({"kafka", "settings_from"})
"""Fields whose value is a text even where it looks like a number: the quotes of a file are lost in a shell."""


def with_settings(root: MapNode, settings: Sequence[str]) -> MapNode:
    """The experiment with each `PATH=VALUE` in its place, paths as a matrix writes them.

    A setting that the file's matrix varies cannot be given: its expectations are about the axis. Raises `BadInput`.
    """
    for setting in settings:
        root = _with(root, setting)
    return root


def _with(root: MapNode, setting: str) -> MapNode:
    key, equals, text = setting.partition("=")
    if not equals:
        raise BadInput(f"--set {setting}: expected PATH=VALUE, such as {EXAMPLE}")
    try:
        path = parse_path(key.strip())
        if text.startswith("{") and may_stand_at(key.strip(), MapNode()):
            return override(root, path, _mapping(text))
        scalar = text if path[-1] in _TEXTS else plain_scalar(text)
    except (ValueError, InvalidExperiment) as error:
        raise BadInput(f"--set {setting}: {error}") from error
    wrong = wrong_path(path, root)
    if wrong is not None:
        message, near = wrong
        raise BadInput(f"--set {setting}: {message}" + (f" (did you mean '{near}'?)" if near else ""))
    axis = _axis(root, path)
    if axis is not None:
        raise BadInput(f"--set {setting}: the matrix varies {axis}; choose among its cases with --case")
    return override(root, path, ScalarNode(scalar, text, NOWHERE))


def _mapping(text: str) -> MapNode:
    """A build as a file writes it, `{path: ../kafka}`, relative to the working folder. Raises ValueError."""
    node = nodes_of(plain(parse(f"value: {text}".encode(), "--set"))["value"])  # type: ignore[index, call-overload]
    if not isinstance(node, MapNode):
        raise ValueError("expected a mapping such as {path: ../kafka}")
    return replace(node, mark=NOWHERE)


def _axis(root: MapNode, path: Path) -> str | None:
    """How the path is written that the file's matrix varies, None if it does not vary it."""
    # What is wrong with the matrix is reported when the file is checked.
    return path_text(path) if path in matrix_of(Problems("", root)).paths else None
