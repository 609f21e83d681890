"""Data inside a page, so that no byte of it can end its element or run.

Small documents are plain JSON with everything that HTML or JavaScript could take for its own written as `\\u003c`.
Large ones are gzip in base64: a twentieth of the size, and the page unpacks it when it is looked at.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup
from pydantic import JsonValue

PLAIN_LIMIT: Final = 16_384
_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def safe_json(value: JsonValue) -> str:
    """Compact JSON in ASCII without `<`, `>`, `&`; fit for any `<script type="application/json">`.

    Raises ValueError for NaN and infinities, which JSON does not have.
    """
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


def source_hash(text: str) -> str:
    """A style or script as a Content-Security-Policy admits it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


@dataclass(frozen=True)
class Block:
    """A data block of a page: `kind` is `application/json` or `application/gzip`."""

    kind: str
    body: Markup

    @classmethod
    def of(cls, value: JsonValue, *, plain: bool = False) -> Block:
        """Pack a document. The Markup is safe: the alphabets used hold nothing that HTML could read.

        `plain` keeps even a large one as JSON: what is drawn for paper must be there without waiting.
        """
        text = safe_json(value)
        if plain or len(text) <= PLAIN_LIMIT:
            return cls("application/json", Markup(text))
        packed = base64.b64encode(gzip.compress(text.encode("ascii"), compresslevel=5, mtime=0))
        return cls("application/gzip", Markup(packed.decode("ascii")))
