"""Parts of a page: styles and scripts under a closed policy, data blocks, and links to the run's files.

No byte of a data block can end its element or run. Small documents are plain JSON with everything that HTML or
JavaScript could take for its own written as `\\u003c`.
Large ones are gzip in base64: a twentieth of the size, and the page unpacks it when it is looked at.
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
    """Compact JSON in ASCII without `<`, `>`, `&`; fit for any `<script type="application/json">`.

    Raises ValueError for NaN and infinities, which JSON does not have.
    """
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


@cache
def asset(folder: str, names: Sequence[str]) -> str:
    """Styles (`css`) or scripts (`js`) as one text."""
    text = "\n".join((TEMPLATES / folder / name).read_text(encoding="utf-8") for name in names)
    if folder == "js":
        text = '(() => {\n"use strict";\n' + text + "\n})();"
    return "\n" + text + "\n"


def policy(style: str, script: str = "") -> str:
    """Return a Content-Security-Policy under which nothing is fetched and only these two texts count."""
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
    """A data block of a page: `kind` is `application/json` or `application/gzip`."""

    kind: str
    body: Markup

    @classmethod
    def pack(cls, value: JsonValue, *, plain: bool = False) -> Block:
        """Pack a document. The Markup is safe: its alphabets contain no character that HTML interprets.

        `plain` keeps even a large document as JSON: a part that is printed must be there without waiting.
        """
        text = safe_json(value)
        if plain or len(text) <= PLAIN_LIMIT:
            return cls("application/json", Markup(text))
        packed = base64.b64encode(gzip.compress(text.encode("ascii"), compresslevel=5, mtime=0))
        return cls("application/gzip", Markup(packed.decode("ascii")))


MOST_FILES: Final = 400
"""Most linked files of one folder; the others are found through the link to the folder."""


@dataclass(frozen=True)
class RunFile:
    """A file by its path below the folder of its run."""

    name: str
    href: str
    bytes: int


def link(path: str) -> str:
    """A path below the batch as a relative link: no character of it can be taken for a scheme, a query or a host."""
    return "./" + quote(path, safe="/")


def files_of(folder: Path, run: str) -> tuple[RunFile, ...]:
    """The files below `folder`, which is `run` below the batch, in order; brokers' data and hidden files left out."""
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
