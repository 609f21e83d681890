"""The base class of all JSON documents of a run and a batch, which are replaced in one step; and a reader of files with
one document a line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ackproof.base.errors import BadInput, UnreadableFile


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to `path`, and create its folder; a reader sees the old file or the new one. Raises OSError if it
    cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


class Document(BaseModel):
    """A JSON file of a run or a batch, or a part of one; immutable. Unknown fields are ignored, so that files of
    newer versions can be read."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    def save(self, path: Path) -> None:
        """Write the document as JSON to `path`; a reader sees the old file or the new one. Raises OSError if it cannot
        be written."""
        write_atomically(path, self.model_dump_json(indent=1, by_alias=True) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a document from a JSON file. Raises `UnreadableFile` if it is missing or does not have this form."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise UnreadableFile(path, f"cannot be read: {error.strerror}") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "document"
            raise UnreadableFile(path, f"not a {cls.__name__}: {where}: {first['msg']}") from error


D = TypeVar("D", bound=Document)


def read_lines(path: Path, kind: type[D]) -> Iterator[D]:
    """Yield a document of class `kind` for each line; nothing if the file does not exist. An invalid last line is
    skipped: its writer was killed. Raises `BadInput` for any other invalid line, OSError if the file cannot be read."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            yield kind.model_validate_json(line)
        except ValidationError as error:
            if number < len(lines):
                raise BadInput(f"{path}:{number}: cannot be read: {error}") from error
