"""Adapter of librdkafka (`clients.contract.ClientAdapter`): configurations and command lines of its processes."""

from __future__ import annotations

import json
import sys
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
    allowed_settings,
)
from ackproof.rundir.guarantees import LIBRARIES, LIBRDKAFKA
from ackproof.rundir.parts import ClientLibrary

if TYPE_CHECKING:
    from ackproof.experiment.group import GroupSpec
    from ackproof.experiment.spec import ProducerSpec

PRODUCER_MODULE: Final = "ackproof.clients.librdkafka.producer"
READER_MODULE: Final = "ackproof.clients.librdkafka.reader"
MEMBER_MODULE: Final = "ackproof.clients.librdkafka.member"

_FAIL_OVER: Final[dict[str, ConfigValue]] = {
    # refresh metadata often: the client finds a new leader 0.2 s after an election instead of seconds
    "topic.metadata.refresh.interval.ms": 100,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 200,
    "log.connection.close": False,
}
_CONSUMES: Final[dict[str, ConfigValue]] = {
    # By default a full queue makes the fetcher pause for a second: six times slower.
    "fetch.queue.backoff.ms": 10,
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 50,
}
_TRANSACTION_MS: Final = 30_000
TRANSACTION_CALL_S: Final = 10.0
"""Time-out in seconds of one call of a member's transactional producer."""
_FAST_REFRESH_MS: Final = 100
_SINGLE_SEND_BACKOFF_MS: Final = 500
_STATISTICS_MS: Final = 200

_RETRY_BACKOFF_MS: Final = 100
_RETRY_BACKOFF_MAX_MS: Final = 1000
_JITTER: Final = 0.2
"""Share by which librdkafka varies the retry back-off (RD_KAFKA_RETRY_JITTER_PERCENT). The two values above are the
back-off's defaults in milliseconds."""


def installed_library(release: str = "") -> ClientLibrary:
    """Return librdkafka with the version in the installed confluent-kafka. `release` is ignored: no other version can
    be used."""
    from confluent_kafka import libversion

    return ClientLibrary(LIBRDKAFKA, str(libversion()[0]))


def writes_ledger() -> bool:
    """Return True: producers and readers write the parts of their ledger themselves."""
    return True


def producer_command(settings: ProducerSettings, path: Path) -> list[str]:
    """Return the command line of a producer process that reads the settings file `path`."""
    return _command(PRODUCER_MODULE, path)


def reader_command(settings: ReaderSettings, path: Path) -> list[str]:
    """Return the command line of a reader process that reads the settings file `path`."""
    return _command(READER_MODULE, path)


def member_command(settings: GroupSettings, path: Path) -> list[str]:
    """Return the command line of a member process that reads the settings file `path`."""
    return _command(MEMBER_MODULE, path)


def _command(module: str, settings: Path) -> list[str]:
    return [sys.executable, "-P", "-m", module, str(settings)]


def producer_config(
    spec: ProducerSpec, bootstrap: str, client: str, transactional_id: str = ""
) -> dict[str, ConfigValue]:
    """Return librdkafka's configuration of one producer of the experiment. `client`: the producer's id.
    `transactional_id` '': no transactions.

    Raises `BadInput` if the experiment gives a setting that only the harness may set.
    """
    timeout_ms = _milliseconds(spec.delivery_timeout)
    config: dict[str, ConfigValue] = {
        **_FAIL_OVER,
        "bootstrap.servers": bootstrap,
        "client.id": f"ackproof-{client}",
        "acks": spec.acks,
        "enable.idempotence": spec.idempotence,
        "linger.ms": spec.linger * 1000,
        "compression.type": spec.compression,
        "message.timeout.ms": timeout_ms,
        "queue.buffering.max.kbytes": 128 * 1024,
    }
    if transactional_id:
        transaction_ms = round(spec.transaction_timeout * 1000)
        config["transactional.id"] = transactional_id
        config["transaction.timeout.ms"] = transaction_ms
        config["message.timeout.ms"] = min(timeout_ms, transaction_ms)
    if spec.retries is not None:
        config["retries"] = spec.retries
    if spec.retries == 0 and not spec.idempotence:
        # librdkafka may still send a record again. Its age tells if it did (resend_after_s); where the age does not,
        # the leader epochs of its partition do (reports.LeaderEpochs).
        config["retry.backoff.ms"] = _SINGLE_SEND_BACKOFF_MS
        config["statistics.interval.ms"] = _STATISTICS_MS
        config["topic.metadata.refresh.fast.interval.ms"] = _FAST_REFRESH_MS
    if spec.in_flight is not None:
        config["max.in.flight.requests.per.connection"] = spec.in_flight
    if spec.batch_size is not None:
        config["batch.size"] = spec.batch_size
    if spec.request_timeout is not None:
        config["request.timeout.ms"] = _milliseconds(spec.request_timeout)
    return {**config, **allowed_settings("producer", spec.config)}


def reader_config(
    extra: Mapping[str, str],
    isolation: str,
    bootstrap: str,
    client: str,
    *,
    final: bool = False,
    group: str = "",
) -> dict[str, ConfigValue]:
    """Return librdkafka's configuration of one reader. `client`: the reader's id.

    `extra`: the experiment's settings. `isolation`: the reader's isolation.level. `final`: True for the final read.
    `group`: id of the reader whose group.id this reader shares for its commits; '': a group.id of its own. Raises
    `BadInput` if the experiment gives a setting that only the harness may set.
    """
    config: dict[str, ConfigValue] = {
        **_FAIL_OVER,
        "bootstrap.servers": bootstrap,
        "client.id": f"ackproof-{client}",
        # Readers assign themselves partitions and join no group. A group id is needed for commits, and by the library.
        "group.id": f"ackproof-{group or client}",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": final,
        "auto.offset.reset": "error",
        "isolation.level": isolation,
        **_CONSUMES,
    }
    return {**config, **allowed_settings("consumer", extra)}


def member_config(
    spec: GroupSpec, bootstrap: str, client: str, group: str, instance: str = ""
) -> dict[str, ConfigValue]:
    """Return librdkafka's configuration of the consumer of one group member. `client`: the member's id. `instance`: its
    group.instance.id; '' for a dynamic member.

    With group.protocol=consumer, session timeout and heartbeat interval are left out: brokers set them, and librdkafka
    refuses them. Raises `BadInput` if the experiment gives a setting that only the harness may set.
    """
    auto = spec.commit == "auto"
    config: dict[str, ConfigValue] = {
        **_FAIL_OVER,
        "bootstrap.servers": bootstrap,
        "client.id": f"ackproof-{client}",
        "group.id": group,
        "group.protocol": spec.protocol,
        "enable.auto.commit": auto,
        "auto.commit.interval.ms": _milliseconds(spec.commit_every) if auto else 0,
        "auto.offset.reset": "error",
        "isolation.level": spec.isolation,
        "max.poll.interval.ms": _milliseconds(max(spec.max_poll_interval, spec.session_timeout)),
        **_CONSUMES,
    }
    if spec.protocol == "consumer":
        config["group.remote.assignor"] = spec.resolved_assignor
    else:
        config["session.timeout.ms"] = _milliseconds(spec.session_timeout)
        config["heartbeat.interval.ms"] = _milliseconds(spec.heartbeat)
        config["partition.assignment.strategy"] = spec.resolved_assignor
    if instance:
        config["group.instance.id"] = instance
    return {**config, **allowed_settings("consumer", spec.config)}


def output_config(bootstrap: str, client: str, transactional_id: str = "") -> dict[str, ConfigValue]:
    """Return librdkafka's configuration of the producer with which member `client` writes the group's output:
    idempotent, so acks=all. `transactional_id` '': no transactions."""
    config: dict[str, ConfigValue] = {
        **_FAIL_OVER,
        "bootstrap.servers": bootstrap,
        "client.id": f"ackproof-{client}-output",
        "enable.idempotence": True,
    }
    if transactional_id:
        config |= {"transactional.id": transactional_id, "transaction.timeout.ms": _TRANSACTION_MS}
    return config


def objection(
    kind: Literal["producer", "consumer"],
    config: Mapping[str, ConfigValue],
    hidden: Mapping[str, str] = MappingProxyType({}),
) -> str | None:
    """Return why librdkafka refuses a configuration with its `hidden` settings, None if it accepts it. Connects to no
    broker.

    librdkafka checks names, ranges and contradictions, such as acks=1 with idempotence.
    """
    from confluent_kafka import Consumer, KafkaException, Producer

    offline = {name: value for name, value in {**config, **hidden}.items() if name != "bootstrap.servers"}
    try:
        (Producer if kind == "producer" else Consumer)({**offline, "log_level": 0}).close()
    except KafkaException as error:
        return " ".join(error.args[0].str().split())
    return None


def security_text(settings: Mapping[str, str]) -> str:
    """Return TLS and SASL settings as a JSON object, which `ClientSettings.read` adds to the client's configuration."""
    return json.dumps(dict(settings))


def resend_after_s(config: Mapping[str, ConfigValue]) -> float:
    """Return the age in seconds below which a record cannot have been sent twice; 0 if it can at any age.

    With retries > 0 or idempotence it can at any age. With retries=0 librdkafka still sends again, without counting a
    retry, after the errors that `rundir.guarantees` lists; a broker can return some of them after an append. The result
    is then librdkafka's shortest wait before it sends again. This is 80 % of retry.backoff.ms (the rest is jitter:
    rd_kafka_retry_msgq), or retry.backoff.max.ms if that is less.
    """
    idempotent = str(config["enable.idempotence"]).lower() == "true"
    if idempotent or str(config.get("retries", "")) != "0":
        return 0.0
    first = float(config.get("retry.backoff.ms", _RETRY_BACKOFF_MS)) * (1 - _JITTER)
    most = float(config.get("retry.backoff.max.ms", _RETRY_BACKOFF_MAX_MS))
    return min(first, most) / 1000


def delivery_timeout_s(config: Mapping[str, ConfigValue]) -> float:
    """Return the seconds after which librdkafka reports a record as failed (message.timeout.ms)."""
    return float(config["message.timeout.ms"]) / 1000


def request_wait_s(config: Mapping[str, ConfigValue]) -> float:
    """Return the longest time in seconds that a request may wait to be sent and answered (socket.timeout.ms)."""
    return (
        float(config.get("socket.timeout.ms", LIBRARIES[LIBRDKAFKA].timeouts_ms["socket.timeout.ms"])) / 1000
    )


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def known_wait(settings: GroupSettings, silent_s: float) -> str:
    """Return the known bug that explains why a member waits for the answer to a commit: librdkafka's issue 5456, which
    concerns transactions. '' for a member without transactions, and for one that printed something in the last 20 s."""
    transacts = isinstance(settings, MemberSettings) and settings.commit == "transaction"
    if not transacts or silent_s < 2 * TRANSACTION_CALL_S:
        return ""
    return (
        f" in a call whose time-out is {TRANSACTION_CALL_S:g} s: librdkafka's send_offsets_to_transaction ignores its "
        "time-out (https://github.com/confluentinc/librdkafka/issues/5456), which is no fault of the brokers"
    )
