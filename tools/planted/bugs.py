"""The planted bugs, read from `bugs.txt`: what each breaks, who can see it, and the experiment that must notice it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parent
ROOT: Final = FOLDER.parents[1]
RELEASE: Final = "4.4.0"
"""Release of Kafka that a rule patches, unless the title of the bug's area ends with another release."""


class Sees(Enum):
    """Who can observe the effect of a bug: clients, only the logs on disk, or nobody."""

    CLIENTS = "clients"
    DISKS = "disks"
    NOBODY = "nobody"
    """The bug has no effect; its promise says why."""


@dataclass(frozen=True)
class Bug:
    """A planted bug: a row of `bugs.txt`. `area`: heading on the page. `sees`: who can observe the bug. `experiment`:
    name of the experiment that shows it. `promise`: the promise of Kafka that it breaks. `finds`: classes and checks of
    which at least one must break; empty if nobody can observe the bug. `release`: the Kafka release to patch."""

    name: str
    area: str
    sees: Sees
    experiment: str
    case: tuple[str, ...]
    """Settings of the experiment's matrix that name the case, as in `--case`; () for an experiment without a matrix."""
    finds: tuple[str, ...]
    promise: str
    release: str = RELEASE

    @property
    def rules(self) -> Path:
        return FOLDER / "rules" / f"{self.name}.btm"

    @property
    def file(self) -> Path:
        """Path of the experiment: in the folder next to the rules if it is there, else in the catalogue."""
        own = FOLDER / "experiments" / f"{self.experiment}.yaml"
        return own if own.exists() else ROOT / "experiments" / f"{self.experiment}.yaml"

    @property
    def control(self) -> str:
        """Name of the experiment with its case and release. Bugs with the same name share one run without a bug."""
        case = (*self.case, *((self.release,) if self.release != RELEASE else ()))
        return f"{self.experiment}@{','.join(case)}" if case else self.experiment


TABLE: Final = FOLDER / "bugs.txt"


def _read_table() -> Iterator[Bug]:
    area, release = "", RELEASE
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            area = line.strip("[]")
            release = area.rpartition(" ")[2] if area[-1].isdigit() else RELEASE
        elif line and not line.startswith("#"):
            name, sees, where, finds, promise = (column.strip() for column in line.split("|"))
            experiment, _, case = where.partition("@")
            settings = tuple(case.split(",")) if case else ()
            yield Bug(name, area, Sees(sees), experiment, settings, tuple(finds.split()), promise, release)


BUGS: Final = tuple(_read_table())
