"""Prediction of consumer groups: each anomaly class of a group is impossible, possible (with a counterexample) or
unknown.

The model of `ackproof_reference.explore.consumer_groups` is searched with what may go wrong in the case. Whether
`__consumer_offsets` may lose records is asked of the model of a partition, with the same faults. What no model has
(resets, retention, programs as members) is decided here from the settings, or leaves a class unknown.
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
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.committed import OFFSETS_TOPIC
from ackproof.rundir.groups import CommitResult, MembershipEvent
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.metadata import MetadataRecord
from ackproof.rundir.model import PredictedGroupClass, PredictionFile
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Event, EventKind, FaultConfirmed, fault_name
from ackproof_model.predict.answers import Answer, Answers, cached
from ackproof_model.predict.cases import rules_for_group, scope_for
from ackproof_reference.explore import group_states as world
from ackproof_reference.explore.consumer_groups import consumer_group
from ackproof_reference.explore.group_states import GroupIncidents, GroupScope
from ackproof_reference.explore.scope import Scope
from ackproof_reference.explore.search import Search
from ackproof_reference.rules import GroupRules

_OF_THE_LOG: Final = frozenset(world.CLASSES) - {world.ZOMBIE, world.TWO_OWNERS}
"""Classes that may occur if the offsets log loses records. Such a loss does not change which commits are refused."""
_OF_THE_INPUT: Final = _OF_THE_LOG - {world.LOST_COMMIT}
"""Classes that may occur if an input topic loses records that members have read."""
_COVERED: Final = frozenset({"join_group", "leave_group", "bounce_members"})
"""Kinds of faults of groups that add no incident: in the model, members join and leave at any time anyway."""
_RETENTION: Final = "offsets.retention.minutes"
_LEAST_RETENTION: Final = 1440
_CUT_OFF: Final = ("expiries", "lost_answers")
_DOWN: Final = (*_CUT_OFF, "moves")


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
    """Return `file` with an answer for each anomaly class of each group of the case (except `stalled`), and with the
    causes added to its `faults`. `file`: prediction of the case's topics. `answer`: searches the model of one
    partition, here for losses of `__consumer_offsets`. `max_states`: limit for the searches of a group's model. After a
    run, give `run`, its timeline `events` and its metadata log `decided`: then only the faults in the timeline count.
    Without `events`, all faults that the case plans count."""
    groups: list[PredictedGroupClass] = []
    faults: dict[str, None] = dict.fromkeys(file.faults)
    for name, spec in case.experiment.workload.groups.items():
        found = _Circumstances(case, name, spec)
        found.take_faults(None if events is None else {event.fault for event in events})
        found.take_settings()
        found.take_events(events or ())
        if run is not None:
            found.take_ledgers(run)
        found.take_logs(answer, events, decided)
        faults |= dict.fromkeys(f"group {name}: {text}" for text in found.faults)
        groups += _predict_classes(found, file, max_states)
    return file.model_copy(update={"groups": tuple(groups), "faults": tuple(faults)})


# -- what may go wrong -------------------------------------------------------------------------------------------------


@dataclass
class _Circumstances:
    """Incidents that may happen to a group, which the `take_…` methods collect. `faults`: sentences on their
    causes. `unmodelled`: reasons for which a class that is not found stays unknown. `lossy_log`: answer of the model
    of a partition to whether the offsets log may lose acknowledged records."""

    case: Case
    name: str
    spec: GroupSpec
    incidents: GroupIncidents = field(default_factory=GroupIncidents)
    faults: list[str] = field(default_factory=list)
    unmodelled: list[str] = field(default_factory=list)
    lossy_log: Chance = Chance.IMPOSSIBLE

    def add(self, cause: str, *incidents: str) -> None:
        self.incidents = self.incidents._replace(**dict.fromkeys(incidents, True))
        self.faults.append(f"{cause}: {', '.join(name.replace('_', ' ') for name in incidents)}")

    def take_faults(self, requested: set[int | None] | None) -> None:
        """Add the incidents of the case's faults to this group's. `requested`: numbers of the faults to take; None:
        all."""
        for fault in self.case.faults:
            if requested is None or fault.number in requested:
                self._take_fault(fault, f"fault {fault_name(fault.number)} ({fault})")

    def _take_fault(self, fault: FaultSpec, cause: str) -> None:
        client, group = getattr(fault, "client", None), getattr(fault, "group", None)
        if why := fault.unpredictable():
            self.unmodelled.append(f"{cause}: {why}")
        elif client is not None:
            if client.kind == "member" and getattr(client, "group", "") in ("", self.name):
                if fault.KIND == "kill_client":
                    self.add(cause, "kills")
                elif fault.KIND != "pause_client" or self._outlasts_session(fault.hold):
                    self.add(cause, *_CUT_OFF)
        elif group is not None:
            if group == self.name and fault.KIND not in _COVERED:
                self.unmodelled.append(f"{cause}: the world of a group has no such step")
        else:
            if fault.clock_shift:
                self.unmodelled.append(f"{cause}: it sets clocks, by which sessions and offsets expire")
            topics = (OFFSETS_TOPIC, *self.case.experiment.input_of(self.name))
            if any(fault.rots(TopicPartition(topic, 0)) for topic in topics):
                self.unmodelled.append(f"{cause}: it takes from a log what the protocol counts on")
            self.add(cause, *_DOWN, *(() if fault.ENDS_NODES else ("late_requests",)))

    def _outlasts_session(self, pause_s: float | None) -> bool:
        """Return True if a pause of `pause_s` seconds may outlast a member's session, or its poll interval. `pause_s`
        None: the pause lasts to the end of the run. The last heartbeat before the pause may be up to a third of a
        session older."""
        least = min(self.spec.session_timeout * 2 / 3, self.spec.max_poll_interval)
        return pause_s is None or pause_s >= least

    def take_settings(self) -> None:
        case, spec = self.case, self.spec
        cluster = case.experiment.cluster
        if spec.batch * spec.record_time >= spec.max_poll_interval:
            self.add("a batch takes as long as max_poll_interval", "expiries")
        kept = [configured(cluster, broker).get(_RETENTION, "") for broker in cluster.broker_ids]
        reasons = {
            "a cluster that someone else runs: its settings are not known": case.experiment.ground.foreign,
            "its members are programs, and nobody knows when they commit": spec.client.library == COMMAND,
            f"{_RETENTION} is below a day: the world has no expiry of offsets": any(
                minutes.isdigit() and int(minutes) < _LEAST_RETENTION for minutes in kept
            ),
            "brokers of several releases: the world has the rules of one": len(
                {numbers(build.version)[:2] for build in case.builds}
            )
            > 1,
            "an input topic is deleted on the way, and its offsets with it": any(
                Promises.from_experiment(case.planned, topic).dropped
                for topic in case.experiment.input_of(self.name)
            ),
        }
        self.unmodelled += [reason for reason, holds in reasons.items() if holds]

    def take_events(self, events: Sequence[Event]) -> None:
        brokers = set(self.case.experiment.cluster.broker_ids)
        for event in events:
            if event.kind is EventKind.CLIENT_DIED and (event.client or "").startswith("g"):
                self.add(f"member {event.client} ended by itself", "kills")
            elif event.kind is EventKind.NODE_DIED and event.node in brokers:
                self.add(f"broker {event.node} ended by itself", *_DOWN)
            elif isinstance(event.what, FaultConfirmed):
                killed = [client for client in event.what.killed or {} if client.startswith("g")]
                if killed:
                    self.add(f"fault {fault_name(event.fault or 0)} killed {', '.join(killed)}", "kills")

    def take_ledgers(self, run: CaseDir) -> None:
        """Add the incidents that the ledgers of the run's members show: lost partitions, and commits without an
        answer."""
        for folder, column, value, text, incident in (
            (run.membership, "event", str(MembershipEvent.LOST), "members lost partitions", "expiries"),
            (
                run.commits_ledger,
                "result",
                int(CommitResult.UNKNOWN),
                "commits got no answer",
                "lost_answers",
            ),
        ):
            if folder.exists() and any(folder.rglob("*.parquet")):
                which = [("group", "=", self.name), (column, "=", value)]
                rows = pq.read_table(folder, columns=[column], filters=which, partitioning=None).num_rows
                if rows:
                    self.add(f"{text}: {rows} times", incident)

    def take_logs(
        self,
        answer: Callable[[Scope], Answers],
        events: Sequence[Event] | None,
        decided: Sequence[MetadataRecord],
    ) -> None:
        """Add what may happen to the brokers that coordinate the group, and whether `__consumer_offsets` (with
        transactions also `__transaction_state`) may lose acknowledged records.

        `answer` searches the model of a partition. `events` None: the faults that the case plans.
        """
        experiment, cluster = self.case.experiment, self.case.experiment.cluster
        settings = [configured(cluster, broker) for broker in cluster.broker_ids]
        acks = {own.get("offsets.commit.required.acks", "-1") for own in settings}
        logs: list[tuple[str, str, dict[str, str], int]] = [
            (OFFSETS_TOPIC, "offsets.topic.replication.factor", {}, -1 if acks == {"-1"} else 1)
        ]
        if self.spec.commit == "transaction":
            isr = min(own.get("transaction.state.log.min.isr", "2") for own in settings)
            config = {"min.insync.replicas": isr}
            logs.append(("__transaction_state", "transaction.state.log.replication.factor", config, -1))
        for name, factor, config, required in logs:
            replicas = min(cluster.brokers, *(int(own.get(factor, "3")) for own in settings))
            topic = TopicSpec(partitions=1, replication_factor=replicas, config=config)
            with_log = experiment.model_copy(update={"topics": {**experiment.topics, name: topic}})
            try:
                scope, counted = scope_for(
                    replace(self.case, experiment=with_log), name, events, decided=decided
                )
            except ValueError as error:
                self.unmodelled.append(str(error))
                return
            if not any(scope.budget):
                continue
            lost = answer(replace(scope, acks=required, idempotent=False)).classes["lost"].chance
            if name == OFFSETS_TOPIC:
                live = scope.budget.cuts or scope.budget.shrinks or scope.budget.hand_overs
                cause = f"brokers of {name}: {'; '.join(counted.faults)}"
                self.add(cause, *_DOWN, *(("late_requests",) if live else ()))
                self.lossy_log = lost
            elif lost is not Chance.IMPOSSIBLE:
                self.unmodelled.append(f"{name} may lose records ({lost}), and the world's does not")


# -- what each class comes to ------------------------------------------------------------------------------------------


def _predict_classes(
    found: _Circumstances, file: PredictionFile, max_states: int
) -> Iterator[PredictedGroupClass]:
    try:
        answers = _explored(rules_for_group(found.case, found.spec), found, max_states)
    except ValueError as error:
        found.unmodelled.append(str(error))
        answers = {}
    lossy_input = _find_lossy_input(found, file)
    # Copies outside of transactions: a record that is processed again is in the output again.
    copies = Anomaly.DOUBLED_OUTPUT if found.spec.commit != "transaction" else None
    for anomaly in GROUP_CLASSES:
        steps: tuple[str, ...] = ()
        if (ruled := _rule(anomaly, found, lossy_input)) is not None:
            chance, why = ruled
        else:
            known = answers.get(Anomaly.REDELIVERED if anomaly == copies else anomaly)
            chance, why = (known.chance, known.scope) if known else (Chance.IMPOSSIBLE, "")
            if chance is not Chance.IMPOSSIBLE:
                steps = known.story if known else ()
            elif found.unmodelled:
                chance, why = Chance.UNKNOWN, "; ".join(found.unmodelled)
            elif lossy_input and anomaly in _OF_THE_INPUT:
                chance, why = Chance.UNKNOWN, lossy_input
            elif anomaly == copies and found.incidents.lost_answers:
                why = "copies are sent outside of transactions, and a producer may repeat them"
                chance = Chance.UNKNOWN
        yield PredictedGroupClass(group=found.name, anomaly=anomaly, chance=chance, why=why, steps=steps)


def _rule(anomaly: str, found: _Circumstances, lossy_input: str) -> tuple[Chance, str] | None:
    """Return (answer, reason) if the settings of the group (`found.spec`) decide a class, or show that it stays
    unknown. Return None for a class that must be searched.

    `lossy_input`: why an input topic may lose records; '' if none may. It can be the reason for an unknown class.
    """
    spec, never = found.spec, Chance.IMPOSSIBLE
    if anomaly == Anomaly.DOUBLED_OUTPUT and spec.output is None:
        return never, "the group has no output"
    if anomaly == Anomaly.TORN_OUTPUT and spec.commit != "transaction":
        return never, "only transactional groups have outputs that belong to a commit"
    if anomaly in (Anomaly.LOST_COMMIT, Anomaly.ZOMBIE_COMMIT) and spec.commit == "auto":
        return never, "automatic commits do not name their member, and are not counted"
    if anomaly != Anomaly.SKIPPED_BY_RESET:
        return None
    if spec.start == "latest":
        return Chance.POSSIBLE, "start: latest begins behind what is there already"
    if spec.resolved_reset != "latest":
        return never, f"reset: {spec.resolved_reset} passes over nothing that is there"
    why = lossy_input or "; ".join(found.unmodelled)
    return Chance.UNKNOWN, why or "reset: latest passes over records wherever an offset is not in the log"


def _find_lossy_input(found: _Circumstances, file: PredictionFile) -> str:
    """Return why an input topic may lose records that members have read, so that new records take over their offsets;
    '' if none may. `file`: prediction of the case's topics."""
    for topic in found.case.experiment.input_of(found.name):
        answer = file.find_class("vanished", topic)
        if answer is not None and answer.chance is not Chance.IMPOSSIBLE:
            return f"{topic} may lose records that members have read ({answer.chance})"
    return ""


def _explored(rules: GroupRules, found: _Circumstances, max_states: int) -> dict[str, Answer]:
    """Search the model of the group with these incidents, and return the answer for each class.

    A class is possible if a search finds it, and impossible if complete searches do not. It is unknown in three cases:

    * Only a late request leads to it: a commit that the coordinator takes after a later one. Kafka makes no promise
      about such commits, because nothing fences them.
    * Only a loss of the offsets log leads to it, and that loss is itself unknown.
    * The limit ended a search before the class was found.

    `max_states`: limit for all searches together."""
    plain = found.incidents._replace(late_requests=False, lossy_log=False)
    lossy = plain._replace(lossy_log=True, moves=True)
    every = frozenset(world.CLASSES)
    worlds = [(plain, every, Chance.POSSIBLE, "")]
    if found.lossy_log is not Chance.IMPOSSIBLE:
        sure = found.lossy_log is Chance.POSSIBLE
        doubt = "" if sure else "it is not known whether the offsets log may lose commits"
        worlds.append((lossy, _OF_THE_LOG, found.lossy_log, doubt))
    if found.incidents.late_requests:
        text = "only a request that arrives after a later one leads there: nothing fences it"
        worlds.append((found.incidents._replace(lossy_log=False), every, Chance.UNKNOWN, text))
    answers: dict[str, Answer] = {}
    states, cut = 0, False
    for incidents, classes, chance, doubt in worlds:
        result = _search(GroupScope(rules, incidents), classes - answers.keys(), max_states - states)
        states, cut = states + result.states, cut or not result.exhausted
        for kind, answer in result.classes.items():
            why = f"{doubt} ({answer.scope})" if doubt else answer.scope
            answers.setdefault(kind, answer.model_copy(update={"chance": chance, "scope": why}))
    named = [name.replace("_", " ") for name, there in found.incidents._asdict().items() if there]
    causes = f", any number of {', '.join(named)}" if named else ""
    otherwise = Answer(chance=Chance.IMPOSSIBLE, scope=f"no state shows it: two members, two records{causes}")
    if cut:
        text = f"the first {max_states} states do not show it, and there are more"
        otherwise = Answer(chance=Chance.UNKNOWN, scope=text)
    return {kind: answers.get(kind, otherwise) for kind in world.CLASSES}


def _search(scope: GroupScope, classes: frozenset[str], max_states: int) -> Answers:
    if max_states <= 0:
        return Answers(classes={}, states=0, exhausted=False, bound=0)

    def search_world() -> Answers:
        search = Search(consumer_group(scope), classes)
        states = search.run(max_states=max_states).states
        found = {}
        for kind, finding in search.findings.items():
            steps = tuple(f"{line.action.actor}: {line.action.text}" for line in search.way_to(finding.state))
            why = f"{finding.text}: {len(steps)} steps lead to it"
            if kind in classes:
                found[kind] = Answer(chance=Chance.POSSIBLE, story=steps, scope=why)
        settled = search.exhausted or search.satisfied
        return Answers(classes=found, states=states, exhausted=settled, bound=max_states)

    return cached(f"{scope!r}|{sorted(classes)}", max_states, search_world)
