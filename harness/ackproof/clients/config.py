"""What librdkafka is told, from what an experiment says. Durations of the specification are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ackproof.base.errors import BadInput
from ackproof.clients.settings import ConfigValue
from ackproof.experiment.settings import Scope, refusal
from ackproof.experiment.spec import ProducerSpec

_FAIL_OVER: Final[dict[str, ConfigValue]] = {
    # a new leader is found by asking: 0.2 s after an election instead of seconds (feasibility §2)
    "topic.metadata.refresh.interval.ms": 100,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 200,
    "log.connection.close": False,
}


_RETRY_BACKOFF_MS: Final = 100
_SINGLE_SEND_BACKOFF_MS: Final = 500
_STATISTICS_MS: Final = 200


def producer_config(
    spec: ProducerSpec, bootstrap: str, client: str, transactional_id: str = ""
) -> dict[str, ConfigValue]:
    """The configuration of one producer. Raises `BadInput` for a setting that is the harness's own."""
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
        # what librdkafka sends again all the same is told from the rest by its age (resend_after_s) or, where the
        # age does not tell, by its partition's leader epochs (`epochs`)
        config["retry.backoff.ms"] = _SINGLE_SEND_BACKOFF_MS
        config["statistics.interval.ms"] = _STATISTICS_MS
        config["topic.metadata.refresh.fast.interval.ms"] = _RETRY_BACKOFF_MS
    if spec.in_flight is not None:
        config["max.in.flight.requests.per.connection"] = spec.in_flight
    if spec.batch_size is not None:
        config["batch.size"] = spec.batch_size
    if spec.request_timeout is not None:
        config["request.timeout.ms"] = _milliseconds(spec.request_timeout)
    return {**config, **_checked(Scope.PRODUCER, spec.config)}


def reader_config(
    extra: Mapping[str, str], isolation: str, bootstrap: str, client: str, *, final: bool = False
) -> dict[str, ConfigValue]:
    """The configuration of one reader. Raises `BadInput` for a setting that is the harness's own."""
    config: dict[str, ConfigValue] = {
        **_FAIL_OVER,
        "bootstrap.servers": bootstrap,
        "client.id": f"ackproof-{client}",
        # never joined: offsets may be committed in its name, and the client library wants one all the same
        "group.id": f"ackproof-{client}",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": final,
        "auto.offset.reset": "error",
        "isolation.level": isolation,
        # by default a full queue makes the fetcher pause a second: six times slower (feasibility §5)
        "fetch.queue.backoff.ms": 10,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 50,
    }
    return {**config, **_checked(Scope.CONSUMER, extra)}


def verify(producer: Mapping[str, ConfigValue], reader: Mapping[str, ConfigValue] | None = None) -> None:
    """Let librdkafka look at these configurations, without connecting. Raises `BadInput` with its objection.

    It knows the names, the ranges, and what contradicts what, such as acks=1 with idempotence.
    """
    for kind, config in (("producer", producer), ("consumer", reader)):
        if config is not None and (said := objection(kind, config)) is not None:
            raise BadInput(f"workload.{kind}s: librdkafka refuses the settings: {said}")


def objection(kind: str, config: Mapping[str, ConfigValue]) -> str | None:
    """What librdkafka has against the configuration of a "producer" or "consumer"; None: nothing."""
    from confluent_kafka import Consumer, KafkaException, Producer

    nowhere = {name: value for name, value in config.items() if name != "bootstrap.servers"}
    try:
        (Producer if kind == "producer" else Consumer)({**nowhere, "log_level": 0}).close()
    except KafkaException as error:
        return " ".join(error.args[0].str().split())
    return None


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _checked(scope: Scope, extra: Mapping[str, str]) -> Mapping[str, str]:
    """The same settings. Validation says what is wrong with line and column; here it is the last guard."""
    if refused := [why for name in extra if (why := refusal(scope, name)) is not None]:
        raise BadInput(f"workload.{scope}s.config: {'; '.join(refused)}")
    return extra
