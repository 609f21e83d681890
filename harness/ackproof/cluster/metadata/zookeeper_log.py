"""ZooKeeper's transaction logs, decoded: every change of Kafka's znodes in order, as records of `metadata.jsonl`.

With ZooKeeper this is what the controllers' metadata log is with KRaft. The decoder knows assignments, settings, the
state znodes of partitions, and the brokers' ephemeral znodes. A state znode has leader, epochs and ISR; its version is
the partition epoch. A broker with a znode counts as registered and unfenced, one without as fenced. Offsets are zxids;
a broker's epoch is the zxid that made its znode, as Kafka has it.

Source: org.apache.zookeeper.server.persistence.FileTxnLog and zookeeper.jute (ZooKeeper 3.8). A log file begins with
magic, version and database id. Each entry is a checksum, a length, a header (session, cxid, zxid, time, type), the
transaction, and the byte `B`. The rest of a file is preallocated zeros.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from ackproof.cluster.metadata.protocol import BodyReader, NotDecoded, committed
from ackproof.rundir.metadata import (
    BrokerChanged,
    BrokerRegistered,
    ConfigChanged,
    MetadataRecord,
    PartitionChanged,
    TopicCreated,
    TopicRemoved,
    parse_uuid,
)

FOLDER: Final = "version-2"
_MAGIC: Final = b"ZKLG"
_FILE_HEADER: Final = struct.Struct(">4siq")
_ENTRY: Final = struct.Struct(">qi")
_HEADER: Final = struct.Struct(">qiqqi")
_END: Final = 0x42
_CREATES: Final = frozenset({1, 15, 19, 21})
_DELETES: Final = frozenset({2, 20})
_SET_DATA, _MULTI, _CLOSE_SESSION = 5, 14, -11


@dataclass(frozen=True)
class _Transaction:
    """One transaction in a ZooKeeper log. `type`: ZooKeeper's operation code (`OpCode`). `body`: its record as written.
    `session`: id of the client session that requested it."""

    zxid: int
    time_ms: int
    session: int
    type: int
    body: bytes

    def changes(self) -> Iterator[_Change]:
        """Yield the znode changes of a transaction. Raises struct.error and ValueError if it is invalid."""
        yield from self._changes_of(self.type, _Body(self.body))

    def _changes_of(self, type_: int, body: _Body) -> Iterator[_Change]:
        where = (self.zxid, self.time_ms, self.session)
        if type_ in _CREATES:
            yield _Change(*where, body.text(), body.buffer())
        elif type_ in _DELETES:
            yield _Change(*where, body.text())
        elif type_ == _SET_DATA:
            yield _Change(*where, body.text(), body.buffer(), body.number("i"))
        elif type_ == _MULTI:
            for _ in range(body.number("i")):
                inner = body.number("i")
                yield from self._changes_of(inner, _Body(body.buffer()))
        elif type_ == _CLOSE_SESSION:
            yield _Change(*where, "")


class _Body(BodyReader):
    """Reader of a record in ZooKeeper's encoding (jute)."""

    def buffer(self) -> bytes:
        return self.take(max(0, self.number("i")))

    def text(self) -> str:
        return self.buffer().decode()


def _transactions(file: Path) -> Iterator[_Transaction]:
    """Yield the whole entries of a log file; a torn last one is left out. A file without a whole header yields nothing.
    Raises `NotDecoded` for another kind of file, OSError if it cannot be read."""
    data = file.read_bytes()
    if len(data) < _FILE_HEADER.size:
        return
    if _FILE_HEADER.unpack_from(data)[0] != _MAGIC:
        raise NotDecoded(f"{file} is no log of ZooKeeper's")
    at = _FILE_HEADER.size
    while at + _ENTRY.size <= len(data):
        _, size = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        if size <= 0 or at + size >= len(data) or data[at + size] != _END:
            return
        session, _, zxid, time_ms, type_ = _HEADER.unpack_from(data, at)
        yield _Transaction(zxid, time_ms, session, type_, data[at + _HEADER.size : at + size])
        at += size + 1


def decode(folders: Sequence[Path]) -> Iterator[MetadataRecord]:
    """Decode the changes to Kafka's znodes that a majority of servers has logged, by zxid.

    `folders`: the `version-2` folder of each server. A server that got a snapshot lacks the changes in it; they are
    read from another server. Raises `NotDecoded` for unknown content, OSError if a file cannot be read.
    """
    logs: list[dict[int, _Transaction]] = []
    for folder in folders:
        files = sorted(folder.glob("log.*"), key=lambda path: int(path.suffix[1:], 16))
        logs.append({one.zxid: one for file in files for one in _transactions(file)})
    bound = committed([max(log, default=0) for log in logs])
    every = {zxid: one for log in logs for zxid, one in log.items() if zxid <= bound}
    znodes = _Znodes()
    for zxid in sorted(every):
        try:
            for change in every[zxid].changes():
                yield from znodes.take(change)
        except (struct.error, ValueError, KeyError, TypeError) as error:
            raise NotDecoded(f"zxid {zxid:#x} of ZooKeeper's log: {error!r}") from error


_BROKER: Final = re.compile(r"/brokers/ids/(\d+)")
_TOPIC: Final = re.compile(r"/brokers/topics/([^/]+)")
_STATE: Final = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_CONFIG: Final = re.compile(r"/config/(topics|brokers)/([^/]+)")
_RESOURCES: Final = {"topics": 2, "brokers": 4}
_EVERY_BROKER: Final = "<default>"

_Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class _Change:
    """One change of a znode, or the end of a session (`path` '').

    `data` None: the znode was removed; `version` 0: it was created; else it was set to `data`. `session`: the session
    that made the change, or that ended.
    """

    zxid: int
    time_ms: int
    session: int
    path: str
    data: bytes | None = None
    version: int = 0


class _Znodes:
    """State of Kafka's znodes so far: assignments, settings, and the session of each broker's znode."""

    def __init__(self) -> None:
        self._topics: dict[str, _Json] = {}
        self._brokers: dict[int, tuple[int, int]] = {}
        self._settings: dict[str, dict[str, str]] = {}

    def take(self, change: _Change) -> Iterator[MetadataRecord]:
        """Yield metadata records for a znode change; none if it concerns no partition, topic, broker or setting. A
        removed state znode of a partition yields none: the removal of its topic has a record. A new assignment of a
        known topic yields none: later states of its partitions have it."""
        if change.path == "":
            for node, (session, _) in list(self._brokers.items()):
                if session == change.session:
                    yield self._fence(change, node)
        elif match := _STATE.fullmatch(change.path):
            if change.data is not None:
                yield self._state(change, match[1], int(match[2]))
        elif match := _TOPIC.fullmatch(change.path):
            yield from self._topic(change, match[1])
        elif match := _BROKER.fullmatch(change.path):
            yield from self._broker(change, int(match[1]))
        elif match := _CONFIG.fullmatch(change.path):
            yield from self._config(change, match[1], match[2])

    def _broker(self, change: _Change, node: int) -> Iterator[MetadataRecord]:
        if change.data is None:
            if node in self._brokers:
                yield self._fence(change, node)
            return
        epoch = self._brokers[node][1] if node in self._brokers and change.version else change.zxid
        self._brokers[node] = change.session, epoch
        yield BrokerRegistered(
            **_when(change),
            node=node,
            broker_epoch=epoch,
            incarnation=f"{change.session:#x}",
            fenced=False,
            rack=_parsed(change.data).get("rack") or "",
        )

    def _fence(self, change: _Change, node: int) -> BrokerChanged:
        _, epoch = self._brokers.pop(node)
        return BrokerChanged(**_when(change), node=node, broker_epoch=epoch, fenced=True)

    def _topic(self, change: _Change, topic: str) -> Iterator[MetadataRecord]:
        if change.data is None:
            known = self._topics.pop(topic, {})
            yield TopicRemoved(**_when(change), topic=topic, topic_id=parse_uuid(known.get("topic_id") or ""))
            return
        assignment = _parsed(change.data)
        new = topic not in self._topics
        self._topics[topic] = assignment
        if new:
            yield TopicCreated(
                **_when(change), topic=topic, topic_id=parse_uuid(assignment.get("topic_id") or "")
            )

    def _state(self, change: _Change, topic: str, partition: int) -> PartitionChanged:
        state, assigned, key = _parsed(change.data or b""), self._topics.get(topic, {}), str(partition)
        return PartitionChanged(
            offset=change.zxid,
            epoch=int(state.get("controller_epoch", 0)),
            timestamp_ms=change.time_ms,
            topic=topic,
            partition=partition,
            leader=state["leader"],
            leader_epoch=state["leader_epoch"],
            partition_epoch=change.version,
            replicas=assigned.get("partitions", {}).get(key, ()),
            isr=state["isr"],
            adding=assigned.get("adding_replicas", {}).get(key, ()),
            removing=assigned.get("removing_replicas", {}).get(key, ()),
            recovering=state.get("leader_recovery_state", 0) == 1,
            changed=("state",) if change.version else ("created",),
        )

    def _config(self, change: _Change, kind: str, entity: str) -> Iterator[MetadataRecord]:
        before = self._settings.pop(change.path, {})
        now = dict(_parsed(change.data).get("config", {})) if change.data is not None else {}
        self._settings[change.path] = now
        name = "" if entity == _EVERY_BROKER else entity
        for key in sorted({*before, *now}):
            if before.get(key) != now.get(key):
                yield ConfigChanged(
                    **_when(change), resource=_RESOURCES[kind], name=name, key=key, value=now.get(key)
                )


def _when(change: _Change) -> dict[str, Any]:
    return {"offset": change.zxid, "epoch": 0, "timestamp_ms": change.time_ms}


def _parsed(data: bytes) -> _Json:
    parsed = json.loads(data or b"{}")
    return parsed if isinstance(parsed, dict) else {}
