"""Runs one case on a real cluster and writes facts into a run directory; nothing is judged or printed here.

Phases, in order. A hook may be called before each; tests use it to falsify evidence::

    start   cluster up, topics there          drain   producers flushed and closed, readers stopped
    load    clients run, faults come and go   read    the final read, once the cluster is at rest
    heal    what is still broken is mended    end     everything is stopped
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from ackproof.base.errors import AckproofError, ClientDied, NodeDied, WaitTimeout
from ackproof.base.processes import RunTag, end_children
from ackproof.base.wait import interrupts_wait, wait_until
from ackproof.clients.command.service import Service, start_service
from ackproof.clients.contract import WHOLE
from ackproof.clients.final_read import ends_of, final_read
from ackproof.clients.final_readers import FinalReadOrder
from ackproof.clients.groups import Groups
from ackproof.clients.settings import describe_clients
from ackproof.clients.workload import Workload
from ackproof.cluster.backends.choice import make_cluster
from ackproof.cluster.metadata import write_metadata_log
from ackproof.cluster.protocol import Cluster, local, to_timeline
from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.promises import may_compact
from ackproof.experiment.roles import Role
from ackproof.experiment.timing import recovery_bounds, timing_of
from ackproof.experiment.triggers import COUNT_WITHIN_S
from ackproof.faults.context import FaultContext, Holds
from ackproof.faults.driver import FaultDriver
from ackproof.faults.holders import find_holders
from ackproof.faults.life import AFTER_HEALING_BOUND_S, AFTER_HEALING_S, FIRST_ACKS_BOUND_S
from ackproof.observe import offsets_log, replica_logs
from ackproof.observe.brokers import BrokerObserver
from ackproof.observe.committed import collect_committed
from ackproof.observe.pulse import Counts, PulseRecorder
from ackproof.observe.replica_logs import LogDir
from ackproof.observe.sampler import Sampler
from ackproof.observe.scraper import Scraper
from ackproof.observe.watcher import Watcher as Observer
from ackproof.plan.cases import case_to_json, on_foreign_ground
from ackproof.run.client_recovery import ClientWatch, await_clients
from ackproof.run.extensions import find_soak
from ackproof.run.machine import check_room
from ackproof.run.phases import CaseOptions, Gauges, Phase, Watcher, trace_of
from ackproof.run.recovery import recover
from ackproof.rundir.clock import RunClock
from ackproof.rundir.documents import CaseFile, Client
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.observed import Unrecovered
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.registry import register
from ackproof.rundir.seal import seal
from ackproof.rundir.timeline import Note, PhaseBegan, RunEnded, RunFailed, Timeline

COUNTERS_LAG_S = 0.1  # to wait after the healing until counters are compared, which lag by up to 50 ms
SHOW_EVERY_S = 0.2


def run_case(case: Case, run: CaseDir, options: CaseOptions, watcher: Watcher) -> None:
    """Run one case and record it in its run directory. Raises `AckproofError` if the run cannot be completed."""
    with CaseRun(case, run, options, watcher) as one:
        one.prepare()
        one.go()


class CaseRun:
    """A run of one case: `prepare`, then `go`, inside a `with` statement.

    `prepare` may be called on another thread while the case before it ends. Both raise `AckproofError` if the run
    cannot be completed. Leaving the `with` statement ends all that was started. The timeline then ends with `end` if
    `go` was complete; an exception that leaves the statement becomes its event `error`.
    """

    def __init__(self, case: Case, run: CaseDir, options: CaseOptions, watcher: Watcher) -> None:
        self.run_id = secrets.token_hex(8)
        self.case = case
        if case.experiment.ground.foreign:
            self.case = on_foreign_ground(case, self.run_id)
        self.spec = self.case.experiment
        self.run = run
        self.options = options
        self.watcher = watcher
        self._hidden = {} if options.attachment is None else options.attachment.settings
        self.stop = threading.Event()
        self.tag = RunTag(self.run_id, Path(options.batch), run.path)
        self.cluster: Cluster | None = None
        self.workload: Workload | None = None
        self.service: Service | None = None
        self.groups: Groups | None = None
        self.clients: ClientWatch | None = None
        self.sampler: Sampler | None = None
        self.pulse: PulseRecorder | None = None
        self.scraper: Scraper | None = None
        self.askers: list[Observer] = []
        """Observers that the experiment requires besides the one that takes samples."""
        self.driver: FaultDriver | None = None
        self.soak = find_soak(self.case)
        self.environment: dict[str, str] = {}
        self._through = False
        self._stuck: Sequence[Unrecovered] = ()

    def __enter__(self) -> Self:
        self.run.path.mkdir(parents=True, exist_ok=True)
        self._entry = register(self.run_id, self.run)
        self.timeline = Timeline(self.run.timeline, RunClock.start(), self.watcher.event)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with interrupts_wait():
            with self.timeline:
                if error is not None:
                    what = "interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__
                    self.timeline.add(RunFailed(error=str(error) or what, traceback=trace_of(error)))
                self.end_everything()
                if self._through:
                    self.timeline.add(RunEnded())
            seal(self.run, self.run_id)
            self._entry.unlink(missing_ok=True)

    def prepare(self) -> None:
        """Run the phase `start`: start a cluster and create its topics."""
        self._save_case(())
        self._phase(Phase.START)
        self.cluster = cluster = make_cluster(
            self.spec.backend,
            self.spec.cluster,
            self.run.nodes,
            self.tag,
            to_timeline(self.timeline),
            installed=self.options.installed,
            attachment=self.options.attachment,
            needs=self.case.needs,
        )
        cluster.start()
        cluster.create_topics({**self.spec.topics, **self.spec.output_topics()})
        self.environment = {**cluster.environment(), **describe_clients(self.spec)}

    def go(self) -> None:
        """Run all phases after `start` (call `prepare` first). Raises `AckproofError` if that fails."""
        if (cluster := self.cluster) is None:
            raise AckproofError("the case was not prepared: call prepare() first")
        if self.spec.observe.metrics:
            self.scraper = Scraper(cluster, self.run.metrics, self.timeline)
            self.askers.append(self.scraper)
            self.scraper.start()
        self._phase(Phase.LOAD)
        workload, driver, clients = self._load(cluster)
        self._phase(Phase.HEAL)
        driver.heal_all()
        clients.heal(time.monotonic())
        self._load_after_healing(workload)
        self._stuck = await_clients(clients, self._watch)
        self.options.healed()
        self._phase(Phase.DRAIN)
        self._drain(workload)
        self._phase(Phase.READ)
        self._read(cluster, workload)
        self._look_at_logs(cluster)
        self._phase(Phase.END)
        self._through = True

    # -- phases -------------------------------------------------------------------------------------------------

    def _phase(self, phase: Phase) -> None:
        self.timeline.add(PhaseBegan(phase=phase.value))
        if (hook := self.options.hooks.get(phase)) is not None:
            hook(self)

    def _load(self, cluster: Cluster) -> tuple[Workload, FaultDriver, ClientWatch]:
        self.sampler = sampler = Sampler(cluster, self.spec.topics, self.run.samples, self.timeline)
        sampler.start()
        if self.spec.observe.brokers:
            self.askers.append(BrokerObserver(cluster, self.spec.topics, self.run.brokers, self.timeline))
            self.askers[-1].start()
        self.workload = workload = Workload(
            self.spec.workload,
            self.spec.topics,
            cluster.bootstrap,
            self.timeline,
            self.tag,
            seed=self.case.seed,
            hidden=self._hidden,
            readers_tell=self.spec.observe.brokers,
            on_demand=any(fault.SENDS for fault in self.case.faults),
            kafka=self.spec.cluster.kafka,
            rotation=WHOLE if self.soak is None else self.soak.rotation,
        )
        self.service = start_service(self.spec, self.run, self.tag, cluster.bootstrap)
        if self.spec.workload.groups or self.spec.workload.share_groups:
            self.groups = Groups(self.spec, self.run, self.tag, cluster, self.timeline, self._hidden)
            self.groups.start()
        workload.start()
        self.clients = ClientWatch(workload, cluster, self.spec, recovery_bounds(self.spec))
        self._save_case(workload.clients)
        surroundings = Holds(), self.tag, self.timeline, self.groups
        context = FaultContext(cluster, self.stop, self.case, self.workload, self.service, *surroundings)
        look = Gauges(workload, sampler, self.scraper).look
        self.driver = driver = FaultDriver(self.case, context, look, self.timeline, self._resolve)
        self.pulse = PulseRecorder(
            self.run.pulse, self.timeline, lambda: Counts(sampler.looks, workload.sent(), workload.acked())
        )
        self.pulse.start()
        self._first_acks(workload)
        began = time.monotonic()
        driver.start()
        if self.soak is None:
            lasts = self.spec.workload.duration
            self._watch(lambda: time.monotonic() - began >= lasts, lasts + 60.0)
        else:
            marks = self.timeline, self.tag, self._hidden
            self.case = self.soak.run(driver, workload, cluster, *marks, self._watch)
            self.spec = self.case.experiment
        patience = time.monotonic() + COUNT_WITHIN_S
        self._watch(lambda: not driver.awaits_a_count or time.monotonic() >= patience, COUNT_WITHIN_S + 60.0)
        driver.no_more_states()
        self._watch(lambda: not driver.pending, 600.0)
        return workload, driver, self.clients

    def _first_acks(self, workload: Workload) -> None:
        """If there are faults, wait until each partition written to has acknowledged a record and each member is at
        work (`Groups`). A fault `at: 0s` begins then. After `FIRST_ACKS_BOUND_S` s, go on, with a note (`Note`)."""
        if not self.spec.faults:
            return

        def at_work() -> bool:
            acked = all(workload.acked(*place) for place in workload.written)
            return acked and (self.groups is None or all(map(self.groups.at_work, self.groups.running())))

        what = "a first acknowledgement on every partition, and an assignment of every member"
        try:
            self._watch(at_work, FIRST_ACKS_BOUND_S, what)
        except WaitTimeout as error:
            self.timeline.add(Note(note=f"before the first fault: {error}"))

    def _load_after_healing(self, workload: Workload) -> None:
        """Let the load go on for `AFTER_HEALING_S` s; with `evidence.ack_after_healing` until each partition has acked
        a record since the healing. After `AFTER_HEALING_BOUND_S` s, go on, with a note. Does nothing without faults."""
        if not self.spec.faults:
            return
        before: dict[TopicPartition, int] = {}
        began = time.monotonic()

        def has_acked() -> bool:
            since = time.monotonic() - began
            if not before and since >= COUNTERS_LAG_S:
                before.update((place, workload.acked(*place)) for place in workload.written)
            return since >= AFTER_HEALING_S and (
                not self.spec.evidence.ack_after_healing
                or all(workload.acked(*place) > count for place, count in before.items())
            )

        try:
            self._watch(has_acked, AFTER_HEALING_BOUND_S, "acknowledgements on every partition")
        except WaitTimeout as error:
            self.timeline.add(Note(note=f"after the last healing: {error}"))

    def _drain(self, workload: Workload) -> None:
        if self.soak is not None:
            self.soak.stop()
        try:
            workload.stop()
        except ClientDied as error:
            self.timeline.add(Note(note=str(error)))
        if self.groups is not None:
            self._stuck = (*self._stuck, *self.groups.finish())
        self._save_case(workload.clients)

    def _watch(self, done: Callable[[], bool], bound_s: float, what: str = "the end of the load") -> None:
        """Let the load go on, and show progress, until `done` returns True. Also return if a client dies or, without
        `evidence.node_deaths`, a node: the timeline has the death. `what`: what is awaited, in words. Raises
        `WaitTimeout` after `bound_s` seconds, `AckproofError` if the disk is nearly full."""
        cluster, workload, sampler, clients = self.cluster, self.workload, self.sampler, self.clients
        if cluster is None or workload is None or sampler is None or clients is None:
            raise AckproofError("there is no load to watch")
        shown = 0.0

        def look() -> bool:
            nonlocal shown
            try:
                workload.check()
                if not self.spec.evidence.node_deaths:
                    cluster.check()
            except (ClientDied, NodeDied):
                # The death is in the timeline, and the judge decides about it. The run goes on.
                return True
            now = time.monotonic()
            if now - shown >= SHOW_EVERY_S:
                shown = now
                clients.mark(now)
                check_room(self.run.path)
                self.watcher.live(workload.acked(), workload.read(), sampler.isr_text())
            return done()

        wait_until(look, what=what, timeout_s=bound_s)

    def _read(self, cluster: Cluster, workload: Workload) -> None:
        """Wait for recovery and read everything back. A failure makes the read incomplete and does not fail the run."""
        order = FinalReadOrder(
            places=workload.places,
            isr_sizes={
                name: self.spec.evidence.isr_size or topic.replication_factor
                for name, topic in self.spec.topics.items()
            },
            reader=workload.readers,
            bootstrap=cluster.bootstrap,
            settle_s=self.spec.evidence.settle_timeout,
            hidden=self._hidden,
            transactions=self.spec.workload.producers.transaction_size is not None,
            compacted=frozenset(topic for topic in self.spec.topics if may_compact(self.spec, topic)),
        )
        self._save_case((*workload.clients, *order.clients))
        order = recover(cluster, self.spec, order, self.run, self.stop, self._stuck)
        found = final_read(order, ends_of(cluster), self.timeline.clock, self.tag, stop=self.stop)
        if self.soak is not None:
            self.soak.finish(found)
        if self.service is not None:
            self.service.finish(cluster, self.timeline, self.run_id)

    def _look_at_logs(self, cluster: Cluster) -> None:
        """Write while the nodes run: committed offsets of the readers' groups, replicas' logs, the metadata log and,
        with `workload.groups`, the groups' commits in `__consumer_offsets`. Does nothing on a foreign cluster."""
        if self.spec.ground.foreign:
            return
        log_dirs = [LogDir(node.id, path) for node in local(cluster.brokers()) for path in node.disk.log_dirs]
        collect_committed(cluster, log_dirs, self.run, self.timeline.clock, self.stop)
        replica_logs.collect_replica_logs(log_dirs, self.spec.topics, self.run, self.run_id)
        servers = [node.disk.metadata_dir for node in local(cluster.controllers())]
        if failed := write_metadata_log(self.spec.cluster, servers, self.run):
            self.timeline.add(Note(note=failed))
        if self.spec.workload.groups:
            offsets_log.collect_group_offsets(cluster.jars(), log_dirs, self.run)

    def _resolve(self, role: Role, fault: FaultSpec) -> tuple[int, ...]:
        """Return the nodes that hold a role now, as brokers say; () without a cluster."""
        cluster, order = self.cluster, self.case.order(fault)
        return () if cluster is None else find_holders(cluster, role, order, self.stop)

    # -- around them --------------------------------------------------------------------------------------------

    def _save_case(self, clients: Sequence[Client]) -> None:
        CaseFile(
            run_id=self.run_id,
            case=self.case.id,
            experiment=self.spec.name,
            settings=self.case.settings,
            cell=self.case.cell,
            repeat=self.case.repeat,
            seed=self.case.seed,
            backend=self.spec.backend,
            replay=self.options.replay,
            resolved=case_to_json(self.case),
            clients=(*clients, *(() if self.groups is None else self.groups.clients)),
            environment=self.environment,
            racks=self.spec.cluster.members.nodes_by_rack,
            assumed=self.case.assumptions,
            jars={label: dict(digests) for label, digests in self.options.jars.items()},
            wall_ns=self.timeline.clock.wall_ns,
            sealed=True,
            timing=timing_of(self.spec),
        ).save(self.run.case_json)

    def end_everything(self) -> None:
        """End all that was started. Unless `keep_data` is set, remove brokers' data (attached: topics of the run)."""
        self.stop.set()
        steps: list[Callable[[], object]] = [] if self.driver is None else [self.driver.heal_all]
        steps += [one.stop for one in (self.pulse, *self.askers, self.soak) if one is not None]
        steps += [one.abort for one in (self.workload, self.groups) if one is not None]
        steps += [one.stop for one in (self.sampler, self.cluster) if one is not None]
        with ExitStack() as stack:  # a step that fails does not keep the next ones from being taken
            for step in reversed((*steps, self._remove_data, self._end_rest)):
                stack.callback(step)

    def _remove_data(self) -> None:
        try:
            if self.cluster is not None and not self.options.keep_data:
                self.cluster.remove_data()
        except AckproofError as error:
            self.timeline.add(Note(note=f"not removed: {error}"))

    def _end_rest(self) -> None:
        """End the processes of this run that a failure or an interrupt left; note those that cannot be ended."""
        _, left = end_children(lambda child: child.run_id == self.run_id)
        for child, why in left:
            self.timeline.add(Note(note=f"{child.role} (pid {child.pid}) could not be ended: {why}"))
