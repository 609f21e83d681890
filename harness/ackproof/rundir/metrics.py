"""`observed/metrics.parquet`: the nodes' own JMX metrics, scraped from an exporter in each node once a second.

The list of metrics here is closed: the exporters, the scraper and the names of quantities are derived from it. Values
have the units of JMX: request times are in ms. If a release, mode or role does not have a metric, nodes of that kind
have no rows for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ackproof.base.errors import BadInput
from ackproof.rundir import storage

EVERY_S: Final = 1.0
UP: Final = "up"
"""Name of the row that every scrape of a node has: 1 if the node answered, 0 if not, also while it is paused. A node
without a process is not scraped."""


class Shape(StrEnum):
    """Kind of a metric, which decides how its successive values are evaluated."""

    GAUGE = "gauge"
    COUNTER = "counter"
    """A count that only grows and starts at 0 with the node's process."""
    LATENCY = "latency"
    """A quantile of a request's total time over the sample of Kafka's own histogram (mostly the last minutes), or a
    mean over Kafka's own sample windows (a minute by default)."""


@dataclass(frozen=True)
class Metric:
    """One metric: its name in ackproof, and its JMX bean and attribute. `means`: its value in words. `factor`:
    multiplier of the bean's number.

    `mode`: `kraft` or `zookeeper` if only that mode has the metric, '' for both. `greatest`: over several nodes the
    greatest value counts, because each node reports the whole cluster or its own worst case. Otherwise the sum counts.
    """

    name: str
    bean: str
    attribute: str
    means: str
    shape: Shape = Shape.GAUGE
    greatest: bool = False
    factor: float = 1.0
    mode: str = ""

    def value_in(self, values: Mapping[str, float] | None) -> float | None:
        """Return the value of this metric in a node's scrape (`Scrape.values`), times `factor`; None if the metric is
        missing, or if there is no scrape (`values` None)."""
        return None if values is None or self.name not in values else values[self.name] * self.factor

    def combine(self, numbers: Sequence[float]) -> float:
        return max(numbers) if self.greatest else sum(numbers)


_REPLICAS: Final = "kafka.server:type=ReplicaManager,name="
_CONTROLLER: Final = "kafka.controller:type=KafkaController,name="
_ELECTIONS: Final = "kafka.controller:type=ControllerStats,name="
_SHARES: Final = (("p50", "50thPercentile"), ("p99", "99thPercentile"), ("p999", "999thPercentile"))


def _latencies() -> tuple[Metric, ...]:
    return tuple(
        Metric(
            f"{name}_total_time_{share}",
            f"kafka.network:type=RequestMetrics,name=TotalTimeMs,request={request}",
            attribute,
            f"{share.replace('p999', 'p99.9')} of the time that {what} took on a broker, waiting for followers or data "
            "included, as the broker's own histogram has it",
            Shape.LATENCY,
            greatest=True,
            factor=1e-3,
        )
        for name, request, what in (
            ("produce", "Produce", "a produce request"),
            ("fetch_consumer", "FetchConsumer", "a consumer's fetch"),
        )
        for share, attribute in _SHARES
    )


_LIST: Final = (
    Metric(
        "under_replicated_partitions",
        f"{_REPLICAS}UnderReplicatedPartitions",
        "Value",
        "partitions led by the node whose ISR lacks a replica",
    ),
    Metric(
        "under_min_isr_partition_count",
        f"{_REPLICAS}UnderMinIsrPartitionCount",
        "Value",
        "partitions led by the node whose ISR is smaller than min.insync.replicas",
    ),
    Metric(
        "offline_replica_count",
        f"{_REPLICAS}OfflineReplicaCount",
        "Value",
        "replicas of the node in a log dir that failed",
    ),
    Metric("leader_count", f"{_REPLICAS}LeaderCount", "Value", "partitions that the node leads"),
    Metric(
        "isr_shrinks",
        f"{_REPLICAS}IsrShrinksPerSec",
        "Count",
        "how often the node, as a leader, took a replica out of an ISR",
        Shape.COUNTER,
    ),
    Metric(
        "isr_expands",
        f"{_REPLICAS}IsrExpandsPerSec",
        "Count",
        "how often the node, as a leader, let a replica into an ISR",
        Shape.COUNTER,
    ),
    Metric(
        "max_lag",
        "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica",
        "Value",
        "how many records a replica of the node is behind its leader, of all replicas the most",
        greatest=True,
    ),
    Metric(
        "active_controller_count",
        f"{_CONTROLLER}ActiveControllerCount",
        "Value",
        "1 on the active controller, 0 on others",
    ),
    Metric(
        "offline_partitions_count",
        f"{_CONTROLLER}OfflinePartitionsCount",
        "Value",
        "partitions without a leader, as a controller knows them",
        greatest=True,
    ),
    Metric(
        "fenced_broker_count",
        f"{_CONTROLLER}FencedBrokerCount",
        "Value",
        "brokers that are fenced, as a controller knows them",
        greatest=True,
    ),
    Metric(
        "leader_elections",
        f"{_ELECTIONS}LeaderElectionRateAndTimeMs",
        "Count",
        "elections of leaders; ZooKeeper mode only: KRaft counts the unclean ones alone",
        Shape.COUNTER,
        greatest=True,
        mode="zookeeper",
    ),
    Metric(
        "unclean_leader_elections",
        f"{_ELECTIONS}UncleanLeaderElectionsPerSec",
        "Count",
        "elections of leaders that were not in the ISR, as a controller counts them",
        Shape.COUNTER,
        greatest=True,
    ),
    Metric(
        "metadata_commit_time_avg",
        "kafka.server:type=raft-metrics",
        "commit-latency-avg",
        "how long the active controller waited until the quorum had committed what it appended to the metadata log, "
        "the mean over metrics.num.samples windows of metrics.sample.window.ms (a minute by default); KRaft only",
        Shape.LATENCY,
        greatest=True,
        factor=1e-3,
        mode="kraft",
    ),
    *_latencies(),
)
METRICS: Final[Mapping[str, Metric]] = MappingProxyType({metric.name: metric for metric in _LIST})
"""The metrics that ackproof can scrape, by name."""


@dataclass(frozen=True)
class Scrape:
    """One scrape of a node. `t_ns`: time of the request, the same for all nodes of a round. `done_ns`: time of the
    answer, or of giving up.

    Times are ns since the run's start. `values`: number by name of the metric, as the bean gives it, before
    `Metric.factor`; None: the node did not answer.
    """

    t_ns: int
    done_ns: int
    values: Mapping[str, float] | None


def read_scrapes(path: Path) -> Mapping[int, Sequence[Scrape]]:
    """Return the scrapes by node, each node's in order of time; empty if the file does not exist.

    The file has a row for each scrape and metric, and for each scrape the row `up`: 1 if the node answered. Raises
    `BadInput` if a scrape has rows but no `up` row, OSError and ArrowException if the file cannot be read.
    """
    found: dict[int, list[Scrape]] = defaultdict(list)
    if not path.exists():
        return found
    times: dict[tuple[int, int], tuple[int, float]] = {}
    values: dict[tuple[int, int], dict[str, float]] = defaultdict(dict)
    for row in storage.read_table(path).to_pylist():
        scrape = row["node"], row["t_ns"]
        if row["metric"] == UP:
            times[scrape] = row["done_ns"], row["value"]
        else:
            values[scrape][row["metric"]] = row["value"]
    if strangers := values.keys() - times.keys():
        node, t_ns = min(strangers)
        raise BadInput(f"{path}: values of node {node} at {t_ns / 1e9:.3f} s, and no row '{UP}' for them")
    for (node, t_ns), (done_ns, up) in sorted(times.items()):
        found[node].append(Scrape(t_ns, done_ns, values[node, t_ns] if up else None))
    return found
