"""Whose time-outs a cluster has, and which of its settings are not Kafka's defaults.

`python -m ackproof.experiment.timing` prints the table of `docs/timing.md`; a test holds both equal.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.node_settings import configured, timing_settings
from ackproof.experiment.setting_effects import kafka_default, kafka_settings
from ackproof.experiment.settings import Scope
from ackproof.experiment.spec import ClusterSpec
from ackproof.rundir.circumstances import ChangedSetting, Timing


def timing_name(spec: ExperimentSpec) -> str:
    """Whose time-outs the brokers of an experiment have, in a word or two."""
    if spec.ground.foreign:
        return "that of the cluster"
    cluster, file = spec.cluster, spec.cluster.settings_from
    parts = ["Kafka's own" if cluster.timing == "kafka" else str(cluster.timing)]
    if file is not None:
        parts.append(Path(file.path).name)
    usual = timing_settings(cluster) | ({} if file is None else file.settings)
    own = [given for config in (cluster.config, *cluster.broker_config.values()) for given in config.items()]
    if any(name.endswith(".ms") and usual.get(name, _default(cluster, name)) != value for name, value in own):
        parts.append("cluster.config")
    return " + ".join(parts)


def timing_of(spec: ExperimentSpec) -> Timing:
    """The same, with every setting that is not at Kafka's default, and with what of its broker file is ignored."""
    changed, file = () if spec.ground.foreign else tuple(_changed(spec.cluster)), spec.cluster.settings_from
    return Timing(name=timing_name(spec), changed=changed, ignored={} if file is None else file.ignored)


def _changed(cluster: ClusterSpec) -> Iterator[ChangedSetting]:
    """What is not at Kafka's default, time-outs first."""
    found = {broker: configured(cluster, broker) for broker in cluster.broker_ids}
    names = {name for config in found.values() for name in config} - {"broker.rack"}
    for name in sorted(names, key=lambda name: (not name.endswith(".ms"), name)):
        default = _default(cluster, name)
        having: dict[str, list[int]] = defaultdict(list)
        for broker, config in found.items():
            having[config.get(name, default or "")].append(broker)
        for value, brokers in having.items():
            if value != default:
                where = tuple(brokers) if len(having) > 1 else ()
                yield ChangedSetting(name=name, value=value, default=default, brokers=where)


def _default(cluster: ClusterSpec, name: str) -> str | None:
    """Kafka's default of a broker setting; None where the release has no such setting."""
    setting, version = kafka_settings().get((Scope.BROKER, name)), cluster.kafka.version
    return setting.default_in(version) if setting is not None and setting.is_in(version) else None


def markdown() -> str:
    """What `chaos` and `script` set, in either mode of a cluster, as a table."""
    columns: list[dict[str, str]] = [{}, {}]
    for column, timing in zip(columns, ("chaos", "script"), strict=True):
        for mode in ("kraft", "zookeeper"):
            column |= timing_settings(ClusterSpec.model_validate({"timing": timing, "mode": mode}))
    rows = ["| setting | Kafka's default | `chaos` | `script` |", "|---|---|---|---|"]
    for name in sorted(columns[0] | columns[1]):
        cells = (f"`{name}`", kafka_default(name), *(column.get(name, "") for column in columns))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
