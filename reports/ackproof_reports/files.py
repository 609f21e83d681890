"""Every file of a run, as a link relative to the report: the page is beside them, or tells at least what there was."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import quote

MOST_FILES: Final = 400
"""Of one folder; what is beyond is found through the folder itself, which has a link too."""


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
        entries = sorted(os.scandir(folder), key=lambda entry: (entry.is_dir(), entry.name))
    except OSError:
        return  # gone meanwhile, or not ours to read: then there is nothing to link to
    for entry in entries:
        name = Path(entry.path).relative_to(top).as_posix()
        if entry.name.startswith(".") or (entry.name == "data" and name.startswith("nodes/")):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), top, run)
        elif entry.is_file(follow_symlinks=False):
            yield RunFile(name, link(f"{run}/{name}"), entry.stat().st_size)
