"""The phases of a run, who follows it, and what may be laid on it from outside: options and hooks."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ackproof.base.errors import AckproofError
from ackproof.cluster.backends.attach.cluster import Attachment
from ackproof.cluster.install import Installation
from ackproof.rundir.timeline import Event

if TYPE_CHECKING:
    from ackproof.run.case import CaseRun


class Phase(StrEnum):
    """The phases of a run."""

    START = "start"
    LOAD = "load"
    HEAL = "heal"
    DRAIN = "drain"
    READ = "read"
    END = "end"


class Watcher(Protocol):
    """Who wants to know how a run goes (the console)."""

    def event(self, event: Event) -> None:
        """An event was written to the timeline."""

    def live(self, acked: int, read: int, isr: str) -> None:
        """A look at the running case, a few times a second."""


def trace_of(error: BaseException) -> str:
    """The traceback of a crash; '' for what is raised on purpose."""
    if isinstance(error, (AckproofError, KeyboardInterrupt)):
        return ""
    return "".join(traceback.format_exception(error))


Hook: TypeAlias = "Callable[[CaseRun], None]"
"""May lay hands on the run. It has no cluster before `start` is over, no workload before `load` is."""


@dataclass(frozen=True)
class CaseOptions:
    """How a case is to be run, beside what it says itself."""

    batch: str
    replay: str
    keep_data: bool = False
    installed: Installation | None = None
    """What provisioning has ready for the case's version; found or made when it is not given."""
    jars: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of each Kafka that nodes run, by its label: the SHA-256 of its jars by file name."""
    attachment: Attachment | None = None
    """Where the cluster is that someone else runs (backend `attach`)."""
    healed: Callable[[], None] = lambda: None
    """Called once when all faults have healed and the load may end: the next case may start its cluster now."""
    hooks: Mapping[Phase, Hook] = field(default_factory=dict)
