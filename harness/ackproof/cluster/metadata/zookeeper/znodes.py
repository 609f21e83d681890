"""Kafka's znodes as records of `metadata.jsonl`, change by change (kafka.zk.ZkData)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ackproof.rundir.metadata import (
    BrokerChanged,
    BrokerRegistered,
    ConfigDecided,
    MetadataRecord,
    PartitionDecided,
    TopicCreated,
    TopicRemoved,
    id_of,
)

_BROKER: Final = re.compile(r"/brokers/ids/(\d+)")
_TOPIC: Final = re.compile(r"/brokers/topics/([^/]+)")
_STATE: Final = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_CONFIG: Final = re.compile(r"/config/(topics|brokers)/([^/]+)")
_RESOURCES: Final = {"topics": 2, "brokers": 4}
_EVERY_BROKER: Final = "<default>"

_Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """One znode made (`data`, version 0), set (`data`, `version`) or removed (`data` None); or a session that ended.

    `session` made it; for the end of a session `path` is ''.
    """

    zxid: int
    time_ms: int
    session: int
    path: str
    data: bytes | None = None
    version: int = 0
    ephemeral: bool = False


class Znodes:
    """Knows what it has been told so far: assignments, settings, and whose session holds which broker's znode."""

    def __init__(self) -> None:
        self._topics: dict[str, _Json] = {}
        self._brokers: dict[int, tuple[int, int]] = {}
        self._settings: dict[str, dict[str, str]] = {}

    def take(self, change: Change) -> Iterator[MetadataRecord]:
        """The records that a change means; none for what is not Kafka's, or says nothing of partitions and brokers."""
        if change.path == "":
            for node, (session, _) in list(self._brokers.items()):
                if session == change.session:
                    yield self._gone(change, node)
        elif match := _STATE.fullmatch(change.path):
            if change.data is not None:
                yield self._state(change, match[1], int(match[2]))
        elif match := _TOPIC.fullmatch(change.path):
            yield from self._topic(change, match[1])
        elif match := _BROKER.fullmatch(change.path):
            yield from self._broker(change, int(match[1]))
        elif match := _CONFIG.fullmatch(change.path):
            yield from self._config(change, match[1], match[2])

    def _broker(self, change: Change, node: int) -> Iterator[MetadataRecord]:
        if change.data is None:
            if node in self._brokers:
                yield self._gone(change, node)
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

    def _gone(self, change: Change, node: int) -> BrokerChanged:
        _, epoch = self._brokers.pop(node)
        return BrokerChanged(**_when(change), node=node, broker_epoch=epoch, fenced=True)

    def _topic(self, change: Change, topic: str) -> Iterator[MetadataRecord]:
        if change.data is None:
            known = self._topics.pop(topic, {})
            yield TopicRemoved(**_when(change), topic=topic, topic_id=id_of(known.get("topic_id") or ""))
            return
        told = _parsed(change.data)
        new = topic not in self._topics
        self._topics[topic] = told
        if new:
            yield TopicCreated(**_when(change), topic=topic, topic_id=id_of(told.get("topic_id") or ""))

    def _state(self, change: Change, topic: str, partition: int) -> PartitionDecided:
        told, assigned, key = _parsed(change.data or b""), self._topics.get(topic, {}), str(partition)
        return PartitionDecided(
            offset=change.zxid,
            epoch=int(told.get("controller_epoch", 0)),
            timestamp_ms=change.time_ms,
            topic=topic,
            partition=partition,
            leader=told["leader"],
            leader_epoch=told["leader_epoch"],
            partition_epoch=change.version,
            replicas=assigned.get("partitions", {}).get(key, ()),
            isr=told["isr"],
            adding=assigned.get("adding_replicas", {}).get(key, ()),
            removing=assigned.get("removing_replicas", {}).get(key, ()),
            recovering=told.get("leader_recovery_state", 0) == 1,
            changed=("state",) if change.version else ("created",),
        )

    def _config(self, change: Change, kind: str, entity: str) -> Iterator[MetadataRecord]:
        before = self._settings.pop(change.path, {})
        now = dict(_parsed(change.data).get("config", {})) if change.data is not None else {}
        self._settings[change.path] = now
        name = "" if entity == _EVERY_BROKER else entity
        for key in sorted({*before, *now}):
            if before.get(key) != now.get(key):
                yield ConfigDecided(
                    **_when(change), resource=_RESOURCES[kind], name=name, key=key, value=now.get(key)
                )


def _when(change: Change) -> dict[str, Any]:
    return {"offset": change.zxid, "epoch": 0, "timestamp_ms": change.time_ms}


def _parsed(data: bytes) -> _Json:
    told = json.loads(data or b"{}")
    return told if isinstance(told, dict) else {}
