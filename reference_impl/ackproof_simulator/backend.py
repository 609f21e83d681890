"""Backend `model`: simulates a case in virtual time and leaves the same run directory as a run on brokers.

It writes facts only; the same audit, judge and reports read them afterwards.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence

from ackproof.experiment.case import Case
from ackproof.experiment.timing import timing_of
from ackproof.plan.cases import case_to_json
from ackproof.rundir.document import write_atomically
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.metadata import write_metadata
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.seal import seal
from ackproof.rundir.timeline import Event, EventDetail, IsrChanged, LeaderChanged, RunEnded
from ackproof_reference.metadata import Partition
from ackproof_simulator.record import LOOK_NS, clients_of, write_final_read, write_ledgers, write_replicas
from ackproof_simulator.run import Simulation, setting_of

OnEvent = Callable[[Event], None]


class _Recorder:
    """Collects the timeline and the samples of a simulated run in memory, until the run is over.

    `wall_ns`: wall-clock time of its start, in ns since the Unix epoch.
    """

    simulation: Simulation
    """The simulation that is recorded. Set it before the run begins."""

    def __init__(self, wall_ns: int) -> None:
        self.events: list[Event] = []
        self.samples: list[str] = []
        self._wall_ns = wall_ns

    def add(
        self,
        what: EventDetail,
        fault: int | None = None,
        *,
        at_ns: int | None = None,
        node: int | None = None,
        client: str | None = None,
        place: TopicPartition | None = None,
    ) -> None:
        at = self.simulation.world.clock.now if at_ns is None else at_ns
        event = Event(
            t_ns=at,
            wall_ns=self._wall_ns + at,
            kind=what.KIND,
            fault=fault,
            node=node,
            client=client,
            topic=None if place is None else place[0],
            partition=None if place is None else place[1],
            detail=what.detail(),
        )
        self.events.append(event)

    def look(self) -> None:
        """Sample every partition now, and schedule the next call after `LOOK_NS` of virtual time."""
        world = self.simulation.world
        self.samples += [world.look(partition).line() for partition in world.partitions]
        self.simulation.world.clock.call_after(LOOK_NS, self.look)

    def tell_changes(self, began: Sequence[Partition]) -> None:
        """Add three kinds of events to the timeline: the controller's changes of leaders and ISRs; starts and ends of
        processes; resets of readers to another offset. Call this once, after the run.

        `began`: the initial state of each partition, in the world's order. Their leaders and ISRs are events at time 0,
        as on real brokers."""
        world = self.simulation.world
        partitions = world.partitions
        for partition, image in zip(partitions, began, strict=True):
            self._leads(0, partition.place, image)
            self._in_sync(0, partition.place, image)
        for change in world.changes:
            place = partitions[change.place].place
            new, old = change.image, change.before
            if (new.leader, new.leader_epoch) != (old.leader, old.leader_epoch):
                self._leads(change.at_ns, place, new)
            if set(new.isr) != set(old.isr):
                self._in_sync(change.at_ns, place, new)
        for at_ns, node, what in world.journal.lives:
            self.add(what, at_ns=at_ns, node=node)
        for at_ns, reader, at, reset in world.resets:
            self.add(reset, at_ns=at_ns, client=f"r{reader}", place=partitions[at].place)

    def _leads(self, at_ns: int, place: TopicPartition, image: Partition) -> None:
        self.add(LeaderChanged(leader=image.leader, epoch=image.leader_epoch), at_ns=at_ns, place=place)

    def _in_sync(self, at_ns: int, place: TopicPartition, image: Partition) -> None:
        self.add(IsrChanged(isr=tuple(image.isr)), at_ns=at_ns, place=place)


def run_in_model(case: Case, run: CaseDir, replay: str, tell: OnEvent | None = None) -> Simulation:
    """Run one case in virtual time, write its run directory, and return the finished simulation. The ledgers follow
    from the case and its seed alone.

    `replay`: the command line that repeats the run. `tell` is called with each event of the timeline, in order, once
    the simulation is over. Raises ValueError for a release without rules, OSError if a file cannot be written.
    """
    run.path.mkdir(parents=True, exist_ok=True)
    wall_ns = time.time_ns()
    recorder = _Recorder(wall_ns)
    # Its own name, from the case alone, so that the same seed leaves the same files.
    run_id = hashlib.sha256(f"{case.id}/{case.seed}".encode()).hexdigest()[:16]
    simulation = Simulation(setting_of(case), case, recorder.add, reading=True, wall_ns=wall_ns)
    recorder.simulation = simulation
    began = [partition.image.partition for partition in simulation.world.partitions]
    simulation.world.clock.call_after(0, recorder.look)
    simulation.run()
    recorder.tell_changes(began)
    recorder.events.sort(key=lambda event: event.t_ns)
    recorder.add(RunEnded())
    if tell is not None:
        for event in recorder.events:
            tell(event)
    write_ledgers(simulation, run)
    write_final_read(simulation, run)
    write_replicas(simulation, run)
    write_metadata(run.metadata_log, simulation.world.journal.records)
    write_atomically(run.samples, "".join(line + "\n" for line in recorder.samples))
    lines = (event.model_dump_json(exclude_defaults=True) + "\n" for event in recorder.events)
    write_atomically(run.timeline, "".join(lines))
    members = case.experiment.cluster.members
    CaseFile(
        run_id=run_id,
        case=case.id,
        experiment=case.experiment.name,
        settings=case.settings,
        cell=case.cell,
        repeat=case.repeat,
        seed=case.seed,
        backend="model",
        replay=replay,
        resolved=case_to_json(case),
        clients=clients_of(simulation),
        environment={
            "model": "reference implementation in virtual time",
            "kafka": case.experiment.cluster.kafka.version,
            **({"racks": members.rack_text} if members.racks else {}),
        },
        racks=members.nodes_by_rack,
        wall_ns=wall_ns,
        sealed=True,
        timing=timing_of(case.experiment),
    ).save(run.case_json)
    seal(run, run_id)
    return simulation


class ModelSimulator:
    """Entry point of the simulator (`ackproof.simulator`), which the harness loads for `backend: model` and
    `--simulate`.
    """

    def run_case(self, case: Case, run: CaseDir, replay: str, tell: OnEvent) -> object:
        return run_in_model(case, run, replay, tell)

    def simulate_beside(self, run: CaseDir) -> None:
        from ackproof_simulator.sweep import (
            simulate_beside,  # a second to load, and backend `model` needs none of it
        )

        simulate_beside(run)
