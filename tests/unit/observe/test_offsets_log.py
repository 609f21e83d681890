"""Tests of the histories in logs of `__consumer_offsets`: tests write the records, and schemas in a jar decode them."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coordinator_jar as made
from ackproof.observe.coordinator_records import CoordinatorRecords
from ackproof.observe.offsets_log import collect_group_offsets, read_at_rest
from ackproof.observe.replica_logs import LogDir
from ackproof.rundir.committed import GroupOffsets
from ackproof.rundir.groups import (
    OFFSETS_LOG,
    CommitMetadata,
    GroupEnd,
    GroupsFile,
    LogDecision,
    OffsetsHistory,
)
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.metadata import LogEnded, TopicCreated, TopicRemoved, write_metadata
from broker_files import batch, cleaned, compressed, marker

PID = 7
ORDERS, OTHER = uuid.UUID(int=1 << 64), uuid.UUID(int=2)
Row = dict[str, Any]


@pytest.fixture
def run(tmp_path: Path) -> CaseDir:
    found = CaseDir(tmp_path / "run")
    ends = tuple(
        GroupEnd(group=group, committed=GroupOffsets(group=group, partition=3)) for group in ("g", "h")
    )
    GroupsFile(groups=ends).save(found.groups)
    return found


@pytest.fixture
def collect(run: CaseDir, tmp_path: Path) -> Callable[..., tuple[list[Row], OffsetsHistory]]:
    def collect(
        *batches: bytes, jars: Sequence[Path] | None = None, **segments: bytes
    ) -> tuple[list[Row], OffsetsHistory]:
        folder = tmp_path / "data" / "__consumer_offsets-3"
        folder.mkdir(parents=True)
        for base, data in {"0": b"".join(batches), **{key[1:]: one for key, one in segments.items()}}.items():
            (folder / f"{int(base):020d}.log").write_bytes(data)
        found = jars if jars is not None else [made.jar(tmp_path)]
        (history,) = collect_group_offsets(found, [LogDir(2, tmp_path / "data")], run)
        assert GroupsFile.load(run.groups).histories == (history,)
        table = pq.read_table(run.offsets_log)
        assert table.schema.equals(OFFSETS_LOG)
        assert {(2, 3)} >= {(row["node"], row["log_partition"]) for row in table.to_pylist()}
        return table.to_pylist(), history

    return collect


def commit(at: int, offset: int, *, pid: int = -1, metadata: str = "", **key: Any) -> bytes:
    return batch(at, [made.commit_value(offset, metadata)], key=made.commit_key(**key), pid=pid, txn=pid >= 0)


def removed(at: int) -> bytes:
    return batch(at, [None], key=made.commit_key())  # type: ignore[list-item]


def test_commits_and_removals_are_rows(collect: Any) -> None:
    rows, history = collect(
        commit(0, 5, metadata=str(CommitMetadata(1, 4, 12)) + "\0"),
        commit(1, 9, group="h", topic="other", partition=2, kind=0, metadata="mine"),
        commit(2, 7, group="a group of somebody else"),
        removed(3),
    )
    assert history == OffsetsHistory(node=2, partition=3, log_start=0, log_end=4) and history.whole
    common = {"node": 2, "log_partition": 3, "timestamp_ms": 1000, "epoch": -1, "member_id": ""}
    plain = {**common, "producer_id": -1, "decision": LogDecision.IN_FORCE, "decided_at": -1}
    assert rows == [
        {**plain, "log_offset": 0, "record": "commit", "group": "g", "topic": "orders", "partition": 0}
        | {"offset": 5, "member": 1, "generation": 4, "number": 12},
        {**plain, "log_offset": 1, "record": "commit", "group": "h", "topic": "other", "partition": 2}
        | {"offset": 9, "member": -1, "generation": -1, "number": -1},
        {**plain, "log_offset": 3, "record": "removed", "group": "g", "topic": "orders", "partition": 0}
        | {"offset": -1, "member": -1, "generation": -1, "number": -1},
    ]


@pytest.mark.parametrize(
    ("version", "topic_id"), [(0, b""), (1, b""), (2, b""), (3, b""), (4, b""), (4, b"0123456789abcdef")]
)
def test_every_version_of_a_commit_is_decoded(collect: Any, version: int, topic_id: bytes) -> None:
    said = str(CommitMetadata(0, 1, 2))
    rows, history = collect(batch(0, [made.commit_value(5, said, version, topic_id)], key=made.commit_key()))
    assert [(row["offset"], row["number"]) for row in rows] == [(5, 2)] and history.whole


@pytest.mark.parametrize(
    ("end", "decided"),
    [
        pytest.param([marker(3, PID, commit=True)], (LogDecision.IN_FORCE, 3), id="committed"),
        pytest.param([marker(3, PID, commit=False)], (LogDecision.ABORTED, 3), id="aborted"),
        pytest.param([], (LogDecision.PENDING, -1), id="open"),
        pytest.param(
            [marker(3, PID + 1, commit=True)], (LogDecision.PENDING, -1), id="another producer's marker"
        ),
    ],
)
def test_a_marker_decides_about_its_transaction(
    collect: Any, end: list[bytes], decided: tuple[LogDecision, int]
) -> None:
    rows, history = collect(commit(0, 5, pid=PID), commit(1, 6), commit(2, 9, pid=PID), *end)
    found = [(row["offset"], row["producer_id"], (row["decision"], row["decided_at"])) for row in rows]
    assert found == [(5, PID, decided), (6, -1, (LogDecision.IN_FORCE, -1)), (9, PID, decided)]
    assert history.whole  # a marker has an offset, and no row


def test_a_marker_decides_only_about_what_is_before_it(collect: Any) -> None:
    first, second = marker(1, PID, commit=True), marker(3, PID, commit=False)
    rows, _ = collect(commit(0, 5, pid=PID), first, commit(2, 9, pid=PID), second)
    assert [(row["decision"], row["decided_at"]) for row in rows] == [(0, 1), (1, 3)]


def test_generations_and_epochs_are_rows(collect: Any) -> None:
    rows, _ = collect(
        batch(0, [made.classic_group(1, ["a", "b"]), made.classic_group(2), None], key=made.group_key()),
        batch(3, [made.consumer_group(7), None], key=made.group_key(kind=3)),
        batch(5, [b"\x00\x09"], key=made.group_key(kind=16)),  # a kind that is left out
    )
    assert [(row["record"], row["epoch"]) for row in rows] == [
        ("group", epoch) for epoch in (1, 2, -1, 7, -1)
    ]


def test_members_have_a_row_for_each_partition(collect: Any, tmp_path: Path, run: CaseDir) -> None:
    (folder := tmp_path / "data" / "orders-1").mkdir(parents=True)
    (folder / "partition.metadata").write_text(
        "version: 0\ntopic_id: AAAAAAAAAAEAAAAAAAAAAA\n", encoding="utf-8"
    )
    rows, _ = collect(
        batch(
            0,
            [
                made.member(4, [(ORDERS, {0: 3, 1: 4})], [(ORDERS, {2: 2})]),
                made.member(5, [(ORDERS, {0: None}), (OTHER, {6: None})]),
                made.member(-2, []),
                None,
            ],
            key=made.member_key(),
        )
    )
    names = ("log_offset", "member_id", "epoch", "topic", "partition", "offset")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (0, "m", 4, "orders", 0, 3),
        (0, "m", 4, "orders", 1, 4),
        (0, "m", 4, "orders", 2, 2),
        (1, "m", 5, "orders", 0, -1),
        (1, "m", 5, str(OTHER), 6, -1),
        (2, "m", -2, "", -1, -1),
        (3, "m", -1, "", -1, -1),
    ]
    assert {row["record"] for row in rows} == {"member"}


def test_a_deleted_topic_has_its_name_from_the_metadata_log(collect: Any, run: CaseDir) -> None:
    when = {"epoch": 1, "timestamp_ms": 1}
    created = TopicCreated(**when, offset=0, topic="gone", topic_id=str(OTHER))
    deleted = TopicRemoved(**when, offset=1, topic="gone", topic_id=str(OTHER))
    write_metadata(run.metadata_log, [created, deleted, LogEnded(**when, offset=2, records=2)])
    rows, _ = collect(batch(0, [made.member(1, [(OTHER, {0: 1})])], key=made.member_key()))
    assert [row["topic"] for row in rows] == ["gone"]


GAPS = [
    pytest.param([commit(0, 5), commit(2, 6)], {}, id="between batches"),
    pytest.param([commit(1, 5)], {}, id="at the beginning"),
    pytest.param([cleaned(commit(0, 5), 2)], {}, id="in a batch"),
    pytest.param([commit(0, 5)], {"_4": commit(4, 6)}, id="between segments"),
    pytest.param([commit(0, 5)], {"_4": b""}, id="before an empty segment"),
]


@pytest.mark.parametrize(("log", "segments"), GAPS)
def test_missing_offsets_mean_a_cleaned_log(
    collect: Any, log: list[bytes], segments: dict[str, bytes]
) -> None:
    _, history = collect(*log, **segments)
    assert history.cleaned and not history.whole and not history.reason


def test_segments_follow_each_other(collect: Any) -> None:
    rows, history = collect(commit(0, 5), commit(1, 6), _2=commit(2, 7), _3=b"")
    assert [row["offset"] for row in rows] == [5, 6, 7]
    assert history.whole and history.log_end == 3


def test_a_log_that_begins_later_is_not_whole(run: CaseDir, tmp_path: Path) -> None:
    (folder := tmp_path / "data" / "__consumer_offsets-3").mkdir(parents=True)
    (folder / f"{8:020d}.log").write_bytes(commit(8, 5))
    (history,) = collect_group_offsets([made.jar(tmp_path)], [LogDir(1, tmp_path / "data")], run)
    assert (history.log_start, history.log_end, history.cleaned, history.whole) == (8, 9, False, False)


@pytest.mark.parametrize("kept", [20, 61, -1])
def test_a_torn_end_is_left_out(collect: Any, kept: int) -> None:
    rows, history = collect(commit(0, 5), commit(1, 6)[:kept])
    assert [row["offset"] for row in rows] == [5] and history.whole and history.log_end == 1


def test_compressed_batches_are_read(collect: Any) -> None:
    """Brokers may compress this topic (offsets.topic.compression.codec). `test_replica_logs` has every codec."""
    values = [made.commit_value(offset) for offset in range(300)]
    plain = batch(300, values, key=made.commit_key())
    zstd = compressed(plain, 4, pa.compress(plain[61:], codec="zstd", asbytes=True))
    rows, history = collect(batch(0, values, key=made.commit_key(), codec=1), zstd)
    assert [row["offset"] for row in rows] == [*range(300)] * 2 and history.whole


NEWER = batch(0, [b"\x00\x09"], key=made.commit_key())
DAMAGED = commit(0, 5)[:-1] + b"\xff"


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (DAMAGED, "the batch at offset 0 is damaged"),
        (NEWER, "no version 9 of OffsetCommit"),
        (batch(0, [made.commit_value(5) + b"\0"], key=made.commit_key()), "OffsetCommit: 1 bytes behind"),
        (batch(0, [made.commit_value(5, "text")[:-9]], key=made.commit_key()), "beyond its record"),
        (batch(0, [made.commit_value(5)], key=made.commit_key()[:-1]), "unpack_from"),
    ],
)
def test_what_cannot_be_decoded_is_a_reason(collect: Any, log: bytes, reason: str) -> None:
    rows, history = collect(log)
    assert rows == [] and reason in history.reason and not history.whole
    assert (history.log_start, history.log_end) == (-1, -1)


def test_bytes_between_segments_are_a_reason(collect: Any) -> None:
    rows, history = collect(commit(0, 5), commit(1, 6)[:-1], _2=commit(2, 7))
    assert rows == [] and "a segment follows" in history.reason


@pytest.mark.parametrize("there", [False, True])
def test_without_schemas_there_is_a_reason(collect: Any, tmp_path: Path, there: bool) -> None:
    jar = tmp_path / (
        "kafka-group-coordinator-4.4.0.jar" if there else "kafka-group-coordinator-api-4.4.0.jar"
    )
    jar.write_bytes(b"no zip")
    rows, history = collect(commit(0, 5), jars=[jar])
    assert rows == [] and ("not a zip file" if there else "no jar of this Kafka") in history.reason


def test_schemas_of_3_9_have_kinds_as_versions(collect: Any, tmp_path: Path) -> None:
    log = [commit(0, 5), commit(1, 6, kind=0), batch(2, [made.classic_group(3)], key=made.group_key())]
    rows, _ = collect(*log, jars=[made.jar(tmp_path, "3.9.2")])
    assert [(row["record"], row["offset"], row["epoch"]) for row in rows] == [
        ("commit", 5, -1),
        ("commit", 6, -1),
        ("group", -1, 3),
    ]


def test_the_newest_release_has_the_schemas(collect: Any, tmp_path: Path) -> None:
    older = {**made.VALUES, "OffsetCommit": {**made.COMMIT_VALUE, "validVersions": "0-2"}}
    jars = [
        made.jar(tmp_path, "4.10.0"),
        made.jar(tmp_path, "4.9.2", older),
        made.jar(tmp_path, "3.9.2", older),
    ]
    for order in (jars, jars[::-1]):
        records = CoordinatorRecords.load(order)
        assert records.value("OffsetCommit", made.commit_value(5))["offset"] == 5
    with pytest.raises(ValueError, match="no version 3"):
        CoordinatorRecords.load(jars[1:]).value("OffsetCommit", made.commit_value(5))


def test_replicas_are_in_order_and_others_left_out(run: CaseDir, tmp_path: Path) -> None:
    for node, partition in ((2, 3), (1, 3), (1, 4)):
        folder = tmp_path / str(node) / f"__consumer_offsets-{partition}"
        folder.mkdir(parents=True)
        (folder / f"{0:020d}.log").write_bytes(commit(0, 10 * node + partition))
    histories = collect_group_offsets(
        [made.jar(tmp_path)], [LogDir(2, tmp_path / "2"), LogDir(1, tmp_path / "1")], run
    )
    assert [(one.node, one.partition) for one in histories] == [(1, 3), (2, 3)]
    rows = pq.read_table(run.offsets_log).to_pylist()
    assert [(row["node"], row["offset"]) for row in rows] == [(1, 13), (2, 23)]


@pytest.mark.parametrize("changes", [0, 1, 9])
def test_a_log_that_the_cleaner_changes_is_read_again(tmp_path: Path, changes: int) -> None:
    reads: list[list[str]] = []

    def read(paths: Sequence[Path]) -> int:
        reads.append([path.name for path in paths])
        if len(reads) <= changes:
            (tmp_path / f"{len(reads)}.log").write_bytes(b"")
            raise OSError(2, "No such file", "0.log")
        return len(paths)

    found = read_at_rest(tmp_path, read)
    assert found == ((None, "the log cleaner replaces its segments") if changes == 9 else (changes, ""))
    assert len(reads) == min(changes + 1, 5)


def test_structs_may_be_null() -> None:
    """An int8 before a struct says whether it is null; before a tagged struct it is a varint."""
    inner = [{"name": "x", "type": "int8", "versions": "0+"}]
    fields: list[dict[str, Any]] = [
        {"name": "plain", "type": "S", "versions": "0+", "nullableVersions": "0+"},
        {
            "name": "tag",
            "type": "S",
            "versions": "0+",
            "nullableVersions": "0+",
            "taggedVersions": "0+",
            "tag": 0,
        },
    ]
    value = {
        "name": "OffsetCommitValue",
        "validVersions": "0",
        "flexibleVersions": "0+",
        "fields": fields,
        "commonStructs": [{"name": "S", "versions": "0+", "fields": inner}],
    }
    decode = CoordinatorRecords([value]).value
    version, some = struct.pack(">h", 0), b"\x05\x00"
    assert decode("OffsetCommit", version + b"\xff" + b"\x01\x00\x01\x00") == {"plain": None, "tag": None}
    found = decode("OffsetCommit", version + b"\x01" + some + b"\x01\x00\x03\x01" + some)
    assert found == {"plain": {"x": 5}, "tag": {"x": 5}}
