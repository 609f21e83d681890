"""Finds consequences of a plan that are known before the run.

These are faults that find nothing to break (errors), settings and triggers that the author probably did not mean
(warnings), and the estimated duration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import permutations
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from ackproof.base.errors import FaultNotConfirmed
from ackproof.base.units import duration_text, rate_text, rough_duration
from ackproof.experiment.case import Case
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import FaultSpec, Grip
from ackproof.experiment.problems import Path
from ackproof.experiment.promises import Promises
from ackproof.experiment.roles import Role, RoleKind
from ackproof.experiment.setting_effects import unknown_setting
from ackproof.experiment.triggers import COUNT_WITHIN_S, COUNTS, ChainTrigger, StateTrigger, TimeTrigger
from ackproof.faults.command import CommandFault
from ackproof.faults.life import FIRST_ACKS_BOUND_S
from ackproof.faults.links.spec import LinkFault
from ackproof.faults.processes import Kill, Pause, Stop
from ackproof.faults.storm import Storm
from ackproof.plan.diagnostics import Problems

if TYPE_CHECKING:
    from ackproof.faults.planned.topics import SetConfig

_MIN_INSYNC: Final = "min.insync.replicas"
_RUN_S: Final = 12.0
"""Seconds of a run of three brokers in addition to its load, on two idle cores: start, drain, final read, verdict."""
_AUDIT_S: Final = 20.0
"""Seconds for the audit and the report of a batch."""
Since: TypeAlias = Callable[[int | None, int], tuple[float, float] | None]
"""Function of two fault numbers. It returns the fewest and the most seconds from the confirmation of the first fault to
the beginning of the second. If the first number is None, they count from the start of the load. It returns None if the
seconds are unknown."""
LATE_S: Final = 1.0
"""Seconds by which a fault may begin late on a busy machine."""


def look_for_doubts(spec: ExperimentSpec, found: Problems) -> None:
    """Add warnings to `found`: settings, faults and triggers that the author probably did not mean, and Kafka versions
    whose protocol rules are assumed (`KafkaBuild.assumption`)."""
    for name, topic in spec.topics.items():
        _above_the_factor(spec, name, topic.replication_factor, found)
    builds = [
        (("cluster", "kafka"), spec.cluster.kafka),
        *((("faults", one.number - 1, one.kind, "to"), build) for one in spec.faults for build in one.builds),
    ]
    for path, build in builds:
        if build.assumption:
            found.warn(path, build.assumption)
    _look_at_settings(spec, found)
    for fault in spec.faults:
        entry: Path = ("faults", fault.number - 1)
        match fault.trigger:
            case StateTrigger() as trigger if why := _out_of_reach(spec, trigger):
                without = (
                    ""
                    if trigger.at_latest
                    else f", and without fault {fault.number} the case is INCONCLUSIVE"
                )
                found.warn(
                    (*entry, "when"), f"{why}{without}", "ask for less, or give workload.duration more"
                )
            case StateTrigger() as trigger if trigger.at_latest is None and not trigger.awaited:
                without = f"without fault {fault.number} the case is INCONCLUSIVE"
                found.warn((*entry, "when"), f"this may never come, and {without}", "give it at_latest")
            case TimeTrigger() as trigger if trigger.at > spec.workload.duration:
                least, asked = duration_text(load_s(spec)), duration_text(spec.workload.duration)
                found.warn(
                    (*entry, "at"),
                    f"beyond the workload's duration of {asked}",
                    f"the load goes on for it, {least} or longer",
                )
        words = " ".join(fault.inject).replace("=", " ").split() if isinstance(fault, CommandFault) else ()
        if {"--alter", "--partitions"} <= set(words):  # arguments of kafka-topics.sh
            found.warn(
                (*entry, fault.kind, "inject"),
                "nobody reads partitions that it adds: producers, readers and the final read know those of the file",
                "give the topic so many from the start",
            )
        _warn_of_silence(spec, fault, (*entry, fault.kind), found)
        _warn_of_lost_quorum(spec, fault, (*entry, fault.kind), found)


def _look_at_settings(spec: ExperimentSpec, found: Problems) -> None:
    if not spec.cluster.kafka.is_known or spec.ground.foreign:
        return
    cluster: Path = ("cluster",)
    places: list[tuple[Path, Mapping[str, str]]] = [((*cluster, "config"), spec.cluster.config)]
    places += [
        ((*cluster, "broker_config", str(broker)), config)
        for broker, config in spec.cluster.broker_config.items()
    ]
    changes = [cast("SetConfig", fault) for fault in spec.faults if fault.kind == "set"]
    places += [
        (("faults", change.number - 1, change.kind, "config"), change.config)
        for change in changes
        if change.topic is None
    ]
    for path, config in places:
        for name in config:
            if why := unknown_setting(name, spec.cluster.kafka.version):
                found.warn((*path, name), why, key=True)


def _above_the_factor(spec: ExperimentSpec, name: str, factor: int, found: Problems) -> None:
    places: tuple[Path, ...] = (("topics", name, "config"), ("cluster", "config"))
    for place in places:
        node = found.node((*place, _MIN_INSYNC))
        if node is None:
            continue
        asked = (spec.topics[name] if place[0] == "topics" else spec.cluster).config[_MIN_INSYNC]
        if asked.isdecimal() and int(asked) > factor:
            why = f"{name} has {factor} replicas, fewer than {asked}: brokers take {factor} in its place"
            found.warn((*place, _MIN_INSYNC), why)
        return


def _warn_of_silence(spec: ExperimentSpec, fault: FaultSpec, path: Path, found: Problems) -> None:
    """Warn if a fault leaves nodes down or paused for the rest of the load, and no partition can acknowledge anything
    without them. Does nothing if another fault may start a node again, or change a topic or a setting."""
    gone = isinstance(fault, Kill | Stop | Pause) and fault.hold is None and not spec.ground.foreign
    if not gone or begins(spec, fault) >= spec.workload.duration:
        return
    for other in spec.faults:
        starts_none = isinstance(other, Kill | Stop | Pause) and other.hold is None
        if other is not fault and not (starts_none or isinstance(other, LinkFault)):
            return  # this fault may start a node, or change a topic or a setting
    left = [_count_replicas_left(spec, fault.targets, topic) for topic in spec.topic_names()]
    to_all = spec.workload.producers.acks == "all"
    needed = [
        Promises.from_experiment(spec, topic).min_insync if to_all else 1 for topic in spec.topic_names()
    ]
    if any(have >= need for have, need in zip(left, needed, strict=True)):
        return
    replicas = f"{left[0]} of {spec.topics[spec.topic_names()[0]].replication_factor} replicas"
    told = f"from then on nothing can be acknowledged: {replicas} are left at most, and it takes {needed[0]}"
    found.warn(path, told, f"give it {fault.HOLD_KEY}", key=True)


def _warn_of_lost_quorum(spec: ExperimentSpec, fault: FaultSpec, path: Path, found: Problems) -> None:
    every, members = spec.cluster.controller_ids, spec.cluster.members
    targets = fault.targets if fault.grip or fault.kind == "detach" else ()
    for role in (role for target in targets for role in target.roles):
        hit = [node for node in members.nodes_by_rack.get(role.rack or "", ()) if node in every]
        if 2 * len(hit) >= len(every):
            found.warn(
                path,
                f"{role} has {len(hit)} of {len(every)} controllers ({', '.join(map(str, hit))}), and no majority is "
                "left: no leader is elected until they are back",
                "controller_racks puts them elsewhere",
            )


def _count_replicas_left(spec: ExperimentSpec, targets: tuple[Role, ...], topic: str) -> int:
    """Return the greatest number of replicas that a partition of the topic can still have while the nodes in the roles
    `targets` are down.

    Exact for named brokers together, and for the roles `leader`, `follower` and `followers` of a topic's only
    partition together. Otherwise a bound: a named or drawn broker, or the preferred leader, may also
    hold another role of the partition.
    """
    factor, brokers = spec.topics[topic].replication_factor, set(spec.cluster.broker_ids)
    named, drawn, kinds = set[int](), 0, set[RoleKind]()
    for role in (role for target in targets for role in target.roles):
        nodes, hit = role.reach(spec.cluster.members)
        if hit == len(nodes):
            named |= nodes & brokers
        elif nodes <= brokers:
            drawn = max(drawn, hit)
        if role.topic == topic and spec.topics[topic].partitions == 1:
            kinds.add(role.kind)
    followers = factor - 1 if RoleKind.FOLLOWERS in kinds else int(RoleKind.FOLLOWER in kinds)
    leader = bool(kinds & {RoleKind.LEADER, RoleKind.ISR})
    down = max(followers + leader, RoleKind.PREFERRED_LEADER in kinds)
    return min(factor - down, len(brokers) - max(len(named), drawn), factor)


def begins(spec: ExperimentSpec, fault: FaultSpec) -> float:
    """Return the earliest time at which a fault can begin, in seconds after the start of the workload (`at: 0s`, see
    `experiment.triggers`). It is 0 for a fault that waits for a state (`when`)."""
    match fault.trigger:
        case TimeTrigger() as trigger:
            return trigger.at
        case ChainTrigger() as trigger:
            first = next(one for one in spec.faults if one.number == trigger.fault)
            return trigger.by + begins(spec, first)
    return 0.0


def load_s(spec: ExperimentSpec) -> float:
    """Return the minimum duration of the load in seconds: the duration in the file, or longer if a fault cannot
    have healed before."""
    healed = (begins(spec, fault) + (fault.hold or 0.0) for fault in spec.faults)
    return max(spec.workload.duration, *healed, 0.0)


def _out_of_reach(spec: ExperimentSpec, trigger: StateTrigger) -> str | None:
    """Return why the load is too short for a trigger's count, such as `acked >= 2000`. Return None if it is long
    enough, or if the number of records is not known in advance. Also return None for a trigger that does not wait until
    a count of records has grown to a value."""
    condition, rate = trigger.condition, spec.workload.producers.rate
    growing = condition.gauge in COUNTS and condition.op in {">", ">=", "=="}
    if rate is None or not growing or any(fault.SENDS for fault in spec.faults):
        return None
    rate *= spec.workload.consumers.live if condition.gauge == "read" else 1
    given_s = load_s(spec) if trigger.at_latest is None else trigger.at_latest
    given_s += COUNT_WITHIN_S if trigger.awaited else 0
    # Some records are acknowledged before the clock starts, which waits for an acknowledgement on every partition.
    if not rate or rate * (given_s + FIRST_ACKS_BOUND_S) >= condition.value:
        return None
    takes, given, most = rough_duration(condition.value / rate), rough_duration(given_s), rate * given_s
    return (
        f"{condition} never comes: it takes {takes} at {rate_text(rate)}, and in {given} there are {most:.0f}"
    )


def estimate(cases: Iterable[Case]) -> Iterator[str]:
    """Yield a line with the estimated duration of the cases on real brokers, in sequence; nothing if all cases are
    simulated."""
    loads = [load_s(case.planned) for case in cases if not case.experiment.ground.simulated]
    if loads:
        load, rest = sum(loads), _RUN_S * len(loads) + _AUDIT_S
        yield (
            f"estimate: about {rough_duration(load + rest)} for {len(loads)} run(s): {rough_duration(load)} of load, "
            f"{rough_duration(rest)} of start-up, final read and audit; longer on a busy machine"
        )


def check_meetings(spec: ExperimentSpec, found: Problems) -> None:
    """Report to `found` each fault that finds nothing to break, because another fault is certainly in force when it
    begins. Does nothing if a fault is a user's command (`FaultSpec.UNPREDICTABLE`)."""
    if any(fault.UNPREDICTABLE for fault in spec.faults) or not found.sound_below(("cluster",)):
        return  # the effect of a user's commands on nodes is unknown
    sound = {fault.number: fault for fault in spec.faults if found.sound_below(("faults", fault.number - 1))}
    since = _build_clock(sound)
    for first, second in permutations(sound.values(), 2):
        entry: Path = ("faults", second.number - 1)
        if not _surely_meet(first, second, since, spec) or not found.sound((*entry, second.kind)):
            continue
        try:
            why = second.at_odds(first, spec)
        except FaultNotConfirmed:
            continue  # one of them is aimed at nothing, which the run will report
        if why:
            until = "for good" if first.hold is None else "by then"
            ends = (
                f"give fault {first.number} {first.HOLD_KEY}" if first.hold is None else "let it begin later"
            )
            found.report(
                (*entry, second.kind),
                f"nothing to break: fault {first.number} ({first}) {why} {until}",
                f"{ends}, or aim it elsewhere",
                key=True,
            )


def _surely_meet(first: FaultSpec, second: FaultSpec, since: Since, spec: ExperimentSpec) -> bool:
    """Return True if the second fault certainly begins while the effect of the first lasts."""
    if first.keeps(spec) is Grip.STILL and any(
        other.GRIP is Grip.DOWN or isinstance(other, Storm) for other in spec.faults if other is not second
    ):
        return False  # another fault may end that process and start a new one
    span = since(first.number, second.number)
    if span is None:
        base = first.trigger.fault if isinstance(first.trigger, ChainTrigger) else None
        mine, its = since(base, second.number), since(base, first.number)
        if mine is None or its is None:
            return False
        span = mine[0] - its[1] - first.IN_FORCE_S, mine[1] - its[0]
    return span[0] >= 0 and span[1] + LATE_S <= first.lasts


def _build_clock(faults: Mapping[int, FaultSpec]) -> Since:
    """Return a function that gives the fewest and the most seconds between two of these faults (see `Since`). The
    trigger `after` names an earlier fault: such times are added up along the chain. `faults`: faults by number."""

    @cache
    def since(base: int | None, number: int) -> tuple[float, float] | None:
        match faults[number].trigger:
            case TimeTrigger(at) if base is None:
                return at, at
            case ChainTrigger(before, by) if before == base:
                return by, by
            case ChainTrigger(before, by) if before in faults and (begun := since(base, before)) is not None:
                return begun[0] + by, begun[1] + faults[before].IN_FORCE_S + by
        return None

    return since
