"""Faults of processes: kill, stop, pause, restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ackproof.experiment.backends import Ability
from ackproof.experiment.fault import HoldKey, NodeFault
from ackproof.experiment.incidents import Incidents

if TYPE_CHECKING:
    from ackproof.experiment.incidents import Exposure


class _OfProcesses(NodeFault):
    ASKS: ClassVar[frozenset[Ability]] = frozenset({Ability.PROCESSES})


class Kill(_OfProcesses):
    """SIGKILL: the process is gone, its page cache and its disk stay."""

    KIND: ClassVar[str] = "kill"
    UNPREDICTABLE: ClassVar[str] = ""
    PER_NODE: ClassVar[Incidents] = Incidents(kills=1)
    SUMMARY: ClassVar[str] = "End the process at once (SIGKILL)."
    HEALING: ClassVar[str] = "start again"
    HOLD_KEY: ClassVar[HoldKey | None] = "restart_after"


class Stop(_OfProcesses):
    """SIGTERM: a controlled shutdown, in which the broker hands over its leaderships."""

    KIND: ClassVar[str] = "stop"
    UNPREDICTABLE: ClassVar[str] = ""
    PER_NODE: ClassVar[Incidents] = Incidents(clean_stops=1)
    SUMMARY: ClassVar[str] = "Shut the node down in good order (SIGTERM)."
    HEALING: ClassVar[str] = "start again"
    HOLD_KEY: ClassVar[HoldKey | None] = "restart_after"


class Pause(_OfProcesses):
    """SIGSTOP: the process stands still with its connections open, until SIGCONT."""

    KIND: ClassVar[str] = "pause"
    UNPREDICTABLE: ClassVar[str] = ""
    SUMMARY: ClassVar[str] = "Freeze the process (SIGSTOP); its connections stay open."
    HEALING: ClassVar[str] = "resume"
    HOLD_KEY: ClassVar[HoldKey | None] = "for"

    def planned(self, exposure: Exposure) -> Incidents:
        return exposure.noticed(self, exposure.aimed_at(self))


class Restart(_OfProcesses):
    """A graceful bounce: controlled shutdown, then started again at once."""

    KIND: ClassVar[str] = "restart"
    UNPREDICTABLE: ClassVar[str] = ""
    PER_NODE: ClassVar[Incidents] = Incidents(clean_stops=1)
    SUMMARY: ClassVar[str] = "Shut the node down in good order and start it again at once."
