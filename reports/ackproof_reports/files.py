"""Every file of a run, as a link relative to the report: the page is beside them, or tells at least what there was."""

from __future__ import annotations

import stat
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
