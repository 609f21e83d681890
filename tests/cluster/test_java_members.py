"""Tests of group members on the Java client with real brokers: their events in every commit mode and protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from ackproof.base.wait import wait_until
from ackproof.cluster.backends.process import ProcessCluster
from ackproof.experiment.group import GroupSpec
from ackproof.experiment.kafka import DEFAULT, NEWEST
from ackproof.experiment.spec import TopicSpec
from ackproof.rundir.groups import CommitMetadata

from .conftest import Clusters
from .java_member import Member, load, read_all, start_member

pytestmark = pytest.mark.cluster
PARTITIONS, EACH = 4, 150
SESSIONS = {
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
}
_names = count()


@dataclass
class World:
    """A cluster of one broker, and the members that a test has started on it."""

    cluster: ProcessCluster
    folder: Path
    running: list[Member]

    def topics(self) -> tuple[str, str]:
        """Create an input topic with records, and an empty output topic; return their names."""
        name = f"t{next(_names)}"
        topic = TopicSpec(partitions=PARTITIONS, replication_factor=1)
        self.cluster.create_topics({name: topic, f"{name}-copy": topic})
        load(self.cluster.bootstrap, name, PARTITIONS, EACH)
        return name, f"{name}-copy"

    def start(self, spec: GroupSpec, group: str, number: int, release: str = DEFAULT) -> Member:
        instance = f"{group}-{number}" if spec.static else ""
        bootstrap = self.cluster.bootstrap
        self.running.append(start_member(self.folder, bootstrap, spec, group, number, release, instance))
        return self.running[-1]

    def committed(self, group: str) -> dict[int, tuple[int, CommitMetadata | None]]:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], require_stable=True)
        parts = answer[group].result(10).topic_partitions or []
        return {
            part.partition: (part.offset, CommitMetadata.parse(part.metadata or ""))
            for part in parts
            if part.offset >= 0
        }


@pytest.fixture(scope="module")
def world(module_clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    cluster = module_clusters.start(brokers=1, combined=True, config=SESSIONS)
    made = World(cluster, tmp_path_factory.mktemp("members"), [])
    yield made
    for member in made.running:
        member.end()


def processed(*members: Member) -> Counter[tuple[object, object]]:
    return Counter((line["p"], line["o"]) for member in members for line in member.of("processed"))


def await_all(*members: Member, timeout_s: float = 60.0) -> None:
    wait_until(
        lambda: len(processed(*members)) == PARTITIONS * EACH,
        what="all records to be processed",
        timeout_s=timeout_s,
        state=lambda: f"{len(processed(*members))} {[member.last_words() for member in members]}",
    )


def check_lines(member: Member) -> None:
    """Check the events of a member: order of times, identities of records, and that each commit is answered once."""
    lines = member.lines
    names = [line["e"] for line in lines]
    assert (names[0], names[-1], names.count("stopping")) == ("started", "closed", 1)
    times = [line["t"] for line in lines]
    assert times == sorted(times)  # type: ignore[type-var]
    handed = set()
    for line in lines:
        if line["e"] == "delivered":
            assert line["id"] == [0, line["p"] * EACH + line["o"]]  # type: ignore[operator]
            handed.add((line["p"], line["o"]))
        if line["e"] == "processed":
            assert (line["p"], line["o"]) in handed
    asked = [line["n"] for line in member.of("commit")]
    told = [line["n"] for line in member.of("begin", "committed")]
    assert asked == sorted(set(asked)) and told == list(range(len(told)))
    assert len(member.of("begin")) == len(member.of("ended"))


CASES = [
    ({"commit": "before", "assignor": "roundrobin"}, DEFAULT),
    ({"commit": "after", "assignor": "cooperative-sticky"}, DEFAULT),
    ({"commit": "timed", "commit_every": 0.2, "static": True}, DEFAULT),
    ({"commit": "auto", "commit_every": 0.2}, DEFAULT),
    ({"commit": "transaction"}, DEFAULT),
    ({"commit": "before", "protocol": "consumer"}, DEFAULT),
    ({"commit": "after", "protocol": "consumer", "output": "copy"}, DEFAULT),
    ({"commit": "timed", "protocol": "consumer", "commit_every": 0.2}, DEFAULT),
    ({"commit": "auto", "protocol": "consumer", "commit_every": 0.2, "static": True}, DEFAULT),
    ({"commit": "transaction", "protocol": "consumer", "assignor": "range"}, DEFAULT),
    ({"commit": "transaction", "protocol": "consumer", "group_metadata": False}, DEFAULT),
    *(({"commit": "transaction"}, release) for release in NEWEST if release != DEFAULT),
]


@pytest.mark.parametrize(
    ("fields", "release"),
    [
        pytest.param(fields, release, marks=[] if i in (0, 9) else [pytest.mark.nightly])
        for i, (fields, release) in enumerate(CASES)
    ],
)
def test_a_group_takes_all_records_once(world: World, fields: dict[str, object], release: str) -> None:
    """Of two members the second joins during the load: no record is lost, and the group reads its input to the end."""
    topic, copy = world.topics()
    copies = "output" in fields or fields["commit"] == "transaction"
    spec = GroupSpec.model_validate(
        {
            "topics": [topic],
            "batch": 20,
            "record_time": 0.005,
            "session_timeout": 3,
            **fields,
            "output": copy if copies else None,
        }
    )
    a = world.start(spec, f"of-{topic}", 0, release)
    a.await_event("delivered")
    b = world.start(spec, f"of-{topic}", 1, release)
    b.await_event("delivered")
    await_all(a, b)
    a.say("record_time 0")
    assert (a.stop(), b.stop()) == (0, 0), (a.last_words(), b.last_words())
    for member in (a, b):
        check_lines(member)
        assert all(line["m"] and line["g"] > 0 for line in member.of("assigned"))  # type: ignore[operator]
    resets = [line for member in (a, b) for line in member.of("reset")]
    assert {(line["from"], line["to"], line["why"]) for line in resets} == {(-1, 0, "_NO_OFFSET")}
    ends = world.committed(f"of-{topic}")
    assert {partition: offset for partition, (offset, _) in ends.items()} == dict.fromkeys(
        range(PARTITIONS), EACH
    )
    if spec.commit != "auto":
        assert {found.member for _, found in ends.values() if found is not None} <= {0, 1}
        assert all(found is not None for _, found in ends.values())
    counts = processed(a, b)
    if spec.commit in ("before", "transaction"):
        aborted = [line for member in (a, b) for line in member.of("ended") if "x" in line]
        assert aborted or set(counts.values()) == {1}
    if copies:
        values = read_all(world.cluster.bootstrap, copy, PARTITIONS)
        assert len(set(values)) == PARTITIONS * EACH
        if spec.commit == "transaction" and spec.group_metadata:
            assert len(values) == PARTITIONS * EACH


@pytest.mark.nightly
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("named", [True, False])
def test_a_member_is_paused_within_a_transaction(world: World, protocol: str, named: bool) -> None:
    """With group metadata the commit is refused, and nothing is doubled. Without it the commit is accepted although a
    newer generation has begun."""
    topic, copy = world.topics()
    spec = GroupSpec.model_validate(
        {
            "topics": [topic],
            "output": copy,
            "commit": "transaction",
            "protocol": protocol,
            "group_metadata": named,
            "batch": 20,
            "record_time": 0.03,
            "session_timeout": 3,
        }
    )
    a = world.start(spec, f"of-{topic}", 0)
    b = world.start(spec, f"of-{topic}", 1)
    a.await_event("ended")
    b.await_event("ended")
    wait_until(
        lambda: len(a.of("begin")) > len(a.of("ended")),
        what="an open transaction",
        timeout_s=10,
        interval_s=0.01,
    )
    a.pause(7)
    a.say("record_time 0")
    before = len(a.of("ended"))
    a.await_event("ended", before + 1)
    await_all(a, b)
    assert (a.stop(), b.stop()) == (0, 0), (a.last_words(), b.last_words())
    after = a.of("ended")[before]
    doubled = [
        value for value, n in Counter(read_all(world.cluster.bootstrap, copy, PARTITIONS)).items() if n > 1
    ]
    if named:
        assert after["aborted"] is True and after["x"] == "COMMIT_FAILED"
        assert not doubled and a.of("lost")
    else:
        # whether records are doubled depends on which partition the other member reads first
        asked = next(line for line in a.of("commit") if line["n"] == after["n"])
        newer = [line for line in b.of("assigned") if line["g"] > asked["g"] and line["t"] < asked["t"]]  # type: ignore[operator]
        assert "x" not in after and newer, doubled
