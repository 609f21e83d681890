"""What goes wrong, counted in the explorer's words: as a case plans it, and as a run showed it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.node_settings import SESSION_TIME_OUT, time_out
from ackproof.experiment.roles import Role, RoleKind, minority_of
from ackproof.faults.clocks.specification import ClockJump
from ackproof.faults.crashes.specification import CrashLoop
from ackproof.faults.disks.slow import SLOW_WITHIN_S
from ackproof.faults.disks.specification import SlowDisk
from ackproof.faults.links.specification import IsolateFault, LinkFault
from ackproof.faults.rollouts.specification import Decommission


class Incidents(NamedTuple):
    """How often each kind of thing happens to brokers that hold the partition (`explore.scope.Budget`)."""

    kills: int = 0
    power_losses: int = 0
    clean_stops: int = 0
    cuts: int = 0
    shrinks: int = 0
    preferred: int = 0
    hand_overs: int = 0
    unclean: int = 0

    def plus(self, other: Incidents) -> Incidents:
        """Both together."""
        return Incidents(*(mine + its for mine, its in zip(self, other, strict=True)))

    def most(self, other: Incidents) -> Incidents:
        """The larger of each."""
        return Incidents(*(max(mine, its) for mine, its in zip(self, other, strict=True)))

    def __str__(self) -> str:
        return ", ".join(f"{name}={count}" for name, count in self._asdict().items() if count) or "nothing"


NOTHING: Final = Incidents()
ROT: Final = frozenset({"flip_bits", "truncate_segment", "delete_checkpoint"})
_HARMLESS: Final = frozenset(
    {
        "storm",
        "kill_client",
        "pause_client",
        "fence_producer",
        "recreate",
        "set",
        "move_log_dir",
    }
)
"""Nothing happens to replicas: a storm's draws count one by one, settings count as rules (`Promises`)."""


def unpredictable(fault: FaultSpec) -> str:
    """Why no prediction can be made with this fault; empty when one can."""
    if fault.kind in ROT:
        return f"{fault.kind}: files of a log that rot are not in the model"
    if fault.kind == "command":
        return "command: nobody knows what a command does"
    if fault.kind not in _PLANNED and fault.kind not in _HARMLESS:
        return f"{fault.kind}: the model has no such fault"
    return ""


def planned(case: Case, topic: str) -> Iterator[tuple[FaultSpec, Incidents]]:
    """What each fault of a case comes to for a partition of this topic, as far as its duration lets it bite."""
    for fault in case.faults:
        count = _PLANNED.get(fault.kind)
        if count is not None:
            yield fault, count(_Planned(case, topic), fault)


def of_nodes(fault: FaultSpec, nodes: int) -> Incidents:
    """What an injected fault of so many brokers comes to, beside what the controllers' log tells by itself."""
    if fault.kind in _CRASHES:
        return Incidents(
            kills=nodes * (fault.times if isinstance(fault, CrashLoop) else _CRASHES[fault.kind])
        )
    if fault.kind in _LOSSES_OF_DISK:
        return Incidents(power_losses=nodes)
    if fault.kind in _STOPS:
        return Incidents(clean_stops=nodes)
    if isinstance(fault, Decommission):
        return Incidents(clean_stops=nodes) if fault.drain else Incidents(kills=nodes)
    return NOTHING


_CRASHES: Final[Mapping[str, int]] = {
    "kill": 1,
    "kill_starting": 2,
    "crash_loop": 2,
    "out_of_memory": 1,
    # A broker whose only log dir fails ends itself (LogManager.handleLogDirFailure).
    "full_disk": 1,
    "fail_log_dir": 1,
}
_LOSSES_OF_DISK: Final = frozenset({"power_loss", "empty_disk"})
"""An emptied disk is taken as a loss of power that nothing survived."""
_STOPS: Final = frozenset({"stop", "restart", "rolling_restart", "upgrade"})


class _Planned(NamedTuple):
    case: Case
    topic: str

    @property
    def replicas(self) -> int:
        return self.case.experiment.topics[self.topic].replication_factor

    def brokers(self, role: Role) -> int:
        """How many brokers with a replica of the topic can hold this role at once."""
        cluster, rf = self.case.experiment.cluster, self.replicas
        controllers = 0
        if cluster.mode == "zookeeper":
            controllers = 1
        elif cluster.combined:
            controllers = 1 if role.kind is RoleKind.CONTROLLER else cluster.brokers
        holders = {
            RoleKind.FOLLOWERS: rf - 1,
            RoleKind.ISR: rf,
            RoleKind.BROKERS: cluster.brokers,
            RoleKind.MINORITY: minority_of(cluster.brokers),
            RoleKind.MAJORITY: cluster.brokers - minority_of(cluster.brokers),
            RoleKind.CONTROLLER: controllers,
            RoleKind.CONTROLLERS: controllers,
            RoleKind.ZOOKEEPER: 0,
        }
        return min(holders.get(role.kind, 1), rf)

    def aimed_at(self, fault: FaultSpec) -> int:
        return min(sum(self.brokers(role) for role in fault.targets), self.replicas)

    def lasts(self, fault: FaultSpec, *settings: str) -> bool:
        """Whether it lasts as long as the shortest of these time-outs, in force at any broker."""
        if fault.hold is None:
            return True
        return fault.hold * 1000 >= min(time_out(self.case.experiment.cluster, name) for name in settings)

    def noticed(self, fault: FaultSpec, nodes: int) -> Incidents:
        """Brokers that stand still: fenced when their session ends, or dropped from the ISR as slow."""
        session = SESSION_TIME_OUT[self.case.experiment.cluster.mode]
        if self.lasts(fault, session):
            return Incidents(cuts=nodes)
        return Incidents(shrinks=nodes) if self.lasts(fault, _LAG) else NOTHING


_LAG: Final = "replica.lag.time.max.ms"


def _nodes(plan: _Planned, fault: FaultSpec) -> Incidents:
    whole_cluster = fault.kind in {"upgrade"}
    return of_nodes(fault, plan.replicas if whole_cluster else plan.aimed_at(fault))


def _stand_still(plan: _Planned, fault: FaultSpec) -> Incidents:
    return plan.noticed(fault, plan.aimed_at(fault))


def _expired(plan: _Planned, fault: FaultSpec) -> Incidents:
    return Incidents(cuts=plan.aimed_at(fault))


def _link(plan: _Planned, fault: FaultSpec) -> Incidents:
    assert isinstance(fault, LinkFault)
    source, target = fault.link.source, fault.link.target
    if source is None:
        return NOTHING
    ends = (source, target)
    keepers = {RoleKind.CONTROLLER, RoleKind.CONTROLLERS, RoleKind.ZOOKEEPER}
    if any(role.kind in keepers for role in ends):
        others = [role for role in ends if role.kind not in keepers]
        return plan.noticed(fault, min(sum(map(plan.brokers, others)), plan.replicas))
    if not plan.lasts(fault, _LAG):
        return NOTHING
    return Incidents(shrinks=min(max(map(plan.brokers, ends)), plan.replicas - 1))


def _isolated(plan: _Planned, fault: FaultSpec) -> Incidents:
    assert isinstance(fault, IsolateFault)
    nodes, away = plan.aimed_at(fault), set(fault.away_from)
    if away & {"controllers", "all"}:
        return plan.noticed(fault, nodes)
    # A leader that is cut off drops every follower.
    dropped = plan.replicas - 1 if nodes else 0
    return Incidents(shrinks=dropped) if away - {"clients"} and plan.lasts(fault, _LAG) else NOTHING


def _groups(plan: _Planned, fault: FaultSpec) -> Incidents:
    return plan.noticed(fault, max(1, plan.replicas - 1))


def _slow(plan: _Planned, fault: FaultSpec) -> Incidents:
    """A follower that cannot append lags; a leader that serves nobody drops all its followers.

    It lasts longer than `for`, which counts from its confirmation: that waits for a write of ours. Nobody is fenced for
    a slow disk, for heartbeats write nothing; but who cannot append to the metadata log for a whole session does not
    learn that another controller is the active one. A ZooKeeper server answers no ping behind a write that waits.
    """
    assert isinstance(fault, SlowDisk)
    cluster, role = plan.case.experiment.cluster, fault.target
    stalls_past_session = fault.stall * 1000 >= time_out(cluster, SESSION_TIME_OUT[cluster.mode])
    if role.kind is RoleKind.ZOOKEEPER:
        return Incidents(cuts=plan.replicas if stalls_past_session else 0)
    nodes = plan.aimed_at(fault)
    most = None if fault.hold is None else fault.hold + 3 * fault.stall + SLOW_WITHIN_S
    if not nodes or (most is not None and most * 1000 < time_out(cluster, _LAG)):
        return NOTHING
    alone = len(plan.case.faults) == 1
    only_follows = (
        alone
        and role.kind in (RoleKind.FOLLOWER, RoleKind.FOLLOWERS)
        and role.topic == plan.topic
        and plan.case.experiment.topics[plan.topic].partitions == 1
    )
    may_move = (cluster.combined or not alone) and cluster.mode == "kraft" and cluster.log_dirs == 1
    return Incidents(
        shrinks=nodes if only_follows else max(nodes, plan.replicas - 1),
        cuts=nodes if may_move and stalls_past_session else 0,
    )


def _shifted(plan: _Planned, fault: FaultSpec) -> Incidents:
    """A leader counts by its wall clock how long its followers have lagged; set right, it jumps the other way."""
    assert isinstance(fault, ClockJump)
    far = abs(fault.by) * 1000 >= time_out(plan.case.experiment.cluster, _LAG)
    return Incidents(shrinks=plan.replicas - 1) if far and plan.aimed_at(fault) else NOTHING


def _moved(_plan: _Planned, _fault: FaultSpec) -> Incidents:
    return Incidents(hand_overs=1)


def _preferred(_plan: _Planned, _fault: FaultSpec) -> Incidents:
    return Incidents(preferred=1, hand_overs=1)


def _uncleanly(_plan: _Planned, _fault: FaultSpec) -> Incidents:
    return Incidents(unclean=1)


def _of_controllers(_plan: _Planned, _fault: FaultSpec) -> Incidents:
    """Without a quorum no metadata can change, so nothing is elected, fenced or dropped; and whoever is the active
    controller next gives each broker a whole session."""
    return NOTHING


_LINKS: Final = (
    *("cut", "black_hole", "reset", "throttle", "delay"),
    *("loss", "drop_large", "slow_close", "flap"),
)
_PLANNED: Final[Mapping[str, Callable[[_Planned, FaultSpec], Incidents]]] = {
    **dict.fromkeys([*_CRASHES, *_LOSSES_OF_DISK, *_STOPS, "decommission"], _nodes),
    **dict.fromkeys(["pause", "starve"], _stand_still),
    **dict.fromkeys(_LINKS, _link),
    **dict.fromkeys(["split", "bridge"], _groups),
    **dict.fromkeys(["reassign", "cancel_reassign"], _moved),
    "slow_disk": _slow,
    "clock_jump": _shifted,
    "isolate": _isolated,
    "expire_session": _expired,
    "elect_preferred": _preferred,
    "elect_unclean": _uncleanly,
    "lose_quorum": _of_controllers,
    "remove_controller": _of_controllers,
}


def total(found: Sequence[Incidents]) -> Incidents:
    """All of them together."""
    result = NOTHING
    for one in found:
        result = result.plus(one)
    return result
