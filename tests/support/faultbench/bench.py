"""One cluster on which faults are injected one after the other by the harness's own driver."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from ruamel.yaml import YAML

from ackproof.base.errors import WaitTimeout
from ackproof.base.processes import RunTag, end_children, find_children
from ackproof.base.wait import wait_until
from ackproof.cluster.backends.choice import make_cluster
from ackproof.cluster.install import Installation
from ackproof.cluster.protocol import Cluster, NodeEvent, NodeState
from ackproof.experiment.backends import Need
from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.roles import Role
from ackproof.faults.context import Clients, FaultContext
from ackproof.faults.driver import FaultDriver
from ackproof.faults.holders import find_holders
from ackproof.faults.life import OVER
from ackproof.observe.sampler import Sampler
from ackproof.plan.cases import cases, load
from ackproof.run.phases import Gauges
from ackproof.rundir.clock import RunClock
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Event, EventKind, Timeline
from faultbench.load import Load
from faultbench.table import TABLE, Bite

HOLD = "1500ms"
BITES_WITHIN_S = 60.0
ENDS_WITHIN_S = 150.0
ISR_BACK_WITHIN_S = 60.0


class Bench:
    """A cluster on which faults are injected. `cluster`: its settings, as in a file. `topics`: default `t`, with one
    partition and three replicas. `rate`: records per second of the load.

    `needs`: what must be prepared for the faults before the cluster starts (`FaultSpec.needs`)."""

    def __init__(
        self,
        folder: Path,
        *,
        backend: str = "process",
        installed: Installation | None = None,
        needs: frozenset[Need] = frozenset(),
        topics: dict[str, object] | None = None,
        rate: float = 300.0,
        **cluster: object,
    ) -> None:
        self.folder = folder
        self.backend = backend
        self._frame: dict[str, object] = {
            "name": "bench",
            "backend": backend,
            "cluster": cluster,
            "topics": topics or {"t": {"config": {"min.insync.replicas": 1}}},
            # in transactions, so that every fault of clients is possible; who really writes is the test's own
            "workload": {
                "duration": "1s",
                "consumers": {"live": 1},
                "producers": {"idempotence": True, "transaction_size": 50},
            },
        }
        self._spec = self._case().experiment
        self._rate = rate
        self._run_id = f"bench-{secrets.token_hex(6)}"
        self._count = 0
        self._stop = threading.Event()
        self.node_events: list[NodeEvent] = []
        self.cluster: Cluster = make_cluster(
            backend,
            self._spec.cluster,
            folder / "nodes",
            RunTag(self._run_id, folder, folder),
            self.node_events.append,
            installed=installed,
            needs=needs,
        )

    def _case(self, fault: dict[str, object] | None = None) -> Case:
        file = self.folder / "bench.yaml"
        file.write_text(json.dumps(self._frame | ({"faults": [fault]} if fault else {})), encoding="utf-8")
        return cases(load(file))[0]

    def __enter__(self) -> Self:
        try:
            self.cluster.start()
            self.cluster.create_topics(self._spec.topics)
            self._timeline = Timeline(self.folder / "sampled.jsonl", RunClock.start())
            self._sampler = Sampler(
                self.cluster, self._spec.topics, self.folder / "samples.jsonl", self._timeline
            )
            self._sampler.start()
            self._load = Load(self.cluster, self._spec.topics, self._rate).__enter__()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._load.__exit__(None, None, None)
        self._sampler.stop()
        self._timeline.close()
        self._end()

    def _end(self) -> None:
        self.cluster.stop()
        self.cluster.remove_data()
        left = find_children(self._run_id)
        end_children(lambda child: child.run_id == self._run_id)
        assert not left, f"left behind: {left}"

    def bite(
        self,
        fault: str,
        *,
        name: str | None = None,
        record: bool = True,
        settled: bool = True,
        then: Callable[[], None] | None = None,
        clients: Clients | None = None,
        meanwhile: Callable[[], object] | None = None,
    ) -> Bite:
        """Inject one fault, written as in a file (`pause: {target: leader(t/0)}`), wait until it has recovered, failed
        or missed, and return its result. A fault that fails raises nothing: see `failures` of the result. Raises
        `WaitTimeout` if it does not end in time, or if the ISRs are not full before it.

        `at: 0s` is added if the fault has no trigger, and a duration if its kind can have one and none is given.
        `name`: its name in the table; None: its kind and fields. `record`: True to add it to the session's table.
        `settled`: True to wait for full ISRs before and after it. `then`: called after the fault, to repair the cluster
        where ISRs cannot become full by themselves; full ISRs are awaited afterwards. `clients`: the workload, for
        faults of clients. `meanwhile`: called as soon as the driver has started, perhaps before the fault is in
        force."""
        entry: dict[str, object] = YAML(typ="safe").load(fault)
        if not {"at", "when", "after"} & entry.keys():
            entry["at"] = "0s"
        case = self._case(entry)
        hold_key = case.experiment.faults[0].HOLD_KEY
        if hold_key is not None and hold_key not in entry:
            case = self._case(entry | {hold_key: HOLD})
        if settled:
            self.await_full_isr()
        self._count += 1
        events: list[Event] = []
        with Timeline(
            self.folder / f"fault-{self._count}.jsonl", RunClock.start(), events.append
        ) as timeline:
            driver = FaultDriver(
                case,
                FaultContext(
                    self.cluster,
                    self._stop,
                    case,
                    clients,
                    tag=RunTag(self._run_id, self.folder, self.folder),
                ),
                Gauges(self._load, self._sampler).look,
                timeline,
                lambda role, spec: self._resolve(case, role, spec),
            )
            driver.start()
            try:
                if meanwhile is not None:
                    meanwhile()
                wait_until(
                    lambda: all(stage in OVER for stage in driver.stages().values()),
                    what=f"the end of {fault}",
                    timeout_s=ENDS_WITHIN_S,
                    state=lambda: str(driver.stages()),
                )
            finally:
                driver.heal_all()
            failures = tuple(driver.failures())
            # A dud whose node is left dead keeps the ISR short: there is nothing to wait for.
            if then is not None:
                then()
            isr_back_ns = self._isr_back(timeline) if settled or then is not None else None
        bite = _bite(name or _name(entry), self.backend, events, failures, isr_back_ns)
        if record:
            TABLE.rows.append(bite)
        return bite

    def mend(self) -> None:
        """Resume and start all nodes, and wait until they are back in the cluster. Raises `WaitTimeout`."""
        for node in self.cluster.nodes.values():
            match node.state():
                case NodeState.STOPPED:
                    node.resume()
                case NodeState.GONE:
                    node.start()
        for node in self.cluster.nodes.values():
            node.await_ready(ISR_BACK_WITHIN_S)

    def aimed_at_the_dead(self, *faults: str, back_within_s: float = 30.0) -> dict[str, Bite]:
        """Inject each of these faults while broker 2 is stopped, then start it again; return the results by fault. They
        are not in the session's table. Raises `WaitTimeout` if the broker is not ready in time."""
        self.await_full_isr()
        node = self.cluster.node(2)
        done = {}
        try:
            for fault in faults:
                if node.alive:
                    node.stop()
                done[fault] = self.bite(fault, record=False, settled=False)
        finally:
            if not node.alive:
                node.start()
            node.await_ready(back_within_s)
        return done

    def await_full_isr(self) -> None:
        """Wait until all replicas of all partitions are in sync. Raises `WaitTimeout`."""
        wait_until(
            self._isr_is_full,
            what="full ISRs",
            timeout_s=ISR_BACK_WITHIN_S,
            interval_s=0.1,
            state=lambda: str(self.cluster.topic_state(self._spec.topics)),
        )

    def _isr_is_full(self) -> bool:
        states = self.cluster.topic_state(self._spec.topics)
        places = [TopicPartition(n, p) for n, t in self._spec.topics.items() for p in range(t.partitions)]
        return all(
            place in states
            and states[place].leader > 0
            and set(states[place].isr) == set(states[place].replicas)
            for place in places
        )

    def _isr_back(self, timeline: Timeline) -> int | None:
        try:
            self.await_full_isr()
        except WaitTimeout:
            return None
        return timeline.clock.now()

    def _resolve(self, case: Case, role: Role, fault: FaultSpec) -> tuple[int, ...]:
        return find_holders(self.cluster, role, case.order(fault), self._stop)


def _name(entry: dict[str, object]) -> str:
    kind = next(
        key for key in entry if key not in ("at", "at_latest", "when", "after", "for", "restart_after")
    )
    body = entry[kind]
    fields = (
        ", ".join(f"{key}: {value}" for key, value in body.items()) if isinstance(body, dict) else str(body)
    )
    return f"{kind} {fields}"


def _bite(
    name: str, backend: str, events: list[Event], failures: tuple[str, ...], isr_back_ns: int | None
) -> Bite:
    first: dict[EventKind, Event] = {}
    for event in events:
        first.setdefault(event.kind, event)
    start = first[EventKind.FAULT_ASKED].t_ns if EventKind.FAULT_ASKED in first else 0

    def seconds(kind: EventKind) -> float:
        return (first[kind].t_ns - start) / 1e9 if kind in first else -1.0

    def text(kind: EventKind, field: str) -> str:
        return str(first[kind].detail.get(field, "")) if kind in first else ""

    asked = first.get(EventKind.FAULT_ASKED)
    nodes = asked.detail.get("nodes") if asked is not None else None
    return Bite(
        name=name,
        backend=backend,
        bit=EventKind.FAULT_CONFIRMED in first,
        healed=EventKind.FAULT_RECOVERED in first and not failures,
        isr_back=isr_back_ns is not None,
        bit_s=seconds(EventKind.FAULT_CONFIRMED),
        recovered_s=seconds(EventKind.FAULT_RECOVERED),
        isr_back_s=-1.0 if isr_back_ns is None else (isr_back_ns - start) / 1e9,
        did=text(EventKind.FAULT_CONFIRMED, "did"),
        witness=text(EventKind.FAULT_CONFIRMED, "witness"),
        healing=text(EventKind.FAULT_HEALED, "did"),
        recovery=text(EventKind.FAULT_RECOVERED, "witness"),
        failures=failures,
        nodes=tuple(nodes) if isinstance(nodes, list) else (),
    )
