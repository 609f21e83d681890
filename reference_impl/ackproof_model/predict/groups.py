"""Prediction of consumer groups: case → each class of a group impossible, possible (with a story) or unknown.

The small world of `ackproof_reference.explore.consumer_groups` is searched with what may go wrong in the case. Whether
`__consumer_offsets` may lose records is asked of the world of a partition, with the same faults. What no world has
(resets, retention, settings of the client library) is ruled here, and never makes a class impossible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow.parquet as pq

from ackproof.experiment.case import Case
from ackproof.experiment.client import COMMAND
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.group import GroupSpec
from ackproof.experiment.kafka import numbers
from ackproof.experiment.promises import Promises
from ackproof.experiment.spec import TopicSpec
from ackproof.experiment.timing import configured
from ackproof.rundir.anomalies import GROUP_CLASSES, Anomaly
from ackproof.rundir.groups import CommitResult, MembershipEvent
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.metadata import MetadataRecord
from ackproof.rundir.model import Chance, PredictedGroupClass, PredictionFile
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Event, EventKind, FaultConfirmed, fault_name
from ackproof_model.predict.answers import Answer, Answers, cached
from ackproof_model.predict.cases import inputs_of, rules_for_group, scope_for
from ackproof_reference.explore import group_states as world
from ackproof_reference.explore.consumer_groups import consumer_group
from ackproof_reference.explore.group_states import GroupIncidents, GroupScope
from ackproof_reference.explore.scope import Scope
from ackproof_reference.explore.search import Search
from ackproof_reference.rules import GroupRules

OFFSETS_TOPIC: Final = "__consumer_offsets"
_OF_THE_LOG: Final = frozenset(world.CLASSES) - {world.ZOMBIE, world.TWO_OWNERS}
"""Classes to which records that the offsets log loses may lead. The log has no say in which commits are refused."""
_OF_THE_INPUT: Final = frozenset(
    {
        Anomaly.UNDELIVERED,
        Anomaly.REDELIVERED,
        Anomaly.TORN_OUTPUT,
        Anomaly.DOUBLED_OUTPUT,
        Anomaly.REGRESSED_COMMIT,
    }
)
"""Classes to which records may lead that an input or output topic has shown and loses."""
_COVERED: Final = frozenset({"join_group", "leave_group", "bounce_members"})
"""Kinds of faults of groups that are steps of the world anyway: members come and go in it at any time."""
_DECIDED_BY_SPEC: Final = frozenset(
    {
        "auto.offset.reset",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "isolation.level",
        "partition.assignment.strategy",
        "transactional.id",
    }
)
"""Settings of a client library that change what a member does; the world goes by the fields of the group."""
_RETENTION: Final = "offsets.retention.minutes"
_LEAST_RETENTION: Final = 1440


@dataclass
class _Circumstances:
    """What may go wrong for a group. `faults`: sentences on its causes. `unmodelled`: reasons for which a class that
    is not found stays unknown. `lossy_log`: chance that the offsets log loses a commit."""

    incidents: GroupIncidents = field(default_factory=GroupIncidents)
    faults: list[str] = field(default_factory=list)
    unmodelled: list[str] = field(default_factory=list)
    lossy_log: Chance = Chance.IMPOSSIBLE

    def add(self, cause: str, *incidents: str) -> None:
        if incidents:
            self.incidents = self.incidents._replace(**dict.fromkeys(incidents, True))
            self.faults.append(f"{cause}: {', '.join(name.replace('_', ' ') for name in incidents)}")


def predict_groups(
    case: Case,
    file: PredictionFile,
    answer: Callable[[Scope], Answers],
    *,
    max_states: int,
    run: CaseDir | None = None,
    events: Sequence[Event] | None = None,
    decided: Sequence[MetadataRecord] = (),
) -> PredictionFile:
    """Return the prediction with an answer on each class of each group of the case, but for `stalled`.

    `file`: prediction of the case's topics. `answer` searches the world of a partition. `max_states`: limit for the
    search of a group's world. `run`, `events`, `decided`: a run with its timeline and metadata log; None and empty: the
    faults that the case plans.
    """
    groups: list[PredictedGroupClass] = []
    faults: dict[str, None] = dict.fromkeys(file.faults)
    for name, spec in case.experiment.workload.groups.items():
        found = _circumstances(case, name, spec, answer, run, events, decided)
        faults |= dict.fromkeys(f"group {name}: {text}" for text in found.faults)
        groups += _of_group(case, name, spec, file, found, max_states)
    return file.model_copy(update={"groups": tuple(groups), "faults": tuple(faults)})


# -- what may go wrong -------------------------------------------------------------------------------------------------


def _circumstances(
    case: Case,
    name: str,
    spec: GroupSpec,
    answer: Callable[[Scope], Answers],
    run: CaseDir | None,
    events: Sequence[Event] | None,
    decided: Sequence[MetadataRecord],
) -> _Circumstances:
    found = _Circumstances()
    asked = None if events is None else {event.fault for event in events}
    for fault in case.faults:
        if asked is None or fault.number in asked:
            _take_fault(case, name, spec, fault, found)
    if spec.batch * spec.record_time >= spec.max_poll_interval:
        found.add("a batch takes as long as max_poll_interval", "expiries")
    _take_settings(case, spec, found)
    if events is not None:
        _take_events(case, events, found)
    if run is not None:
        _take_ledgers(name, run, found)
    _take_logs(case, spec, answer, events, decided, found)
    return found


def _take_fault(case: Case, name: str, spec: GroupSpec, fault: FaultSpec, found: _Circumstances) -> None:
    cause = f"fault {fault_name(fault.number)} ({fault})"
    client, group = getattr(fault, "client", None), getattr(fault, "group", None)
    if why := fault.unpredictable():
        found.unmodelled.append(f"{cause}: {why}")
    elif client is not None:
        if client.kind != "member" or getattr(client, "group", "") not in ("", name):
            return
        if fault.KIND == "kill_client":
            found.add(cause, "kills")
        elif fault.KIND != "pause_client" or _outlasts(fault, spec):
            found.add(cause, "expiries", "lost_answers")
    elif group is not None:
        if group == name and fault.KIND not in _COVERED:
            found.unmodelled.append(f"{cause}: the world of a group has no such step")
    else:
        if fault.clock_shift:
            found.unmodelled.append(f"{cause}: it sets clocks, by which sessions and offsets expire")
        if any(fault.rots(TopicPartition(topic, 0)) for topic in (OFFSETS_TOPIC, *inputs_of(case, spec))):
            found.unmodelled.append(f"{cause}: it takes from a log what the protocol counts on")
        late = () if fault.ENDS_NODES else ("late_requests",)
        found.add(cause, "expiries", "lost_answers", "moves", *late)


def _outlasts(fault: FaultSpec, spec: GroupSpec) -> bool:
    """Return True if a pause may outlast a member's session, whose last heartbeat was up to a third of it before."""
    return (
        fault.hold is None
        or fault.hold >= spec.session_timeout * 2 / 3
        or fault.hold >= spec.max_poll_interval
    )


def _take_settings(case: Case, spec: GroupSpec, found: _Circumstances) -> None:
    cluster = case.experiment.cluster
    if case.experiment.ground.foreign:
        found.unmodelled.append("a cluster that someone else runs: its settings are not known")
    if named := sorted(_DECIDED_BY_SPEC & spec.config.keys()):
        found.unmodelled.append(f"config sets {', '.join(named)}: the world goes by the fields of the group")
    if spec.library == COMMAND:
        found.unmodelled.append("its members are programs, and nobody knows when they commit")
    kept = [configured(cluster, broker).get(_RETENTION, "") for broker in cluster.broker_ids]
    if any(minutes.isdigit() and int(minutes) < _LEAST_RETENTION for minutes in kept):
        found.unmodelled.append(f"{_RETENTION} is below a day: the world has no expiry of offsets")
    if len({numbers(build.version)[:2] for build in case.builds}) > 1:
        found.unmodelled.append("brokers of several releases: the world has the rules of one")
    if any(Promises.from_experiment(case.planned, topic).dropped for topic in inputs_of(case, spec)):
        found.unmodelled.append("an input topic is deleted on the way, and its offsets with it")


def _take_events(case: Case, events: Sequence[Event], found: _Circumstances) -> None:
    brokers = set(case.experiment.cluster.broker_ids)
    for event in events:
        if event.kind is EventKind.CLIENT_DIED and (event.client or "").startswith("g"):
            found.add(f"member {event.client} ended by itself", "kills")
        elif event.kind is EventKind.NODE_DIED and event.node in brokers:
            found.add(f"broker {event.node} ended by itself", "expiries", "lost_answers", "moves")
        elif isinstance(event.what, FaultConfirmed):
            gone = [client for client in event.what.killed or {} if client.startswith("g")]
            if gone:
                found.add(f"fault {fault_name(event.fault or 0)} killed {', '.join(gone)}", "kills")


def _take_ledgers(name: str, run: CaseDir, found: _Circumstances) -> None:
    """Take what the members of a run wrote down: losses of partitions, and commits without an answer."""
    lost = [("group", "=", name), ("event", "=", str(MembershipEvent.LOST))]
    unknown = [("group", "=", name), ("result", "=", int(CommitResult.UNKNOWN))]
    for folder, column, filters, text, incident in (
        (run.membership, "event", lost, "members lost partitions", "expiries"),
        (run.commits_ledger, "result", unknown, "commits got no answer", "lost_answers"),
    ):
        if folder.exists() and any(folder.rglob("*.parquet")):
            rows = pq.read_table(folder, columns=[column], filters=filters, partitioning=None).num_rows
            if rows:
                found.add(f"{text}: {rows} times", incident)


def _take_logs(
    case: Case,
    spec: GroupSpec,
    answer: Callable[[Scope], Answers],
    events: Sequence[Event] | None,
    decided: Sequence[MetadataRecord],
    found: _Circumstances,
) -> None:
    """Ask whether the coordinators' topics may lose what was acknowledged, and count what happens to their brokers."""
    cluster = case.experiment.cluster
    settings = [configured(cluster, broker) for broker in cluster.broker_ids]
    acks = {own.get("offsets.commit.required.acks", "-1") for own in settings}
    logs: list[tuple[str, str, dict[str, str], str]] = [
        (OFFSETS_TOPIC, "offsets.topic.replication.factor", {}, "1" if acks != {"-1"} else "-1")
    ]
    if spec.commit == "transaction":
        isr = min(own.get("transaction.state.log.min.isr", "2") for own in settings)
        config = {"min.insync.replicas": isr}
        logs.append(("__transaction_state", "transaction.state.log.replication.factor", config, "-1"))
    for name, factor, config, required in logs:
        replicas = min(int(own.get(factor, "3")) for own in settings)
        topic = TopicSpec(partitions=1, replication_factor=min(replicas, cluster.brokers), config=config)
        topics = {**case.experiment.topics, name: topic}
        with_log = replace(case, experiment=case.experiment.model_copy(update={"topics": topics}))
        try:
            scope, counted = scope_for(with_log, name, events, decided=decided)
        except ValueError as error:
            found.unmodelled.append(str(error))
            return
        if not any(scope.budget):
            continue
        said = answer(replace(scope, acks=int(required), idempotent=False)).classes["lost"].chance
        if name == OFFSETS_TOPIC:
            live = scope.budget.cuts or scope.budget.shrinks or scope.budget.hand_overs
            late = ("late_requests",) if live else ()
            cause = f"brokers of {name}: {'; '.join(counted.faults)}"
            found.add(cause, "expiries", "lost_answers", "moves", *late)
            found.lossy_log = said
        elif said is not Chance.IMPOSSIBLE:
            found.unmodelled.append(f"{name} may lose records ({said}), and the world's does not")


# -- what each class comes to ------------------------------------------------------------------------------------------


def _of_group(
    case: Case, name: str, spec: GroupSpec, file: PredictionFile, found: _Circumstances, max_states: int
) -> Iterator[PredictedGroupClass]:
    try:
        rules = rules_for_group(case, spec)
    except ValueError as error:
        found.unmodelled.append(str(error))
        rules = None
    answers = None if rules is None else _explored(rules, found, max_states)
    shown = _shown_may_go(case, spec, file)
    for anomaly in GROUP_CLASSES:
        ruled = _rule(anomaly, spec, found, shown)
        if ruled is not None:
            chance, why = ruled
            yield PredictedGroupClass(group=name, anomaly=anomaly, chance=chance, why=why)
            continue
        explored = Anomaly.REDELIVERED if _copies(anomaly, spec) else anomaly
        said = None if answers is None else answers[explored]
        if said is None or (said.chance is Chance.IMPOSSIBLE and found.unmodelled):
            chance, why = Chance.UNKNOWN, "; ".join(found.unmodelled)
        elif said.chance is Chance.IMPOSSIBLE and shown and anomaly in _OF_THE_INPUT:
            chance, why = Chance.UNKNOWN, shown
        elif said.chance is Chance.IMPOSSIBLE and _copies(anomaly, spec) and found.incidents.lost_answers:
            chance, why = (
                Chance.UNKNOWN,
                "copies are sent outside of transactions, and a producer may repeat them",
            )
        else:
            chance, why = said.chance, said.scope
        steps = () if said is None or chance is Chance.IMPOSSIBLE else said.story
        yield PredictedGroupClass(group=name, anomaly=anomaly, chance=chance, why=why, steps=steps)


def _copies(anomaly: str, spec: GroupSpec) -> bool:
    """Return True for copies outside of transactions: a record that is processed again is in the output again."""
    return anomaly == Anomaly.DOUBLED_OUTPUT and spec.commit != "transaction"


def _rule(anomaly: str, spec: GroupSpec, found: _Circumstances, shown: str) -> tuple[Chance, str] | None:
    """Return the answer on a class that needs no search, and why; None for the others."""
    if anomaly == Anomaly.DOUBLED_OUTPUT and spec.output is None:
        return Chance.IMPOSSIBLE, "the group has no output"
    if anomaly == Anomaly.TORN_OUTPUT and spec.commit != "transaction":
        return Chance.IMPOSSIBLE, "only transactional groups have outputs that belong to a commit"
    if anomaly in (Anomaly.LOST_COMMIT, Anomaly.ZOMBIE_COMMIT) and spec.commit == "auto":
        return Chance.IMPOSSIBLE, "automatic commits do not name their member, and are not counted"
    if anomaly != Anomaly.SKIPPED_BY_RESET:
        return None
    if spec.start == "latest":
        return Chance.POSSIBLE, "start: latest begins behind what is there already"
    if spec.resolved_reset != "latest":
        return Chance.IMPOSSIBLE, f"reset: {spec.resolved_reset} passes over nothing that is there"
    why = shown or "; ".join(found.unmodelled)
    if why or found.lossy_log is not Chance.IMPOSSIBLE:
        return (
            Chance.UNKNOWN,
            why or "the offsets log may lose commits, and reset: latest passes over records",
        )
    return Chance.UNKNOWN, "reset: latest passes over records wherever an offset is not in the log"


def _shown_may_go(case: Case, spec: GroupSpec, file: PredictionFile) -> str:
    """Return why an input may lose records that members have read, so that others take their offsets; '' if none
    may."""
    for topic in inputs_of(case, spec):
        said = file.find_class("vanished", topic)
        if said is not None and said.chance is not Chance.IMPOSSIBLE:
            return f"{topic} may lose records that members have read ({said.chance})"
    return ""


def _explored(rules: GroupRules, found: _Circumstances, max_states: int) -> dict[str, Answer]:
    """Return the answer on each class of the world. A class that only a late request or a loss that is not certain
    to be possible leads to is unknown."""
    plain = found.incidents._replace(late_requests=False, lossy_log=False)
    lossy = plain._replace(lossy_log=True, moves=True)
    late = found.incidents._replace(lossy_log=False)
    worlds = [(plain, frozenset(world.CLASSES), Chance.POSSIBLE, "")]
    if found.lossy_log is not Chance.IMPOSSIBLE:
        doubt = (
            ""
            if found.lossy_log is Chance.POSSIBLE
            else "it is not known whether the offsets log may lose commits"
        )
        worlds.append((lossy, _OF_THE_LOG, found.lossy_log, doubt))
    if late != plain:
        text = "only a request that arrives after a later one leads there: nothing fences it"
        worlds.append((late, frozenset(world.CLASSES), Chance.UNKNOWN, text))
    answers: dict[str, Answer] = {}
    cut = False
    for incidents, classes, chance, doubt in worlds:
        wanted = classes - answers.keys()
        said = _search(GroupScope(rules, incidents), wanted, max_states)
        cut |= not said.exhausted
        for kind, answer in said.classes.items():
            if kind not in wanted:
                continue
            why = f"{doubt} ({answer.scope})" if doubt else answer.scope
            answers[kind] = answer.model_copy(update={"chance": chance, "scope": why})
    otherwise = Answer(
        chance=Chance.UNKNOWN, scope=f"the first {max_states} states do not show it, and there are more"
    )
    if not cut:
        otherwise = Answer(chance=Chance.IMPOSSIBLE, scope=f"no state shows it: {_words(found.incidents)}")
    return {kind: answers.get(kind, otherwise) for kind in world.CLASSES}


def _words(incidents: GroupIncidents) -> str:
    named = [name.replace("_", " ") for name, there in incidents._asdict().items() if there]
    return (
        f"two members, two records, any number of {', '.join(named)}" if named else "two members, two records"
    )


def _search(scope: GroupScope, wanted: frozenset[str], max_states: int) -> Answers:
    return cached(f"{scope!r}|{sorted(wanted)}", max_states, lambda: _worked_out(scope, wanted, max_states))


def _worked_out(scope: GroupScope, wanted: frozenset[str], max_states: int) -> Answers:
    search = Search(consumer_group(scope), wanted)
    states = search.run(max_states=max_states).states
    found = {}
    for kind, finding in search.findings.items():
        steps = tuple(f"{line.action.actor}: {line.action.text}" for line in search.way_to(finding.state))
        why = f"{finding.text}: {len(steps)} steps lead to it"
        found[kind] = Answer(chance=Chance.POSSIBLE, story=steps, scope=why)
    settled = search.exhausted or search.satisfied
    return Answers(classes=found, states=states, exhausted=settled, bound=max_states)
