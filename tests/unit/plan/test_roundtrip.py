"""Random valid experiments are restored unchanged from their JSON, and from that JSON as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ackproof.base.units import FASTEST
from ackproof.experiment.evidence import EvidenceSpec
from ackproof.experiment.experiment import ClaimSpec, ExpectSpec
from ackproof.experiment.exposure import DurationRange
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.problems import InvalidExperiment
from ackproof.experiment.roles import OF_PARTITION, Role, RoleKind
from ackproof.experiment.spec import (
    ClusterSpec,
    ConsumerSpec,
    ProducerSpec,
    TopicSpec,
    WorkloadSpec,
)
from ackproof.experiment.triggers import ChainTrigger, Condition, StateTrigger, TimeTrigger, Trigger
from ackproof.faults.processes import Kill, Pause, Restart, Stop
from ackproof.faults.storm import MenuEntry, Storm
from ackproof.plan import ExperimentSpec, cases, load
from ackproof.plan.cases import case_from_json, case_to_json
from ackproof.rundir.anomalies import GROUP_CLASSES, TABLE
from ackproof.rundir.bounds import Bound

from .conftest import SCHEMA

WORDS = st.text(alphabet="abcxyz019", min_size=1, max_size=6)
CONFIG = st.dictionaries(
    st.sampled_from(["background.threads", "x.y-z", "log.flush.interval.ms"]),
    st.text(alphabet=st.characters(codec="ascii", categories=("L", "N", "P", "Zs")), max_size=8),
    max_size=2,
)
TOPIC_CONFIG = st.dictionaries(
    st.sampled_from(["retention.ms", "flush.ms", "segment.bytes"]),
    st.integers(1 << 20, 1 << 30).map(str),
    max_size=2,
)
CLIENT_CONFIG = st.dictionaries(
    st.sampled_from(["client.rack", "client.software.name"]), st.sampled_from(["a", "1", "x-y"]), max_size=2
)


def durations(least: int = 1) -> st.SearchStrategy[float]:
    """Strategy for durations in seconds, in whole microseconds. `least`: the smallest, in microseconds."""
    return st.integers(least, 60_000_000).map(lambda us: round(us * 1e-6, 9))


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


PRODUCERS = st.builds(
    ProducerSpec,
    count=st.integers(1, 100),
    acks=st.sampled_from(["0", "1", "all"]),
    retries=maybe(st.integers(0, 2**31 - 1)),
    in_flight=maybe(st.integers(1, 1000)),
    linger=st.integers(0, 900).map(lambda ms: ms / 1000),
    batch_size=maybe(st.integers(1, 1 << 20)),
    compression=st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    rate=maybe(st.integers(1, 10**6).map(float) | st.floats(0.01, FASTEST)),
    value_size=st.integers(100, 1 << 20),
    delivery_timeout=durations(1_000_000),
    request_timeout=maybe(durations(1_000)),
    config=CLIENT_CONFIG,
)


@st.composite
def topics(draw: st.DrawFn, brokers: int) -> dict[str, TopicSpec]:
    made = {}
    for name in draw(st.lists(WORDS, min_size=1, max_size=3, unique=True)):
        factor = draw(st.integers(1, brokers))
        orders = draw(st.lists(st.permutations(range(1, brokers + 1)), max_size=3))
        rows = tuple(tuple(order[:factor]) for order in orders) or None
        partitions = draw(st.integers(1, 5)) if rows is None else len(rows)
        made[name] = TopicSpec(
            partitions=partitions, replication_factor=factor, assignment=rows, config=draw(TOPIC_CONFIG)
        )
    return made


@st.composite
def storms(draw: st.DrawFn, number: int, role: Role, trigger: Trigger) -> Storm:
    low = draw(durations())
    spans = st.integers(0, 60_000_000).map(lambda us: DurationRange(low, round(low + us * 1e-6, 9)))
    dishes = st.builds(
        MenuEntry,
        weight=st.integers(1, 9),
        lasting=maybe(spans),
        fields=st.sampled_from([{}, {"target": str(role)}]),
    )
    count = draw(st.integers(1, 20))
    return Storm(
        number=number,
        trigger=trigger,
        menu=draw(st.dictionaries(st.sampled_from(["kill", "stop", "pause", "restart"]), dishes, min_size=1)),
        count=count,
        roles=(role,),
        gap=draw(spans),
        lasting=draw(spans),
        at_least=draw(maybe(st.integers(0, count))),
        swarm=draw(st.booleans()),
    )


@st.composite
def faults(draw: st.DrawFn, number: int, cluster: ClusterSpec, made: dict[str, TopicSpec]) -> FaultSpec:
    brokers = cluster.brokers
    name = draw(st.sampled_from(sorted(made)))
    partition = draw(st.integers(0, made[name].partitions - 1))
    lonely = made[name].replication_factor < 2
    nobody = {RoleKind.COORDINATOR}  # the experiments have no groups
    nobody |= {RoleKind.FOLLOWER, RoleKind.FOLLOWERS} if lonely else set()
    nobody |= {RoleKind.MINORITY} if brokers < 3 else set()
    nobody |= {RoleKind.ZOOKEEPER} if cluster.mode == "kraft" else {RoleKind.CONTROLLERS}
    nobody |= set() if cluster.racks else {RoleKind.RACK}
    nobody |= set() if brokers > 1 else {RoleKind.LIST}
    kind = draw(st.sampled_from([role for role in RoleKind if role not in nobody]))
    role = Role(kind, name, partition) if kind in OF_PARTITION else Role(kind)
    if kind is RoleKind.BROKER:
        role = Role(kind, node=draw(maybe(st.integers(1, brokers))))
    elif kind is RoleKind.RACK:
        role = draw(
            st.sampled_from([Role(kind, rack=cluster.racks[0]), Role(kind, parts=(Role(RoleKind.BROKER),))])
        )
    elif kind is RoleKind.LIST:
        role = Role.list_of(Role(RoleKind.BROKER, node=node) for node in (2, 1))
    condition = draw(
        st.sampled_from(
            [
                Condition("acked", ">=", 100),
                Condition("acked", ">", 0, name, partition),
                Condition("isr", "<=", 1, name, partition),
                Condition("leader", "==", -1, name, partition),
            ]
        )
    )
    choices: list[st.SearchStrategy[Trigger]] = [
        st.builds(TimeTrigger, durations(0)),
        st.builds(StateTrigger, st.just(condition), maybe(durations())),
    ]
    if number > 1:
        choices.append(st.builds(ChainTrigger, st.integers(1, number - 1), durations(0)))
    trigger = draw(st.one_of(choices))
    family = draw(st.sampled_from([Kill, Stop, Pause, Restart, Storm]))
    if family is Storm:
        return draw(storms(number, role, trigger))
    hold = None if family is Restart else draw(maybe(durations()))
    return family(number=number, target=role, trigger=trigger, hold=hold)


@st.composite
def experiments(draw: st.DrawFn) -> ExperimentSpec:
    brokers = draw(st.integers(1, 7))
    made = draw(topics(brokers))
    count = draw(st.integers(0, 4))
    mode = draw(st.sampled_from(["kraft", "kraft", "zookeeper"]))
    cluster = ClusterSpec(
        kafka="3.9.2" if mode == "zookeeper" else draw(st.sampled_from(["4.3.1", "3.9.2"])),
        mode=mode,
        brokers=brokers,
        controllers=draw(st.sampled_from([1, 3])),
        combined=mode == "kraft" and draw(st.booleans()),
        racks=tuple(draw(st.lists(WORDS, max_size=3))),
        timing=draw(st.sampled_from(["chaos", "kafka"])),
        config=draw(CONFIG),
        broker_config=draw(st.dictionaries(st.integers(1, brokers), CONFIG, max_size=2)),
        heap=draw(st.integers(64 << 20, 1 << 30)),
    )
    bounds = st.dictionaries(
        st.sampled_from(
            [name for name, row in TABLE.items() if not row.always_forbidden and name not in GROUP_CLASSES]
        ),
        st.builds(Bound, st.sampled_from([">", ">=", "==", "<="]), st.integers(0, 9)),
        min_size=1,
        max_size=3,
    )
    showings = st.lists(st.builds(ExpectSpec, bounds=bounds), min_size=1, max_size=2).map(tuple)
    return ExperimentSpec(
        name=draw(WORDS),
        description=draw(
            st.text(alphabet=st.characters(codec="utf-8", categories=("L", "P", "Zs")), max_size=20)
        ),
        claims=draw(st.dictionaries(WORDS, st.builds(ClaimSpec, says=WORDS, holds=showings), max_size=2)),
        cluster=cluster,
        topics=made,
        workload=WorkloadSpec(
            producers=draw(PRODUCERS),
            consumers=ConsumerSpec(live=draw(st.integers(0, 3)), config=draw(CLIENT_CONFIG)),
            duration=draw(durations()),
        ),
        matrix=draw(
            st.sampled_from(
                [
                    {},
                    {"workload.producers.acks": (0, "all")},
                    {f"topics.{min(made)}.config[flush.ms]": (1, "2", 3)},
                ]
            )
        ),
        faults=tuple(draw(faults(number, cluster, made)) for number in range(1, count + 1)),
        expect=tuple(draw(st.lists(st.builds(ExpectSpec, bounds=bounds), max_size=1))),
        evidence=EvidenceSpec(
            max_indeterminate=draw(st.floats(0, 1)),
            ack_after_healing=draw(st.booleans()),
            isr_size=draw(maybe(st.integers(1, min(topic.replication_factor for topic in made.values())))),
            settle_timeout=draw(durations()),
        ),
        repeat=draw(st.integers(1, 2)),
        seed=draw(st.integers(0, 2**63 - 1)),
    )


@given(spec=experiments())
def test_everything_comes_back(spec: ExperimentSpec, tmp_path_factory: pytest.TempPathFactory) -> None:
    data = spec.data()
    SCHEMA.validate(data)
    path = Path(tmp_path_factory.getbasetemp()) / "roundtrip.yaml"
    path.write_text(json.dumps(data), encoding="utf-8")
    try:
        plan = load(path)
    except InvalidExperiment as refused:
        # Of faults that surely meet and cannot golden/meetings.yaml has answers.
        assume(not all("nothing to break" in problem.message for problem in refused.problems))
        raise
    assert plan.spec == spec
    for case in cases(plan):
        assert case_from_json(json.loads(json.dumps(case_to_json(case)))) == case
