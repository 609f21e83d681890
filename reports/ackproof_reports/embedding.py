"""Parts of a page: styles and scripts under a closed policy, data blocks, and links to the run's files.

No byte of a data block can end its element or run. Small documents are plain JSON with every character that HTML or
JavaScript interprets written as an escape such as `\\u003c`. Large ones are gzip in base64: a twentieth of the size,
and the page unpacks it when it is looked at.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import quote

from markupsafe import Markup
from pydantic import JsonValue

TEMPLATES: Final = Path(__file__).parent / "templates"
PLAIN_LIMIT: Final = 16_384
_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def safe_json(value: JsonValue) -> str:
    """Return a value as compact ASCII JSON without `<`, `>` and `&`, safe inside `<script
    type="application/json">`.

    Raises ValueError for NaN and infinities, which JSON does not have.
    """
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


@cache
def asset(folder: str, names: Sequence[str]) -> str:
    """Return the named files of a folder (`css` or `js`) as one text; scripts are wrapped in a strict-mode function.
    The text is cached by its arguments, so `names` must be a tuple, not a list."""
    text = "\n".join((TEMPLATES / folder / name).read_text(encoding="utf-8") for name in names)
    if folder == "js":
        text = '(() => {\n"use strict";\n' + text + "\n})();"
    return "\n" + text + "\n"


def policy(style: str, script: str = "") -> str:
    """Return a Content-Security-Policy that forbids all fetching. It allows only this style and this script, by hash
    ('' allows none), and images in `data:` addresses."""
    scripts, styles = (
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
        if text
        else "'none'"
        for text in (script, style)
    )
    return (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; img-src data:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


@dataclass(frozen=True)
class Block:
    """An embedded data block. `kind`: its MIME type, `application/json` or `application/gzip` (base64 of
    gzipped JSON).
    """

    kind: str
    body: Markup

    @classmethod
    def pack(cls, value: JsonValue, *, plain: bool = False) -> Block:
        """Return a JSON value as a data block, gzipped if its text has more than `PLAIN_LIMIT` characters (16 KiB).
        Raises ValueError for NaN and infinities.

        The Markup is safe: its alphabet has no character that HTML interprets. `plain`: never gzip the value, because
        content for print must not wait for a script to unpack it.
        """
        text = safe_json(value)
        if plain or len(text) <= PLAIN_LIMIT:
            return cls("application/json", Markup(text))
        packed = base64.b64encode(gzip.compress(text.encode("ascii"), compresslevel=5, mtime=0))
        return cls("application/gzip", Markup(packed.decode("ascii")))


MOST_FILES: Final = 400
"""Greatest number of files of one run that are linked one by one; the link to the run's folder leads to the others."""


@dataclass(frozen=True)
class RunFile:
    """A file of a run. `name`: its path below the run's folder. `href`: the link from the report."""

    name: str
    href: str
    bytes: int


def link(path: str) -> str:
    """Return the relative link to a path below the batch. Special characters are quoted, so none acts as a
    scheme, query or host.
    """
    return "./" + quote(path, safe="/")


def files_of(folder: Path, run: str) -> tuple[RunFile, ...]:
    """Return at most `MOST_FILES` files below `folder`, without brokers' data and hidden files: of each folder the
    files by name, then its folders. `run`: path of the folder below the batch. Symbolic links, and folders that cannot
    be read, are left out."""
    return tuple(islice(_walk(folder, folder, run), MOST_FILES))


def _walk(folder: Path, top: Path, run: str) -> Iterator[RunFile]:
    try:
        looked = [(path, path.stat(follow_symlinks=False)) for path in folder.iterdir()]
    except OSError:
        return  # gone meanwhile, or not ours to read: then there is nothing to link to
    for path, told in sorted(looked, key=lambda one: (stat.S_ISDIR(one[1].st_mode), one[0].name)):
        name = path.relative_to(top).as_posix()
        if path.name.startswith(".") or (path.name == "data" and name.startswith("nodes/")):
            continue
        if stat.S_ISDIR(told.st_mode):
            yield from _walk(path, top, run)
        elif stat.S_ISREG(told.st_mode):
            yield RunFile(name, link(f"{run}/{name}"), told.st_size)
