"""Settings of nodes, the time-outs that follow from them, and the time that each part of a cluster may take to
recover.

A later layer overrides an earlier one::

    defaults     for a small cluster on one machine
    groups       what consumer groups and share groups need
    timing       `chaos`: short time-outs for experiments; `script`: so long that nothing happens by itself;
                 `kafka`: none, so Kafka's own
    cluster      `cluster.config` of the experiment, with the settings of its broker file (`settings_from`)
    node         `cluster.broker_config` of this node

`python -m ackproof.experiment.timing` prints the table of `docs/timing.md`; a test compares both.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.promises import elects_uncleanly
from ackproof.experiment.setting_effects import kafka_default, kafka_settings
from ackproof.experiment.settings import Scope
from ackproof.experiment.spec import ClusterSpec, ConsumerSpec, ProducerSpec
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.documents import ChangedSetting, Timing
from ackproof.rundir.guarantees import LIBRARIES, Fact

_CHAOS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # Followers that are paused for less stay in the ISR. The ISR shrinks within 1.5 times this.
        "replica.lag.time.max.ms": "4000",
        "replica.fetch.wait.max.ms": "100",
        "replica.fetch.backoff.ms": "100",
        # Leaders move only when a fault moves them.
        "auto.leader.rebalance.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "num.network.threads": "1",
        "num.io.threads": "2",
        "background.threads": "2",
        # Kafka's default of 128 MB would be half of the heap.
        "log.cleaner.dedupe.buffer.size": str(4 << 20),
    }
)


_SCRIPT: Final[Mapping[str, str]] = MappingProxyType(
    {
        # No replica leaves the ISR, no held request times out, and nodes send only what a step lets through.
        **dict.fromkeys(
            (
                "replica.lag.time.max.ms",
                "replica.socket.timeout.ms",
                "controller.socket.timeout.ms",
                "controller.quorum.fetch.timeout.ms",
                "controller.quorum.request.timeout.ms",
                "request.timeout.ms",
            ),
            "600000",
        ),
        "replica.fetch.wait.max.ms": "50",
        # One batch per fetch: the first batch is always sent, however large.
        "replica.fetch.max.bytes": "1",
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "500",
    }
)
"""Settings of `script`, in addition to those of `chaos`."""


def configured(spec: ClusterSpec, node_id: int) -> dict[str, str]:
    """Return the settings that ackproof and the experiment give to a node, by name. Kafka's own default holds for any
    setting that is missing. Settings of ids, roles, addresses and folders are missing too: `cluster.properties` adds
    them."""
    rack = spec.rack_of(node_id) if node_id in spec.broker_ids else ""
    return {
        **_defaults(spec),
        **spec.of_groups,
        **_timing_settings(spec),
        **({"broker.rack": rack} if rack else {}),
        **spec.config,
        **spec.broker_config.get(node_id, {}),
    }


def _defaults(spec: ClusterSpec) -> dict[str, str]:
    copies = str(min(3, spec.brokers))
    majority = str(min(2, spec.brokers))
    values = {
        # A misspelt topic must not be created.
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": majority,
    }
    if not spec.kafka.version.startswith("3."):
        values |= {
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": majority,
        }
    return values


def _timing_settings(spec: ClusterSpec) -> dict[str, str]:
    """Return the settings that `timing` gives to every node; empty for `kafka`."""
    match spec.timing:
        case "chaos":
            return {**_CHAOS, **spec.metadata.timing}
        case "script":
            return {**_CHAOS, **spec.metadata.timing, **_SCRIPT}
        case "kafka":
            return {}


def time_out(spec: ClusterSpec, name: str) -> int:
    """Return the shortest value, on any node, of the time-out setting `name`, in ms. A value that only
    `ClusterSpec.of_groups` sets does not count. Raises KeyError if no known release has such a broker setting."""
    return min(_time_outs(spec, name))


def longest_time_out(spec: ClusterSpec, name: str) -> int:
    """Return the longest value, on any node, of the time-out setting `name`, in ms. A value that only
    `ClusterSpec.of_groups` sets does not count. Raises KeyError if no known release has such a broker setting."""
    return max(_time_outs(spec, name))


def _time_outs(spec: ClusterSpec, name: str) -> list[int]:
    """Return the values of a setting: first for nodes without `broker_config`, even if there are none, then for each
    node with one. A value that the experiment does not set is that of `timing`, else Kafka's default."""
    usual = _timing_settings(spec).get(name, kafka_default(name))
    given = [spec.config, *({**spec.config, **own} for own in spec.broker_config.values())]
    return [int(config.get(name, usual)) for config in given]


def timing_name(spec: ExperimentSpec) -> str:
    """Return a short name for the time-outs of an experiment's brokers, such as `chaos` or `Kafka's own +
    server.properties`. `+ cluster.config` is added if `config` or `broker_config` sets a time-out (`*.ms`) to another
    value than the timing and the broker file (or else Kafka's default). A cluster that someone else runs has `that of
    the cluster`."""
    if spec.ground.foreign:
        return "that of the cluster"
    cluster, file = spec.cluster, spec.cluster.settings_from
    parts = ["Kafka's own" if cluster.timing == "kafka" else str(cluster.timing)]
    if file is not None:
        parts.append(Path(file.path).name)
    usual = _timing_settings(cluster) | ({} if file is None else file.settings)
    own = [given for config in (cluster.config, *cluster.broker_config.values()) for given in config.items()]
    if any(name.endswith(".ms") and usual.get(name, _default(cluster, name)) != value for name, value in own):
        parts.append("cluster.config")
    return " + ".join(parts)


def timing_of(spec: ExperimentSpec) -> Timing:
    """Return the name of the timing, the broker settings that differ from Kafka's defaults, and the ignored settings of
    the broker file. For a cluster that someone else runs, no differing settings are given."""
    changed, file = () if spec.ground.foreign else tuple(_changed(spec.cluster)), spec.cluster.settings_from
    return Timing(name=timing_name(spec), changed=changed, ignored={} if file is None else file.ignored)


def _changed(cluster: ClusterSpec) -> Iterator[ChangedSetting]:
    """Yield each broker setting with a value that differs from Kafka's default, once for each such value. A setting
    that the release does not have has the default None. `broker.rack` is left out. Settings in ms come first."""
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
    """Return Kafka's default of a broker setting, '' if it has none; None if the release has no such setting."""
    setting, version = kafka_settings().get((Scope.BROKER, name)), cluster.kafka.version
    return setting.default_in(version) if setting is not None and setting.is_in(version) else None


def markdown() -> str:
    """Return the table of docs/timing.md as Markdown: each node setting that `timing: chaos` or `timing: script`
    changes, with its value there and Kafka's default. It includes settings of KRaft and of ZooKeeper mode."""
    columns: list[dict[str, str]] = [{}, {}]
    for column, timing in zip(columns, ("chaos", "script"), strict=True):
        for mode in ("kraft", "zookeeper"):
            column |= _timing_settings(ClusterSpec.model_validate({"timing": timing, "mode": mode}))
    rows = ["| setting | Kafka's default | `chaos` | `script` |", "|---|---|---|---|"]
    for name in sorted(columns[0] | columns[1]):
        cells = (f"`{name}`", kafka_default(name), *(column.get(name, "") for column in columns))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


_ELECTIONS: Final = 10
"""Number of elections for which the bounds leave time: candidates may split the vote a few times in a row."""


def recovery_bounds(spec: ExperimentSpec) -> Mapping[str, float]:
    """Return, for each liveness class (such as `leaderless`), the seconds without progress after which a run records an
    anomaly in `observed/recovery.json`. Without consumer groups the class `stalled` is missing.

    The experiment's own bounds (`evidence.recovery`) replace those that follow from the time-outs.
    """
    workload = spec.workload
    zookeeper = spec.cluster.mode == "zookeeper"
    session = _longest_s(spec, "zookeeper.session.timeout.ms" if zookeeper else "broker.session.timeout.ms")
    election = _longest_s(spec, "controller.quorum.election.timeout.ms")
    fetch = _longest_s(spec, "controller.quorum.fetch.timeout.ms")
    controller = session + fetch if zookeeper else _ELECTIONS * (election + fetch)
    lag = _longest_s(spec, "replica.lag.time.max.ms")
    replica = lag + session + _longest_s(spec, "replica.socket.timeout.ms")
    transaction = workload.producers.transaction_timeout
    aborts = _longest_s(spec, "transaction.abort.timed.out.transaction.cleanup.interval.ms")
    # On a connection that broke silently, a client retries after these times: a fetch, and a produce request.
    fetched = _request_wait_s(workload.consumers)
    request = workload.producers.request_timeout or _library_s(workload.producers, "request.timeout.ms")
    # A request waits for the broker at most as long as the longer of the two, whichever the library uses.
    request = max(request, _request_wait_s(workload.producers, request))
    leader = controller + session
    if any(map(elects_uncleanly, (spec.cluster.config, *(topic.config for topic in spec.topics.values())))):
        leader += _longest_s(spec, "unclean.leader.election.interval.ms")
    found = {
        Anomaly.LEADERLESS: leader,
        Anomaly.STUCK_REPLICA: replica,
        Anomaly.STUCK_REASSIGNMENT: replica,
        Anomaly.STUCK_PRODUCER: request + session + lag,
        Anomaly.STUCK_READER: fetched + session,
        Anomaly.HANGING_TRANSACTION: transaction + aborts + _longest_s(spec, "request.timeout.ms"),
        Anomaly.NO_CONTROLLER: controller,
    }
    if workload.producers.transaction_size is not None:
        found[Anomaly.STUCK_PRODUCER] += transaction
        found[Anomaly.STUCK_READER] += transaction + aborts
    if workload.groups:
        found[Anomaly.STALLED] = max(group.stalled_after for group in workload.groups.values())
    return {name.value: spec.evidence.recovery.get(name.value, bound) for name, bound in found.items()}  # type: ignore[call-overload]


def _library_s(clients: ProducerSpec | ConsumerSpec, name: str) -> float:
    return LIBRARIES[clients.client.library].timeouts_ms[name] / 1e3


def _request_wait_s(clients: ProducerSpec | ConsumerSpec, default: float | None = None) -> float:
    """Return the seconds for which any request of these clients waits for its response. `default`: used if
    the clients' `config` does not set that time-out; None: the library's default.
    """
    name = LIBRARIES[clients.client.library].facts[Fact.REQUEST_TIMEOUT]
    if name in clients.config:
        return float(clients.config[name]) / 1e3
    return _library_s(clients, name) if default is None else default


def _longest_s(spec: ExperimentSpec, name: str) -> float:
    return longest_time_out(spec.cluster, name) / 1e3


if __name__ == "__main__":
    sys.stdout.write(markdown())
