"""What a cluster that someone else runs says of itself: release, controllers, racks, settings that bear on loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from ackproof.cluster import admin, queries
from ackproof.cluster.wire import Connection, WireError
from ackproof.experiment.kafka import LINES, METADATA

_PROTOCOL: Final = "inter.broker.protocol.version"
_SETTINGS: Final = (
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "default.replication.factor",
    "replica.lag.time.max.ms",
    "broker.session.timeout.ms",
    "zookeeper.session.timeout.ms",
    "controller.quorum.election.timeout.ms",
    "controller.quorum.fetch.timeout.ms",
    "log.flush.interval.messages",
    "replica.selector.class",
    _PROTOCOL,
)
"""Of brokers: what decides about loss, and how long a failure takes."""


def facts_of(metadata: Any, links: Mapping[int, Connection], *, zookeeper: bool) -> dict[str, str]:  # noqa: ANN401
    """Facts by name, from an answer to Metadata and what each broker answers; `not told` says who refused what."""
    told: dict[str, dict[int, str]] = {}
    refused: dict[str, None] = {}

    def ask(broker: int, asked: Callable[[Connection], Mapping[str, str]]) -> None:
        try:
            for name, value in asked(links[broker]).items():
                told.setdefault(name, {})[broker] = value
        except WireError as error:
            refused[f"broker {broker}: {error}"] = None

    for broker in sorted(links):
        ask(broker, _features)
        ask(broker, partial(_settings, broker))
    if not zookeeper and links:
        ask(min(links), _quorum)
    for broker, protocol in told.get(_PROTOCOL, {}).items():
        told.setdefault("kafka", {}).setdefault(
            broker, f"{protocol.partition('-')[0]} by {_PROTOCOL}, or later"
        )
    rows = sorted(metadata.brokers, key=lambda row: int(row.node_id))
    racks = {row.node_id: f"rack {row.rack}" if row.rack else "no rack" for row in rows}
    brokers = (f"{row.node_id} at {row.host}:{row.port} in {racks[row.node_id]}" for row in rows)
    return {
        "cluster id": metadata.cluster_id or "not told",
        "brokers": f"{len(rows)}: {', '.join(brokers)}",
        **{name: _joined(values) for name, values in told.items()},
        **({"not told": "; ".join(refused)} if refused else {}),
    }


def release_of(levels: Mapping[str, tuple[int, int]]) -> str:
    """The line of releases whose brokers support these levels of metadata.version; '' where they tell of none."""
    highest = levels.get(METADATA, (0, 0))[1]
    line = next((one for one in reversed(LINES) if one.features[METADATA][1] <= highest), None)
    name = f"before {LINES[0]}" if line is None else f"{line}"
    if line is not None and line.features[METADATA][1] < highest:
        name = f"later than {line}"
    return f"{name}, by {METADATA} up to {highest}" if highest else ""


def _features(link: Connection) -> dict[str, str]:
    found = admin.features(link)
    levels = ", ".join(f"{name} {level}" for name, level in sorted(found.finalised.items()))
    told = {"kafka": release_of(found.supported), "feature levels in force": levels}
    return {name: value for name, value in told.items() if value}


def _settings(broker: int, link: Connection) -> dict[str, str]:
    found = admin.describe_config(link, admin.Owner(admin.Whose.BROKER, str(broker)), _SETTINGS)
    return {name: found[name].value for name in _SETTINGS if name in found and found[name].value}


def _quorum(link: Connection) -> dict[str, str]:
    voters = sorted(voter.node for voter in queries.quorum(link).voters)
    return {"controllers": f"{len(voters)}: {', '.join(map(str, voters))}"}


def _joined(values: Mapping[int, str]) -> str:
    """One value where all brokers say the same, else each with those that say it."""
    by_value: dict[str, list[str]] = {}
    for broker, value in values.items():
        by_value.setdefault(value, []).append(str(broker))
    if len(by_value) == 1:
        return next(iter(by_value))
    return "; ".join(f"{value} (broker {', '.join(who)})" for value, who in by_value.items())
