"""Settings and command lines of a user's programs: an implementation of `clients.contract.ClientAdapter`."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from ackproof.base.errors import BadInput
from ackproof.clients.contract import (
    ClientSettings,
    ConfigValue,
    GroupSettings,
    MemberSettings,
    ProducerSettings,
    ReaderSettings,
    allowed_settings,
)
from ackproof.experiment.client import COMMAND
from ackproof.rundir.guarantees import LIBRARIES
from ackproof.rundir.parts import ClientLibrary
from ackproof.rundir.payload import encoder

if TYPE_CHECKING:
    from ackproof.experiment.group import GroupSpec
    from ackproof.experiment.spec import ProducerSpec

PLACEHOLDER: Final = "{settings}"


def installed_library(release: str = "") -> ClientLibrary:
    """Return the client library of a user's program: its name is `command`, its version is `release`. `release`: name
    of the program (`ClientChoice.release_for`), because the harness knows no version of it."""
    return ClientLibrary(COMMAND, release)


def writes_ledger() -> bool:
    """Return False: the program only prints JSON lines, and the harness writes its ledger from them."""
    return False


def fill_in(command: Sequence[str], settings: Mapping[str, object]) -> list[str]:
    """Return the command line with each argument `{settings}` replaced by all settings as a JSON object.
    Within other arguments, `{NAME}` is replaced by the setting of that name if it is a text."""
    texts = {f"{{{name}}}": value for name, value in settings.items() if isinstance(value, str)}
    texts[PLACEHOLDER] = json.dumps(settings, separators=(",", ":"))
    return [_replaced(argument, texts) for argument in command]


def _replaced(argument: str, texts: Mapping[str, str]) -> str:
    if argument in texts:
        return texts[argument]
    for name, text in texts.items():
        if name != PLACEHOLDER:
            argument = argument.replace(name, text)
    return argument


def producer_command(settings: ProducerSettings, path: Path) -> list[str]:
    """Return the program's command line as a producer, with the settings that docs/clients.md lists. `path` is not
    used."""
    partitions = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "value": base64.b64encode(
                encoder(settings.run_id, settings.producer, *place, settings.value_size)(0)
            ).decode(),
        }
        for place in settings.places
    ]
    own = {"role": "producer", "rate": settings.rate, "partitions": partitions}
    return fill_in(settings.command, {**own, **_common(settings)})


def reader_command(settings: ReaderSettings, path: Path) -> list[str]:
    """Return the program's command line as a live reader, with the settings that docs/clients.md lists. `path` is not
    used."""
    partitions = [{"topic": place.topic, "partition": place.partition} for place in settings.places]
    own = {"role": "reader", "isolation": settings.isolation, "partitions": partitions}
    return fill_in(settings.command, {**own, **_common(settings)})


def member_command(settings: GroupSettings, path: Path) -> list[str]:
    """Return the program's command line as a group member, with the settings that docs/clients.md lists. `path` is not
    used. Raises `BadInput` for a member of a share group."""
    if not isinstance(settings, MemberSettings):
        raise BadInput("a program of yours is no member of a share group")
    own = {
        "role": "member",
        "member": settings.member,
        "topics": list(settings.topics),
        "commit": settings.commit,
        "commit_every": settings.commit_s,
        "group_metadata": settings.group_metadata,
        "output": settings.output,
        "output_config": {name: str(value) for name, value in settings.output_config.items()},
        "start": settings.start,
        "reset": settings.reset,
        "batch": settings.batch,
        "record_time": settings.record_s,
    }
    return fill_in(settings.command, {**own, **_common(settings)})


def _common(settings: ClientSettings) -> dict[str, object]:
    """Return the settings that programs of all roles get: client, bootstrap, group (if there is one) and, under
    `config`, the library's other settings as text."""
    config = {name: str(value) for name, value in settings.config.items()}
    bootstrap, group = config.pop("bootstrap.servers"), config.pop("group.id", "")
    group_of = {"group": group} if group else {}
    return {"client": settings.client, "bootstrap": bootstrap, **group_of, "config": config}


def producer_config(
    spec: ProducerSpec, bootstrap: str, client: str, transactional_id: str = ""
) -> dict[str, ConfigValue]:
    """Return the configuration of one producer for the user's program, under the setting names of Kafka's Java client.
    `client`: the producer's id.

    Raises `BadInput` with a `transactional_id`, because a user's program writes no transactions here, and for a setting
    that only the harness may set.
    """
    if transactional_id:
        raise BadInput("workload.producers.client: a program of yours writes without transactions here")
    config: dict[str, ConfigValue] = {
        "bootstrap.servers": bootstrap,
        "client.id": f"ackproof-{client}",
        "acks": spec.acks,
        "enable.idempotence": "true" if spec.idempotence else "false",
        "compression.type": spec.compression,
        "linger.ms": round(spec.linger * 1000),
        "delivery.timeout.ms": max(1, round(spec.delivery_timeout * 1000)),
    }
    given: dict[str, int | None] = {
        "retries": spec.retries,
        "max.in.flight.requests.per.connection": spec.in_flight,
        "batch.size": spec.batch_size,
        "request.timeout.ms": None if spec.request_timeout is None else round(spec.request_timeout * 1000),
    }
    config |= {name: value for name, value in given.items() if value is not None}
    return {**config, **allowed_settings("producer", spec.config)}


def reader_config(
    extra: Mapping[str, str],
    isolation: str,
    bootstrap: str,
    client: str,
    *,
    group: str = "",
) -> dict[str, ConfigValue]:
    """Return the configuration of one live reader for the user's program, under the setting names of Kafka's Java
    client. `client`: the reader's id.

    `extra`: the experiment's settings. `isolation`: the reader's isolation.level. `group`: id of the reader whose
    group.id this reader shares; '': a group.id of its own. Raises `BadInput` for a setting that only the harness may
    set.
    """
    config: dict[str, ConfigValue] = {
        "bootstrap.servers": bootstrap,
        "client.id": f"ackproof-{client}",
        "group.id": f"ackproof-{group or client}",
        "isolation.level": isolation,
    }
    return {**config, **allowed_settings("consumer", extra)}


def member_config(
    spec: GroupSpec, bootstrap: str, client: str, group: str, instance: str = ""
) -> dict[str, ConfigValue]:
    """Return the configuration of one group member for the user's program, under the setting names of Kafka's Java
    client. The values are those of the librdkafka adapter, so assignors have short names such as `range`. Unless the
    experiment gives them, `auto.offset.reset` and settings that the Java client lacks are left out.

    `client`: the member's id. `instance`: its group.instance.id; '' for a dynamic member. Raises `BadInput` for a
    setting that only the harness may set.
    """
    from ackproof.clients.java.adapter import SETTING_TYPES
    from ackproof.clients.librdkafka import adapter

    config = adapter.member_config(spec, bootstrap, client, group, instance)
    known = (SETTING_TYPES["consumer"].keys() - {"auto.offset.reset"}) | spec.config.keys()
    return {name: value for name, value in config.items() if name in known}


def output_config(bootstrap: str, client: str, transactional_id: str = "") -> dict[str, ConfigValue]:
    """Return the configuration of the producer that writes a member's output, under the setting names of Kafka's Java
    client. `client` is not used. `transactional_id` '': no transactions."""
    common: dict[str, ConfigValue] = {"bootstrap.servers": bootstrap, "enable.idempotence": "true"}
    return {**common, **({"transactional.id": transactional_id} if transactional_id else {})}


def objection(
    kind: Literal["producer", "consumer"],
    config: Mapping[str, ConfigValue],
    hidden: Mapping[str, str] = MappingProxyType({}),
) -> str | None:
    """Return None for every configuration: only the user's program knows which settings its library refuses."""
    return None


def security_text(settings: Mapping[str, str]) -> str:
    """Return '' if `settings` is empty. Raises `BadInput` otherwise: a user's program cannot be given secrets."""
    if settings:
        raise BadInput("a program of yours gets no settings of TLS and SASL; use client: librdkafka or java")
    return ""


def resend_after_s(config: Mapping[str, ConfigValue]) -> float:
    """Return the age in seconds below which a record cannot have been sent twice. It is 0: a user's program may have
    sent a record twice at any age."""
    return 0.0


def delivery_timeout_s(config: Mapping[str, ConfigValue]) -> float:
    """Return the seconds within which the program is to report the outcome of a record (delivery.timeout.ms)."""
    return float(config["delivery.timeout.ms"]) / 1000


def request_wait_s(config: Mapping[str, ConfigValue]) -> float:
    """Return the longest time in seconds that a request may wait for its response (request.timeout.ms, or Kafka's
    default)."""
    usual = LIBRARIES[COMMAND].timeouts_ms["request.timeout.ms"]
    return float(config.get("request.timeout.ms", usual)) / 1000


def known_wait(settings: GroupSettings, silent_s: float) -> str:
    """Return '': no bug of a program is known by which a member waits for the answer to a commit."""
    return ""
