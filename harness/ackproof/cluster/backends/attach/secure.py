"""Connections to brokers with TLS or SASL, from the settings of librdkafka.

The harness itself sends requests to brokers (leaders, ISRs, log ends), so it must understand these settings. It knows
TLS with PEM in files or inline, SASL/PLAIN, SASL/SCRAM, and SASL/OAUTHBEARER by client credentials. Others are refused
by name. No secret is ever written to disk or shown.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final

from ackproof.base.errors import BadInput
from ackproof.network.addresses import Address
from ackproof.network.wire import Opener, Question, WireError, ask_over, error_name, kafka_python, plain

OAUTH: Final = "sasl.oauthbearer."
OAUTH_SETTINGS: Final = (f"{OAUTH}token.endpoint.url", f"{OAUTH}client.id", f"{OAUTH}client.secret")
_ASK_S: Final = 10.0
_SHARE: Final = 0.8
"""Fraction of a token's lifetime after which a new one is fetched."""
_UNKNOWN_S: Final = 60.0
"""Assumed lifetime in seconds of a token whose endpoint sends none."""

_PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_BEARER: Final = "OAUTHBEARER"
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", _BEARER)
_UNDERSTOOD: Final = frozenset(
    {
        "security.protocol",
        *(f"sasl.{name}" for name in ("mechanism", "mechanisms", "username", "password")),
        *(OAUTH + name for name in ("method", "scope", "extensions")),
        *OAUTH_SETTINGS,
        "https.ca.location",
        *(f"ssl.{what}.{how}" for what in ("ca", "certificate", "key") for how in ("location", "pem")),
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    }
)
_OF_SECURITY: Final = ("sasl.", "ssl.", "https.", "security.", "enable.ssl.", "enable.sasl.")
_HARMLESS: Final = ("socket.", "broker.address.", "client.dns.")
"""Prefixes of settings of connections that only librdkafka needs. They are accepted."""


def why_refused(name: str) -> str:
    """Return why a setting of this name is refused, '' if it is accepted."""
    if not name.startswith((*_OF_SECURITY, *_HARMLESS)):
        return (
            "only settings of connections belong here (security.*, sasl.*, ssl.*, socket.*); "
            "those of the load belong into the experiment"
        )
    if name.startswith(_OF_SECURITY) and name not in _UNDERSTOOD:
        return (
            "librdkafka may know it, but ackproof asks the brokers itself too, and understands only "
            f"{', '.join(sorted(_UNDERSTOOD))}"
        )
    return ""


def _check_login(settings: Mapping[str, str]) -> None:
    """Raise `BadInput` for an unsupported security protocol, and with SASL for an unsupported mechanism or a missing
    setting. Needed are user name and password; with OAUTHBEARER method oidc, token endpoint and client. The message
    names the setting, and shows no secret."""
    if "sasl" not in _protocol(settings):
        return
    needed: tuple[str, ...] = ("sasl.username", "sasl.password")
    if _mechanism(settings) == _BEARER:
        needed = OAUTH_SETTINGS
        if settings.get(f"{OAUTH}method", "").lower() != "oidc":
            raise BadInput(f"{OAUTH}method: expected oidc, the one by which ackproof gets tokens")
    for name in needed:
        if name not in settings:
            raise BadInput(f"security.protocol is {settings['security.protocol']}: {name} is missing")


def opener_of(settings: Mapping[str, str]) -> Opener:
    """Return a function that opens connections with these settings of librdkafka: plain or TLS, logged in by SASL. It
    takes an address and a time-out in seconds, returns a socket, and raises `WireError` or OSError if that fails.

    Raises `BadInput` for impossible settings and unreadable files.
    """
    _check_login(settings)
    protocol = _protocol(settings)
    context = _tls(settings) if protocol.endswith("ssl") else None
    with_sasl = protocol.startswith("sasl")
    if context is None and not with_sasl:
        return plain
    endpoint = TokenEndpoint(settings) if with_sasl and _mechanism(settings) == _BEARER else None

    def opened(address: Address, timeout_s: float) -> socket.socket:
        token = "" if endpoint is None else endpoint.token()
        deadline = time.monotonic() + timeout_s
        line = plain(address, timeout_s)
        try:
            if context is not None:
                line = _wrapped(line, context, address)
            if with_sasl:
                _log_in(line, settings, token, deadline)
        except BaseException:
            line.close()
            raise
        return line

    return opened


def _wrapped(line: socket.socket, context: ssl.SSLContext, address: Address) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(line, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        raise WireError(f"{address}: its certificate is refused: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise WireError(f"{address}: no TLS: {error.reason or error}") from error


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
        with ExitStack() as stack:
            certificate, key = (_path(settings, name, stack) for name in ("ssl.certificate", "ssl.key"))
            if certificate is not None:
                # Without a password OpenSSL would ask for one on the terminal.
                context.load_cert_chain(certificate, key, settings.get("ssl.key.password", ""))
    except (OSError, ssl.SSLError) as error:
        files = [settings[name] for name in settings if name.endswith(".location")]
        raise BadInput(f"TLS: {error}" + (f" ({', '.join(files)})" if files else "")) from error
    # As librdkafka: "https" unless "none".
    if settings.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if settings.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _path(settings: Mapping[str, str], name: str, stack: ExitStack) -> str | None:
    """Return the path of the PEM file that the settings with the prefix `name` give; None if they give none. An inline
    PEM gets a file in memory, because OpenSSL reads only files; `stack` closes it."""
    inline = settings.get(f"{name}.pem")
    if inline is None:
        return settings.get(f"{name}.location")
    descriptor = os.memfd_create("ackproof-pem", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    os.write(descriptor, inline.encode())
    return f"/proc/self/fd/{descriptor}"


def _log_in(line: socket.socket, settings: Mapping[str, str], token: str, deadline: float) -> None:
    mechanism = _mechanism(settings)
    said = ask_over(line, Question("SaslHandshake", 1, mechanism=mechanism), deadline)
    if said.error_code:
        offered = ", ".join(said.mechanisms or ()) or "none"
        raise WireError(f"SASL: {error_name(said.error_code)}: {mechanism}; the broker offers {offered}")
    client = _client(mechanism, settings, token)
    while not client.is_done():
        answer = ask_over(line, Question("SaslAuthenticate", 1, auth_bytes=client.auth_bytes()), deadline)
        if answer.error_code:
            raise WireError(f"SASL: {error_name(answer.error_code)}: {answer.error_message or 'refused'}")
        try:
            client.receive(bytes(answer.auth_bytes))
        except (ValueError, KeyError) as error:
            raise WireError(f"SASL: the broker's answer to {mechanism} is wrong: {error}") from error


def _client(mechanism: str, settings: Mapping[str, str], token: str) -> Any:  # noqa: ANN401 — kafka-python is untyped
    """Return kafka-python's object that does the SASL exchange of this mechanism. `token`: OAuth bearer token for
    OAUTHBEARER; not used with other mechanisms."""
    if mechanism == _BEARER:
        oauth = kafka_python("net.sasl.oauth")
        pairs = (pair.partition("=") for pair in settings.get(f"{OAUTH}extensions", "").split(",") if pair)
        own = {name.strip(): value for name, _, value in pairs}
        says = {"token": lambda _: token, "extensions": lambda _: own}
        provider = type("TokenProvider", (oauth.AbstractTokenProvider,), says)()
        return oauth.SaslMechanismOAuth(sasl_oauth_token_provider=provider)
    return kafka_python("net.sasl").get_sasl_mechanism(mechanism)(
        sasl_plain_username=settings["sasl.username"],
        sasl_plain_password=settings["sasl.password"],
        sasl_mechanism=mechanism,
    )


class TokenEndpoint:
    """An OAuth token endpoint. It keeps the newest token for 80 % of its lifetime. Safe to use from several threads.

    `settings`: librdkafka's, by name, with all of `OAUTH_SETTINGS`. Raises `BadInput` if the endpoint's address is no
    http or https URL.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._token = ""
        self._until = 0.0
        if urllib.parse.urlsplit(settings[OAUTH_SETTINGS[0]]).scheme not in ("http", "https"):
            raise BadInput(
                f"{OAUTH_SETTINGS[0]}: expected an address such as https://login.example.org/token"
            )

    def token(self) -> str:
        """Return a valid token. Raises `WireError` if the endpoint refuses, does not answer or sends no token."""
        with self._lock:
            now = time.monotonic()
            if now >= self._until:
                self._token, seconds = self._ask()
                self._until = now + _SHARE * seconds
            return self._token

    def _ask(self) -> tuple[str, float]:
        url, user, secret = (self._settings[name] for name in OAUTH_SETTINGS)
        asked = {"grant_type": "client_credentials", "scope": self._settings.get(f"{OAUTH}scope", "")}
        who = base64.b64encode(f"{user}:{secret}".encode()).decode()
        request = urllib.request.Request(
            url,
            data=urllib.parse.urlencode({name: value for name, value in asked.items() if value}).encode(),
            headers={"Authorization": f"Basic {who}", "Accept": "application/json"},
        )
        try:
            context = ssl.create_default_context(cafile=self._settings.get("https.ca.location"))
            with urllib.request.urlopen(request, timeout=_ASK_S, context=context) as answer:
                said = json.load(answer)
            return str(said["access_token"]), float(said.get("expires_in", _UNKNOWN_S))
        except urllib.error.HTTPError as error:
            error.close()
            raise WireError(f"the token endpoint refuses: {error.code} {error.reason}") from error
        except OSError as error:
            why = getattr(error, "reason", error)
            raise WireError(f"the token endpoint does not answer: {why}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise WireError("the token endpoint answers without an access_token in JSON") from error
