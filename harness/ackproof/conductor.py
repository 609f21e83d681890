"""One case through its phases, on a real cluster. It writes facts into a run directory; it neither judges nor prints.

Phases, in order; a hook may be called before each (tests plant lies there)::

    start   cluster up, topics there          drain   producers flushed and closed, readers stopped
    load    clients run, faults come and go   settle  ISR full, log ends at rest
    heal    what is still broken is mended    read    the final read;   end   everything stopped
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from ackproof.cluster.process import ProcessCluster
from ackproof.cluster.protocol import Cluster
from ackproof.errors import AckproofError, NodeDied, WaitTimeout
from ackproof.faults.driver import FaultDriver
from ackproof.faults.injection import Field
from ackproof.observe.sampler import Sampler
from ackproof.plan.cases import Case
from ackproof.plan.roles import Role
from ackproof.processes import RunTag
from ackproof.rundir.clock import RunClock
from ackproof.rundir.documents import CaseFile, FinalReadFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.timeline import Event, EventKind, Timeline
from ackproof.wait import wait_until
from ackproof.workload.clients import Workload

AFTER_HEALING_S = 0.5
"""How long load goes on after the last healing, so that what the healed cluster acknowledges is seen."""
AFTER_HEALING_BOUND_S = 30.0


class Phase(StrEnum):
    """The phases of a run."""

    START = "start"
    LOAD = "load"
    HEAL = "heal"
    DRAIN = "drain"
    SETTLE = "settle"
    READ = "read"
    END = "end"


@dataclass(frozen=True)
class Live:
    """What a case looks like at this moment."""

    acked: int
    read: int
    isr: str


class Watcher(Protocol):
    """Who wants to know how a run goes (the console)."""

    def event(self, event: Event) -> None:
        """An event was written to the timeline."""

    def live(self, live: Live) -> None:
        """A look at the running case, a few times a second."""


@dataclass
class Running:
    """What a hook may lay hands on."""

    case: Case
    run: CaseDir
    cluster: Cluster
    workload: Workload


Hook = Callable[[Running], None]


@dataclass(frozen=True)
class Orders:
    """How a case is to be run, beside what it says itself."""

    batch: str
    replay: str
    keep_data: bool = False
    hooks: Mapping[Phase, Hook] = field(default_factory=dict)


class _Gauges:
    """The live quantities of triggers, from the clients' counters and the sampler."""

    def __init__(self, workload: Workload, sampler: Sampler) -> None:
        self._workload = workload
        self._sampler = sampler

    def acked(self, topic: str | None, partition: int | None) -> int:
        return self._workload.acked(topic, partition)

    def read(self, topic: str | None, partition: int | None) -> int:
        return self._workload.read(topic, partition)

    def isr_size(self, topic: str, partition: int) -> int | None:
        return self._sampler.isr_size(topic, partition)

    def lag(self, topic: str, partition: int) -> int | None:
        return self._sampler.lag(topic, partition)


def run_case(case: Case, run: CaseDir, orders: Orders, watcher: Watcher) -> None:
    """Run one case and leave its run directory.

    Raises `AckproofError` when the run could not be brought through (the timeline then has the event `error`, and
    no `end`); KeyboardInterrupt passes through. In every case all that was started is ended.
    """
    run_id = secrets.token_hex(8)
    run.path.mkdir(parents=True, exist_ok=True)
    clock = RunClock.start()
    own = os.getpid()
    entry = register(
        RunEntry(run_id=run_id, case_dir=str(run.path), owner_pid=own, owner_started=started(own) or 0)
    )
    with Timeline(run.timeline, clock, watcher.event) as timeline:
        conductor = _Conductor(case, run, orders, watcher, run_id, timeline)
        try:
            conductor.go()
        except BaseException as error:
            timeline.add(EventKind.ERROR, error=str(error) or type(error).__name__)
            raise
        finally:
            conductor.end_everything()
        timeline.add(EventKind.END)
    entry.unlink(missing_ok=True)


class _Conductor:
    """The state of one run between its phases."""

    def __init__(
        self, case: Case, run: CaseDir, orders: Orders, watcher: Watcher, run_id: str, timeline: Timeline
    ) -> None:
        self.case = case
        self.spec = case.experiment
        self.run = run
        self.orders = orders
        self.watcher = watcher
        self.run_id = run_id
        self.timeline = timeline
        self.stop = threading.Event()
        self.tag = RunTag(run_id, Path(orders.batch), run.path)
        self.cluster: ProcessCluster | None = None
        self.workload: Workload | None = None
        self.sampler: Sampler | None = None
        self.driver: FaultDriver | None = None

    def go(self) -> None:
        cluster = self._start()
        workload, sampler, driver = self._load(cluster)
        self._phase(Phase.HEAL)
        driver.heal_all()
        self._load_after_healing(workload)
        self._phase(Phase.DRAIN)
        workload.stop()
        self._save_case(workload)
        self._read(cluster, sampler)
        self._phase(Phase.END)
