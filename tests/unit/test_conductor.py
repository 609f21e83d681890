"""`CaseRun` with fakes for the cluster, the clients and the observers: the order of all steps, also after failures."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import libversion

from ackproof.base.errors import ClientDied, NodeDied
from ackproof.clients.final_readers import FinalReadOrder
from ackproof.experiment.case import Case
from ackproof.run import case as conductor
from ackproof.run.batch import EventBuffer
from ackproof.run.case import CaseRun, run_case
from ackproof.run.phases import CaseOptions, Phase
from ackproof.rundir.documents import CaseFile, Client
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Event, EventKind, Note, PhaseBegan, RunFailed, read_timeline
from run_directory import read_case

EXPERIMENT = """\
name: t
topics:
  narrow: {partitions: 1, replication_factor: 2}
  wide: {partitions: 2, replication_factor: 3}
workload: {producers: {count: 1}, duration: 50ms}
faults: [{kill: {target: broker}, at: 1s}]
"""
PLACES = (TopicPartition("narrow", 0), TopicPartition("wide", 0), TopicPartition("wide", 1))
WHOLE = [
    *("phase start", "cluster started", "topics created"),
    *("phase load", "sampler started", "workload started", "pulse started", "driver started"),
    *("no more states", "phase heal", "all healed", "the next case may start"),
    *(
        "phase drain",
        "workload stopped",
        "phase read",
        "seen to recover",
        "final read",
        "logs looked at",
        "metadata log read",
    ),
    "phase end",
]
ENDED = (
    *(
        "all healed",
        "pulse stopped",
        "workload aborted",
        "sampler stopped",
        "cluster stopped",
        "data removed",
    ),
    "sealed",
)


class Musicians:
    """Fakes of all parts of a run. They record each call in `told`, and do not fail."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[str] = []
        self.run = CaseDir(folder / "run")
        self.acks = 0
        self.order: FinalReadOrder | None = None
        self.live = True
        self.clients = (Client(id="p0", kind="producer", producer=0),)
        for name, made in (
            ("make_cluster", self._cluster),
            ("Sampler", self._of("sampler", isr_text=lambda: "", looks=0)),
            ("Workload", self._workload),
            ("PulseRecorder", self._of("pulse")),
            ("Gauges", self._of("gauges", look=None)),
            ("FaultDriver", self._driver),
            ("final_read", self._final_read),
            ("ends_of", lambda cluster: None),
            ("recover", self._recover),
            ("ClientWatch", self._of("clients", mark=lambda _: None, heal=lambda _: None)),
            ("await_clients", lambda *_: []),
            ("write_metadata_log", lambda *_: self.told.append("metadata log read")),
            ("seal", lambda *_: self.told.append("sealed")),
            ("end_children", lambda _: ((), ())),
            ("AFTER_HEALING_S", 0.0),
            ("COUNTERS_LAG_S", 0.0),
        ):
            monkeypatch.setattr(conductor, name, made)
        look = self._says("logs looked at")
        monkeypatch.setattr(conductor.replica_logs, "collect_replica_logs", look)

    def _says(self, what: str) -> Callable[..., None]:
        return lambda *_: self.told.append(what)

    def _of(self, name: str, **more: object) -> Callable[..., Any]:
        said = {word: self._says(f"{name} {word}{e}ed") for word, e in (("start", ""), ("stop", "p"))}
        return lambda *_, **__: SimpleNamespace(**said, **more)

    def _cluster(self, *_: object, **__: object) -> Any:
        return self._of(
            "cluster",
            create_topics=self._says("topics created"),
            remove_data=self._says("data removed"),
            environment=lambda: {"kafka": "made up"},
            check=lambda: None,
            brokers=list,
            controllers=list,
            bootstrap="nowhere:1",
        )()

    def _workload(self, *_: object, **__: object) -> Any:
        def acked(*_: object) -> int:
            self.acks += 1
            return self.acks

        return self._of(
            "workload",
            abort=self._says("workload aborted"),
            check=lambda: None,
            acked=acked,
            read=lambda *_: 0,
            clients=self.clients,
            places=PLACES,
            written=PLACES,
            readers=7,
        )()

    def _driver(self, *_: object) -> Any:
        return self._of(
            "driver",
            awaits_a_count=False,
            pending=False,
            no_more_states=self._says("no more states"),
            heal_all=self._says("all healed"),
        )()

    def _recover(self, _: object, __: object, order: FinalReadOrder, *___: object) -> FinalReadOrder:
        self.told.append("seen to recover")
        return order

    def _final_read(self, order: FinalReadOrder, *_: object, stop: threading.Event) -> None:
        self.order = order
        self.told.append("final read")

    def plays(self, case: Case, **options: Any) -> None:
        healed = self._says("the next case may start")
        run_case(case, self.run, CaseOptions("b", "replay", healed=healed, **options), self)  # type: ignore[arg-type]

    def event(self, event: Event) -> None:
        if isinstance(event.what, PhaseBegan):
            self.told.append(f"phase {event.what.phase}")

    @property
    def events(self) -> list[Event]:
        return read_timeline(self.run.timeline)[0]


@pytest.fixture
def musicians(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Musicians:
    made = Musicians(tmp_path, monkeypatch)
    made.live = lambda *_: None  # type: ignore[method-assign,assignment]
    return made


@pytest.fixture
def case() -> Case:
    return read_case(EXPERIMENT)


def test_a_run_from_its_start_to_its_end(musicians: Musicians, case: Case) -> None:
    musicians.plays(case)
    assert musicians.told == [*WHOLE, *ENDED]
    assert musicians.events[-1].kind is EventKind.END
    assert not any(isinstance(event.what, RunFailed) for event in musicians.events)


def test_what_the_final_read_is_asked_for(musicians: Musicians, case: Case) -> None:
    musicians.plays(case)
    order = musicians.order
    assert order is not None
    assert (order.places, order.reader, order.bootstrap) == (PLACES, 7, "nowhere:1")
    assert order.isr_sizes == {"narrow": 2, "wide": 3}
    assert not order.transactions
    file = CaseFile.load(musicians.run.case_json)
    assert [client.id for client in file.clients] == ["p0", "f0"]
    assert file.sealed
    assert file.environment == {"kafka": "made up", "client of producers": f"librdkafka {libversion()[0]}"}


def test_the_isr_that_an_experiment_awaits_and_its_transactions(musicians: Musicians, tmp_path: Path) -> None:
    text = EXPERIMENT.replace("count: 1", "count: 1, idempotence: true, transaction_size: 2")
    musicians.plays(read_case(text + "evidence: {isr_size: 1}\n"))
    assert musicians.order is not None
    assert musicians.order.isr_sizes == {"narrow": 1, "wide": 1}
    assert musicians.order.transactions
    assert [client.id for client in CaseFile.load(musicians.run.case_json).clients] == ["p0", "f0", "f1"]


def _fails(_: CaseRun) -> None:
    raise OSError("planted")


@pytest.mark.parametrize("phase", list(Phase), ids=str)
def test_a_run_that_fails_ends_what_it_began(musicians: Musicians, case: Case, phase: Phase) -> None:
    with pytest.raises(OSError, match="planted"):
        musicians.plays(case, hooks={phase: _fails})
    failed = [event.what for event in musicians.events if isinstance(event.what, RunFailed)]
    assert [one.error for one in failed] == ["planted"]
    assert "OSError" in failed[0].traceback
    assert EventKind.END not in {event.kind for event in musicians.events}
    began = WHOLE[: WHOLE.index(f"phase {phase.value}") + 1]
    ends = {
        "all healed": "driver started",
        "pulse stopped": "pulse started",
        "workload aborted": "workload started",
        "sampler stopped": "sampler started",
        "cluster stopped": "cluster started",
        "data removed": "cluster started",
    }
    assert musicians.told == [*began, *(end for end in ENDED if ends.get(end, began[0]) in began)]


def test_a_metadata_log_that_cannot_be_read_is_noted(
    musicians: Musicians, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conductor, "write_metadata_log", lambda *_: "no server had one")
    musicians.plays(case)
    assert [event.what.note for event in musicians.events if isinstance(event.what, Note)] == [
        "no server had one"
    ]


def test_data_stays_where_it_is_to_be_kept(musicians: Musicians, case: Case) -> None:
    musicians.plays(case, keep_data=True)
    assert "data removed" not in musicians.told
    assert "cluster stopped" in musicians.told


def _run_of(workload: object, cluster: object = None, **evidence: bool) -> tuple[CaseRun, list[str]]:
    notes: list[str] = []
    run = object.__new__(CaseRun)
    told = {"node_deaths": False, "ack_after_healing": True, **evidence}
    vars(run).update(
        spec=SimpleNamespace(faults=("a kill",), evidence=SimpleNamespace(**told)),
        cluster=cluster or SimpleNamespace(check=lambda: None),
        sampler=SimpleNamespace(isr_text=lambda: ""),
        watcher=SimpleNamespace(live=lambda *_: None),
        timeline=SimpleNamespace(add=lambda what: notes.append(what.note if isinstance(what, Note) else "?")),
        workload=workload,
        clients=SimpleNamespace(mark=lambda _: None),
        run=SimpleNamespace(path=Path.cwd()),
    )
    return run, notes


class Acks:
    """Fake workload. `begin`: by partition, the look from which each look acknowledges one record more; None: never."""

    def __init__(self, *begin: int | None) -> None:
        self.begin = begin
        self.looks = 0
        self.written = [TopicPartition("t", number) for number in range(len(begin))]

    def check(self) -> None:
        self.looks += 1

    def acked(self, topic: str | None = None, partition: int = 0) -> int:
        begin = self.begin[partition]
        return 5 + max(0, self.looks - begin) if begin is not None else 5

    def read(self) -> int:
        return 0


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conductor, "COUNTERS_LAG_S", 0.0)
    monkeypatch.setattr(conductor, "AFTER_HEALING_S", 0.0)
    monkeypatch.setattr(conductor, "AFTER_HEALING_BOUND_S", 0.3)


@pytest.mark.usefixtures("_quick")
def test_load_goes_on_until_each_partition_has_acknowledged_something_more() -> None:
    acks = Acks(1, 4, 2)
    run, notes = _run_of(acks)
    run._load_after_healing(acks)  # type: ignore[arg-type]
    assert (acks.looks, notes) == (5, [])


@pytest.mark.usefixtures("_quick")
def test_what_does_not_come_is_noted_and_not_awaited_for_ever() -> None:
    acks = Acks(1, None)
    run, notes = _run_of(acks)
    run._load_after_healing(acks)  # type: ignore[arg-type]
    assert len(notes) == 1
    assert notes[0].startswith("after the last healing: waited 0.3 s for acknowledgements on every partition")


@pytest.mark.usefixtures("_quick")
def test_an_experiment_need_not_demand_it() -> None:
    acks = Acks(None)
    run, notes = _run_of(acks, ack_after_healing=False)
    run._load_after_healing(acks)  # type: ignore[arg-type]
    assert (acks.looks, notes) == (1, [])


def _dies(error: Exception) -> Callable[[], None]:
    def check() -> None:
        raise error

    return check


@pytest.mark.parametrize(
    ("who", "allowed", "ends"),
    [("client", False, True), ("node", False, True), ("node", True, False), ("client", True, True)],
)
def test_a_load_ends_with_who_died_by_itself(who: str, allowed: bool, ends: bool) -> None:
    """A load ends if a client dies. It ends for a dead node only if the experiment does not allow node deaths."""
    acks, cluster = Acks(0), SimpleNamespace(check=_dies(NodeDied("node 1 died")))
    if who == "client":
        acks.check = _dies(ClientDied("p0 died"))  # type: ignore[method-assign]
    run, _ = _run_of(acks, cluster, node_deaths=allowed)
    asked: list[int] = []

    def done() -> bool:
        asked.append(1)
        return len(asked) > 2

    run._watch(done, 5.0)
    assert (asked == []) is ends


def test_what_a_case_tells_before_its_turn_is_kept_until_then() -> None:
    told: list[object] = []
    watcher = SimpleNamespace(event=told.append, live=lambda *look: told.append(look))
    held = EventBuffer(watcher)  # type: ignore[arg-type]
    events = [Event(t_ns=n, wall_ns=0, kind=EventKind.NOTE, detail={"note": str(n)}) for n in range(4)]
    held.event(events[0])
    held.event(events[1])
    assert told == []
    held.release()
    assert told == events[:2]
    held.event(events[2])
    held.release()
    held.live(3, 2, "all")
    held.event(events[3])
    assert told == [*events[:3], (3, 2, "all"), events[3]]
