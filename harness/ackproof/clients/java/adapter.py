"""Adapter of Kafka's Java client (`clients.contract.ClientAdapter`): configurations and command lines of its
processes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from ackproof.clients.contract import (
    ConfigValue,
    GroupSettings,
    MemberSettings,
    ProducerSettings,
    ReaderSettings,
    ShareSettings,
    allowed_settings,
)
from ackproof.experiment.client import JAVA
from ackproof.rundir.guarantees import DEFINITE_CODES, LIBRARIES
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.parts import ClientLibrary

if TYPE_CHECKING:
    from ackproof.experiment.group import Assignor, GroupSpec, ShareGroupSpec
    from ackproof.experiment.spec import ProducerSpec

PROPERTIES: Final = "client.properties"
"""The settings file of a Java client, made from its `settings.json`."""
_FAIL_OVER: Final[dict[str, ConfigValue]] = {
    # refresh metadata often: a client finds a new leader soon also where the former one is silent
    "metadata.max.age.ms": 500,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 200,
    "enable.metrics.push": "false",
}
_BUFFER_BYTES: Final = 64 << 20
_BLOCK_MS: Final = 2000
"""Longest time in ms for which a call of a producer blocks before it looks whether it is to stop."""
_ASSIGNORS: Final[Mapping[Assignor, str]] = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
"""Name of the class in `org.apache.kafka.clients.consumer`, by the assignor's name in an experiment."""
_CALL_MS: Final = 15_000
"""Longest time in ms for which a call of a member blocks: a commit without an answer is then unknown."""
_TRANSACTION_MS: Final = 30_000
_OWN: Final = "ackproof."
_SHARE: Final = ("release_every", "releases", "reject_every", "renew_every")
_MEMBER: Final = ("member", "commit", "group_metadata", "output", "start", "reset")
"""Fields of `ShareSettings` (`_SHARE`) and `MemberSettings` (`_MEMBER`) that Java members read by the same name."""
_WHOLE: Final = ("INT", "LONG", "SHORT")


def _read_table() -> Mapping[str, Mapping[str, str]]:
    lines = Path(__file__).with_name("settings.txt").read_text(encoding="ascii").splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    return {
        kind: {name: type_ for of, name, type_ in rows if of == kind} for kind in ("producer", "consumer")
    }


SETTING_TYPES: Final = _read_table()
"""Settings that the Java client knows: kind of client (`producer`, `consumer`) → name → type, such as `INT`."""


def installed_library(release: str = "") -> ClientLibrary:
    """Return the Java client of this release. Fetch its jars and make its class-data archive if the cache lacks them.

    `release`: such as `4.3.1`. Raises `BadInput` (no such release), `MissingTool` (mvn, java), `ProvisionFailed`,
    `AckproofError` (archive).
    """
    from ackproof.clients.java.runtime import client_archive, client_jars
    from ackproof.provision.java import find_java

    client_archive(release, find_java())
    return ClientLibrary(JAVA, client_jars(release).version)


def writes_ledger() -> bool:
    """Return False: the Java client writes only a journal, of which the harness makes the ledger."""
    return False


def producer_command(settings: ProducerSettings, path: Path) -> list[str]:
    """Write a producer's properties next to its settings file `path`; return its command line. Raises OSError if they
    cannot be written, and as `client_command` does, which may fetch the client's jars."""
    from ackproof.clients.java.runtime import client_command

    once = not math.isclose(resend_after_s(settings.config), 0.0)
    definite = sorted(DEFINITE_CODES[JAVA]) if once else []
    own = {
        **_common(settings, settings.chunk_rows),
        "producer": settings.producer,
        "first_place": settings.first_place,
        "value_size": settings.value_size,
        "rate": settings.rate or 0,
        "on_demand": settings.on_demand,
        "keys": settings.keys,
        "tombstone_every": settings.tombstone_every,
        "stamps_from_ns": settings.stamps_from_ns if settings.stamps else 0,
        "transaction_size": settings.transaction_size,
        "abort_share": settings.abort_share,
        "delivery_ns": round(delivery_timeout_s(settings.config) * 1e9),
        "definite": " ".join(map(str, definite)),
    }
    file = _write(path, own, settings.config)
    buffer = int(settings.config.get("buffer.memory", _BUFFER_BYTES))
    return client_command("producer", file, settings.library_version, buffer)


def reader_command(settings: ReaderSettings, path: Path) -> list[str]:
    """Write a live reader's properties next to its settings file `path`; return its command line. Raises OSError if
    they cannot be written, and as `client_command` does, which may fetch the client's jars."""
    from ackproof.clients.java.runtime import client_command

    commit_ns = 0 if settings.commit_s is None else round(settings.commit_s * 1e9)
    own = {"commit_ns": commit_ns, "from_committed": settings.from_committed}
    file = _write(path, {**_common(settings, settings.flush_rows), **own}, settings.config)
    return client_command("reader", file, settings.library_version)


def member_command(settings: GroupSettings, path: Path) -> list[str]:
    """Write the properties of a member of a group or a share group next to its settings file `path`; return its command
    line. Raises OSError if they cannot be written, and as `client_command` does, which may fetch the client's jars."""
    from ackproof.clients.java.runtime import client_command

    own: dict[str, ConfigValue] = {
        "run_id": settings.run_id,
        "client": settings.client,
        "topics": " ".join(settings.topics),
        "record_time_ns": round(settings.record_s * 1e9),
    }
    if isinstance(settings, ShareSettings):
        own |= {name: getattr(settings, name) for name in _SHARE}
        own |= {f"group.{name}": value for name, value in settings.group_config.items()}
        return client_command("share", _write(path, own, settings.config), settings.library_version)
    if isinstance(settings, MemberSettings):
        own |= {name: getattr(settings, name) for name in _MEMBER}
        own["commit_ns"] = round(settings.commit_s * 1e9)
        own |= {f"producer.{name}": value for name, value in settings.output_config.items()}
    return client_command("member", _write(path, own, settings.config), settings.library_version)


def _common(settings: ProducerSettings | ReaderSettings, chunk_rows: int) -> dict[str, ConfigValue]:
    return {
        "run_id": settings.run_id,
        "origin_ns": settings.origin_ns,
        "places": " ".join(map(str, settings.places)),
        "journal": str(CaseDir(Path(settings.case_dir)).journal / settings.client),
        "chunk_rows": chunk_rows,
    }


def _write(path: Path, own: Mapping[str, ConfigValue], config: Mapping[str, ConfigValue]) -> Path:
    lines = {**{f"{_OWN}{name}": value for name, value in own.items()}, **config}
    file = path.with_name(PROPERTIES)
    file.write_text(_properties(lines), encoding="utf-8")
    return file


def _properties(settings: Mapping[str, ConfigValue]) -> str:
    """Return settings as text of a file that `java.util.Properties` reads: a line `name=value` each, with the value
    escaped."""
    return "".join(f"{name}={_escape(str(value))}\n" for name, value in settings.items())


def security_text(settings: Mapping[str, str]) -> str:
    """Return TLS and SASL settings as text in the format of `java.util.Properties`, with Java's names; '' for none.
    `settings` has librdkafka's names. Raises `BadInput` as `security.security_settings` does."""
    from ackproof.clients.java.security import security_settings

    return _properties(security_settings(settings)) if settings else ""


def _escape(value: str) -> str:
    """Return a value as a file for `java.util.Properties` must have it: with backslashes, newlines and a leading space
    escaped."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _connection(bootstrap: str, client: str) -> dict[str, ConfigValue]:
    return {**_FAIL_OVER, "bootstrap.servers": bootstrap, "client.id": f"ackproof-{client}"}


def producer_config(
    spec: ProducerSpec, bootstrap: str, client: str, transactional_id: str = ""
) -> dict[str, ConfigValue]:
    """Return the Java client's configuration of one producer of the experiment. `client`: the producer's id.
    `transactional_id` '': no transactions.

    Raises `BadInput` if the experiment gives a setting that only the harness may set.
    """
    linger_ms, delivery_ms = round(spec.linger * 1000), max(1, round(spec.delivery_timeout * 1000))
    config: dict[str, ConfigValue] = {
        **_connection(bootstrap, client),
        "acks": spec.acks,
        "enable.idempotence": "true" if spec.idempotence else "false",
        "linger.ms": linger_ms,
        "compression.type": spec.compression,
        "buffer.memory": _BUFFER_BYTES,
        "max.block.ms": _BLOCK_MS,
    }
    if transactional_id:
        transaction_ms = round(spec.transaction_timeout * 1000)
        delivery_ms = min(delivery_ms, transaction_ms)
        config["transactional.id"] = transactional_id
        config["transaction.timeout.ms"] = transaction_ms
        # a call that ends early makes a transaction unusable: let it block as long as a record may be tried
        config["max.block.ms"] = delivery_ms
    config["delivery.timeout.ms"] = delivery_ms
    usual_ms = LIBRARIES[JAVA].timeouts_ms["request.timeout.ms"]
    # the Java client wants delivery.timeout.ms >= linger.ms + request.timeout.ms
    config["request.timeout.ms"] = (
        max(1, min(usual_ms, delivery_ms - linger_ms))
        if spec.request_timeout is None
        else max(1, round(spec.request_timeout * 1000))
    )
    if spec.retries is not None:
        config["retries"] = spec.retries
    if spec.in_flight is not None:
        config["max.in.flight.requests.per.connection"] = spec.in_flight
    if spec.batch_size is not None:
        config["batch.size"] = spec.batch_size
    return {**config, **allowed_settings("producer", spec.config)}


def reader_config(
    extra: Mapping[str, str],
    isolation: str,
    bootstrap: str,
    client: str,
    *,
    group: str = "",
) -> dict[str, ConfigValue]:
    """Return the Java client's configuration of one live reader. `client`: the reader's id.

    `extra`: the experiment's settings. `isolation`: the reader's isolation.level. `group`: id of the reader whose
    group.id this reader shares for its commits; '': a group.id of its own. Raises `BadInput` for a setting that only
    the harness may set.
    """
    config: dict[str, ConfigValue] = {
        **_connection(bootstrap, client),
        "group.id": f"ackproof-{group or client}",  # for commits alone: readers assign themselves their partitions
        "enable.auto.commit": "false",
        "auto.offset.reset": "none",
        "isolation.level": isolation,
        "fetch.max.wait.ms": 100,
        "max.poll.records": 1000,
    }
    return {**config, **allowed_settings("consumer", extra)}


def member_config(
    spec: GroupSpec, bootstrap: str, client: str, group: str, instance: str = ""
) -> dict[str, ConfigValue]:
    """Return the Java client's configuration of the consumer of one group member. `client`: the member's id.
    `instance`: its group.instance.id; '' for a dynamic member.

    With group.protocol=consumer, session timeout and heartbeat interval are left out: brokers set them, and the client
    refuses them. Raises `BadInput` for a setting that only the harness may set.
    """
    config: dict[str, ConfigValue] = {
        **_connection(bootstrap, client),
        "group.id": group,
        "group.protocol": spec.protocol,
        "enable.auto.commit": "true" if spec.commit == "auto" else "false",
        "auto.commit.interval.ms": max(1, round(spec.commit_every * 1000)),
        "auto.offset.reset": "none",
        "isolation.level": spec.isolation,
        "max.poll.interval.ms": max(1, round(spec.max_poll_interval * 1000)),
        "max.poll.records": spec.batch,
        "fetch.max.wait.ms": 100,
        "default.api.timeout.ms": _CALL_MS,
    }
    if spec.protocol == "consumer":
        config["group.remote.assignor"] = spec.resolved_assignor
    else:
        config["session.timeout.ms"] = round(spec.session_timeout * 1000)
        config["heartbeat.interval.ms"] = round(spec.heartbeat * 1000)
        config["partition.assignment.strategy"] = (
            f"org.apache.kafka.clients.consumer.{_ASSIGNORS[spec.resolved_assignor]}"
        )
    if instance:
        config["group.instance.id"] = instance
    return {**config, **allowed_settings("consumer", spec.config)}


def share_config(spec: ShareGroupSpec, bootstrap: str, client: str, group: str) -> dict[str, ConfigValue]:
    """Return the Java client's configuration of one share group member. `client`: the member's id.

    Raises `BadInput` for a setting that only the harness may set.
    """
    config: dict[str, ConfigValue] = {
        **_connection(bootstrap, client),
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
        "share.acquire.mode": spec.acquire,
        "max.poll.records": spec.batch,
        "fetch.max.wait.ms": 100,
        "default.api.timeout.ms": _CALL_MS,
        # bounds the age of a fetch, from which the ledger's acquired_ns follows
        "request.timeout.ms": max(1, min(5000, round(spec.lock * 500))),
    }
    return {**config, **allowed_settings("consumer", spec.config)}


def output_config(bootstrap: str, client: str, transactional_id: str = "") -> dict[str, ConfigValue]:
    """Return the Java client's configuration of the producer with which member `client` writes its output: acks=all,
    idempotent. `transactional_id` '': no transactions."""
    config: dict[str, ConfigValue] = {
        **_connection(bootstrap, f"{client}-output"),
        "acks": "all",
        "enable.idempotence": "true",
        "linger.ms": 0,
        "max.block.ms": _CALL_MS,
        "request.timeout.ms": _CALL_MS,
        "delivery.timeout.ms": _TRANSACTION_MS,
    }
    if transactional_id:
        config |= {"transactional.id": transactional_id, "transaction.timeout.ms": _TRANSACTION_MS}
    return config


def objection(
    kind: Literal["producer", "consumer"],
    config: Mapping[str, ConfigValue],
    hidden: Mapping[str, str] = MappingProxyType({}),
) -> str | None:
    """Return why the Java client refuses a configuration, None if no check finds a reason. No JVM is started.

    The checks: names, whole numbers, booleans, and whether a producer's delivery time-out is long enough. The Java
    client itself ignores an unknown setting; here it is refused. `security_text` checks the `hidden` settings.
    """
    known = SETTING_TYPES[kind]
    for name, value in config.items():
        if name not in known:
            return f'the Java {kind} has no setting "{name}"'
        text = str(value).strip()
        if known[name] in _WHOLE and not text.removeprefix("-").isdecimal():
            return f'"{name}" is a whole number, not "{text}"'
        if known[name] == "BOOLEAN" and text.lower() not in ("true", "false"):
            return f'"{name}" is true or false, not "{text}"'
    if kind == "consumer":
        return None
    delivery, request = int(config["delivery.timeout.ms"]), int(config["request.timeout.ms"])
    if delivery < (parts := int(config["linger.ms"]) + request):
        return f'"request.timeout.ms" and linger.ms are {parts} together, more than delivery.timeout.ms, {delivery}'
    return None


def resend_after_s(config: Mapping[str, ConfigValue]) -> float:
    """Return the age in seconds below which a record cannot have been sent twice: infinity if it never can, 0 if it can
    at any age.

    With retries=0 and no idempotence the Java client sends again only what was refused as MESSAGE_TOO_LARGE, which was
    not appended (Sender.completeBatch, Sender.canRetry).
    """
    idempotent = str(config["enable.idempotence"]).lower() == "true"
    return math.inf if not idempotent and str(config.get("retries", "")) == "0" else 0.0


def delivery_timeout_s(config: Mapping[str, ConfigValue]) -> float:
    """Return the seconds after which the Java client reports a record as failed (delivery.timeout.ms)."""
    return float(config["delivery.timeout.ms"]) / 1000


def request_wait_s(config: Mapping[str, ConfigValue]) -> float:
    """Return the longest time in seconds that a request may wait for its response (request.timeout.ms)."""
    return float(config["request.timeout.ms"]) / 1000


def known_wait(settings: GroupSettings, silent_s: float) -> str:
    """Return '': no bug of the Java client is known by which a member waits for the answer to a commit."""
    return ""
