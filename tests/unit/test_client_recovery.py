"""`ClientWatch` on fakes: stuck, slow and healthy clients, and clients that only wait for the cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from ackproof.cluster.queries import PartitionState
from ackproof.run import client_recovery
from ackproof.run.client_recovery import ClientWatch
from ackproof.rundir.anomalies import LIVENESS
from ackproof.rundir.documents import Client
from ackproof.rundir.observed import Unrecovered
from ackproof.rundir.partition import TopicPartition

PLACES = (TopicPartition("t", 0), TopicPartition("t", 1))
BOUND_S = 20.0


@dataclass
class Load:
    """Fake clients and cluster. `counts`: progress of each client by partition. `silent`: (client, partition) without
    progress. `unsent`: producers that send nothing. `probes`: clients that were started as probes. `succeeded`:
    replacement of each client that has one."""

    spec_faults: tuple[object, ...] = ("a kill",)
    rate: float | None = 100.0
    start: str = "earliest"
    isr: tuple[int, ...] = (1, 2, 3)
    library: str = "librdkafka"
    transaction_size: int | None = None
    commits: bool = True
    """True if the high watermark rises."""
    high_watermark: int = 100
    silent: set[tuple[str, int]] = field(default_factory=set)
    unsent: set[str] = field(default_factory=set)
    counts: dict[str, list[int]] = field(default_factory=lambda: {"p0": [9, 9], "p1": [9, 9], "r0": [18, 18]})
    sent: dict[str, int] = field(default_factory=dict)
    probes: list[str] = field(default_factory=list)
    succeeded: dict[str, str] = field(default_factory=dict)

    @property
    def clients(self) -> tuple[Client, ...]:
        return tuple(Client(id=name, kind="producer" if name[0] == "p" else "reader") for name in self.counts)

    written = PLACES

    def assigned(self, kind: str) -> tuple[TopicPartition, ...]:
        return PLACES

    def running(self) -> dict[str, object]:
        return {name: SimpleNamespace(pid=1, started=0) for name in self.counts}

    def successor(self, client: str) -> str:
        return self.succeeded.get(client, client)

    def counters(self, client: str) -> object:
        return SimpleNamespace(sent=self.sent.get(client, 0), counts=self.counts[client])

    def start_another(self, kind: str) -> str:
        name = f"{kind[0]}{7 + len(self.probes)}"
        self.probes.append(name)
        self.counts[name] = [0, 0]
        return name

    def topic_state(self, _: object) -> dict[TopicPartition, PartitionState]:
        return {place: PartitionState("t", place.partition, 1, 1, (1, 2, 3), self.isr) for place in PLACES}

    def partition_ends(self, _: object) -> dict[TopicPartition, object]:
        return {place: SimpleNamespace(high_watermark=self.high_watermark) for place in PLACES}

    def second(self) -> None:
        self.high_watermark += 9 * self.commits
        for name, counts in self.counts.items():
            if name not in self.unsent:
                self.sent[name] = self.sent.get(name, 0) + 100
            for number in range(len(PLACES)):
                if (name, number) not in self.silent:
                    counts[number] += 9

    def watch(self) -> ClientWatch:
        client = SimpleNamespace(library=self.library)
        producers = SimpleNamespace(
            rate=self.rate, count=2, client=client, transaction_size=self.transaction_size
        )
        consumers = SimpleNamespace(start=self.start, live=1)
        workload = SimpleNamespace(producers=producers, consumers=consumers)
        spec = SimpleNamespace(soak=None, faults=(), workload=workload)
        made = ClientWatch(self, self, spec, dict.fromkeys(LIVENESS, BOUND_S))  # type: ignore[arg-type]
        spec.faults = self.spec_faults
        return made


@pytest.fixture(autouse=True)
def _process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_recovery, "process_state", lambda *_: "running")


def watched(load: Load, until_s: int = 40, *, mends_s: int = 1000) -> tuple[list[Unrecovered], int]:
    """Watch the clients second by second from the healing on, until nothing is awaited any more, at most until second
    `until_s`. Return the stuck clients and that second (`until_s` if something is still awaited). `mends_s`: second
    from which all clients make progress again."""
    watch = load.watch()
    watch.heal(0.0)
    for second in range(1, until_s):
        if second == mends_s:
            load.silent.clear()
        load.second()
        watch.mark(1e9 + second)
        if watch.done(float(second)):
            return watch.stuck(float(second)), second
    return watch.stuck(float(until_s)), until_s


def test_in_health_it_takes_one_look_and_no_probe() -> None:
    load = Load()
    assert watched(load) == ([], 1)
    assert load.probes == []


def test_a_producer_that_gets_nothing_on_one_partition_is_stuck_and_no_sooner() -> None:
    load = Load(silent={("p1", 1)})
    found, after_s = watched(load)
    (one,) = found
    assert (one.anomaly, one.client, one.number, one.place) == ("stuck-producer", "p1", 1, PLACES[1])
    assert "the probe p7 meanwhile" in one.seen
    assert after_s == BOUND_S + 1


def test_a_producer_that_stands_still_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_recovery, "process_state", lambda *_: "stopped")
    load = Load(silent={("p1", 0), ("p1", 1)}, unsent={"p1"})
    (one,), _ = watched(load)
    assert one.stopped
    assert "on t/0, t/1" in one.seen
    assert one.seen.endswith("its process stands still (SIGSTOP)")


NOBODY = {(name, 0) for name in ("p0", "p1", "p7")}


def test_producers_are_stuck_whose_records_are_committed_and_never_acknowledged() -> None:
    found, after_s = watched(Load(silent=NOBODY))
    assert [(one.anomaly, one.client, one.place) for one in found] == [
        ("stuck-producer", name, PLACES[0]) for name in ("p0", "p1")
    ]
    assert (
        "and the probe p7 neither; the high watermark of t/0 meanwhile went from 109 to 289" in found[0].seen
    )
    assert after_s == BOUND_S + 1


@pytest.mark.parametrize(
    "load",
    [
        Load(silent=set(NOBODY), commits=False),
        Load(silent=set(NOBODY), library="command"),
        Load(silent=set(NOBODY), transaction_size=10),
        Load(silent=set(NOBODY), isr=(1, 2)),
    ],
)
def test_nobody_is_blamed_where_nothing_shows_that_a_leader_does_not_answer(load: Load) -> None:
    assert watched(load, 60)[0] == []


def test_a_reader_is_stuck_once_a_probe_got_further() -> None:
    load = Load(silent={("r0", 0), ("r0", 1)})
    (one,), _ = watched(load)
    assert (one.anomaly, one.client) == ("stuck-reader", "r0")


def test_a_reader_from_a_committed_offset_is_not_compared_with_a_probe() -> None:
    counts = {"p0": [9, 9], "r0": [900, 900], "r3": [1, 1]}
    returned = Load(start="committed", silent={("r3", 0), ("r3", 1)}, counts=counts)
    assert watched(returned, 60)[0] == []
    first = Load(start="committed", silent={("r0", 0), ("r0", 1)})
    assert [one.client for one in watched(first)[0]] == ["r0"]


def test_who_is_slow_is_not_stuck() -> None:
    load = Load(silent={("p1", 1), ("r0", 0)})
    found, after_s = watched(load, mends_s=int(BOUND_S))
    assert (found, after_s) == ([], int(BOUND_S))


def test_where_a_probe_gets_nothing_either_the_client_is_not_to_blame() -> None:
    load = Load(silent={("p1", 1), ("p7", 1)})
    found, after_s = watched(load, 60)
    assert found == []
    assert after_s < 60, "and nobody waits for ever"


def test_where_the_isr_is_short_no_client_is_blamed() -> None:
    load = Load(silent={("p1", 1)}, isr=(1, 2))
    found, after_s = watched(load, 60)
    assert (found, load.probes) == ([], [])
    assert after_s == client_recovery.AFTER_HEALING_BOUND_S


def test_a_producer_of_few_records_is_not_missed_too_soon() -> None:
    load = Load(silent={("p1", 1)}, unsent={"p1"}, rate=0.1)
    assert watched(load) == ([], 1)


def test_who_was_taken_over_is_not_awaited() -> None:
    load = Load(silent={("p1", 1)}, succeeded={"p1": "p2"})
    assert watched(load) == ([], 1)


def test_without_faults_what_clients_got_in_the_last_seconds_counts() -> None:
    load = Load(spec_faults=(), silent={("p1", 1)})
    watch = load.watch()
    begun = watch._newest.at_s
    for second in range(1, 7):
        load.second()
        watch.mark(begun + second)
    watch.heal(begun + 6)
    assert not watch.done(begun + 6)
    load.silent.clear()
    load.second()
    assert watch.done(begun + 7)
