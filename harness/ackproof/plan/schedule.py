"""Describes the schedule of a case before anything starts (`ackproof plan`). It depends on the case alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from ackproof.base.units import duration_text, rate_text
from ackproof.experiment.case import Case, cell_of
from ackproof.experiment.client import ClientChoice
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import FaultSpec, trigger_text
from ackproof.experiment.roles import DRAWN, RoleKind, minority_of
from ackproof.experiment.timing import recovery_bounds, timing_name, timing_of
from ackproof.experiment.triggers import COUNT_WITHIN_S, StateTrigger
from ackproof.faults.life import UNABLE
from ackproof.faults.storm import Storm
from ackproof.plan.cases import pairs_of
from ackproof.plan.matrix import Plan
from ackproof.plan.paths import value_text
from ackproof.rundir.documents import group_timings
from ackproof.rundir.timeline import fault_name

PAIR_S: Final = 15.0
"""Estimated seconds for a pair of faults on two cores, from the first fault until the cluster has recovered from both.
"""
RUN_S: Final = 50.0
"""Estimated further seconds of each run: start, final read, logs, audit and judgement."""


def describe_fault(case: Case, fault: FaultSpec) -> str:
    """Return one fault of a case in words: its target, what the seed drew, its trigger and its end. The seed draws the
    brokers of some roles (such as `minority`), and the kinds of faults that a storm leaves out."""
    begins = trigger_text(fault)
    if isinstance(fault, Storm):
        left_out = case.drawn[fault.number].left_out if fault.number in case.drawn else ()
        draw = f"left out: {', '.join(left_out)}" if left_out else ""
        ends = f"ends when each fault that it drew has; at least {fault.least} must bite"
    else:
        draw, ends = _draw(case, fault), _describe_end(case, fault)
        if isinstance(fault.trigger, StateTrigger) and fault.trigger.awaited:
            begins += f" (for which the load goes on up to {duration_text(COUNT_WITHIN_S)} longer)"
    drawn = f" [{draw}]" if draw else ""
    return f"{fault_name(fault.number)}. {fault.kind} {fault.target_text}{drawn}: {begins}; {ends}"


def _describe_end(case: Case, fault: FaultSpec) -> str:
    if (why := case.unable.get(fault.number)) is not None:
        return f"missed, {UNABLE}: {why}"
    if fault.HOLD_KEY is None:
        return "ends by itself"
    return f"{fault.HEALING} " + (
        "when all else is over" if fault.hold is None else f"{duration_text(fault.hold)} later"
    )


def _draw(case: Case, fault: FaultSpec) -> str:
    order = case.order(fault)
    draws = []
    few = minority_of(len(order))
    for role in (role for target in fault.targets for role in target.walk()):
        if role.kind not in DRAWN or role.node is not None:
            continue
        if role.kind is RoleKind.FOLLOWER:
            draws.append(f"drawn: the first of {', '.join(map(str, order))} that is one")
        else:
            drawn = {RoleKind.MINORITY: order[:few], RoleKind.MAJORITY: order[few:]}.get(role.kind, order[:1])
            draws.append(f"drawn: {', '.join(map(str, sorted(drawn)))}")
    return "; ".join(draws)


def _by_client(experiment: ExperimentSpec, client: ClientChoice) -> str:
    """Return the client library and its release as ` (java 4.4.0)`; '' for the default client, of a file without
    `client`."""
    if client == ClientChoice():
        return ""
    return f" ({' '.join(filter(None, (client.library, client.release_for(experiment.cluster.kafka))))})"


def describe(case: Case) -> list[str]:
    """Return the case as lines of text: id and seed, cluster and workload, each fault, expectations."""
    experiment = case.experiment
    cluster, producers, readers = (
        experiment.cluster,
        experiment.workload.producers,
        experiment.workload.consumers,
    )
    controllers = "combined" if cluster.combined else f"{cluster.controllers} controller(s)"
    racks = cluster.members.rack_text
    ground = f"Kafka {cluster.kafka}, {cluster.brokers} broker(s), {controllers}, {experiment.backend}"
    if experiment.ground.foreign:
        ground = f"someone else's, {cluster.brokers} broker(s) expected; the run asks what it is"
    topics = ", ".join(
        f"{name} ({topic.partitions} × {topic.replication_factor})"
        for name, topic in experiment.topics.items()
    )
    lines = [
        f"{experiment.name} {case.id}  seed {case.seed}",
        *(
            f"  {path} = {'not set' if value is None else value_text(value)}"
            for path, value in case.settings.items()
        ),
        f"  cluster: {ground}",
        *([f"  racks: {racks}{'' if cluster.rack_aware else '; Kafka is not told'}"] if racks else []),
        f"  timing: {timing_name(experiment)}",
        f"  topics (partitions × replicas): {topics}",
        f"  load: {producers.count} producer(s){_by_client(experiment, producers.client)}, acks={producers.acks}, "
        f"{_pace(case)}, {readers.live} live reader(s){_by_client(experiment, readers.client)}{_start(experiment)}, "
        f"at least {duration_text(experiment.workload.duration)} and until all faults have healed",
    ]
    if (service := experiment.workload.service) is not None:
        target = "a store of its own" if service.output is None else service.output
        lines.append(
            f"  service: {service.count} × {service.command[0]}, from {service.input} to {target}, {service.promise}, "
            f"level {service.level}"
        )
    for name, group in experiment.workload.groups.items():
        output = "" if group.output is None else f" to {group.output}"
        metadata = "" if group.group_metadata else " without group metadata"
        lines.append(
            f"  group {name}: {group.members} × {group.client}, {group.protocol} ({group.resolved_assignor}), from "
            f"{', '.join(experiment.input_of(name))}{output}, commit: {group.commit}{metadata}"
        )
    for name, share_group in experiment.workload.share_groups.items():
        lines.append(
            f"  share group {name}: {share_group.members} × {share_group.client}, from "
            f"{', '.join(experiment.input_of(name))}"
        )
    for fault in case.faults:
        lines += [f"  fault {describe_fault(case, fault)}", *(f"    {line}" for line in fault.course)]
    lines += [] if case.faults else ["  no faults"]
    lines += [f"  expected: {bounds}" for bounds in _expected(case)]
    if not experiment.ground.simulated:
        within = (f"{name} {duration_text(bound)}" for name, bound in recovery_bounds(experiment).items())
        lines.append(f"  stuck after: {', '.join(within)}")
    return lines


def describe_timing(cases: Iterable[Case]) -> Iterator[str]:
    """Yield lines on the time-outs of these cases, the settings that differ from Kafka's defaults, and ignored
    settings."""
    cells = {(case.experiment.name, cell_of(case.id)): case.experiment for case in cases}
    for timing, names in group_timings((cell, timing_of(spec)) for (_, cell), spec in cells.items()):
        first, *rest = timing.lines()
        yield f"{first} ({names})" if names else first
        yield from (f"  {line}" for line in rest)


def describe_pairs(plan: Plan, chosen: int) -> Iterator[str]:
    """Yield lines about each cell with a storm of `pairs: all`: its pairs of fault kinds, the runs for all pairs, and
    refused pairs. The duration of these runs is estimated. `chosen`: number of cases that this command runs."""
    for cell in plan.cells:
        if (dealt := pairs_of(cell.experiment)) is None:
            continue
        count, runs = sum(map(len, dealt.shares)), len(dealt.shares)
        hours = (count * PAIR_S + runs * RUN_S) / 3600
        yield (
            f"{cell.name}: {count} pairs of fault kinds in {runs} runs, about {hours:.1f} h; "
            f"{chosen} of the runs here; {len(dealt.refused)} pairs refused"
        )
        for why, pairs in Counter(dealt.refused.values()).items():
            yield f"  {pairs} of them: {why}"


def _start(experiment: ExperimentSpec) -> str:
    return " from committed offsets" if experiment.workload.consumers.start == "committed" else ""


def _pace(case: Case) -> str:
    if any(fault.SENDS for fault in case.faults):
        return "records when a step sends one"
    return f"rate {rate_text(case.experiment.workload.producers.rate)}"


def _expected(case: Case) -> list[str]:
    return [
        f"{name} {bound}"
        for expectation in case.experiment.expect
        for name, bound in expectation.bounds.items()
    ]
