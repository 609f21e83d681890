"""Tests that the verdict finds and names each planted lie about consumer groups, on real brokers.

There are two runs: an honest one, of which copies are changed, and one in which another client acts while the group has
no members."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ackproof.clients import group_progress
from ackproof.cluster.install import Installation
from ackproof.rundir.groups import GroupsFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Verdict

from .conftest import NEWEST
from .lies import ledger_files as lies
from .lies.stage import Judged, Stage

pytestmark = pytest.mark.cluster

RUN = """\
cluster: {brokers: 1, combined: true}
topics: {orders: {partitions: 2, replication_factor: 1}}
workload:
  producers: {acks: all, idempotence: true, rate: 300/s}
  duration: 2s
  groups:
    exact: {members: 2, batch: 20, commit: transaction, output: copies}
    plain: {members: 2, batch: 20}
"""
BACK = 20
"""Number of offsets by which a group's committed offset is set back."""


def _of(group: str, change: Callable[[lies.Rows], lies.Rows], ledger: str) -> Callable[[CaseDir], None]:
    """Return a function that changes a ledger of the first member of a group that has rows in it."""

    def tell(run: CaseDir) -> None:
        for client in sorted((run.path / "ledger" / ledger).glob("client=*")):
            rows = [row for part in client.glob("part-*.parquet") for row in pq.read_table(part).to_pylist()]
            if rows and rows[0]["group"] == group:
                lies.rewrite(client, change)
                return
        raise AssertionError(f"no member of {group}")

    return tell


def _output(change: Callable[[lies.Rows], lies.Rows]) -> Callable[[CaseDir], None]:
    def tell(run: CaseDir) -> None:
        path = run.group_output("exact")
        there = pq.read_table(path)
        pq.write_table(pa.Table.from_pylist(change(there.to_pylist()), schema=there.schema), path)
        lies.reseal(run)

    return tell


def _told_less(run: CaseDir) -> None:
    """Lie: at the end OffsetFetch answers each committed offset of the group `plain` too low by `BACK`."""
    file = GroupsFile.load(run.groups)
    ends = []
    for end in file.groups:
        offsets = tuple((*place, offset - BACK) for *place, offset in end.committed.offsets)
        less = end.committed.model_copy(update={"offsets": offsets})
        ends.append(end.model_copy(update={"committed": less} if end.group == "plain" else {}))
    file.model_copy(update={"groups": tuple(ends)}).save(run.groups)
    lies.reseal(run)


def _never_asked(rows: lies.Rows) -> lies.Rows:
    """Lie of a member: its last accepted commit is reported a second time, with another number."""
    last = max(rows, key=lambda row: int(str(row["done_ns"])))
    return [*rows, {**last, "number": int(str(last["number"])) + 1000}]


def _another(rows: lies.Rows) -> lies.Rows:
    """Lie of a member: it processed another record than the one at that offset."""
    return [{**rows[0], "seq": int(str(rows[0]["seq"])) + 100_000}, *rows[1:]]


LIES: Mapping[str, tuple[Callable[[CaseDir], None], dict[str, int], str]] = {
    "processed-nothing": (
        _of("plain", lambda rows: rows[1:], "deliveries"),
        {"undelivered": 1},
        "group plain: 1 record that no member processed",
    ),
    "processed-another": (
        _of("plain", _another, "deliveries"),
        {"undelivered": 1},
        "group plain: 1 record that",
    ),
    "processed-without-output": (
        _output(lambda rows: rows[1:]),
        {"torn-output": 1},
        "group exact: 1 torn output",
    ),
    "processed-twice": (
        _of("exact", lambda rows: [*rows, rows[0]], "deliveries"),
        {"redelivered": 1},
        "group exact: 1 record processed again",
    ),
    "commit-never-asked": (
        _of("plain", _never_asked, "commits"),
        {"lost-commit": 1},
        "group plain: 1 lost commit",
    ),
    "told-less": (_told_less, {"regressed-commit": 2}, "group plain: 2 regressed commits"),
    "copied-twice": (
        _output(lambda rows: [*rows, {**rows[-1], "offset": int(str(rows[-1]["offset"])) + 1}]),
        {"doubled-output": 1},
        "group exact: 1 doubled output",
    ),
}
"""By name of the lie: the change, the counts that the audit must find, and the first words of a reason of the
verdict."""


def set_back(bootstrap: str, group: str) -> None:
    """Set the committed offset of orders/0 back by `BACK`, as another client, while the group has no members."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    whole = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    offset = next(one.offset for one in whole.topic_partitions if one.partition == 0)
    less = ConsumerGroupTopicPartitions(group, [TopicPartition("orders", 0, offset - BACK)])
    (answer,) = admin.alter_consumer_group_offsets([less])[group].result().topic_partitions
    assert answer.error is None


def copy_again(bootstrap: str, topic: str) -> None:
    """Write the first record of the output once more, as another client."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "stranger"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    record = consumer.poll(20)
    assert record is not None and record.error() is None
    consumer.close()
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, record.value(), record.key(), partition=0, headers=record.headers() or [])
    assert producer.flush(20) == 0


@pytest.fixture(scope="module")
def judged(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Judged]:
    stage = Stage(tmp_path_factory.mktemp("group-lies"), installs(NEWEST))
    honest = stage.play("honest", RUN)
    for name, (tell, _, _) in LIES.items():
        copy = stage.runs[name] = lies.copy_of(honest, stage.folder / name)
        tell(copy)
    with pytest.MonkeyPatch.context() as patch:
        read = group_progress.read_back

        def act(cluster, topic, *args, **options):
            set_back(cluster.bootstrap, "plain")
            copy_again(cluster.bootstrap, topic)
            return read(cluster, topic, *args, **options)

        patch.setattr(group_progress, "read_back", act)
        stage.play("behind", RUN)
    return stage.judge()


def test_the_honest_run_passes(judged: dict[str, Judged]) -> None:
    one = judged["honest"]
    assert (one.verdict.verdict, one.reasons) == (Verdict.PASS, "")


@pytest.mark.parametrize("lie", LIES)
def test_each_lie_is_found_and_named(judged: dict[str, Judged], lie: str) -> None:
    one, (_, counts, begin) = judged[lie], LIES[lie]
    assert {name: count for name, count in one.audit.counts.items() if count} == counts
    assert one.verdict.verdict is Verdict.FAIL, one.reasons
    assert any(reason.startswith(begin) for reason in one.verdict.reasons), one.reasons


def test_what_somebody_else_did_while_the_group_had_no_members(judged: dict[str, Judged]) -> None:
    one = judged["behind"]
    assert one.audit.counts["doubled-output"] == 1
    assert one.verdict.verdict is Verdict.FAIL, one.reasons
    broken = [opinion.text for opinion in one.verdict.opinions if opinion.kind == "breaks"]
    assert any(text.startswith("group exact: 1 doubled output (copies/0 at ") for text in broken), broken
    assert any(text.startswith("group plain, orders/0: ") for text in broken), broken
