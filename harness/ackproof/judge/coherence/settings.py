"""Topics as the case has them, beside what the controllers wrote down: a verdict goes by the settings in force."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts
from ackproof.rundir.metadata import ConfigChanged, PartitionChanged

_PROMISE: Final = ("min.insync.replicas", "unclean.leader.election.enable")
_TOPIC: Final = 2


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions about topics."""
    yield from map(contradicts, dict.fromkeys((*_configs(facts), *_replicas(facts))))


def _configs(facts: Facts) -> Iterator[str]:
    spec = facts.case.experiment
    for record in facts.metadata:
        if (
            not isinstance(record, ConfigChanged)
            or record.resource != _TOPIC
            or record.name not in spec.topics
        ):
            continue
        if record.key not in _PROMISE or record.value is None:
            continue
        may_be = [dict(one.may_set(spec, record.name)) for one in (*spec.faults, *facts.case.faults)]
        settings = [spec.topics[record.name].config, *may_be]
        meant = {str(config[record.key]).lower() for config in settings if record.key in config}
        if record.value.lower() not in meant:
            yield (
                f"the metadata log has {record.key}={record.value} for topic {record.name}, and the case "
                f"{' or '.join(sorted(meant)) or 'does not set it'}"
            )


def _replicas(facts: Facts) -> Iterator[str]:
    topics = facts.case.experiment.topics
    for record in facts.metadata:
        if not isinstance(record, PartitionChanged) or record.partition_epoch or record.topic not in topics:
            continue
        wanted = topics[record.topic].replication_factor
        if len(record.replicas) != wanted:
            yield (
                f"{record.topic}/{record.partition} was created with {len(record.replicas)} replicas, and the case "
                f"has {wanted}"
            )
