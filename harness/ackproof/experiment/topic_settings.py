"""Kafka's settings of a topic: their names, the values that brokers accept, the releases that have them.

As `LogConfig` of the releases defines them (read there, 3.9 to 4.4). A broker refuses a topic with any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ackproof.experiment.backends import BACKENDS
from ackproof.experiment.nodes import shorten
from ackproof.experiment.problems import nearest
from ackproof.experiment.releases import numbers
from ackproof.experiment.settings import Scope, refusal
from ackproof.experiment.spec import SystemUnderTest

_INT: Final = 2**31 - 1
_LONG: Final = 2**63 - 1


@dataclass(frozen=True)
class _Number:
    low: int = -_LONG - 1
    high: int = _LONG
    whole: bool = True

    def __contains__(self, text: str) -> bool:
        try:
            value = int(text) if self.whole else float(text)
        except ValueError:
            return False
        if "_" in text or not text.isascii():
            return False
        return self.low <= value <= self.high

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if self.high >= _INT:
            return f"{kind} from {self.low} up" if self.low > -_INT - 1 else kind
        return f"{kind} from {self.low} to {self.high}"


@dataclass(frozen=True)
class _Word:
    words: tuple[str, ...]
    several: bool = False
    """Whether it is a list of them."""

    def __contains__(self, text: str) -> bool:
        given = [part.strip() for part in text.split(",")] if self.several else [text]
        return all(word in self.words for word in given)

    def __str__(self) -> str:
        return f"{'one or more' if self.several else 'one'} of {', '.join(self.words)}"


class _Flag:
    def __contains__(self, text: str) -> bool:
        return text.strip().lower() in ("true", "false")

    def __str__(self) -> str:
        return "true or false"


class _Any:
    """A value whose grammar is the broker's own."""

    def __contains__(self, text: str) -> bool:
        return True


_Values = _Number | _Word | _Flag | _Any
_MS: Final = _Number(0)

TOPIC_SETTINGS: Final[Mapping[str, _Values]] = {
    "cleanup.policy": _Word(("compact", "delete"), several=True),
    "compression.gzip.level": _Number(-1, 9),
    "compression.lz4.level": _Number(1, 17),
    "compression.type": _Word(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
    "compression.zstd.level": _Number(-131072, 22),
    "delete.retention.ms": _MS,
    "errors.deadletterqueue.group.enable": _Flag(),
    "file.delete.delay.ms": _MS,
    "flush.messages": _Number(1),
    "flush.ms": _MS,
    "follower.replication.throttled.replicas": _Any(),
    "index.interval.bytes": _Number(0, _INT),
    "internal.segment.bytes": _Number(1, _INT),
    "leader.replication.throttled.replicas": _Any(),
    "local.retention.bytes": _Number(-2),
    "local.retention.ms": _Number(-2),
    "max.compaction.lag.ms": _Number(1),
    "max.decompressed.message.bytes": _Number(1, _INT - 8),
    "max.message.bytes": _Number(0, _INT),
    "message.downconversion.enable": _Flag(),
    "message.format.version": _Any(),
    "message.timestamp.after.max.ms": _MS,
    "message.timestamp.before.max.ms": _MS,
    "message.timestamp.difference.max.ms": _MS,
    "message.timestamp.type": _Word(("CreateTime", "LogAppendTime")),
    "min.cleanable.dirty.ratio": _Number(0, 1, whole=False),
    "min.compaction.lag.ms": _MS,
    "min.insync.replicas": _Number(1, _INT),
    "preallocate": _Flag(),
    "remote.copy.lag.bytes": _Number(-1),
    "remote.copy.lag.ms": _Number(-1),
    "remote.log.copy.disable": _Flag(),
    "remote.log.delete.on.disable": _Flag(),
    "remote.storage.enable": _Flag(),
    "retention.bytes": _Number(),
    "retention.ms": _Number(-1),
    "segment.bytes": _Number(1 << 20, _INT),
    "segment.index.bytes": _Number(4, _INT),
    "segment.jitter.ms": _MS,
    "segment.ms": _Number(1),
    "unclean.leader.election.enable": _Flag(),
}
"""Every topic setting and its values."""

_UNTIL_3_9: Final = frozenset(
    {"message.downconversion.enable", "message.format.version", "message.timestamp.difference.max.ms"}
)
_SINCE: Final[Mapping[str, tuple[int, int]]] = {
    "errors.deadletterqueue.group.enable": (4, 4),
    "internal.segment.bytes": (4, 1),
    "max.decompressed.message.bytes": (4, 4),
    "remote.copy.lag.bytes": (4, 4),
    "remote.copy.lag.ms": (4, 4),
}
_BEFORE_4_1: Final[Mapping[str, _Values]] = {"segment.bytes": _Number(14, _INT)}


class Wrong(NamedTuple):
    """What a broker has against a topic's setting: against its name, else against its value."""

    message: str
    name: bool = True
    nearest: str | None = None


def wrong_topic_setting(name: str, value: str, spec: SystemUnderTest) -> Wrong | None:
    """What brokers of the experiment's release have against a topic's setting; None: nothing.

    Which release someone else's cluster has is not known, nor which settings an unknown release has: there only a near
    miss of a known name is wrong.
    """
    near = nearest(name, TOPIC_SETTINGS, cutoff=0.8)
    foreign, build = BACKENDS[spec.backend].foreign, spec.cluster.kafka
    kafka, unknown = build.version, foreign or not build.is_known
    if name not in TOPIC_SETTINGS:
        return (
            None if unknown and near is None else Wrong(f"Kafka has no topic setting '{name}'", nearest=near)
        )
    if unknown:
        return None
    line = numbers(kafka)[:2]
    if (why := refusal(Scope.TOPIC, name)) is not None:
        return Wrong(why)
    if name in _UNTIL_3_9 and line >= (4, 0):
        return Wrong(f"Kafka {kafka} has no {name}; 3.9 was the last with it")
    if line < (since := _SINCE.get(name, line)):
        return Wrong(f"Kafka {kafka} has no {name}; it came with {'.'.join(map(str, since))}")
    values = (_BEFORE_4_1 if line < (4, 1) else {}).get(name, TOPIC_SETTINGS[name])
    return None if value in values else Wrong(f"expected {values}, not '{shorten(value)}'", name=False)
