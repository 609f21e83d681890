"""Command line options for a cluster that ackproof did not start, and settings files with names of librdkafka
or Java."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from ackproof.base.errors import BadInput
from ackproof.cluster.backends.attach.cluster import Attachment
from ackproof.cluster.backends.attach.secure import OAUTH, why_refused
from ackproof.cluster.properties import logical_lines


def attachment(
    bootstrap: str | None, file: Path | None, settings: Sequence[str], backend: str | None = None
) -> Attachment | None:
    """Return address and settings of the cluster; None without `--bootstrap` (`bootstrap` None).

    `file` has lines `key=value` with setting names of librdkafka or of Java clients. `settings`: more settings, as
    `key=value`, which override the file. `backend`: the value of `--backend`; None if it was not given. Raises
    `BadInput` for impossible combinations and settings, and for an unreadable file. Its text shows no secret.
    """
    if bootstrap is None:
        if file is not None or settings:
            raise BadInput(
                "--client-config and -X are for --bootstrap: clusters of our own need no credentials"
            )
        if backend == "attach":
            raise BadInput("--backend attach needs to know where the cluster is: --bootstrap host:port")
        return None
    if backend not in (None, "attach"):
        raise BadInput(f"--bootstrap is a cluster that someone else runs: leave --backend {backend} out")
    every: list[_Entry] = []
    if file is not None:
        try:
            every += _entries(str(file), file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise BadInput(f"{file}: cannot be read: {why}") from error
    for number, word in enumerate(settings, start=1):
        name, sign, value = word.partition("=")
        if not sign or not name.strip():
            raise BadInput(f"-X: expected key=value (the {number}. of them has no '=')")
        every.append(("-X", name.strip(), value))
    attached = Attachment(bootstrap, _librdkafka_settings(every), file)
    attached.check()
    return attached


_Entry: TypeAlias = tuple[str, str, str]
"""One setting: its source (`client.properties:4`, `-X`), name and value."""

_PAIR: Final = re.compile(r"\s*([^\s=:]+)\s*[=:]\s*(.*)", re.DOTALL)
_JAAS: Final = "sasl.jaas.config"
_MODULE: Final = re.compile(r"\s*(?:[\w$]+\.)*(\w+)\s+\w+\s*(.*?)\s*;?\s*\Z", re.DOTALL)
_OPTION: Final = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;]+))""")
_ESCAPED: Final = re.compile(r"\\(.)")
_PEM: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)

_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "PlainLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "ScramLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "OAuthBearerLoginModule": {
        "clientId": f"{OAUTH}client.id",
        "clientSecret": f"{OAUTH}client.secret",
        "scope": f"{OAUTH}scope",
    },
}
"""By JAAS login module: option → its name in librdkafka."""
_OIDC: Final = (f"{OAUTH}method", "oidc")
_NAMES: Final[Mapping[str, str]] = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    f"{OAUTH}client.credentials.client.id": f"{OAUTH}client.id",
    f"{OAUTH}client.credentials.client.secret": f"{OAUTH}client.secret",
}
_STORES: Final[Mapping[str, Sequence[str]]] = {
    "ssl.truststore": ("ssl.ca.location",),
    "ssl.keystore": ("ssl.certificate.location", "ssl.key.location"),
}
"""Prefix of the settings of a Java store → librdkafka's settings for such a store of type PEM."""
_INSTEAD: Final[Mapping[str, str]] = {
    "ssl.truststore.location": "only Java reads a store that is not of type PEM; write ssl.ca.location=ca.pem instead, "
    "made by: keytool -list -rfc -keystore STORE > ca.pem",
    "ssl.keystore.location": "only Java reads a store that is not of type PEM; write ssl.certificate.location=me.pem "
    "and ssl.key.location=me.pem instead, made by: openssl pkcs12 -in STORE -out me.pem (of a JKS first make a PKCS12: "
    "keytool -importkeystore -srckeystore STORE -destkeystore me.p12 -deststoretype PKCS12)",
    "bootstrap.servers": "leave it out; --bootstrap says where the cluster is",
    "sasl.login.callback.handler.class": "only Java runs a class; for client credentials write "
    f"{OAUTH}method=oidc, {OAUTH}token.endpoint.url, {OAUTH}client.id and {OAUTH}client.secret instead",
}
_NEEDLESS: Final = re.compile(
    r"ssl\.(enabled\.protocols|protocol|cipher\.suites|provider|secure\.random\..+|(key|trust)manager\..+|engine\..+)|"
    r"sasl\.login\..+|sasl\.(client|kerberos)\..+|security\.providers"
)
"""Settings of Java clients that have no effect on a connection by librdkafka. They are refused."""


def _entries(where: str, text: str) -> Iterator[_Entry]:
    """Yield (its place, such as `client.properties:4`, name, value) for each setting in a text of `key=value` lines.

    `where`: the file's name. Backslashes are not escapes. A value continues on the next line within a PEM and, in
    `sasl.jaas.config`, after a backslash. Raises `BadInput` for a line without a key or without `=` or `:`.
    """
    for number, line in logical_lines(text, _continued, "{}\n{}".format):
        pair = _PAIR.fullmatch(line)
        if pair is None:
            raise BadInput(f"{where}:{number}: expected key=value")
        yield f"{where}:{number}", pair[1], pair[2].strip()


def _continued(line: str) -> bool:
    if line.count("-----BEGIN ") > line.count("-----END "):
        return True
    return line.lstrip().startswith(_JAAS) and line.rstrip().endswith("\\")


def _librdkafka_settings(every: Sequence[_Entry]) -> dict[str, str]:
    """Return all settings under librdkafka's names; of settings with equal names the last one counts.
    `every`: (place, name, value) of each, as `_entries` yields them.

    Raises `BadInput`, with one line for each refused setting.
    """
    pem = {
        store
        for store in _STORES
        if any(name == f"{store}.type" and value.upper() == "PEM" for _, name, value in every)
    }
    translated: dict[str, str] = {}
    wrong: list[str] = []
    for where, name, value in every:
        try:
            translated.update(_translate(name, value, pem))
        except BadInput as error:
            wrong.append(f"{where}: {name}: {error}")
    if wrong:
        raise BadInput("\n".join(wrong))
    return translated


def _translate(name: str, value: str, pem: set[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each librdkafka setting that stands for one setting of the user (file or `-X`); one that
    needs no translation is yielded as it is. Nothing is yielded for type and password of a Java store. `pem`: prefixes
    of the Java stores of type PEM, such as `ssl.keystore`. Raises `BadInput` with the reason for a setting that is
    refused, and where there is one, with the setting to write instead."""
    store, _, part = name.rpartition(".")
    if name == _JAAS:
        yield from _login(value.replace("\\\n", " "))
    elif name == "sasl.login.callback.handler.class" and value.endswith("OAuthBearerLoginCallbackHandler"):
        yield _OIDC
    elif store in _STORES and part in ("type", "password"):
        return  # a PEM needs neither, and any other store is refused by its location
    elif store in pem and part == "location":
        yield from ((theirs, value) for theirs in _STORES[store])
    elif name in _INSTEAD:
        raise BadInput(_INSTEAD[name])
    elif _NEEDLESS.fullmatch(name):
        raise BadInput("leave it out: only Java clients have it")
    elif name == "ssl.endpoint.identification.algorithm":
        yield name, value or "none"
    elif why := why_refused(theirs := _NAMES.get(name, name)):
        raise BadInput(why)
    else:
        yield theirs, _wrap_pem(value) if theirs.endswith(".pem") else value


def _login(jaas: str) -> Iterator[tuple[str, str]]:
    module = _MODULE.match(jaas)
    known = _OPTIONS.get(module[1]) if module else None
    if module is None or known is None:
        raise BadInput(
            f"expected one of {', '.join(_OPTIONS)}; write sasl.username and sasl.password instead"
        )
    options = {
        name: _ESCAPED.sub(r"\1", quoted) or single or bare
        for name, quoted, single, bare in _OPTION.findall(module[2])
    }
    if missing := [name for name in known if name not in options and name in ("username", "password")]:
        raise BadInput(f"{module[1]} without {' and '.join(missing)}")
    if module[1].startswith("OAuth"):
        yield _OIDC
    yield from ((theirs, options[name]) for name, theirs in known.items() if name in options)


def _wrap_pem(value: str) -> str:
    """Return PEM in lines of 64 characters, from one line, from lines with Java's `\\n`, or from continued lines.
    A text without PEM is returned unchanged."""
    blocks: list[str] = []
    for block in _PEM.finditer(value.replace("\\n", "\n").replace("\\\n", "\n")):
        # An encrypted key with headers has its lines already.
        text = block[2].strip() if ":" in block[2] else textwrap.fill("".join(block[2].split()), 64)
        blocks.append(f"-----BEGIN {block[1]}-----\n{text}\n-----END {block[1]}-----\n")
    return "".join(blocks) or value
