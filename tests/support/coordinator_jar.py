"""Makes a jar with schemas of the group coordinator's records, reduced to the fields that tests use, and encodes
records in them.

The layouts are those of Kafka 3.9 (the kind of a key is its version) and 4.x (it is the API key)."""

from __future__ import annotations

import json
import struct
import uuid
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

KINDS = {
    "OffsetCommit": 1,
    "GroupMetadata": 2,
    "ConsumerGroupMetadata": 3,
    "ConsumerGroupCurrentMemberAssignment": 8,
}
LEGACY = {"LegacyOffsetCommit": 0}
PLACE = [("group", "string"), ("topic", "string"), ("partition", "int32")]
KEYS = {
    "OffsetCommit": PLACE,
    "LegacyOffsetCommit": PLACE,
    "GroupMetadata": [("group", "string")],
    "ConsumerGroupMetadata": [("GroupId", "string")],
    "ConsumerGroupCurrentMemberAssignment": [("GroupId", "string"), ("MemberId", "string")],
}
COMMIT_VALUE = {
    "validVersions": "0-4",
    "flexibleVersions": "4+",
    "fields": [
        {"name": "offset", "type": "int64", "versions": "0+"},
        {"name": "leaderEpoch", "type": "int32", "versions": "3+"},
        {"name": "metadata", "type": "string", "versions": "0+"},
        {"name": "commitTimestamp", "type": "int64", "versions": "0+"},
        {"name": "expireTimestamp", "type": "int64", "versions": "1"},
        {"name": "topicId", "type": "uuid", "versions": "4+", "taggedVersions": "4+", "tag": 0},
    ],
}
PARTITIONS = {
    "name": "TopicPartitions",
    "versions": "0+",
    "fields": [
        {"name": "TopicId", "type": "uuid", "versions": "0+"},
        {"name": "Partitions", "type": "[]int32", "versions": "0+"},
        {
            "name": "AssignmentEpochs",
            "type": "[]int32",
            "versions": "0+",
            "nullableVersions": "0+",
            "taggedVersions": "0+",
            "tag": 0,
        },
    ],
}
VALUES: Mapping[str, Mapping[str, Any]] = {
    "OffsetCommit": COMMIT_VALUE,
    "LegacyOffsetCommit": COMMIT_VALUE,
    "GroupMetadata": {
        "validVersions": "0-4",
        "flexibleVersions": "4+",
        "fields": [
            {"name": "protocolType", "type": "string", "versions": "0+"},
            {"name": "generation", "type": "int32", "versions": "0+"},
            {"name": "protocol", "type": "string", "versions": "0+", "nullableVersions": "0+"},
            {"name": "members", "type": "[]MemberMetadata", "versions": "0+"},
        ],
        "commonStructs": [
            {
                "name": "MemberMetadata",
                "versions": "0+",
                "fields": [
                    {"name": "memberId", "type": "string", "versions": "0+"},
                    {"name": "assignment", "type": "bytes", "versions": "0+"},
                ],
            }
        ],
    },
    "ConsumerGroupMetadata": {
        "validVersions": "0",
        "flexibleVersions": "0+",
        "fields": [{"name": "Epoch", "type": "int32", "versions": "0+"}],
    },
    "ConsumerGroupCurrentMemberAssignment": {
        "validVersions": "0",
        "flexibleVersions": "0+",
        "fields": [
            {"name": "MemberEpoch", "type": "int32", "versions": "0+"},
            {"name": "State", "type": "int8", "versions": "0+"},
            {"name": "AssignedPartitions", "type": "[]TopicPartitions", "versions": "0+"},
            {"name": "PartitionsPendingRevocation", "type": "[]TopicPartitions", "versions": "0+"},
        ],
        "commonStructs": [PARTITIONS],
    },
}


def jar(folder: Path, version: str = "4.4.0", values: Mapping[str, Mapping[str, Any]] = VALUES) -> Path:
    """Write `kafka-group-coordinator-VERSION.jar` into a folder, with comments in its schemas as Kafka's have; return
    its path. `version`: one that begins with `3.` has the layout of 3.9. `values`: schema of the value of each kind of
    record."""
    path = folder / f"kafka-group-coordinator-{version}.jar"
    old = version.startswith("3.")
    with zipfile.ZipFile(path, "w") as file:
        for name, number in {**KINDS, **({} if old else LEGACY)}.items():
            kinds = "0-1" if name == "OffsetCommit" else str(number)
            versions = kinds if old else "0"
            key: dict[str, Any] = {
                **({} if old else {"apiKey": number}),
                "name": f"{name}Key",
                "validVersions": versions,
                "flexibleVersions": "none",
                "fields": [{"name": one, "type": type_, "versions": versions} for one, type_ in KEYS[name]],
            }
            for schema in (key, {"name": f"{name}Value", **values[name]}):
                text = "// Licensed\n  // to all\n" + json.dumps(schema, indent=1)
                file.writestr(f"common/message/{schema['name']}.json", text)
        file.writestr("common/message/ShareGroupMetadataKey.json", "no JSON, and nobody reads it")
    return path


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def compact(value: bytes) -> bytes:
    """Return bytes in the flexible encoding of Kafka's protocol: a length + 1, then the bytes (at most 126)."""
    assert len(value) < 127
    return bytes([len(value) + 1]) + value


def commit_key(group: str = "g", topic: str = "orders", partition: int = 0, kind: int = 1) -> bytes:
    return struct.pack(">h", kind) + text(group) + text(topic) + struct.pack(">i", partition)


def group_key(group: str = "g", kind: int = 2) -> bytes:
    return struct.pack(">h", kind) + text(group)


def member_key(member: str = "m", group: str = "g") -> bytes:
    return group_key(group, 8) + text(member)


def commit_value(offset: int, metadata: str = "", version: int = 3, topic_id: bytes = b"") -> bytes:
    epoch = struct.pack(">i", -1) if version >= 3 else b""
    head = struct.pack(">hq", version, offset) + epoch
    if version < 4:
        return head + text(metadata) + struct.pack(">q", 1) + (struct.pack(">q", 2) if version == 1 else b"")
    tagged = b"\x01\x00\x10" + topic_id if topic_id else b"\x00"
    return head + compact(metadata.encode()) + struct.pack(">q", 1) + tagged


def classic_group(generation: int, members: Sequence[str] = ()) -> bytes:
    rows = b"".join(text(member) + struct.pack(">i", 3) + b"abc" for member in members)
    head = struct.pack(">h", 3) + text("consumer") + struct.pack(">ih", generation, -1)
    return head + struct.pack(">i", len(members)) + rows


def consumer_group(epoch: int) -> bytes:
    """Return the value of the record with a consumer group's epoch. It ends with a tagged field of a newer release."""
    return struct.pack(">hi", 0, epoch) + b"\x01\x05\x02\xff\xff"


def member(
    epoch: int,
    assigned: Sequence[tuple[uuid.UUID, Mapping[int, int | None]]],
    revoked: Sequence[tuple[uuid.UUID, Mapping[int, int | None]]] = (),
) -> bytes:
    """Return the value of a member's current assignment. `assigned`, `revoked`: by topic id, the epoch of each
    partition's assignment; None: a release that does not write it."""

    def topics(rows: Sequence[tuple[uuid.UUID, Mapping[int, int | None]]]) -> bytes:
        found = bytes([len(rows) + 1])
        for topic_id, partitions in rows:
            size = bytes([len(partitions) + 1])
            found += topic_id.bytes + size + struct.pack(f">{len(partitions)}i", *partitions)
            if None in partitions.values():
                found += b"\x00"
            else:
                epochs = size + struct.pack(f">{len(partitions)}i", *partitions.values())
                found += b"\x01\x00" + bytes([len(epochs)]) + epochs
        return found

    return struct.pack(">hib", 0, epoch, 0) + topics(assigned) + topics(revoked) + b"\x00"
