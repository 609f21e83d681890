"""Tests of committed offsets, read from a log of `__consumer_offsets` and requested from a coordinator."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ackproof.cluster.queries import PartitionState
from ackproof.network.wire import Unreachable
from ackproof.observe.committed import collect_committed, partition_of_group, replay_offsets
from ackproof.observe.replica_logs import LogDir
from ackproof.rundir.clock import RunClock
from ackproof.rundir.committed import CommittedFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.observed import OffsetCommit
from ackproof.rundir.partition import TopicPartition
from broker_files import batch, marker

PID = 7


def _key(group: str = "g", topic: str = "orders", partition: int = 0, kind: int = 1) -> bytes:
    texts = b"".join(struct.pack(">h", len(text)) + text.encode() for text in (group, topic))
    return struct.pack(">h", kind) + texts + struct.pack(">i", partition)


def _value(offset: int) -> bytes:
    """Return an OffsetCommitValue of version 3 with this offset, no leader epoch and no metadata."""
    return struct.pack(">hqihq", 3, offset, -1, 0, 1)


def _commit(at: int, offset: int, *, pid: int = -1, key: bytes | None = None) -> bytes:
    return batch(at, [_value(offset)], key=key or _key(), pid=pid, txn=pid >= 0)


TOMBSTONE = batch(1, [None], key=_key())  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("log", "found"),
    [
        pytest.param([_commit(0, 5), _commit(1, 9)], {("g", "orders", 0): 9}, id="the last one"),
        pytest.param([_commit(0, 9), _commit(1, 5)], {("g", "orders", 0): 5}, id="back"),
        pytest.param([_commit(0, 5), TOMBSTONE], {}, id="deleted"),
        pytest.param([TOMBSTONE, _commit(2, 5)], {("g", "orders", 0): 5}, id="after a deletion"),
        pytest.param([_commit(0, 5, key=_key(kind=2))], {}, id="a record of a member"),
        pytest.param([_commit(0, 5, key=_key(kind=0))], {("g", "orders", 0): 5}, id="an old key"),
        pytest.param(
            [_commit(0, 5), _commit(1, 6, key=_key("h", "other", 3))],
            {("g", "orders", 0): 5, ("h", "other", 3): 6},
            id="two groups",
        ),
        pytest.param(
            [_commit(0, 5), _commit(1, 9, pid=PID), marker(2, PID, commit=True)],
            {("g", "orders", 0): 9},
            id="a committed transaction",
        ),
        pytest.param(
            [_commit(0, 5), _commit(1, 9, pid=PID), marker(2, PID, commit=False)],
            {("g", "orders", 0): 5},
            id="an aborted one",
        ),
        pytest.param([_commit(0, 5), _commit(1, 9, pid=PID)], {("g", "orders", 0): 5}, id="an open one"),
        pytest.param(
            [_commit(1, 9, pid=PID), _commit(2, 5), marker(3, PID, commit=True)],
            {("g", "orders", 0): 5},
            id="one that ends after a later commit",
        ),
        pytest.param(
            [_commit(1, 9, pid=PID), marker(2, PID + 1, commit=True)], {}, id="another producer's marker"
        ),
    ],
)
def test_a_log_amounts_to_its_offsets(tmp_path: Path, log: list[bytes], found: dict[Any, int]) -> None:
    (path := tmp_path / f"{0:020d}.log").write_bytes(b"".join(log))
    assert replay_offsets([path])[1] == found


@pytest.mark.parametrize(
    ("group", "partition"),
    [("ackproof-r0", 34), ("payments", 13), ("é-grp", 17), ("", 0), ("polygenelubricants", 0)],
)  # fmt: skip
def test_a_group_belongs_to_the_partition_of_its_hash(group: str, partition: int) -> None:
    """The hash of "polygenelubricants" is Integer.MIN_VALUE, which Utils.abs turns into 0."""
    assert partition_of_group(group, 50) == partition


class _Cluster:
    """Fake cluster whose only partition of `__consumer_offsets` has the leader `leader`. Each request gets the next of
    `answers`, and the last one from then on; an exception is raised. `links`: ids of the running nodes."""

    def __init__(self, *answers: Any, leader: int = 1, links: tuple[int, ...] = (1, 2)) -> None:
        self.answers, self.leader, self.links = list(answers), leader, links

    def topic_state(self, topics: list[str]) -> dict[TopicPartition, PartitionState]:
        place = TopicPartition("__consumer_offsets", 0)
        return {place: PartitionState(*place, self.leader, 0, (1, 2), (1, 2))}

    def running_links(self) -> dict[int, _Cluster]:
        return dict.fromkeys(self.links, self)

    def ask(self, question: Any) -> Any:
        assert question.encode(1) and (question.name, question.version) == ("OffsetFetch", 7)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def _answer(offset: int, error: int = 0, row_error: int = 0) -> Any:
    row = SimpleNamespace(partition_index=0, committed_offset=offset, error_code=row_error)
    return SimpleNamespace(error_code=error, topics=[SimpleNamespace(name="orders", partitions=[row])])


@pytest.fixture
def run(tmp_path: Path) -> CaseDir:
    found = CaseDir(tmp_path / "run")
    found.commits("r0").parent.mkdir(parents=True)
    line = OffsetCommit(begun_ns=1, offsets=(("orders", 0, 5),), group="g")
    found.commits("r0").write_text(line.model_dump_json() + "\n")
    return found


LOADING, UNSTABLE = 14, 88


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([_answer(5)], id="at once"),
        pytest.param([_answer(0, error=LOADING), _answer(5)], id="after loading"),
        pytest.param([_answer(0, row_error=UNSTABLE), _answer(5)], id="after a transaction"),
        pytest.param([Unreachable("no answer in time"), _answer(5)], id="after a silence"),
    ],
)
def test_the_coordinator_and_the_logs_are_asked(run: CaseDir, tmp_path: Path, answers: list[Any]) -> None:
    folder = tmp_path / "data" / "__consumer_offsets-0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.log").write_bytes(_commit(0, 5))
    collect_committed(_Cluster(*answers), [LogDir(2, tmp_path / "data")], run, RunClock.start())  # type: ignore[arg-type]
    file = CommittedFile.load(run.committed)
    (group,), (log,) = file.groups, file.logs
    assert (group.group, group.coordinator, group.isr, group.reason) == ("g", 1, (1, 2), "")
    assert group.of_partition == {TopicPartition("orders", 0): 5} == log.of_group("g")
    assert (log.node, log.log_end, log.reason) == (2, 1, "")


@pytest.mark.parametrize(
    ("cluster", "reason"),
    [
        (_Cluster(_answer(0, error=30)), "broker 1, the coordinator: GROUP_AUTHORIZATION_FAILED"),
        (_Cluster(_answer(5), leader=-1), "__consumer_offsets/0 has no leader"),
        (_Cluster(_answer(5), links=(2,)), "broker 1, the coordinator, does not run"),
    ],
)
def test_a_coordinator_without_an_answer_is_a_reason(
    run: CaseDir, cluster: _Cluster, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ackproof.observe.committed._ANSWER_WITHIN_S", 0.05)
    collect_committed(cluster, [], run, RunClock.start())  # type: ignore[arg-type]
    (group,) = CommittedFile.load(run.committed).groups
    assert (group.reason, group.offsets) == (reason, ())


def test_a_compressed_log_is_read_and_a_damaged_one_is_a_reason(run: CaseDir, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "__consumer_offsets-0"
    folder.mkdir(parents=True)
    log = batch(0, [_value(5)] * 100, key=_key(), codec=1)
    for data, offsets, reason in ((log, (("g", "orders", 0, 5),), ""), (log[:-1] + b"x", (), "is damaged")):
        (folder / f"{0:020d}.log").write_bytes(data)
        collect_committed(_Cluster(_answer(5)), [LogDir(1, tmp_path / "data")], run, RunClock.start())  # type: ignore[arg-type]
        (found,) = CommittedFile.load(run.committed).logs
        assert found.offsets == offsets and found.reason.endswith(reason)


def test_a_run_without_commits_has_no_file(tmp_path: Path) -> None:
    run = CaseDir(tmp_path / "run")
    collect_committed(_Cluster(_answer(5)), [], run, RunClock.start())  # type: ignore[arg-type]
    assert not run.committed.exists()
