"""Checks of an experiment's clients: finds what a client library, or a program of the user, does not support."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final, Literal, TypeAlias

from ackproof.base.advice import Advice
from ackproof.clients.contract import ConfigValue, client_adapter
from ackproof.experiment.client import COMMAND, JAVA
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.group import GroupSpec, ShareGroupSpec
from ackproof.experiment.kafka import numbers
from ackproof.experiment.problems import Path
from ackproof.experiment.settings import field_of
from ackproof.plan.diagnostics import Problems
from ackproof.rundir.guarantees import LIBRARIES, Use

_PRODUCERS: Final[Path] = ("workload", "producers")
_CONSUMERS: Final[Path] = ("workload", "consumers")
_SERVICE: Final[Path] = ("workload", "service")
_SHARE_SINCE: Final = (4, 2)
_DEAD_LETTERS_SINCE: Final = (4, 4)
_CONSUMER_SINCE: Final = (4,)
"""First release with share groups, with their dead-letter topics, and with KIP-848 (protocol `consumer`), in this
order."""
_FIELDS: Final = {
    "group.protocol": "protocol",
    "partition.assignment.strategy": "assignor",
    "group.remote.assignor": "assignor",
    "group.instance.id": "static",
    "session.timeout.ms": "session_timeout",
    "max.poll.interval.ms": "max_poll_interval",
    "auto.commit.interval.ms": "commit_every",
}
"""Setting of Kafka's consumer → field of a group that replaces it."""
_REMOVES: Final = ("cleanup.policy", "retention.", "log.cleanup.policy", "log.retention.")
"""Beginnings of settings by which Kafka removes records."""

_OTHERWISE: Final = {
    Use.BROKERS: ", or leave observe.brokers out",
    Use.IDENTITY: " for the producers, or identity: value",
}
"""Use of clients → remedy besides another library, for the end of the hint."""


def check_clients(spec: ExperimentSpec, found: Problems) -> None:
    """Report to `found` clients of producers and live readers that cannot be used with `backend: model`, in a soak, or
    with `observe.brokers`. Also report settings and faults that a client which is a program of the user does not
    support."""
    producers, readers = spec.workload.producers, spec.workload.consumers
    sides = ((_PRODUCERS, producers.client, True), (_CONSUMERS, readers.client, readers.live > 0))
    for path, client, used in sides:
        where: Path = (*path, "client")
        if not used or not found.sound(where, ("backend",)):
            continue
        uses = {
            Use.MODEL: spec.ground.simulated,
            Use.SOAK: spec.soak is not None,
            Use.BROKERS: path == _CONSUMERS and spec.observe.brokers,
        }
        why = next((_why_not(client.library, use) for use, wanted in uses.items() if wanted), "")
        if why:
            found.report(where, why)
        if client.library == COMMAND:
            for field, why in _beyond_programs(spec, path):
                if found.sound((*path, *field), where):
                    found.report((*path, *field), why)


def _why_not(library: str, use: Use) -> str:
    """Return why clients of this library cannot serve for `use`; '' if they can. The hint names libraries that can."""
    if use not in LIBRARIES[library].cannot:
        return ""
    able = " or ".join(name for name, one in LIBRARIES.items() if use not in one.cannot)
    return Advice(LIBRARIES[library].cannot[use], f"use client: {able}{_OTHERWISE.get(use, '')}")


def _beyond_programs(spec: ExperimentSpec, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield each field that a client cannot have if it is a program of the user (`client: {command: …}`), with the
    reason. The field is `client` itself if a setting elsewhere or a fault excludes programs. `path`: path of the
    producers or of the consumers; the fields are relative to it."""
    producers, readers = spec.workload.producers, spec.workload.consumers
    if path == _CONSUMERS:
        if readers.commit_every is not None:
            yield ("commit_every",), "it is not known what a program's library sends again: leave it out"
        if readers.start != "earliest":
            yield ("start",), "a program reads from the beginning: leave it out"
        if producers.tombstone_every is not None:
            yield ("client",), "a program tells a record by its value, which a tombstone lacks"
        return
    if producers.transaction_size is not None:
        yield ("transaction_size",), "a program does not tell its transactions: leave it out"
    if producers.keys is not None:
        yield ("keys",), "a program chooses its own keys, which are not audited: leave it out"
    for fault in spec.faults:
        if fault.SENDS:
            yield ("client",), f"{fault.kind} sends single records, which a program cannot be asked for"


def check_groups(spec: ExperimentSpec, found: Problems) -> None:
    """Report to `found` settings that consumer groups and share groups do not support, or under which they cannot be
    judged."""
    workload, release = spec.workload, spec.cluster.kafka.version
    taken: dict[str | None, str] = {}
    if (service := workload.service) is not None:
        taken = {service.output: "the output of the service", service.group: "the service's group"}
    for section, kind, groups in (
        ("groups", "consumer groups", workload.groups),
        ("share_groups", "share groups", workload.share_groups),
    ):
        for name, group in groups.items():
            path: Path = ("workload", section, name)
            if not found.sound_below(path):
                continue
            for index, topic in enumerate(group.topics or ()):
                if topic not in spec.topics:
                    found.unknown_value((*path, "topics"), "the topic", topic, spec.topics, part=(index,))
            rules = (
                (spec.ground.simulated, "", f"the model runs no {kind}: use backend: process or docker"),
                (spec.ground.foreign, "", f"{kind} run on a cluster that ackproof starts"),
                (spec.soak is not None, "", "a soak audits windows, and groups are judged at the end"),
                *(
                    _beyond_share_groups(spec, group, name, release)
                    if isinstance(group, ShareGroupSpec)
                    else _beyond_groups(spec, group, name, release, taken)
                ),
            )
            for wrong, field, why in rules:
                where: Path = (*path, field) if field else path
                if wrong and found.sound(where):
                    node = found.node(where)
                    found.report(where if node is not None else path, why, key=not field or node is None)
            if isinstance(group, GroupSpec) and group.output is not None:
                taken[group.output] = f"the output of group {name}"


_Rule: TypeAlias = tuple[bool, str, str]
"""True if an experiment breaks a rule; the field of the group to which a problem points ('': the group itself);
the message."""


def _beyond_groups(
    spec: ExperimentSpec, group: GroupSpec, name: str, release: str, taken: Mapping[str | None, str]
) -> Iterator[_Rule]:
    producers, output, new = spec.workload.producers, group.output, group.protocol == "consumer"
    unwritten = sorted({*spec.topics} & {*spec.input_of(name)} - {*spec.topic_names()})
    client = group.client.release_for(spec.cluster.kafka)
    old_client = group.client.library == JAVA and numbers(client)[:1] < _CONSUMER_SINCE
    sessions = {one.session_timeout for one in spec.workload.groups.values() if one.protocol == "consumer"}
    since = "has no protocol consumer: it came with 4.0"
    yield bool(unwritten), "topics", f"no producer writes to {', '.join(unwritten)}"
    yield name.startswith("ackproof-"), "", "ids that begin with ackproof- are those of the harness"
    yield name in taken, "", f"{name} is the service's group: give it another id"
    yield output in spec.topics, "output", "the harness creates the output: leave it out of topics"
    yield output in taken, "output", f"{output} is {taken.get(output)}: name another topic"
    yield new and numbers(release)[:1] < _CONSUMER_SINCE, "protocol", f"Kafka {release} {since}"
    yield new and old_client, "client", f"the Java client {client} {since}"
    why = "brokers have one session time-out for all groups of protocol consumer: give them the same"
    yield new and len(sessions) > 1, "session_timeout", why
    if producers.tombstone_every is not None:
        yield output is not None, "output", "a tombstone has no value to copy"
    for setting, field in _FIELDS.items():
        yield setting in group.config, "config", f"use the field {field} for {setting}"
    if producers.tombstone_every is not None:
        why = "a program tells a record by its value, which a tombstone lacks"
        yield group.client.library == COMMAND, "client", why


def _beyond_share_groups(
    spec: ExperimentSpec, group: ShareGroupSpec, name: str, release: str
) -> Iterator[_Rule]:
    client = group.client.release_for(spec.cluster.kafka)
    kinds = {(one.lock, one.delivery_limit) for one in spec.workload.share_groups.values()}
    yield name in spec.workload.groups, "", "a consumer group has this id"
    why = "brokers have one lock and one delivery_limit for all share groups: give them the same"
    yield len(kinds) > 1, "", why
    old = numbers(release)[:2] < _SHARE_SINCE
    yield old, "", f"Kafka {release} has no share groups: they came with 4.2"
    old_client = numbers(client)[:2] < _SHARE_SINCE
    yield old_client, "", f"the Java client {client} is too old: use 4.2 or later"
    if group.dead_letters is not None:
        yield numbers(release)[:2] < _DEAD_LETTERS_SINCE, "", "dead_letters came with Kafka 4.4"
    yield group.dead_letters in spec.topics, "", "the harness creates the dead-letter topic: leave it out"


def check_service(spec: ExperimentSpec, found: Problems) -> None:
    """Report to `found` settings under which the service under test, the user's own program of `workload.service`,
    cannot be judged. Does nothing without a service."""
    service, producers = spec.workload.service, spec.workload.producers
    if service is None or not found.sound_below(_SERVICE):
        return
    if service.input not in spec.topics:
        found.unknown_value((*_SERVICE, "input"), "the topic", service.input, spec.topics)
    written = producers.topics or tuple(spec.topics)
    configs = (spec.cluster.config, *spec.cluster.broker_config.values())
    settings = [*(name for config in configs for name in config)]
    settings += spec.topics[service.input].config if service.input in spec.topics else ()
    removes = sorted({name for name in settings if name.startswith(_REMOVES)})
    other = "" if service.identity == "value" else _why_not(producers.client.library, Use.IDENTITY)
    rules = (
        (service.input not in written, "input", f"no producer writes to {service.input}"),
        (service.output in spec.topics, "output", "the harness creates the output: leave it out of topics"),
        ((service.output is None) is (service.sink is None), "output", "write either output or sink"),
        (spec.ground.simulated, "command", "the model runs no programs"),
        (spec.ground.foreign, "command", "a service runs on a cluster that ackproof starts"),
        (spec.soak is not None, "command", "a soak audits windows, and a service is judged at the end"),
        (bool(other), "identity", other),
        (service.identity == "key" and producers.keys is not None, "identity", "producers have keys"),
        (producers.tombstone_every is not None, "command", "a tombstone has no value to copy"),
        (producers.transaction_size is not None, "command", "an aborted record is no input"),
        (bool(removes), "command", f"{', '.join(removes)}: what Kafka removes looks as if it was dropped"),
    )
    for wrong, name, why in rules:
        if wrong and found.sound((*_SERVICE, name)):
            node = found.node((*_SERVICE, name))
            found.report((*_SERVICE, name) if node is not None else _SERVICE, why)


def ask_library(
    found: Problems,
    path: Path,
    library: str,
    kind: Literal["producer", "consumer"],
    config: Mapping[str, ConfigValue],
) -> None:
    """Check whether the client library accepts `config`; if it does not, report its message to `found`.

    The problem points to the first setting in the message that the file has, else to `path`.
    """
    why = _objection(library, kind, tuple(sorted((name, str(value)) for name, value in config.items())))
    if why is None:
        return
    for name in re.findall(r"[\"`]([a-z._]+)[\"`]", why):
        field = (*path, field_of(name) or "config")
        where = field if field[-1] != "config" else (*field, name)
        if found.node(where) is not None:
            found.report(where, f"{library} refuses it: {why}")
            return
    found.report(path, f"{library} refuses it: {why}", key=True)


@cache
def _objection(
    library: str, kind: Literal["producer", "consumer"], config: tuple[tuple[str, str], ...]
) -> str | None:
    """Return the library's objection to these settings; None if it accepts them. Cached: many cells have the same."""
    return client_adapter(library).objection(kind, dict(config))
