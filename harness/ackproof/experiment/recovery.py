"""How long each part of a cluster has to recover after the last healing, from the cluster's own time-outs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.node_settings import longest_time_out
from ackproof.experiment.promises import elects_uncleanly
from ackproof.rundir.anomalies import Anomaly

_REQUEST_S: Final = 30.0
"""librdkafka's request.timeout.ms: a produce request on a connection that broke silently is tried again after it."""
_SOCKET_S: Final = 60.0
"""librdkafka's socket.timeout.ms: likewise a fetch, unless `workload.consumers.config` sets another."""
_ELECTIONS: Final = 10
"""Candidates may split the vote a few times in a row."""


def recovery_bounds(spec: ExperimentSpec) -> Mapping[str, float]:
    """Seconds by class: how long nothing of it may move before it is called stuck. What the file says goes first."""
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
    request = workload.producers.request_timeout or _REQUEST_S
    # A request waits for the broker no longer than the longer of the two, whichever librdkafka goes by.
    request = max(request, _client_s(workload.producers.config, "socket.timeout.ms", request))
    leader = controller + session
    if _may_elect_uncleanly(spec):
        leader += _longest_s(spec, "unclean.leader.election.interval.ms")
    found = {
        Anomaly.LEADERLESS: leader,
        Anomaly.STUCK_REPLICA: replica,
        Anomaly.STUCK_REASSIGNMENT: replica,
        Anomaly.STUCK_PRODUCER: request + session + lag,
        Anomaly.STUCK_READER: _client_s(workload.consumers.config, "socket.timeout.ms", _SOCKET_S) + session,
        Anomaly.HANGING_TRANSACTION: transaction + aborts + _longest_s(spec, "request.timeout.ms"),
        Anomaly.NO_CONTROLLER: controller,
    }
    if workload.producers.transaction_size is not None:
        found[Anomaly.STUCK_PRODUCER] += transaction
        found[Anomaly.STUCK_READER] += transaction + aborts
    return {name.value: spec.evidence.recovery.get(name.value, bound) for name, bound in found.items()}  # type: ignore[call-overload]


def _may_elect_uncleanly(spec: ExperimentSpec) -> bool:
    configs = (spec.cluster.config, *(topic.config for topic in spec.topics.values()))
    return any(map(elects_uncleanly, configs))


def _client_s(config: Mapping[str, str], name: str, default: float) -> float:
    return float(config[name]) / 1e3 if name in config else default


def _longest_s(spec: ExperimentSpec, name: str) -> float:
    return longest_time_out(spec.cluster, name) / 1e3
