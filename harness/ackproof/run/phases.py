"""The phases of a run, its watchers, and its parameters: options, hooks, and the gauges that triggers compare."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ackproof.base.errors import AckproofError
from ackproof.clients.workload import Workload
from ackproof.cluster.backends.attach.cluster import Attachment
from ackproof.cluster.install import Installation
from ackproof.experiment.triggers import Condition
from ackproof.observe.sampler import Sampler
from ackproof.observe.scraper import Scraper
from ackproof.quantities.states import LIVE
from ackproof.rundir.metrics import METRICS
from ackproof.rundir.timeline import Event

if TYPE_CHECKING:
    from ackproof.run.case import CaseRun


class Phase(StrEnum):
    """Phases of a run, in order."""

    START = "start"
    """The cluster starts, and topics are created."""
    LOAD = "load"
    """Clients run, and faults begin."""
    HEAL = "heal"
    """Faults that still last are healed, while the load goes on."""
    DRAIN = "drain"
    """Clients are asked to close: producers wait for their last reports."""
    READ = "read"
    """The cluster comes to rest, the final read takes place, and the logs on disk are read."""
    END = "end"
    """All facts of the run are recorded."""


class Watcher(Protocol):
    """Receiver of the events and the progress of one run, such as the console."""

    def event(self, event: Event) -> None:
        """Called after an event was written to the timeline."""

    def live(self, acked: int, read: int, isr: str) -> None:
        """Called a few times a second under load. `acked`, `read`: records acknowledged and read so far. `isr`: text
        about the sizes of the ISRs."""


def trace_of(error: BaseException) -> str:
    """Return the traceback of a crash as text; '' for `AckproofError` and KeyboardInterrupt, which are no crashes."""
    if isinstance(error, (AckproofError, KeyboardInterrupt)):
        return ""
    return "".join(traceback.format_exception(error))


Hook: TypeAlias = "Callable[[CaseRun], None]"
"""Function that is called with the run before a phase. The run has a cluster only after phase `start`, and a workload
only after phase `load`."""


@dataclass(frozen=True)
class CaseOptions:
    """Options of a run that are not part of the case.

    `batch`: path of its batch's folder. `replay`: the command line that repeats the run. `keep_data`: keep the brokers'
    data, or the run's topics on an attached cluster. `installed`: installation of the case's Kafka; None: it is found
    or made. `jars`: label of each Kafka that nodes run → file name of a jar → SHA-256. `attachment`: address and
    credentials of a cluster that someone else runs (backend `attach`). `healed`: called once, after the faults have
    healed and before the clients are closed; not if the run fails before. The next case may start its cluster then.
    `hooks`: functions to call before a phase, with the run.
    """

    batch: str
    replay: str
    keep_data: bool = False
    installed: Installation | None = None
    jars: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    attachment: Attachment | None = None
    healed: Callable[[], None] = lambda: None
    hooks: Mapping[Phase, Hook] = field(default_factory=dict)


@dataclass(frozen=True)
class Gauges:
    """Sources of the gauges that triggers of faults compare. `clients`: counts of records. `sampler`: the newest sample
    of each partition. `scraper`: the nodes' metrics; None if the run scrapes none."""

    clients: Workload
    sampler: Sampler
    scraper: Scraper | None = None

    def look(self, condition: Condition) -> float | None:
        """Return the number that a condition compares, None while it is unknown: records acknowledged or read so far, a
        metric in the newest scrape, or a number in the newest sample of a partition. Raises `AckproofError` for a
        number of a partition if the condition names none."""
        topic, partition = condition.topic, condition.partition
        if condition.metric:
            metric = METRICS[condition.metric]
            return None if self.scraper is None else self.scraper.fresh(metric, condition.node)
        if condition.gauge == "acked":
            return self.clients.acked(topic, partition)
        if condition.gauge == "read":
            return self.clients.read(topic, partition)
        if topic is None or partition is None:
            raise AckproofError(f"{condition}: {condition.gauge} is that of a partition")
        sample = self.sampler.fresh(topic, partition)
        return None if sample is None else LIVE[condition.gauge](sample)


class BatchWatcher(Watcher, Protocol):
    """Receiver of the progress of a batch, such as the console."""

    def case_begins(self, case: str, racks: str = "") -> None:
        """Called when a case starts. `racks`: the cluster's nodes by rack, in words."""

    def case_ends(self, case: str, error: str | None) -> None:
        """Called when a case has ended. `error`: why the harness could not complete the case; None if the case is
        complete."""

    def step(self, text: str) -> None:
        """Called when a long step begins. `text`: the step in words."""

    def add_cases(self, cases: int) -> None:
        """Called when `cases` further cases were added to the batch."""


class SilentWatcher:
    """Watcher that prints nothing. `progress`, if given, is called with the text of each long step, with each case when
    it starts, and with the error of a case that could not be completed. Verdicts are not passed on."""

    def __init__(self, progress: Callable[[str], None] | None = None) -> None:
        self._progress = progress

    def case_begins(self, case: str, racks: str = "") -> None:
        self.step(f"{case}  racks {racks}" if racks else case)

    def case_ends(self, case: str, error: str | None) -> None:
        if error is not None:
            self.step(f"{case}: {error}")

    def step(self, text: str) -> None:
        if self._progress is not None:
            self._progress(text)

    def add_cases(self, cases: int) -> None:
        pass

    def event(self, event: Event) -> None:
        pass

    def live(self, acked: int, read: int, isr: str) -> None:
        pass
