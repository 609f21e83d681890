"""Tests of the decoded log of `__consumer_offsets` on every replica, against the coordinator's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ackproof.base.wait import wait_until
from ackproof.cluster.backends.process import ProcessCluster
from ackproof.cluster.protocol import local
from ackproof.experiment.spec import TopicSpec
from ackproof.observe.committed import ask_coordinator, replay_offsets
from ackproof.observe.offsets_log import collect_group_offsets
from ackproof.observe.replica_logs import LogDir
from ackproof.rundir.committed import GroupOffsets
from ackproof.rundir.groups import CommitMetadata, GroupEnd, GroupsFile, LogDecision, OffsetsHistory
from ackproof.rundir.layout import CaseDir

from .conftest import NEWEST, OLDER, Clusters
from .helpers import produce

pytestmark = pytest.mark.cluster
Row = Mapping[str, Any]
BATCH = 20


class Members:
    """Starts members of groups, which read batches of the topic `in` and commit on request, also in a transaction with
    a record for `out`. All their commits are numbered in one sequence."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self.bootstrap = cluster.bootstrap
        self.commits = 0

    def join(self, group: str, **config: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": "false",
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in config.items()},
            }
        )
        consumer.subscribe(["in"])
        return consumer

    def read(self, consumer: Consumer) -> list[TopicPartition]:
        """Read one batch; return the offset to commit for each partition."""
        got: list[Message] = []

        def look() -> bool:
            got.extend(message for message in consumer.consume(BATCH, 0.5) if not message.error())
            return bool(got)

        wait_until(look, what="a batch to be read", timeout_s=60)
        self.commits += 1
        ends = {(one.topic(), one.partition()): one.offset() + 1 for one in got}
        said = str(CommitMetadata(3, 5, self.commits))
        return [TopicPartition(topic, number, end, said) for (topic, number), end in ends.items()]

    def commit(self, consumer: Consumer, batches: int) -> None:
        for _ in range(batches):
            for answer in consumer.commit(offsets=self.read(consumer), asynchronous=False):
                assert answer.error is None

    def transact(self, consumer: Consumer, producer: Producer, *, commit: bool) -> None:
        producer.begin_transaction()
        producer.produce("out", b"x")
        producer.send_offsets_to_transaction(self.read(consumer), consumer.consumer_group_metadata(), 30)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)


def _work(cluster: ProcessCluster) -> tuple[str, ...]:
    """Let groups commit, rebalance, abort and be deleted; return their names. One of them is of KIP-848, except in the
    release `OLDER`."""
    members = Members(cluster)
    for group in ("classic", "gone"):
        first = members.join(group)
        members.commit(first, 2)
        first.close()
    second = members.join("classic")
    members.commit(second, 1)
    second.close()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(30)
    copier = members.join("copier", isolation_level="read_committed")
    for commit in (True, False, True, False):
        members.transact(copier, producer, commit=commit)
    copier.close()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_consumer_groups(["gone"])["gone"].result(30)
    if cluster.spec.kafka.version == OLDER:
        return "classic", "gone", "copier"
    first = members.join("modern", group_protocol="consumer")
    members.commit(first, 2)
    second = members.join("modern", group_protocol="consumer")

    def shared() -> bool:
        for one in (first, second):
            one.consume(1, 0.1)
        return all(len(one.assignment()) == 1 for one in (first, second))

    wait_until(shared, what="two members to share two partitions", timeout_s=60)
    second.close()
    first.close()
    return "classic", "gone", "copier", "modern"


def _offsets(rows: Sequence[Row], group: str) -> tuple[tuple[str, int, int], ...]:
    """Return a group's committed offsets, as (topic, partition, offset): the last row in force for each partition."""
    last = {
        (row["topic"], row["partition"]): row
        for row in rows
        if row["group"] == group
        and row["record"] in ("commit", "removed")
        and row["decision"] == LogDecision.IN_FORCE
    }
    return tuple(sorted((*place, row["offset"]) for place, row in last.items() if row["record"] == "commit"))


@pytest.mark.parametrize("version", [NEWEST, pytest.param(OLDER, marks=pytest.mark.nightly)])
def test_every_replica_has_what_the_coordinators_answer(
    clusters: Clusters, version: str, tmp_path: Path
) -> None:
    cluster = clusters.start(kafka=version, brokers=2)
    cluster.create_topics(
        {
            "in": TopicSpec(partitions=2, replication_factor=2),
            "out": TopicSpec(partitions=1, replication_factor=2),
        }
    )
    assert [produce(cluster, "in", 500, partition=number) for number in (0, 1)] == [500, 500]
    groups = _work(cluster)
    answers = {group: ask_coordinator(cluster, group) for group in groups}
    assert not any(answer.reason for answer in answers.values())
    log_dirs = [LogDir(node.id, path) for node in local(cluster.brokers()) for path in node.disk.log_dirs]
    run = CaseDir(tmp_path / "run")
    GroupsFile(groups=tuple(GroupEnd(group=group, committed=answers[group]) for group in groups)).save(
        run.groups
    )

    def at_rest() -> tuple[OffsetsHistory, ...]:
        found = collect_group_offsets(cluster.jars(), log_dirs, run)
        ends = {(history.partition, history.log_end) for history in found}
        return found if len(ends) == len({partition for partition, _ in ends}) else ()

    histories = wait_until(at_rest, what="followers to have all that leaders have", timeout_s=20)
    assert all(history.whole for history in histories), histories
    nodes = sorted(node.id for node in cluster.brokers())
    partitions = {answer.partition for answer in answers.values()}
    assert [(one.node, one.partition) for one in histories] == [
        (n, p) for n in nodes for p in sorted(partitions)
    ]

    rows = pq.read_table(run.offsets_log).to_pylist()
    by_node = {node: [{**row, "node": 0} for row in rows if row["node"] == node] for node in nodes}
    assert all(found == by_node[nodes[0]] for found in by_node.values())
    found = by_node[nodes[0]]
    assert {group: _offsets(found, group) for group in groups} == {
        group: answer.offsets for group, answer in answers.items()
    }
    assert [group for group in groups if not answers[group].offsets] == ["gone"]
    _check_replay(log_dirs, answers)
    _check_rows(found, groups)


def _check_replay(log_dirs: Sequence[LogDir], answers: Mapping[str, GroupOffsets]) -> None:
    """Assert that the reader for `committed.json`, which needs no schemas, finds the offsets that the coordinator
    answered."""
    for log_dir in log_dirs:
        for group, answer in answers.items():
            folder = log_dir.path / f"__consumer_offsets-{answer.partition}"
            offsets = replay_offsets(sorted(folder.glob("*.log")))[1]
            assert sorted((*key[1:], end) for key, end in offsets.items() if key[0] == group) == [
                *answer.offsets
            ]


def _check_rows(rows: Sequence[Row], groups: Sequence[str]) -> None:
    def of(group: str, record: str) -> list[Row]:
        return [row for row in rows if row["group"] == group and row["record"] == record]

    committed = [row for row in rows if row["record"] == "commit"]
    assert {(row["member"], row["generation"]) for row in committed} == {(3, 5)}
    assert {row["number"] for row in committed} == {*range(1, max(row["number"] for row in committed) + 1)}
    assert {row["decision"] for row in of("classic", "commit")} == {LogDecision.IN_FORCE}
    copied = {(row["number"], LogDecision(row["decision"])) for row in of("copier", "commit")}
    assert [decision for _, decision in sorted(copied)] == [LogDecision.IN_FORCE, LogDecision.ABORTED] * 2
    assert all(row["decided_at"] > row["log_offset"] for row in of("copier", "commit"))
    generations = [row["epoch"] for row in of("classic", "group")]
    assert generations == sorted(generations) and {1, 3} <= {*generations}
    assert of("gone", "group")[-1]["epoch"] == -1 and of("gone", "removed")
    if "modern" not in groups:
        assert not [row for row in rows if row["record"] == "member"]
        return
    member = of("modern", "member")
    ids = {row["member_id"] for row in member}
    assert len(ids) == 2 and {row["topic"] for row in member} == {"in", ""}
    for one in ids:
        history = [row for row in member if row["member_id"] == one]
        assert history[-1]["epoch"] == -1
        # From Kafka 4.3 on each partition has the epoch of its assignment.
        assert all(0 < row["offset"] <= row["epoch"] for row in history if row["partition"] >= 0)
    assert {row["partition"] for row in member} == {-1, 0, 1}
    assert max(row["epoch"] for row in of("modern", "group")) >= 2
