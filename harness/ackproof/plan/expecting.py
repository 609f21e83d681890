"""What is asked of a quantity, held against the experiment: what its run will not leave is refused before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from ackproof.experiment.experiment import ExpectSpec, ExperimentSpec
from ackproof.quantities.quantity import Ask, Witness
from ackproof.quantities.vocabulary import parse_ask
from ackproof.rundir.bounds import Window
from ackproof.rundir.brokers import ZNODES

_CALLED: Final = {"kraft": "KRaft", "zookeeper": "ZooKeeper"}
_OUT_OF_REACH: Final = frozenset({Witness.METADATA_LOG, Witness.QUORUM, Witness.LOGS, Witness.RACKS})


def not_given(expectation: ExpectSpec, spec: ExperimentSpec) -> Iterator[tuple[str, str]]:
    """Quantities that no run of this experiment can give, each with why not."""
    windows = [(name, bound.window) for name, bound in expectation.bounds.items()]
    windows += [(name, demand.window) for name, demand in expectation.over_repeats.items()]
    for name, window in windows:
        why = next(chain(_of_faults(parse_ask(name), window, spec), not_seen(name, spec)), None)
        if why is not None:
            yield name, why


def not_seen(quantity: str, spec: ExperimentSpec) -> Iterator[str]:
    """Why no run of this experiment shows it, faults and windows aside."""
    ask = parse_ask(quantity)
    return chain(_of_the_place(ask, spec), _of_the_node(ask, spec), _unseen(ask, spec))


def _of_faults(ask: Ask, window: Window, spec: ExperimentSpec) -> Iterator[str]:
    for fault in (ask.fault, window.fault):
        if fault is not None and fault > len(spec.faults):
            there = f"the last is fault {len(spec.faults)}" if spec.faults else "there are no faults"
            yield f"fault {fault} does not exist; {there}"


def _of_the_place(ask: Ask, spec: ExperimentSpec) -> Iterator[str]:
    if ask.place is None:
        return
    topic = spec.topics.get(ask.place.topic)
    if topic is None:
        yield f"topic '{ask.place.topic}' does not exist; there is {', '.join(spec.topics)}"
    elif ask.place.partition >= topic.partitions:
        yield f"{ask.place} does not exist; {ask.place.topic} has {topic.partitions} partitions, counted from 0"


def _of_the_node(ask: Ask, spec: ExperimentSpec) -> Iterator[str]:
    nodes, brokers = spec.cluster.kafka_ids, spec.cluster.broker_ids
    if ask.node is not None and ask.node not in nodes:
        yield f"there is no node {ask.node} of Kafka's; there are {', '.join(map(str, nodes))}"
    elif ask.node is not None and ask.node not in brokers and ask.quantity.needs is not Witness.METRICS:
        yield f"node {ask.node} is no broker; there are {', '.join(map(str, brokers))}"
    elif ask.viewer == ZNODES and not spec.cluster.metadata.broker_controls:
        yield "there are no znodes without ZooKeeper; write cluster: {mode: zookeeper}"
    elif ask.viewer not in (None, ZNODES, *brokers):
        yield f"node {ask.viewer} is no broker; there are {', '.join(map(str, brokers))}"


def _unseen(ask: Ask, spec: ExperimentSpec) -> Iterator[str]:
    needs, name = ask.quantity.needs, ask.quantity.key
    if needs in (Witness.READERS, Witness.SOURCES, Witness.COMMITS) and not spec.workload.consumers.live:
        yield f"{name} is not seen without live readers; write workload: {{consumers: {{live: 1}}}}"
    elif needs is Witness.COMMITS and (spec.workload.consumers.commit_every is None or spec.ground.simulated):
        where = (
            "in the model, which has no groups"
            if spec.ground.simulated
            else "where no reader commits; write workload: {consumers: {commit_every: 1s}}"
        )
        yield f"{name} is not seen {where}"
    elif ask.quantity.mode not in ("", spec.cluster.mode):
        yield f"{name} is not seen with {_CALLED[spec.cluster.mode]}, which does not have it"
    elif needs is Witness.METRICS and not spec.observe.metrics:
        yield f"{name} is not seen where no metrics are scraped; write observe: {{metrics: true}}"
    elif needs in (Witness.BROKERS, Witness.SOURCES) and not spec.observe.brokers:
        yield f"{name} is not seen where brokers are not asked one by one; write observe: {{brokers: true}}"
    elif needs in _OUT_OF_REACH and spec.ground.foreign:
        what = "whose logs are" if needs is Witness.LOGS else "whose metadata log is"
        yield f"{name} is not seen on a cluster that someone else runs, {what} out of reach"
    elif needs is Witness.RACKS and not spec.cluster.racks:
        yield f"{name} is not seen without racks; write cluster: {{racks: [a, b]}}"
    elif needs is Witness.QUORUM and (spec.ground.simulated or spec.cluster.mode != "kraft"):
        where = "in the model" if spec.ground.simulated else "with ZooKeeper"
        yield f"{name} is not seen {where}, which has no quorum of controllers"
