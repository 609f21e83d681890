"""What does not fit together in a workload, and which settings of nodes and clients a file may not give."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from ackproof.clients.config import objection, producer_config, reader_config
from ackproof.clients.settings import ConfigValue
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.problems import MapNode, Path, ScalarNode
from ackproof.experiment.promises import may_compact
from ackproof.experiment.settings import Scope, field_of, refusal
from ackproof.experiment.spec import ProducerSpec
from ackproof.plan.diagnostics import Problems, describe
from ackproof.rundir.payload import smallest_size

_PRODUCERS: Final[Path] = ("workload", "producers")
_CONSUMERS: Final[Path] = ("workload", "consumers")
_WHOLE: Final = re.compile(r"-?[0-9]{1,19}\Z")
_NUMBERS: Final = (
    *("min.insync.replicas", "num.io.threads", "timeout.ms", "max.ms", "backoff.ms", "expiration.ms"),
    *("heartbeat.interval.ms", "election.interval.ms", "cleanup.interval.ms"),
)
"""How the settings of nodes end that ackproof reckons with."""


def check_settings(found: Problems, path: Path, scope: Scope) -> None:
    """Settings that ackproof makes itself may not be given."""
    node = found.node(path)
    for name, value in node.entries.items() if isinstance(node, MapNode) else ():
        if (why := refusal(scope, name)) is not None:
            found.report((*path, name), why, key=True)
        elif scope is Scope.BROKER and name.endswith(_NUMBERS) and found.sound((*path, name)):
            text = value.text if isinstance(value, ScalarNode) else ""
            if not _WHOLE.match(text):
                found.report((*path, name), f"expected a whole number, not {describe(value)}")


def check_workload(spec: ExperimentSpec, found: Problems) -> None:
    """Report what producers and readers cannot be told."""
    check_settings(found, (*_PRODUCERS, "config"), Scope.PRODUCER)
    check_settings(found, (*_CONSUMERS, "config"), Scope.CONSUMER)
    _check_producers(spec, found)
    # What librdkafka says of settings that are refused already would be said twice.
    producers, readers = spec.workload.producers, spec.workload.consumers
    if found.sound_below(_PRODUCERS):
        config = producer_config(producers, "", "", "p" if producers.transaction_size else "")
        if config != producer_config(_harmless(producers), "", "", ""):
            _check_client(found, _PRODUCERS, "producer", config)
    if found.sound_below(_CONSUMERS) and readers.config:
        _check_client(found, _CONSUMERS, "consumer", reader_config(readers.config, readers.isolation, "", ""))


def _harmless(producers: ProducerSpec) -> ProducerSpec:
    """The same acks and idempotence, and all else as it is by default: loading librdkafka takes long, and to none of
    these it has an objection."""
    return ProducerSpec(acks=producers.acks, idempotence=producers.idempotence)


def _check_client(found: Problems, path: Path, kind: str, config: dict[str, ConfigValue]) -> None:
    """Put librdkafka's objection where the file has the setting that it names."""
    said = _objection(kind, tuple(sorted((name, str(value)) for name, value in config.items())))
    if said is None:
        return
    for name in re.findall(r"[\"`]([a-z._]+)[\"`]", said):
        field = (*path, field_of(name) or "config")
        where = field if field[-1] != "config" else (*field, name)
        if found.node(where) is not None:
            found.report(where, f"librdkafka refuses it: {said}")
            return
    found.report(path, f"librdkafka refuses it: {said}", key=True)


@cache
def _objection(kind: str, config: tuple[tuple[str, str], ...]) -> str | None:
    return objection(kind, dict(config))


def _check_producers(spec: ExperimentSpec, found: Problems) -> None:
    producers = spec.workload.producers

    def at(field: str) -> Path:
        return (*_PRODUCERS, field)

    known = found.sound(("topics",))
    for index, topic in enumerate(producers.topics or ()):
        if topic not in spec.topics and known and found.sound(at("topics")):
            found.unknown_value(at("topics"), "the topic", topic, spec.topics, part=(index,))
    if found.sound(at("value_size")) and known and spec.topics:
        longest = max((t for t in spec.topic_names() if t in spec.topics), key=len, default="")
        needed = smallest_size(longest)
        if producers.value_size < needed:
            message = f"{producers.value_size} B are too few: identity and checksum of a record"
            found.report(at("value_size"), f"{message} for topic '{longest}' take {needed} B")
    if producers.idempotence and found.sound(at("idempotence")):
        if producers.acks != "all" and found.sound(at("acks")):
            found.report(at("idempotence"), f"idempotence needs acks: all, not {producers.acks}")
        if (producers.in_flight or 0) > 5 and found.sound(at("in_flight")):
            found.report(
                at("in_flight"), f"idempotence allows at most 5 in flight, not {producers.in_flight}"
            )
        if producers.retries == 0 and found.sound(at("retries")):
            found.report(at("retries"), "idempotence needs at least 1 retry")
    _check_transactions(spec, found)
    _check_keys(spec, found)
    if producers.linger >= producers.delivery_timeout and found.sound(at("linger"), at("delivery_timeout")):
        found.report(at("linger"), "the linger must be shorter than the delivery_timeout")


def _check_keys(spec: ExperimentSpec, found: Problems) -> None:
    producers = spec.workload.producers
    keys, tombstones = (*_PRODUCERS, "keys"), (*_PRODUCERS, "tombstone_every")
    compacted = {name for name in spec.topics if may_compact(spec, name)}
    if producers.keys is None:
        if producers.tombstone_every is not None and found.sound(tombstones, keys):
            found.report(tombstones, "without keys there is nothing to delete")
        for name in sorted(compacted & set(spec.topic_names())) if found.sound(keys, ("topics",)) else ():
            where: Path = ("topics", name, "config", "cleanup.policy")
            changes = [
                one for one in spec.faults if "compact" in one.may_set(spec, name).get("cleanup.policy", "")
            ]
            if found.node(where) is None and changes:
                where = ("faults", changes[0].number - 1)
            found.report(
                where, "a compacted topic takes no record without a key: give workload.producers.keys"
            )
        return
    if producers.transaction_size is not None and found.sound(keys, (*_PRODUCERS, "transaction_size")):
        found.report(keys, "what compaction leaves of a transaction does not tell whether it was torn")
    if producers.tombstone_every is not None and found.sound(tombstones, ("topics",)):
        for name in sorted(set(spec.topic_names()) & spec.topics.keys() - compacted):
            found.report(tombstones, f"topic '{name}' is not compacted: a tombstone deletes nothing there")


def _check_transactions(spec: ExperimentSpec, found: Problems) -> None:
    producers = spec.workload.producers
    path: Path = (*_PRODUCERS, "transaction_size")
    if producers.transaction_size is None:
        if producers.abort_share and found.sound((*_PRODUCERS, "abort_share"), path):
            found.report((*_PRODUCERS, "abort_share"), "without transaction_size there is nothing to abort")
        return
    if not producers.idempotence and found.sound(path, (*_PRODUCERS, "idempotence")):
        found.report(path, "transactions need idempotence: true")
