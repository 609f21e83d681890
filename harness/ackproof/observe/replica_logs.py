"""Reads the replicas' logs on disk at the end of a run, as evidence of losses that is independent of the final read.

The brokers run but are idle. An appended batch is in its file at once, whether it was fsynced or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from ackproof.cluster.disks.log import (
    CRC_FROM,
    RECOVERY_POINT,
    SMALLEST,
    Batch,
    checkpoint,
    records,
    scan,
    segments,
    varint,
)
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.metadata import parse_uuid
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import ABORT_MARKER, COMMIT_MARKER, MAGIC, UNKNOWN_CONTENT, run_bytes
from ackproof.rundir.payload_bulk import BulkDecoder, as_int64, content_sum
from ackproof.rundir.replicas import APPEND_TIME, BATCHES, CREATE_TIME, EpochStart, Replica, ReplicasFile

_FOLDER: Final = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>[0-9]+)(?P<deleted>\.[0-9a-f]{32}-delete)?"
)
"""Folder of a partition, or of a deleted one. Folders that are being moved have another suffix after a dot."""
_HIGH_WATERMARK: Final = "replication-offset-checkpoint"
_EPOCHS: Final = "leader-epoch-checkpoint"
_METADATA: Final = "partition.metadata"
_ID: Final = re.compile(r"^topic_id: ([A-Za-z0-9_-]{22})$", re.MULTILINE)


@dataclass(frozen=True)
class LogDir:
    """One of the directories in `log.dirs` of a node (`node`: its id). `path`: location of the directory on this
    machine."""

    node: int
    path: Path


def collect_replica_logs(
    log_dirs: Iterable[LogDir], topics: Iterable[str], run: CaseDir, run_id: str
) -> ReplicasFile:
    """Read every replica of these topics, and write `observed/replicas.json` and `observed/replicas.parquet`. Return
    the content of `replicas.json`. It lists the logs that cannot be read, with their reasons; nothing is raised for
    them. Raises OSError if the files cannot be written.

    Deleted logs are listed in `ReplicasFile.deleted`, without their batches. Those that are empty or cannot be read are
    skipped, because a broker may have removed a part of them.
    """
    wanted = frozenset(topics)
    replicas: list[Replica] = []
    deleted: list[Replica] = []
    reasons: list[str] = []
    seen: dict[int, list[str]] = {}
    contents = BatchContents(run_id, sorted(wanted))
    run.observed.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(run.replica_batches, BATCHES, compression="zstd") as writer:
        for log_dir in log_dirs:
            try:
                folders = sorted(path for path in log_dir.path.iterdir() if path.is_dir())
            except OSError as error:
                reasons.append(f"node {log_dir.node}: {error.strerror}")
                continue
            seen.setdefault(log_dir.node, []).append(str(log_dir.path))
            marks, starts = (
                checkpoint(log_dir.path, _HIGH_WATERMARK),
                checkpoint(log_dir.path, RECOVERY_POINT),
            )
            tables: list[pa.Table] = []
            for folder in folders:
                match = _FOLDER.fullmatch(folder.name)
                if match is None or match["topic"] not in wanted:
                    continue
                place = TopicPartition(match["topic"], int(match["partition"]))
                if match["deleted"]:
                    gone = _describe_deleted(*_read(folder, log_dir, place, -1, -1))
                    deleted += [gone] if not gone.reason and gone.log_end >= 0 else []
                    continue
                replica, found = _read(folder, log_dir, place, marks.get(place, -1), starts.get(place, -1))
                for path, batches in found.items():
                    try:
                        sound, content = contents.read(path, batches)
                    except OSError as error:
                        replica = replica.model_copy(update={"reason": f"{path}: {error.strerror}"})
                        break
                    tables.append(_table(replica, batches, sound, content))
                replicas.append(replica)
            # As one row group: one for each of thousands of logs takes longer than reading the logs.
            if tables:
                writer.write_table(pa.concat_tables(tables))
    result = ReplicasFile(
        log_dirs={node: tuple(paths) for node, paths in seen.items()},
        replicas=tuple(replicas),
        deleted=tuple(deleted),
        reasons=tuple(reasons),
    )
    result.save(run.replicas)
    return result


def _read(
    folder: Path, log_dir: LogDir, place: TopicPartition, high_watermark: int, recovery_point: int
) -> tuple[Replica, dict[Path, tuple[Batch, ...]]]:
    """Return the replica in a partition's folder, and the batches of each of its segments by path. If the log cannot be
    read to its end, the replica has the reason. `high_watermark`, `recovery_point`: from the log dir's checkpoint
    files; -1: they do not have it."""
    found: dict[Path, tuple[Batch, ...]] = {}
    rest, reason = 0, ""
    start = end = base = -1
    try:
        files = segments(folder)
        for segment in files:
            if rest:
                reason = f"{segment.path.name} follows {rest} bytes that are no batch"
                break
            found[segment.path], rest = scan(segment.path)
        batches = [batch for some in found.values() for batch in some]
        if files:
            base = files[-1].base
            start = batches[0].first if batches else files[-1].base
            end = batches[-1].last + 1 if batches else files[-1].base
    except OSError as error:
        batches, reason = [], f"{error.filename}: {error.strerror}"
    replica = Replica(
        node=log_dir.node,
        topic=place[0],
        partition=place[1],
        folder=str(folder),
        log_start=start,
        log_end=end,
        high_watermark=high_watermark,
        recovery_point=recovery_point,
        epochs=tuple(_epochs(folder / _EPOCHS)),
        records=sum(batch.records for batch in batches if not batch.control),
        rest=rest,
        reason=reason,
        topic_id=_topic_id(folder / _METADATA),
        active_base=base,
    )
    return replica, found


def _describe_deleted(replica: Replica, found: Mapping[Path, Sequence[Batch]]) -> Replica:
    """Return the replica of a deleted log, marked as deleted. It gets the newest timestamp of its batches (-1 without a
    batch) and those epochs of its batches that its checkpoint of leader epochs lacks. `found`: batches by segment."""
    batches = [batch for some in found.values() for batch in some]
    starts = {entry.epoch: entry.start for entry in replica.epochs}
    for batch in batches:
        starts.setdefault(batch.epoch, batch.first)
    epochs = tuple(EpochStart(epoch=epoch, start=start) for epoch, start in sorted(starts.items()))
    newest = max((batch.max_timestamp_ms for batch in batches), default=-1)
    return replica.model_copy(update={"deleted": True, "epochs": epochs, "newest_ms": newest})


def topic_ids(log_dirs: Iterable[LogDir]) -> dict[str, str]:
    """Return the names of the topics that have a folder on disk, also a deleted one, by topic id (`_topic_id`). Skips
    folders without a topic id, and log dirs that cannot be read."""
    found: dict[str, str] = {}
    for log_dir in log_dirs:
        with suppress(OSError):
            for folder in log_dir.path.iterdir():
                if (match := _FOLDER.fullmatch(folder.name)) and (id_ := _topic_id(folder / _METADATA)):
                    found[id_] = match["topic"]
    return found


def _topic_id(path: Path) -> str:
    """Return the topic id in the file `path`, a `partition.metadata` (KIP-516), as a hexadecimal UUID; Kafka writes it
    in base64. '' if the file has none or cannot be read."""
    try:
        found = _ID.search(path.read_text(encoding="utf-8"))
        return parse_uuid(found[1]) if found else ""
    except (OSError, ValueError):
        return ""


def _table(replica: Replica, batches: Sequence[Batch], sound: list[bool], content: list[int]) -> pa.Table:
    count = len(batches)
    columns = {
        "node": [replica.node] * count,
        "topic": [replica.topic] * count,
        "partition": [replica.partition] * count,
        "first_offset": [batch.first for batch in batches],
        "last_offset": [batch.last for batch in batches],
        "leader_epoch": [batch.epoch for batch in batches],
        "records": [batch.records for batch in batches],
        "control": [batch.control for batch in batches],
        "transactional": [batch.transactional for batch in batches],
        "producer_id": [batch.producer_id for batch in batches],
        "producer_epoch": [batch.producer_epoch for batch in batches],
        "base_sequence": [batch.base_sequence for batch in batches],
        "max_timestamp_ms": [batch.max_timestamp_ms for batch in batches],
        "crc": [batch.crc for batch in batches],
        "sound": sound,
        "content": content,
        "bytes": [batch.size for batch in batches],
        "timestamp_type": [APPEND_TIME if batch.append_time else CREATE_TIME for batch in batches],
    }
    return pa.table(columns, schema=BATCHES)


def _epochs(path: Path) -> Iterator[EpochStart]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return  # not written yet, or lost: the batches have the same epochs
    for words in (line.split() for line in lines[2:]):
        if len(words) == 2 and all(word.isdigit() for word in words):
            yield EpochStart(epoch=int(words[0]), start=int(words[1]))


_CODECS: Final = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
"""Compression codec by the number in a batch's attributes (org.apache.kafka.common.record.CompressionType)."""


class BatchContents:
    """Reads the batches in the logs of run `run_id`. Of copies of a batch (equal offsets and checksum) only
    one is decoded.

    `topics`: names of the topics that records may have been produced to.
    """

    def __init__(self, run_id: str, topics: Sequence[str]) -> None:
        # Beginning of our records: no key (length -1, encoded as 1) or a short one, the value's length, the value.
        front = re.escape(MAGIC + run_bytes(run_id))
        self._record = re.compile(
            rb"(?:\x01|[\x02-\x7e][0-9-]{3,30})(?=[\x80-\xff]{0,4}[\x00-\x7f]" + front + b")"
        )
        self._decode = BulkDecoder(run_id, topics)
        self._digests: dict[tuple[int, int, int], int] = {}

    def read(self, path: Path, batches: Sequence[Batch]) -> tuple[list[bool], list[int]]:
        """Return two lists with one element per batch of a segment: whether its CRC-32C is right, and its content sum.

        The content sum is the sum of hashes of the batch's records, as a signed number. Two batches have the same sum
        if they hold the same records at the same offsets. A control batch has the type of its transaction marker
        instead. `UNKNOWN_CONTENT`: the batch is damaged, compacted, or has records of other clients, or it is another
        control batch. Raises OSError if the file cannot be read.
        """
        sound, digests = [], []
        with path.open("rb") as file:
            for batch in batches:
                file.seek(batch.position)
                data = file.read(batch.size)
                sound.append(crc32c(data[CRC_FROM:]) == batch.crc)
                key = (batch.first, batch.last, batch.crc)
                if sound[-1] and key not in self._digests:
                    self._digests[key] = _marker(path, batch) if batch.control else self._digest(data, batch)
                digests.append(self._digests[key] if sound[-1] else UNKNOWN_CONTENT)
        return sound, digests

    def _digest(self, data: bytes, batch: Batch) -> int:
        try:
            body = decompress(data[SMALLEST:], batch.codec)
        except (ValueError, OSError):  # ArrowInvalid is a ValueError
            return UNKNOWN_CONTENT
        values = []
        for found in self._record.finditer(body):
            size, at = varint(body, found.end())
            values.append(body[at : at + size])
        if not len(values) == batch.records == batch.last - batch.first + 1:
            return UNKNOWN_CONTENT
        who = self._decode(values)
        offsets = np.arange(batch.first, batch.last + 1, dtype=np.int64)
        return as_int64(content_sum(offsets, who.producer, who.seq, who.intact))


def _marker(path: Path, batch: Batch) -> int:
    """Return the type of a transaction marker (org.apache.kafka.common.record.ControlRecordType): abort or commit.
    `UNKNOWN_CONTENT` for another control batch or one that cannot be decoded."""
    try:
        keys = [record.key for record in records(path, batch)]
    except ValueError:
        return UNKNOWN_CONTENT
    kind = int.from_bytes(keys[0][2:4], "big") if len(keys) == 1 and keys[0] is not None else UNKNOWN_CONTENT
    return kind if kind in (ABORT_MARKER, COMMIT_MARKER) else UNKNOWN_CONTENT


def decompress(body: bytes, codec: int) -> bytes:
    """Return the decompressed records of a batch. `body`: the bytes after the batch header. `codec`: number of the
    compression codec in its attributes, 0: none. Raises ValueError and OSError for invalid data."""
    if codec == 0:
        return body
    if (name := _CODECS.get(codec)) is None:
        raise ValueError(f"there is no compression codec {codec}")
    if name != "snappy":
        return pa.input_stream(pa.BufferReader(body), compression=name).read()  # type: ignore[no-any-return]
    if not body.startswith(_XERIAL):
        return _snappy(body)
    blocks, at = [], len(_XERIAL) + 8  # two version numbers follow the header
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        blocks.append(_snappy(body[at + 4 : at + 4 + size]))
        at += 4 + size
    return b"".join(blocks)


_XERIAL: Final = b"\x82SNAPPY\x00"
"""Header of the snappy streams that Java writes. librdkafka writes one block without a header."""


def _snappy(block: bytes) -> bytes:
    size = 0
    for number, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            break
    return pa.decompress(block, size, codec="snappy", asbytes=True)  # type: ignore[no-any-return]
