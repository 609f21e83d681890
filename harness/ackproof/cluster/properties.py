"""Settings files of nodes (server.properties): computes their content, and writes and reads .properties files.

A node gets the settings of `experiment.timing.configured`, overridden by those that only the harness may set
(`experiment.settings`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ackproof.base.errors import BadInput
from ackproof.cluster.metadata import metadata_of
from ackproof.experiment.settings import Scope, refusal
from ackproof.experiment.spec import ClusterSpec
from ackproof.experiment.timing import configured
from ackproof.network.addresses import Layout

_BLANKS: Final = " \t\f"
_CONTINUED: Final = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_ENTRY: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_UNPRINTABLE: Final = "it contains a character that a settings file cannot hold"
_SIGNS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def check_settings(spec: ClusterSpec) -> None:
    """Raise `BadInput` with every setting in the experiment that a node cannot have. Validation reports the same with
    line and column."""
    places = [("cluster.config", spec.config)]
    places += [(f"cluster.broker_config.{node}", config) for node, config in spec.broker_config.items()]
    wrong = [
        f"{place}[{key}]: {why}"
        for place, config in places
        for key, value in config.items()
        if (
            why := refusal(Scope.BROKER, key) or ("" if key and (key + value).isprintable() else _UNPRINTABLE)
        )
    ]
    if wrong:
        raise BadInput("; ".join(wrong))


def settings(layout: Layout, node_id: int, data: str) -> dict[str, str]:
    """Return all settings of a node or ZooKeeper server. Raises `BadInput` for a setting that a node cannot have.

    `data`: the node's data folder, relative to its working folder. An absolute path would not do: Kafka splits paths at
    commas, and the folder name of a case contains commas.
    """
    check_settings(layout.spec)
    wanted = configured(layout.spec, node_id)
    return dict(sorted(metadata_of(layout.spec).settings(layout, node_id, data, wanted).items()))


def render(values: Mapping[str, str]) -> str:
    """Return the text of a .properties file with these settings, escaped so that java.util.Properties reads them
    back."""
    return "".join(f"{_escape(key, key=True)}={_escape(value)}\n" for key, value in values.items())


def _escape(text: str, *, key: bool = False) -> str:
    escaped = text.replace("\\", "\\\\")
    if key:
        for sign in ("=", ":", " ", "#", "!"):
            escaped = escaped.replace(sign, f"\\{sign}")
    elif escaped.startswith(" "):
        escaped = "\\" + escaped
    # Beyond ASCII each UTF-16 unit is an escape.
    units = ((sign, sign.encode("utf-16-be").hex()) for sign in escaped)
    return "".join(sign if sign.isascii() else re.sub("(....)", r"\\u\1", unit) for sign, unit in units)


def parse(text: str) -> dict[str, str]:
    """Return the settings of a .properties file, as java.util.Properties reads them.

    Raises ValueError with the number of the line for an escape that Java refuses.
    """
    values = {}

    def join(line: str, more: str) -> str:
        return line[:-1] + more.lstrip(_BLANKS)

    for number, line in logical_lines(text, lambda line: bool(_CONTINUED.search(line)), join):
        try:
            name, value = (_unescape(part) for part in _ENTRY.fullmatch(line).groups())  # type: ignore[union-attr]
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
        values[name] = value
    return values


def logical_lines(
    text: str, continued: Callable[[str], bool], join: Callable[[str, str], str]
) -> Iterator[tuple[int, str]]:
    """Yield line number and text of each entry of a settings file, without comments (`#`, `!`) and blank lines.

    While `continued(entry)` is True, `join(entry, next line)` replaces the entry; at the end of the text the next line
    is ''. The line number is that of the entry's first line, from 1.
    """
    lines = iter(enumerate(re.split(r"\r\n|[\r\n]", text), start=1))
    for number, line in lines:
        line = line.lstrip(_BLANKS)
        if not line or line[0] in "#!":
            continue
        while continued(line):
            more = next(lines, None)
            line = join(line, "" if more is None else more[1])
            if more is None:
                break
        yield number, line


def _unescape(text: str) -> str:
    def sign(escape: re.Match[str]) -> str:
        if escape[1] == "u":
            raise ValueError("\\u stands before four hexadecimal digits")
        return chr(int(escape[1][1:], 16)) if len(escape[1]) > 1 else _SIGNS.get(escape[1], escape[1])

    # Java writes what is beyond 16 bits as two escapes.
    return _ESCAPE.sub(sign, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
