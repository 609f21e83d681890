"""From the words of a command line to a cluster that someone else runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ackproof.base.errors import BadInput
from ackproof.cluster.backends.attach.cluster import Attachment
from ackproof.cluster.backends.attach.secure import OAUTH as _OAUTH
from ackproof.cluster.backends.attach.secure import why_refused


def attachment(
    bootstrap: str | None, file: Path | None, settings: Sequence[str], backend: str | None = None
) -> Attachment | None:
    """Where the cluster is and what lets us in; None when no `--bootstrap` was given.

    `file` holds lines `key=value` in the words of librdkafka or of Java clients (`java`), `settings` more of them,
    which count more. Raises `BadInput` that never shows a value.
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
    read = [] if file is None else list(entries(str(file), _text(file)))
    made = Attachment(bootstrap, in_words_of_librdkafka([*read, *_words(settings)]), file)
    made.check()
    return made


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadInput(f"{file}: cannot be read: {said}") from error


def _words(settings: Sequence[str]) -> Iterator[Entry]:
    for number, word in enumerate(settings, start=1):
        name, sign, value = word.partition("=")
        if not sign or not name.strip():
            raise BadInput(f"-X: expected key=value (the {number}. of them has no '=')")
        yield Entry("-X", name.strip(), value)


class Entry(NamedTuple):
    """One setting, and where it stands: `client.properties:4`, `-X`."""

    where: str
    name: str
    value: str


_PAIR: Final = re.compile(r"\s*([^\s=:]+)\s*[=:]\s*(.*)", re.DOTALL)
_JAAS: Final = "sasl.jaas.config"
_MODULE: Final = re.compile(r"\s*(?:[\w$]+\.)*(\w+)\s+\w+\s*(.*?)\s*;?\s*\Z", re.DOTALL)
_OPTION: Final = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;]+))""")
_ESCAPED: Final = re.compile(r"\\(.)")
_PEM: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_WIDTH: Final = 64
"""Characters of a line of PEM."""

_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "PlainLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "ScramLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "OAuthBearerLoginModule": {
        "clientId": f"{_OAUTH}client.id",
        "clientSecret": f"{_OAUTH}client.secret",
        "scope": f"{_OAUTH}scope",
    },
}
"""Options of login modules, and what librdkafka calls them."""
_OIDC: Final = (f"{_OAUTH}method", "oidc")
_NAMES: Final[Mapping[str, str]] = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    f"{_OAUTH}client.credentials.client.id": f"{_OAUTH}client.id",
    f"{_OAUTH}client.credentials.client.secret": f"{_OAUTH}client.secret",
}
_STORES: Final[Mapping[str, Sequence[str]]] = {
    "ssl.truststore": ("ssl.ca.location",),
    "ssl.keystore": ("ssl.certificate.location", "ssl.key.location"),
}
"""Stores of Java, and what a store of type PEM is to librdkafka."""
_INSTEAD: Final[Mapping[str, str]] = {
    "ssl.truststore.location": "only Java reads a store that is not of type PEM; write ssl.ca.location=ca.pem instead, "
    "made by: keytool -list -rfc -keystore STORE > ca.pem",
    "ssl.keystore.location": "only Java reads a store that is not of type PEM; write ssl.certificate.location=me.pem "
    "and ssl.key.location=me.pem instead, made by: openssl pkcs12 -in STORE -out me.pem (of a JKS first make a PKCS12: "
    "keytool -importkeystore -srckeystore STORE -destkeystore me.p12 -deststoretype PKCS12)",
    "bootstrap.servers": "leave it out; --bootstrap says where the cluster is",
    "sasl.login.callback.handler.class": "only Java runs a class; for client credentials write "
    f"{_OAUTH}method=oidc, {_OAUTH}token.endpoint.url, {_OAUTH}client.id and {_OAUTH}client.secret instead",
}
_NEEDLESS: Final = re.compile(
    r"ssl\.(enabled\.protocols|protocol|cipher\.suites|provider|secure\.random\..+|(key|trust)manager\..+|engine\..+)|"
    r"sasl\.login\..+|sasl\.(client|kerberos)\..+|security\.providers"
)
"""What Java alone has, and what no cluster asks of a client."""


def entries(where: str, text: str) -> Iterator[Entry]:
    """The settings of a file of `key=value` lines. `#` and `!` begin a comment; a value goes on to the next line within
    a PEM, and within `sasl.jaas.config` behind a backslash. Raises `BadInput` for a line that is none."""
    lines = enumerate(text.splitlines(), start=1)
    for number, line in lines:
        if not line.strip() or line.lstrip()[0] in "#!":
            continue
        whole = line
        while _goes_on(whole) and (more := next(lines, None)) is not None:
            whole += f"\n{more[1]}"
        pair = _PAIR.fullmatch(whole)
        if pair is None:
            raise BadInput(f"{where}:{number}: expected key=value")
        yield Entry(f"{where}:{number}", pair[1], pair[2].strip())


def _goes_on(line: str) -> bool:
    if line.count("-----BEGIN ") > line.count("-----END "):
        return True
    return line.lstrip().startswith(_JAAS) and line.rstrip().endswith("\\")


def in_words_of_librdkafka(given: Iterable[Entry]) -> dict[str, str]:
    """All settings, of which later ones win. Raises `BadInput` with a line for each that cannot be one."""
    every = list(given)
    pem = {
        store
        for store in _STORES
        if any(one.name == f"{store}.type" and one.value.upper() == "PEM" for one in every)
    }
    found: dict[str, str] = {}
    wrong: list[str] = []
    for one in every:
        try:
            found.update(_translated(one.name, one.value, pem))
        except BadInput as error:
            wrong.append(f"{one.where}: {one.name}: {error}")
    if wrong:
        raise BadInput("\n".join(wrong))
    return found


def _translated(name: str, value: str, pem: set[str]) -> Iterator[tuple[str, str]]:
    """What one setting is in librdkafka. Raises `BadInput` that says what to write instead."""
    store, _, part = name.rpartition(".")
    if name == _JAAS:
        yield from _login(value.replace("\\\n", " "))
    elif name == "sasl.login.callback.handler.class" and value.endswith("OAuthBearerLoginCallbackHandler"):
        yield _OIDC
    elif store in _STORES and part in ("type", "password"):
        return  # of a PEM it says nothing, and any other store is refused by its location
    elif store in pem and part == "location":
        yield from ((theirs, value) for theirs in _STORES[store])
    elif name in _INSTEAD:
        raise BadInput(_INSTEAD[name])
    elif _NEEDLESS.fullmatch(name):
        raise BadInput("leave it out: it is of Java clients alone")
    elif name == "ssl.endpoint.identification.algorithm":
        yield name, value or "none"
    elif why := why_refused(theirs := _NAMES.get(name, name)):
        raise BadInput(why)
    else:
        yield theirs, _wrapped(value) if theirs.endswith(".pem") else value


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


def _wrapped(value: str) -> str:
    """PEM in lines of its own, however a file has it: in one line, with Java's `\\n`, or with lines that go on."""
    return "".join(map(_block, _PEM.finditer(value.replace("\\n", "\n").replace("\\\n", "\n")))) or value


def _block(found: re.Match[str]) -> str:
    if ":" in found[2]:
        return f"{found[0]}\n"  # the headers of an encrypted key: its lines are as they must be
    body = "".join(found[2].split())
    lines = [body[at : at + _WIDTH] for at in range(0, len(body), _WIDTH)]
    return "\n".join([f"-----BEGIN {found[1]}-----", *lines, f"-----END {found[1]}-----\n"])
