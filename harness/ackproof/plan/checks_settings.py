"""Which settings of nodes and clients a file may not give, and which numbers of theirs ackproof reckons with."""

from __future__ import annotations

import re
from typing import Final

from ackproof.experiment.nodes import MapNode, ScalarNode
from ackproof.experiment.problems import Path
from ackproof.experiment.settings import Scope, refusal
from ackproof.plan.diagnostics import Problems, describe

_WHOLE: Final = re.compile(r"[0-9]{1,15}\Z")
_NUMBERS: Final = (
    "min.insync.replicas",
    "replica.lag.time.max.ms",
    "broker.session.timeout.ms",
    "zookeeper.session.timeout.ms",
)
"""Settings of nodes that ackproof reckons with."""


def check_settings(found: Problems, path: Path, scope: Scope) -> None:
    """Settings that ackproof makes itself may not be given."""
    node = found.node(path)
    for name, value in node.entries.items() if isinstance(node, MapNode) else ():
        if (why := refusal(scope, name)) is not None:
            found.report((*path, name), why, key=True)
        elif scope is Scope.BROKER and name in _NUMBERS and found.sound((*path, name)):
            text = value.text if isinstance(value, ScalarNode) else ""
            if not _WHOLE.match(text):
                found.report((*path, name), f"expected a whole number, not {describe(value)}")
