"""Tests of reading replicas' logs, also damaged logs and records of other clients."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ackproof.observe.replica_logs import LogDir, collect_replica_logs
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.replicas import EpochStart, Replica, ReplicasFile
from broker_files import batch

RUN_ID = "ab" * 8


def _replica(log_dir: Path, name: str = "orders-0", *, segments: dict[int, bytes], epochs: str = "") -> Path:
    folder = log_dir / name
    folder.mkdir(parents=True)
    for base, data in segments.items():
        (folder / f"{base:020d}.log").write_bytes(data)
    if epochs:
        (folder / "leader-epoch-checkpoint").write_text(epochs, encoding="utf-8")
    return folder


@pytest.fixture
def run(tmp_path: Path) -> CaseDir:
    return CaseDir(tmp_path / "run")


def _only(found: ReplicasFile) -> Replica:
    (replica,) = found.replicas
    return replica


def test_a_replica_of_two_segments(tmp_path: Path, run: CaseDir) -> None:
    segments = {
        5: batch(5, [b"a"] * 3, epoch=1) + batch(8, [b"b"], epoch=2),
        9: batch(9, [b"c"] * 2, epoch=2, pid=4, txn=True),
    }
    _replica(tmp_path / "data", segments=segments, epochs="0\n2\n1 5\n2 8\n")
    (tmp_path / "data" / "replication-offset-checkpoint").write_text("0\n2\norders 0 9\nother 0 3\n")
    (tmp_path / "data" / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 7\n")
    found = collect_replica_logs([LogDir(3, tmp_path / "data")], ["orders"], run, RUN_ID)
    assert found == ReplicasFile.load(run.replicas)
    replica = _only(found)
    assert (replica.node, replica.topic, replica.partition, replica.records) == (3, "orders", 0, 6)
    assert (replica.log_start, replica.log_end, replica.high_watermark, replica.recovery_point) == (
        5,
        11,
        9,
        7,
    )
    assert replica.epochs == (EpochStart(epoch=1, start=5), EpochStart(epoch=2, start=8))
    rows = pq.read_table(run.replica_batches).to_pylist()
    assert [(row["first_offset"], row["last_offset"], row["leader_epoch"]) for row in rows] == [
        (5, 7, 1),
        (8, 8, 2),
        (9, 10, 2),
    ]
    assert [(row["node"], row["producer_id"], row["transactional"]) for row in rows] == [
        (3, -1, False),
        (3, -1, False),
        (3, 4, True),
    ]


def test_folders_that_are_going_or_coming_and_other_topics_are_passed_over(
    tmp_path: Path, run: CaseDir
) -> None:
    data = tmp_path / "data"
    for name in (
        "orders-0.abc-delete",
        "orders-1.abc-future",
        "orders",
        "payments-0",
        "__cluster_metadata-0",
    ):
        _replica(data, name, segments={0: batch(0, [b"a"])})
    _replica(data, "my.orders-with-dash-12", segments={0: batch(0, [b"a"])})
    found = collect_replica_logs([LogDir(1, data)], ["orders", "my.orders-with-dash"], run, RUN_ID)
    assert [(one.topic, one.partition) for one in found.replicas] == [("my.orders-with-dash", 12)]


def test_several_log_dirs_of_a_node(tmp_path: Path, run: CaseDir) -> None:
    for number in (0, 1):
        _replica(tmp_path / f"log-{number}", f"orders-{number}", segments={0: batch(0, [b"a"])})
    found = collect_replica_logs(
        [LogDir(1, tmp_path / "log-0"), LogDir(1, tmp_path / "log-1")], ["orders"], run, RUN_ID
    )
    assert [one.partition for one in found.replicas] == [0, 1]


def test_an_empty_replica_ends_where_it_begins(tmp_path: Path, run: CaseDir) -> None:
    _replica(tmp_path / "data", segments={7: b""})
    replica = _only(collect_replica_logs([LogDir(1, tmp_path / "data")], ["orders"], run, RUN_ID))
    assert (replica.log_start, replica.log_end, replica.records, replica.reason) == (7, 7, 0, "")


def test_bytes_that_are_no_batch_at_the_end_and_in_the_middle(tmp_path: Path, run: CaseDir) -> None:
    _replica(tmp_path / "a", segments={0: batch(0, [b"a"]) + b"torn" * 30})
    _replica(tmp_path / "b", segments={0: batch(0, [b"a"]) + b"torn", 1: batch(1, [b"b"])})
    torn, gap = collect_replica_logs(
        [LogDir(1, tmp_path / "a"), LogDir(2, tmp_path / "b")], ["orders"], run, RUN_ID
    ).replicas
    assert (torn.log_end, torn.rest, torn.reason) == (1, 120, "")
    assert (gap.log_end, gap.reason) == (1, f"{1:020d}.log follows 4 bytes that are no batch")


def test_a_log_dir_that_is_not_there_is_told(tmp_path: Path, run: CaseDir) -> None:
    found = collect_replica_logs([LogDir(2, tmp_path / "gone")], ["orders"], run, RUN_ID)
    assert found.replicas == ()
    assert found.reasons == ("node 2: No such file or directory",)


ID = "version: 0\ntopic_id: zq3FzNTdSDWsSk2MzQqXVA"


def test_a_log_that_waits_to_be_removed_is_told_apart_by_its_topics_id(tmp_path: Path, run: CaseDir) -> None:
    """A deleted log has no rows in the table of batches, which has only logs that still exist."""
    data = tmp_path / "data"
    old = {0: batch(0, [b"a"] * 3, epoch=0) + batch(3, [b"b"], epoch=2)}
    gone = _replica(
        data, "orders-0.0123456789abcdef0123456789abcdef-delete", segments=old, epochs="0\n1\n0 0\n"
    )
    (gone / "partition.metadata").write_text(ID, encoding="utf-8")
    _replica(data, segments={0: batch(0, [b"c"], epoch=0)})
    _replica(data, "orders-1.0123456789abcdef0123456789abcdef-delete", segments={})
    _replica(data, "other-0.0123456789abcdef0123456789abcdef-delete", segments=old)
    _replica(data, "orders-0.0123456789abcdef0123456789abcdef-future", segments=old)
    found = collect_replica_logs([LogDir(3, data)], ["orders"], run, RUN_ID)
    assert (_only(found).log_end, _only(found).deleted, _only(found).topic_id) == (1, False, "")
    (deleted,) = found.deleted
    assert deleted.topic_id == "ceadc5cc-d4dd-4835-ac4a-4d8ccd0a9754"
    assert (deleted.partition, deleted.log_end, deleted.deleted, deleted.records) == (0, 4, True, 4)
    assert deleted.epochs == (EpochStart(epoch=0, start=0), EpochStart(epoch=2, start=3))
    assert deleted.newest_ms >= 0
    assert pq.read_table(run.replica_batches).num_rows == 1


def test_the_id_of_a_topic_is_read_from_its_folder(tmp_path: Path, run: CaseDir) -> None:
    folder = _replica(tmp_path / "data", segments={0: batch(0, [b"c"], epoch=0)})
    (folder / "partition.metadata").write_text(ID, encoding="utf-8")
    assert _only(
        collect_replica_logs([LogDir(3, tmp_path / "data")], ["orders"], run, RUN_ID)
    ).topic_id.startswith("ceadc5cc")
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: none", encoding="utf-8")
    assert _only(collect_replica_logs([LogDir(3, tmp_path / "data")], ["orders"], run, RUN_ID)).topic_id == ""
