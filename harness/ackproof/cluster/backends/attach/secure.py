"""Lines to brokers that ask for encryption or credentials, from the settings that librdkafka takes.

The harness asks brokers itself (leaders, ISRs, log ends), so it understands the usual ones of librdkafka's security
settings: TLS with files of PEM, SASL/PLAIN, SASL/SCRAM. What it does not, it refuses by name. Nothing here is ever
written to a file or shown.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any, Final

from ackproof.base.errors import BadInput
from ackproof.cluster.addresses import Address
from ackproof.cluster.messages import kafka_python
from ackproof.cluster.wire import Opener, Question, WireError, ask_over, error_name, plain

_PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_UNDERSTOOD: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    }
)
_OF_SECURITY: Final = ("sasl.", "ssl.", "security.", "enable.ssl.", "enable.sasl.")
_HARMLESS: Final = ("socket.", "broker.address.", "client.dns.")
"""Settings of connections that librdkafka alone needs."""


class NotLetIn(WireError):
    """The broker refused our credentials or our certificate, or we its."""


def check_settings(settings: Mapping[str, str]) -> None:
    """Raises `BadInput` that names, without its value, each setting that is not one of connections."""
    strangers = [name for name in settings if not name.startswith((*_OF_SECURITY, *_HARMLESS))]
    if strangers:
        raise BadInput(
            f"{', '.join(sorted(strangers))}: only settings of connections belong here (security.*, sasl.*, ssl.*, "
            "socket.*); those of the load belong into the experiment"
        )
    foreign = [name for name in settings if name.startswith(_OF_SECURITY) and name not in _UNDERSTOOD]
    if foreign:
        raise BadInput(
            f"{', '.join(sorted(foreign))}: librdkafka may know it, but ackproof asks the brokers itself too, and "
            f"understands only {', '.join(sorted(_UNDERSTOOD))}"
        )
    _protocol(settings)
    if "sasl" in _protocol(settings):
        _mechanism(settings)
        for name in ("sasl.username", "sasl.password"):
            if name not in settings:
                raise BadInput(f"security.protocol is {settings['security.protocol']}: {name} is missing")


def opener_of(settings: Mapping[str, str]) -> Opener:
    """How to open a line. Raises `BadInput` as `check_settings` does, and for files that cannot be read."""
    check_settings(settings)
    protocol = _protocol(settings)
    context = _tls(settings) if protocol.endswith("ssl") else None
    with_sasl = protocol.startswith("sasl")
    if context is None and not with_sasl:
        return plain

    def opened(address: Address, timeout_s: float) -> socket.socket:
        deadline = time.monotonic() + timeout_s
        line = plain(address, timeout_s)
        try:
            if context is not None:
                line = _wrapped(line, context, address)
            if with_sasl:
                _log_in(line, settings, deadline)
        except BaseException:
            line.close()
            raise
        return line

    return opened


def _wrapped(line: socket.socket, context: ssl.SSLContext, address: Address) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(line, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        raise NotLetIn(f"{address}: its certificate is refused: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise NotLetIn(f"{address}: no TLS: {error.reason or error}") from error


def _protocol(settings: Mapping[str, str]) -> str:
    protocol = settings.get("security.protocol", "plaintext").lower()
    if protocol not in _PROTOCOLS:
        raise BadInput(f"security.protocol: expected one of {', '.join(_PROTOCOLS)}, not {protocol[:40]}")
    return protocol


def _mechanism(settings: Mapping[str, str]) -> str:
    mechanism = settings.get("sasl.mechanisms", settings.get("sasl.mechanism", "GSSAPI")).upper()
    if mechanism not in _MECHANISMS:
        raise BadInput(
            f"sasl.mechanism {mechanism[:40]}: ackproof asks the brokers itself, and knows {', '.join(_MECHANISMS)}"
        )
    return mechanism


def _tls(settings: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(
            cafile=settings.get("ssl.ca.location"), cadata=settings.get("ssl.ca.pem")
        )
        if "ssl.certificate.location" in settings:
            context.load_cert_chain(
                settings["ssl.certificate.location"],
                settings.get("ssl.key.location"),
                settings.get("ssl.key.password"),
            )
    except (OSError, ssl.SSLError) as error:
        files = [settings[name] for name in settings if name.endswith(".location")]
        raise BadInput(f"TLS: {error} ({', '.join(files)})") from error
    # As librdkafka: "https" unless "none".
    if settings.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if settings.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _log_in(line: socket.socket, settings: Mapping[str, str], deadline: float) -> None:
    mechanism = _mechanism(settings)
    said = ask_over(line, Question("SaslHandshake", 1, mechanism=mechanism), deadline)
    if said.error_code:
        offered = ", ".join(said.mechanisms or ()) or "none"
        raise NotLetIn(f"SASL: {error_name(said.error_code)}: {mechanism}; the broker offers {offered}")
    client = _client(mechanism, settings)
    while not client.is_done():
        answer = ask_over(line, Question("SaslAuthenticate", 1, auth_bytes=client.auth_bytes()), deadline)
        if answer.error_code:
            raise NotLetIn(f"SASL: {error_name(answer.error_code)}: {answer.error_message or 'refused'}")
        try:
            client.receive(bytes(answer.auth_bytes))
        except (ValueError, KeyError) as error:
            raise NotLetIn(f"SASL: the broker's answer to {mechanism} is wrong: {error}") from error


def _client(mechanism: str, settings: Mapping[str, str]) -> Any:  # noqa: ANN401 — kafka-python is untyped
    """kafka-python's side of the mechanism."""
    return kafka_python("net.sasl").get_sasl_mechanism(mechanism)(
        sasl_plain_username=settings["sasl.username"],
        sasl_plain_password=settings["sasl.password"],
        sasl_mechanism=mechanism,
    )
