"""`RecoveryWatch` on a fake cluster: what it reports as stuck, what as slow, and when all has recovered."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ackproof.base.errors import WaitTimeout
from ackproof.clients.final_read import End
from ackproof.cluster.admin import Reassignment, Setting, open_transactions
from ackproof.cluster.protocol import NodeState
from ackproof.cluster.queries import PartitionState
from ackproof.network.wire import WireError
from ackproof.run import recovery
from ackproof.run.recovery import RecoveryWatch
from ackproof.rundir.anomalies import LIVENESS, Anomaly
from ackproof.rundir.observed import RecoveryFile
from ackproof.rundir.partition import TopicPartition

PLACE = TopicPartition("orders", 0)
WELL = End(
    leader=1,
    epoch=1,
    isr=(1, 2, 3),
    start=0,
    high_watermark=90,
    last_stable=90,
    log_end=90,
    replicas=(1, 2, 3),
)
BOUND_S = 10.0
SETTLE_S = 5.0


@dataclass
class Ground:
    """Fake cluster with one partition. Its fields are the answers of its nodes; `folder` has the nodes' logs. `held`:
    by broker, False if its log dir does not have the partition. `rate`: throttle. `opened`: open transactions.
    `transactions`: states of those that coordinators list; None: no answer."""

    folder: Path
    end: End | None = WELL
    leader: int = 1
    isr: tuple[int, ...] = (1, 2, 3)
    running: Sequence[int] = (1, 2, 3)
    unfenced: Sequence[int] = (1, 2, 3)
    controllers: Mapping[int, NodeState] = field(default_factory=lambda: {101: NodeState.RUNNING})
    active: int | None = 101
    log_ends: dict[int, int] = field(default_factory=dict)
    moves: dict[TopicPartition, Reassignment] = field(default_factory=dict)
    held: dict[int, bool] = field(default_factory=dict)
    rate: str = ""
    opened: list[tuple[int, int, int]] = field(default_factory=list)
    transactions: list[str] | None = field(default_factory=list)

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def listed(_: object, __: int) -> list[str]:
            if self.transactions is None:
                raise WireError("no answer")
            return self.transactions

        def described(_: object, owner: Any, names: Sequence[str]) -> dict[str, Setting]:
            return {name: Setting("*" if owner.name == "orders" else self.rate, own=True) for name in names}

        for name, said in (
            ("reassignments", lambda _: self.moves),
            ("log_dirs", lambda link: {"/d": {PLACE} if self.held.get(link, True) else set()}),
            ("describe_config", described),
            ("open_transactions", lambda *_: self.opened),
            ("transactions_of", listed),
        ):
            monkeypatch.setattr(recovery.admin, name, said)
        monkeypatch.setattr(recovery.queries, "brokers", lambda _: frozenset(self.unfenced))
        monkeypatch.setattr(recovery, "_log_end", lambda link, _: self.log_ends.get(link, -1))

    def watch(self) -> RecoveryWatch:
        cluster = SimpleNamespace(
            controllers=lambda: [
                SimpleNamespace(id=node, state=lambda state=state: state)
                for node, state in self.controllers.items()
            ],
            controller=lambda: self.active,
            running_links=lambda: {node: node for node in self.running},
            admin_link=lambda: 1,
            topic_state=lambda _: {
                PLACE: PartitionState("orders", 0, self.leader, 1, (1, 2, 3), self.isr),
            },
        )
        ends = lambda _: {} if self.end is None else {PLACE: self.end}  # noqa: E731
        return RecoveryWatch(
            cluster,  # type: ignore[arg-type]
            ends,
            (PLACE,),
            dict.fromkeys(LIVENESS, BOUND_S),
            SETTLE_S,
            self.folder,
        )


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    made = Ground(tmp_path)
    made.plant(monkeypatch)
    return made


def watched(
    ground: Ground, change: Callable[[float], None] = lambda _: None, until_s: float = BOUND_S
) -> RecoveryFile:
    """Look at the cluster once a second until `until_s`; return what is stuck and what is undecided then.
    `change(second)` is called before each look."""
    watch, now = ground.watch(), 0.0
    while now <= until_s:
        change(now)
        watch.look(now)
        now += 1.0
    return RecoveryFile(
        bounds={},
        waited_s=0.0,
        unrecovered=tuple(watch._stuck(now - 1)),
        undecided=tuple(watch._open(now - 1)),
    )


def _short(ground: Ground) -> None:
    ground.end, ground.log_ends = replace(WELL, isr=(1, 2)), {3: 40}


def _leaderless(ground: Ground) -> None:
    ground.end, ground.leader, ground.isr = None, -1, (1,)


def _hanging(ground: Ground) -> None:
    ground.end = replace(WELL, last_stable=50)
    ground.opened = [(50, 7, 3), (60, 8, 0)]


def _moving(ground: Ground) -> None:
    ground.moves, ground.log_ends = {PLACE: Reassignment((1, 2, 3, 4), (4,), (3,))}, {4: 10}
    ground.running = (1, 2, 3, 4)


def _alone(ground: Ground) -> None:
    ground.active = None


PLANTED: dict[Anomaly, Callable[[Ground], None]] = {
    Anomaly.STUCK_REPLICA: _short,
    Anomaly.LEADERLESS: _leaderless,
    Anomaly.HANGING_TRANSACTION: _hanging,
    Anomaly.STUCK_REASSIGNMENT: _moving,
    Anomaly.NO_CONTROLLER: _alone,
}


def test_a_cluster_in_health_takes_one_look(ground: Ground) -> None:
    assert ground.watch().look(0.0)
    assert watched(ground, until_s=0.0) == RecoveryFile(bounds={}, waited_s=0.0)


@pytest.mark.parametrize("anomaly", PLANTED)
def test_what_does_not_move_for_its_bound_is_stuck_and_no_sooner(ground: Ground, anomaly: Anomaly) -> None:
    PLANTED[anomaly](ground)
    early = watched(ground, until_s=BOUND_S - 1)
    assert early.unrecovered == ()
    (undecided,) = early.undecided
    assert "slow, not stuck" in undecided
    found = watched(ground)
    assert [one.anomaly for one in found.unrecovered] == [anomaly]
    assert found.undecided == ()
    assert found.unrecovered[0].for_s == BOUND_S


@pytest.mark.parametrize("anomaly", PLANTED)
def test_what_recovers_at_last_is_not_named(ground: Ground, anomaly: Anomaly) -> None:
    PLANTED[anomaly](ground)

    def heal(now: float) -> None:
        if now == BOUND_S:
            ground.end, ground.leader, ground.active, ground.moves = WELL, 1, 101, {}

    assert watched(ground, heal) == RecoveryFile(bounds={}, waited_s=0.0)


def test_a_replica_that_approaches_is_slow(ground: Ground) -> None:
    _short(ground)
    found = watched(ground, lambda now: ground.log_ends.update({3: 40 + int(now)}), until_s=3 * BOUND_S)
    assert found.unrecovered == ()
    assert "its log ends at 70, the leader's at 90" in found.undecided[0]


@pytest.mark.parametrize(
    ("moves_until_s", "waited_s", "stuck"),
    [
        (0.0, BOUND_S, True),
        (4.0, BOUND_S + 4, True),
        (7.0, BOUND_S + 7, True),
        (8.0, BOUND_S + 2, False),
        (math.inf, BOUND_S + 2, False),
    ],
)
def test_what_has_stood_still_for_half_of_its_bound_is_watched_for_some_more_seconds(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, moves_until_s: float, waited_s: float, stuck: bool
) -> None:
    _short(ground)
    now = 0.0

    def look_each_second(look: Callable[[], bool], timeout_s: float, **_: object) -> None:
        nonlocal now
        while not look():
            now += 1.0
            if now > timeout_s:
                raise WaitTimeout("too long")
            ground.log_ends[3] = 40 + int(min(now, moves_until_s))

    monkeypatch.setattr(recovery, "wait_until", look_each_second)
    monkeypatch.setattr(recovery, "time", SimpleNamespace(monotonic=lambda: now))
    found = ground.watch().wait()
    assert (found.waited_s, bool(found.unrecovered)) == (waited_s, stuck)


def test_a_replica_that_goes_in_circles_is_stuck(ground: Ground) -> None:
    """The replica is truncated and fetches again, so that its log end never exceeds its former maximum."""
    _short(ground)
    found = watched(ground, lambda now: ground.log_ends.update({3: 30 + int(now) % 3}), until_s=2 * BOUND_S)
    assert [one.anomaly for one in found.unrecovered] == [Anomaly.STUCK_REPLICA]


def test_a_replica_whose_broker_is_down_is_not_stuck_and_one_that_is_fenced_is_told(ground: Ground) -> None:
    _short(ground)
    ground.running = (1, 2)
    assert watched(ground) == RecoveryFile(bounds={}, waited_s=0.0)
    watch = ground.watch()
    assert watch.look(0.0)
    assert watch.short == {}, "the final read waits for it, and says so"
    ground.running, ground.unfenced = (1, 2, 3), (1, 2)
    found = watched(ground)
    assert list(found.undecided) == ["orders/0: broker 3 runs and is fenced"]
    assert found.unrecovered == ()


def test_the_size_of_an_isr_that_stays_short_is_told(ground: Ground) -> None:
    _short(ground)
    watch = ground.watch()
    watch.look(0.0)
    assert watch.short == {PLACE: 2}


def test_the_brokers_own_words_and_a_throttle(ground: Ground) -> None:
    _short(ground)
    (ground.folder / "3").mkdir()
    line = "[2026-01-01] WARN [ReplicaFetcher] Partition orders-0 marked as failed"
    (ground.folder / "3" / "server.log").write_text(
        f"{line}\nPartition orders-01 marked as failed\nanother\n"
    )
    (one,) = watched(ground).unrecovered
    assert one.reason == line
    assert not one.throttled
    ground.rate = "1000"
    assert watched(ground).unrecovered[0].throttled
    ground.rate = str((1 << 63) - 1)
    assert not watched(ground).unrecovered[0].throttled, "Kafka's default: no limit"


def test_a_log_dir_that_its_broker_no_longer_serves_is_told(ground: Ground) -> None:
    _leaderless(ground)
    ground.held = {1: False}
    assert watched(ground).unrecovered[0].offline == (1,)


@pytest.mark.parametrize(
    ("states", "says"),
    [([], ""), (["CompleteCommit"], "CompleteCommit"), (["Empty", "PrepareAbort"], "PrepareAbort")],
)
def test_a_transaction_hangs_where_no_coordinator_will_end_it(
    ground: Ground, states: list[str], says: str
) -> None:
    _hanging(ground)
    ground.transactions = states
    (one,) = watched(ground).unrecovered
    assert (one.producer_id, one.coordinator, one.last_stable) == (7, says, 50)


@pytest.mark.parametrize("states", [["Ongoing"], None], ids=["open", "nobody answers"])
def test_a_transaction_that_may_still_end_does_not_hang(ground: Ground, states: list[str] | None) -> None:
    _hanging(ground)
    ground.transactions = states
    found = watched(ground)
    assert found.unrecovered == ()
    assert (
        "not explained: no answer" if states is None else "still has that transaction open"
    ) in found.undecided[0]


def test_nothing_is_said_of_a_transaction_whose_leader_has_just_ended(ground: Ground) -> None:
    _hanging(ground)
    ground.running = (2, 3)
    found = watched(ground)
    assert found.unrecovered == ()
    assert "not explained: its leader does not run" in found.undecided[0]


def test_what_no_class_speaks_of_is_awaited_as_long_as_the_cluster_may_take_to_settle(ground: Ground) -> None:
    ground.end = None
    watch = ground.watch()
    assert [watch.look(at) for at in (0.0, SETTLE_S - 1, SETTLE_S)] == [False, False, True]
    assert list(watch._open(SETTLE_S)) == ["orders/0: leader 1 does not answer"]


def test_a_replica_is_stuck_though_its_leader_has_no_high_watermark_to_answer_with(ground: Ground) -> None:
    ground.end, ground.isr, ground.log_ends = None, (1, 2), {1: 90, 3: 0}
    found = watched(ground)
    (stuck,) = found.unrecovered
    assert (stuck.anomaly, stuck.node, stuck.log_end, stuck.leader_end) == (Anomaly.STUCK_REPLICA, 3, 0, 90)


@pytest.mark.parametrize("changes", [{"running": (2, 3)}, {"unfenced": (2, 3)}, {"log_ends": {3: 0}}])
def test_no_replica_is_blamed_for_a_leader_that_does_not_run_or_answer(
    ground: Ground, changes: dict[str, Any]
) -> None:
    ground.end, ground.isr, ground.log_ends = None, (1, 2), {1: 90, 3: 0}
    for name, value in changes.items():
        setattr(ground, name, value)
    assert watched(ground).unrecovered == ()


def test_a_quorum_without_a_majority_is_not_asked_for_a_controller(ground: Ground) -> None:
    _alone(ground)
    ground.controllers = {101: NodeState.RUNNING, 102: NodeState.GONE}
    assert watched(ground).unrecovered == ()


def test_without_a_controller_no_replica_is_blamed(ground: Ground) -> None:
    _short(ground)
    _alone(ground)
    assert [one.anomaly for one in watched(ground).unrecovered] == [Anomaly.NO_CONTROLLER]


def test_a_reassignment_that_copies_is_slow(ground: Ground) -> None:
    _moving(ground)
    found = watched(ground, lambda now: ground.log_ends.update({4: int(now)}), until_s=2 * BOUND_S)
    assert found.unrecovered == ()


def test_open_transactions_are_read_from_the_leaders_answer() -> None:
    producers = [
        SimpleNamespace(producer_id=8, producer_epoch=0, current_txn_start_offset=-1),
        SimpleNamespace(producer_id=9, producer_epoch=1, current_txn_start_offset=60),
        SimpleNamespace(producer_id=7, producer_epoch=3, current_txn_start_offset=50),
    ]
    row = SimpleNamespace(error_code=0, error_message=None, active_producers=producers)
    answer = SimpleNamespace(topics=[SimpleNamespace(partitions=[row])])
    link = SimpleNamespace(ask=lambda question, timeout_s: answer)
    assert open_transactions(link, PLACE) == [(50, 7, 3), (60, 9, 1)]  # type: ignore[arg-type]
