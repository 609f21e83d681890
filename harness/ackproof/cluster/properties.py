"""server.properties of a node, rendered in layers; a later one wins::

defaults     what suits a small cluster on one machine
timing       `chaos`: short time-outs for experiments; `kafka`: nothing, so Kafka's own
cluster      `cluster.config` of the experiment
node         `cluster.broker_config` of this node
necessities  what the harness stands on; the settings that touch it are refused (`experiment.settings`)
"""

from __future__ import annotations

from collections.abc import Mapping

from ackproof.base.errors import BadInput
from ackproof.cluster.layout import Layout
from ackproof.cluster.metadata.choice import metadata_of
from ackproof.experiment.node_settings import configured
from ackproof.experiment.settings import Scope, refusal
from ackproof.experiment.spec import ClusterSpec


def check_settings(spec: ClusterSpec) -> None:
    """Raises `BadInput` naming every setting that a node cannot have. Validation says the same with line and column."""
    places = [("cluster.config", spec.config)]
    places += [(f"cluster.broker_config.{node}", config) for node, config in spec.broker_config.items()]
    wrong = [
        f"{place}[{key}]: {why}"
        for place, config in places
        for key, value in config.items()
        if (why := refusal(Scope.BROKER, key) or _unprintable(key, value))
    ]
    if wrong:
        raise BadInput("; ".join(wrong))


def _unprintable(key: str, value: str) -> str | None:
    if key and (key + value).isprintable():
        return None
    return "it holds a character that has no place in a settings file"


def settings(layout: Layout, node_id: int, data: str) -> dict[str, str]:
    """All settings of a node, a ZooKeeper server's too. Raises `BadInput` as `check_settings` does.

    `data` is the folder of its logs, relative to its working folder: Kafka would split an absolute path at each
    comma, and the folder of a case has some.
    """
    check_settings(layout.spec)
    asked = configured(layout.spec, node_id)
    return dict(sorted(metadata_of(layout.spec).settings(layout, node_id, data, asked).items()))


def render(values: Mapping[str, str]) -> str:
    """The text of a .properties file (java.util.Properties)."""
    return "".join(f"{_escape(key, key=True)}={_escape(value)}\n" for key, value in values.items())


def _escape(text: str, *, key: bool = False) -> str:
    escaped = text.replace("\\", "\\\\")
    if key:
        for sign in ("=", ":", " ", "#", "!"):
            escaped = escaped.replace(sign, f"\\{sign}")
    elif escaped.startswith(" "):
        escaped = "\\" + escaped
    return "".join(sign if sign.isascii() else _unicode_escape(sign) for sign in escaped)


def _unicode_escape(sign: str) -> str:
    units = sign.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
