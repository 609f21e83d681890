"""Translates the TLS and SASL settings of `--client-config` from librdkafka's names to the Java client's names.

Certificates are PEM files, as librdkafka reads them. Java wants key and chain of a keystore in one place, so both go
into settings; a key must be PKCS#8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput

_LOGIN: Final = "org.apache.kafka.common.security."
_MODULES: Final[Mapping[str, str]] = {
    "PLAIN": f"{_LOGIN}plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_LOGIN}scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_LOGIN}scram.ScramLoginModule",
}
"""JAAS login modules by SASL mechanism."""


def security_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return TLS and SASL settings under the Java client's names: protocol, PLAIN or SCRAM login, certificates, key and
    host name check. Other settings, such as librdkafka's for sockets, are left out.

    Raises `BadInput` for another SASL mechanism, for TLS that is not to verify certificates, and for a file that cannot
    be read; the text shows no secret.
    """
    return dict(_settings(settings))


def _settings(settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    protocol = settings.get("security.protocol", "plaintext").upper()
    yield "security.protocol", protocol
    if "SASL" in protocol:
        yield from _sasl(settings)
    if not protocol.endswith("SSL"):
        return
    if settings.get("enable.ssl.certificate.verification", "true").lower() == "false":
        raise BadInput(
            "the Java client always verifies certificates; leave the setting out, or use client: librdkafka"
        )
    if (algorithm := settings.get("ssl.endpoint.identification.algorithm")) is not None:
        yield "ssl.endpoint.identification.algorithm", "" if algorithm == "none" else algorithm
    if authorities := _pem(settings, "ca"):
        yield "ssl.truststore.type", "PEM"
        yield "ssl.truststore.certificates", authorities
    if chain := _pem(settings, "certificate"):
        yield "ssl.keystore.type", "PEM"
        yield "ssl.keystore.certificate.chain", chain
        yield "ssl.keystore.key", _pem(settings, "key")
    if password := settings.get("ssl.key.password"):
        yield "ssl.key.password", password


def _sasl(settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "")).upper()
    if mechanism not in _MODULES:
        raise BadInput(
            f"Java clients log in with {', '.join(_MODULES)}: {mechanism or 'no mechanism'} needs further jars; "
            "use client: librdkafka"
        )
    user, password = (
        settings.get(name, "").replace("\\", "\\\\").replace('"', '\\"')
        for name in ("sasl.username", "sasl.password")
    )
    yield "sasl.mechanism", mechanism
    yield "sasl.jaas.config", f'{_MODULES[mechanism]} required username="{user}" password="{password}";'


def _pem(settings: Mapping[str, str], part: str) -> str:
    """Return the certificates or the key of `part` (ca, certificate, key) as text, from its setting or its file; '' if
    no setting names any. Raises `BadInput` for a file that cannot be read."""
    if text := settings.get(f"ssl.{part}.pem"):
        return text
    location = settings.get(f"ssl.{part}.location")
    if location is None:
        return ""
    try:
        return Path(location).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not PEM"
        raise BadInput(f"ssl.{part}.location: cannot be read: {why}") from error
