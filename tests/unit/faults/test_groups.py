"""Faults of consumer groups, on processes that stand for members, with coordinators whose answers a test sets."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, cast

import pytest

from ackproof.base.errors import FaultNotConfirmed
from ackproof.base.processes import Child, ClientProcess
from ackproof.cluster.groups import GroupDescription, GroupMember
from ackproof.cluster.queries import PartitionEnds, PartitionState
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.group import GroupProtocol
from ackproof.experiment.roles import Role
from ackproof.experiment.triggers import TimeTrigger
from ackproof.faults.clients.client import ClientSelector, PauseClient
from ackproof.faults.context import FaultContext
from ackproof.faults.groups import kinds, slow_member, views
from ackproof.faults.groups.kinds import BounceMembers, JoinGroup, LeaveGroup, MigrateGroup, ResetOffsets
from ackproof.faults.groups.slow_member import SlowMember
from ackproof.faults.holders import find_holders
from ackproof.faults.injection import Aim, Injection, make_injection
from ackproof.network.wire import Refused
from ackproof.observe import committed
from ackproof.rundir.clock import RunClock
from ackproof.rundir.committed import GroupOffsets
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import OffsetsReset, Timeline, read_timeline

ORDERS = TopicPartition("orders", 0)
MEMBER = """
import sys, threading, time
pace = [0.002]
def listen():
    for line in sys.stdin:
        word, _, seconds = line.strip().partition(" ")
        pace[0] = float(seconds or 0.002)
threading.Thread(target=listen, daemon=True).start()
while True:
    time.sleep(pace[0])
    print('{"e":"processed"}', flush=True)
"""


class FakeMembers:
    """Processes that print a line for each record, in place of members. `listed` returns the ids of the members that
    the coordinator lists: by default those that run. `owned`: by id, the partitions that it lists. `static`: True if it
    lists static members. `deaf`: True if members ignore requests, also for another protocol."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.children: dict[str, Child] = {}
        self.inputs: dict[str, IO[bytes] | None] = {}
        self.groups: dict[str, str] = {}
        self.successors: dict[str, str] = {}
        self.killed: set[str] = set()
        self.protocol: GroupProtocol = "classic"
        self.protocols: dict[str, str] = {}
        self.owned: dict[str, frozenset[TopicPartition]] = {}
        self.listed: Callable[[], set[str]] = lambda: set(self.running())
        self.deaf = self.static = False

    def first_of(self, name: str) -> str:
        """Return the member with which the chain of replacements up to `name` began. A classic coordinator lists a
        static member under the `client.id` of the first one."""
        before = {later: earlier for earlier, later in self.successors.items()}
        while name in before:
            name = before[name]
        return name

    def at_work(self, client_id: str) -> bool:
        return client_id in self.running()

    def start_member(self, group: str) -> str:
        name = f"g{len(self.children)}"
        with self.output(name).open("wb") as output:
            command = [sys.executable, "-c", MEMBER]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output)
        self.children[name], self.inputs[name] = Child(process, name), process.stdin
        self.groups[name], self.protocols[name] = group, self.protocol
        return name

    def running(self) -> Mapping[str, ClientProcess]:
        return {
            name: ClientProcess(name, child.pid, child.started)
            for name, child in self.children.items()
            if child.poll() is None
        }

    def group_of(self, client_id: str) -> str:
        return self.groups[client_id]

    def stop_member(self, client_id: str) -> None:
        self.children[client_id].kill()

    def replace(self, client_id: str) -> str:
        if client_id not in self.successors:
            self.successors[client_id] = self.start_member(self.groups[client_id])
        return self.successors[client_id]

    def successor(self, client_id: str) -> str | None:
        while client_id in self.successors:
            client_id = self.successors[client_id]
        return None if client_id in self.killed else client_id

    def find(self, client_id: str) -> SimpleNamespace:
        return SimpleNamespace(successor=self.successors.get(client_id))

    def use_protocol(self, _: str, protocol: GroupProtocol) -> None:
        self.protocol = "classic" if self.deaf else protocol

    def tell(self, client_id: str, line: str) -> None:
        stream = self.inputs[client_id]
        if not self.deaf and stream is not None:
            stream.write(f"{line}\n".encode())
            stream.flush()

    def output(self, client_id: str) -> Path:
        return self.folder / f"{client_id}.jsonl"

    def describe(self, group: str) -> GroupDescription:
        listed = [
            GroupMember(
                f"ackproof-{self.first_of(name) if self.static else name}",
                "ackproof-billing-0" if self.static else "",
                self.protocols[name],
                self.owned.get(name, frozenset()),
            )
            for name in sorted(self.listed())
            if self.groups[name] == group
        ]
        return GroupDescription(group, 2, "Stable", self.protocol, tuple(listed))


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMembers]:
    made = FakeMembers(tmp_path)
    for group in ("billing", "billing", "audit"):
        made.start_member(group)
    monkeypatch.setattr(views, "describe_group", lambda links, group, consumer: made.describe(group))
    yield made
    for name, child in made.children.items():
        child.kill()
        if (stream := made.inputs[name]) is not None:
            stream.close()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((views, "LEFT_WITHIN_S"), (views, "READY_WITHIN_S"), (slow_member, "WITHIN_S")):
        monkeypatch.setattr(module, name, 0.3)


def make(
    kind: type[FaultSpec], groups: FakeMembers | None, timeline: Timeline | None = None, **fields: object
) -> Injection[Any]:
    cluster = SimpleNamespace(
        spec=SimpleNamespace(kafka=SimpleNamespace(version="4.4.0")),
        running_links=dict,
        topic_state=lambda topics: {ORDERS: None},
        partition_ends=lambda topics: {ORDERS: PartitionEnds(1, 0, 5, 100, 100, 100)},
    )
    spec = SimpleNamespace(input_of=lambda group: ("orders",))
    case = cast("Any", SimpleNamespace(seed=7, experiment=spec))
    fault = kind.model_validate({"number": 1, "trigger": TimeTrigger(0.0), **fields})
    context = FaultContext(
        cast("Any", cluster), threading.Event(), case, timeline=timeline, groups=cast("Any", groups)
    )
    return make_injection(fault, Aim(), context)


# -- whom -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("member", "members", "member(3)", "member(billing)", "members(billing)"),
        *("owner(orders/0)", "owner(billing, orders/11)", "producers", "reader(2)"),
    ],
)
def test_a_selector_is_read_as_it_is_written(text: str) -> None:
    assert str(ClientSelector.parse(text)) == text


def test_members_are_those_of_their_group_and_the_owner_is_asked_for(groups: FakeMembers) -> None:
    def hit(whom: str) -> list[str]:
        return [one.id for one in cast("Any", make(PauseClient, groups, client=whom)).choose()]

    assert hit("members") == ["g0", "g1", "g2"]
    assert hit("members(billing)") == ["g0", "g1"]
    assert hit("member(audit)") == ["g2"]
    assert hit("member(1)") == ["g1"]
    groups.owned = {"g1": frozenset({ORDERS}), "g2": frozenset({ORDERS})}
    assert hit("owner(billing, orders/0)") == ["g1"]


def test_a_static_member_is_listed_under_the_client_id_of_the_one_that_it_replaced(
    groups: FakeMembers,
) -> None:
    groups.static = True
    groups.children["g0"].kill()
    groups.replace("g0")
    groups.owned = {"g3": frozenset({ORDERS})}
    owner = cast("Any", make(PauseClient, groups, client="owner(billing, orders/0)"))
    assert [one.id for one in owner.choose()] == ["g3"]
    assert "coordinator" in cast("Any", make(BounceMembers, groups, group="billing")).await_listed(
        ["g3"], ["g0"]
    )


def test_no_owner_is_no_target(groups: FakeMembers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ackproof.faults.clients.client.OWNED_WITHIN_S", 0.2)
    with pytest.raises(FaultNotConfirmed, match="a coordinator to name the owner of orders/0"):
        make(PauseClient, groups, client="owner(billing, orders/0)").inject()


def test_the_coordinator_of_a_group_leads_its_partition() -> None:
    place = TopicPartition("__consumer_offsets", committed.partition_of_group("billing", 50))
    states = {
        TopicPartition(place.topic, number): PartitionState(place.topic, number, 3, 0, (3,), (3,))
        for number in range(50)
    }
    states[place] = PartitionState(*place, 2, 4, (2, 3), (2, 3))
    cluster = SimpleNamespace(
        spec=SimpleNamespace(members=SimpleNamespace(racks={})),
        brokers=lambda: [SimpleNamespace(id=number) for number in (1, 2, 3)],
        controllers=list,
        topic_state=lambda topics: states if topics == [place.topic] else {},
    )
    role = Role.parse("coordinator(billing)")
    assert str(role) == "coordinator(billing)"
    assert find_holders(cast("Any", cluster), role, (1, 2, 3), threading.Event()) == (2,)


# -- members --------------------------------------------------------------------------------------------------------


def test_members_join_and_leave_again(groups: FakeMembers) -> None:
    join = make(JoinGroup, groups, group="billing", count=2)
    assert join.inject() == "started g3, g4"
    assert join.clients == ["g3", "g4"]
    assert "ackproof-g0, ackproof-g1, ackproof-g3, ackproof-g4" in join.confirm()
    assert join.heal() == "stopped g3, g4"
    assert "g3, g4 ended" in join.confirm_healed()


def test_a_join_that_no_coordinator_sees_is_not_confirmed(groups: FakeMembers, hurried: None) -> None:
    groups.listed = lambda: {"g0", "g1", "g2"}
    (join := make(JoinGroup, groups, group="billing")).inject()
    with pytest.raises(
        FaultNotConfirmed, match=r"coordinator of billing to list g3.*with ackproof-g0, ackproof-g1"
    ):
        join.confirm()


def test_members_leave_and_others_take_their_places(groups: FakeMembers) -> None:
    leave = make(LeaveGroup, groups, group="billing", count="all")
    leave.inject()
    assert sorted(leave.clients or ()) == ["g0", "g1"]
    assert "with no member" in leave.confirm()
    leave.heal()
    assert "ackproof-g3, ackproof-g4" in leave.confirm_healed()


def test_a_replacement_that_another_fault_killed_is_not_named_as_started(groups: FakeMembers) -> None:
    leave = make(LeaveGroup, groups, group="billing", count="all")
    leave.inject()
    dead = groups.replace("g0")
    groups.children[dead].kill()
    groups.killed.add(dead)
    assert (dead, leave.heal()) == ("g3", "started g4")


def test_a_member_that_stays_listed_has_not_left(groups: FakeMembers, hurried: None) -> None:
    groups.listed = lambda: {"g0", "g1"}
    (leave := make(LeaveGroup, groups, group="billing")).inject()
    with pytest.raises(FaultNotConfirmed, match="to no longer list g"):
        leave.confirm()


def test_nobody_leaves_an_empty_group_or_no_group(groups: FakeMembers) -> None:
    with pytest.raises(FaultNotConfirmed, match="no consumer group of ours runs here"):
        make(JoinGroup, None, group="billing").inject()
    groups.stop_member("g2")
    with pytest.raises(FaultNotConfirmed, match="no member of audit runs"):
        make(LeaveGroup, groups, group="audit").inject()


def test_members_are_replaced_one_by_one(groups: FakeMembers) -> None:
    (bounce := make(BounceMembers, groups, group="billing")).inject()
    assert "g0 ended" in bounce.confirm()
    assert set(groups.running()) == {"g1", "g2", "g3"}
    assert bounce.heal() == "started g3 for g0, g4 for g1"
    assert "ackproof-g3, ackproof-g4" in bounce.confirm_healed()


def test_a_migration_needs_members_of_the_other_protocol(groups: FakeMembers, hurried: None) -> None:
    migrate = make(MigrateGroup, groups, group="billing", to="consumer")
    migrate.inject()
    migrate.confirm()
    migrate.heal()
    assert "billing (consumer) is Stable" in migrate.confirm_healed()
    groups.deaf = True
    (again := make(MigrateGroup, groups, group="audit", to="consumer")).inject()
    with pytest.raises(FaultNotConfirmed, match="coordinator of audit"):
        again.confirm()


# -- offsets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("to", "offset"), [("earliest", 5), ("latest", 100), (50, 50), (1, 5), (900, 100)])
def test_an_operator_resets_offsets_and_the_timeline_tells_it(
    groups: FakeMembers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str | int, offset: int
) -> None:
    held = {ORDERS: 60}
    monkeypatch.setattr(kinds, "commit_as_operator", lambda links, group, wanted: held.update(wanted) or 2)
    answer = lambda cluster, group, stop: GroupOffsets(  # noqa: E731
        group=group, offsets=tuple((*place, value) for place, value in held.items())
    )
    monkeypatch.setattr(committed, "ask_coordinator", answer)
    path = tmp_path / "timeline.jsonl"
    with Timeline(path, RunClock.start()) as timeline:
        reset = make(ResetOffsets, groups, timeline, group="billing", to=to, stop_members=True)
        reset.inject()
        assert set(groups.running()) == {"g2"}
        assert f"orders/0: {offset}" in reset.confirm()
        assert reset.heal() == "started g3, g4"
        assert "ackproof-g3, ackproof-g4" in reset.confirm_healed()
    (event,) = read_timeline(path)[0]
    what = event.what
    assert isinstance(what, OffsetsReset)
    assert (what.group, what.offsets) == ("billing", (("orders", 0, 60, offset),))
    assert 0 < what.begun_ns <= event.t_ns
    held[ORDERS] = 7
    monkeypatch.setattr(kinds, "SEEN_WITHIN_S", 0.2)
    with pytest.raises(FaultNotConfirmed, match="OffsetFetch to say what was committed"):
        reset.confirm()


def test_kafka_refuses_the_reset_of_a_living_group(
    groups: FakeMembers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise Refused("offset of orders/0 for billing", 25)

    monkeypatch.setattr(kinds, "commit_as_operator", refuse)
    monkeypatch.setattr(committed, "ask_coordinator", lambda *_: GroupOffsets(group="billing"))
    with Timeline(tmp_path / "timeline.jsonl", RunClock.start()) as timeline:
        reset = make(ResetOffsets, groups, timeline, group="billing", to="earliest")
        with pytest.raises(FaultNotConfirmed, match="has members: write stop_members: true"):
            reset.inject()
        assert reset.heal() == "nothing to undo"
    assert read_timeline(tmp_path / "timeline.jsonl")[0] == []


# -- slow members ---------------------------------------------------------------------------------------------------


def test_a_member_is_slow_for_a_while(groups: FakeMembers) -> None:
    slow = make(SlowMember, groups, client="member(billing)", record_time=1.0)
    slow.inject()
    assert "processed nothing for 0.8 s" in slow.confirm()
    slow.heal()
    assert "processed two records within 0.8 s" in slow.confirm_healed()


def test_a_member_that_does_not_listen_is_not_slow(groups: FakeMembers, hurried: None) -> None:
    groups.deaf = True
    (slow := make(SlowMember, groups, client="member(0)", record_time=0.5)).inject()
    with pytest.raises(FaultNotConfirmed, match=r"member g0 to process nothing for 0\.4 s"):
        slow.confirm()
