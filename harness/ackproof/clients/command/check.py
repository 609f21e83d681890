"""Checks on a small healthy cluster that a program keeps to the contract of docs/clients.md, and that the events that
it printed agree with what brokers have.

Two instances run. One is killed by SIGKILL under load, which shows what was not flushed in time; the other is asked to
stop.
"""

from __future__ import annotations

import secrets
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

from ackproof.base.errors import ClientDied, EvidenceMissing, WaitTimeout
from ackproof.base.processes import RunTag, end_children
from ackproof.base.wait import wait_until
from ackproof.clients.command.events import (
    LINES,
    NEEDED,
    Breach,
    BreachKind,
    EventName,
    ProgramEvent,
    ProgramLines,
    level_of,
    needed_at,
)
from ackproof.clients.command.output import OutputRow, ends, identity_of, read_output
from ackproof.clients.command.service import Service
from ackproof.clients.workload import Workload
from ackproof.cluster.backends.choice import make_cluster
from ackproof.cluster.protocol import Cluster, to_timeline
from ackproof.experiment.client import COMMAND, ClientChoice
from ackproof.experiment.group import ServiceSpec
from ackproof.experiment.kafka import KafkaBuild
from ackproof.experiment.spec import ClusterSpec, ConsumerSpec, ProducerSpec, TopicSpec, WorkloadSpec
from ackproof.observe.committed import ask_coordinator
from ackproof.rundir.clock import RunClock
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Timeline

INPUT: Final = "orders"
OUTPUT: Final = "copies"
_GROUP: Final = "ackproof-check"
_PARTITIONS: Final = 2
_RATE: Final = 1000.0
_BEGIN_S: Final = 20.0
_LOAD_S: Final = 4.0
UNTOLD: Final = {
    EventName.STARTED: "nothing: a run does not begin",
    EventName.ASSIGNED: "who owned a partition; a reader's jumps look like skipped records",
    EventName.DELIVERED: "what it was handed, and what twice",
    EventName.PROCESSED: "what it was handed and did not process",
    EventName.COMMIT: "which commits it asked for",
    EventName.COMMITTED: "which commits were granted",
    EventName.ATTEMPT: "what it sent: records of a killed program look like phantoms",
    EventName.RESULT: "what was acknowledged: every attempt is indeterminate",
    EventName.STOPPING: "nothing",
    EventName.CLOSED: "a ledger that is complete",
}
"""Event → what the judge cannot know if a program never prints that event, in words for a message."""


class Role(StrEnum):
    """Role that a program plays in an experiment. It decides which events `check_client` expects (`events_of`), and
    with which topics and load the program is checked."""

    PRODUCER = "producer"
    READER = "reader"
    SERVICE = "service"


@dataclass(frozen=True)
class CheckedProcess:
    """One instance of the checked program. `lines`: the file with its standard output. `started_ns`: start on
    CLOCK_MONOTONIC.

    `status`: its exit status, negative for a signal. `killed`: True if the check killed it under load.
    """

    id: str
    lines: Path
    started_ns: int
    status: int
    killed: bool = False


@dataclass(frozen=True)
class Truth:
    """Contents of topics and committed offsets of the group, read from brokers after the program has ended.

    `input`: records of the topic `INPUT`. `written`: records of the topic that the program writes to; empty for a
    reader. `committed`: offsets of a service's group; empty for other roles.
    """

    input: Sequence[OutputRow] = ()
    written: Sequence[OutputRow] = ()
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """Result of a check of a user's program. `level`: highest level of a service (docs/clients.md) of which the program
    printed all events; 0 for none.

    `counts`: number of printed events by name. `breaches`: each with the id of its instance ('' for both).
    """

    role: Role
    level: int
    counts: Mapping[EventName, int]
    breaches: tuple[tuple[str, Breach], ...]

    @property
    def missing(self) -> tuple[tuple[EventName, str], ...]:
        """Events of the role that the program never printed, each with its text in `UNTOLD`."""
        return tuple((name, UNTOLD[name]) for name in events_of(self.role) if not self.counts.get(name))


def events_of(role: Role) -> tuple[EventName, ...]:
    """Return the events that the check expects of a program with this role. Other events are optional."""
    common = (EventName.STARTED, EventName.STOPPING, EventName.CLOSED)
    own = {
        Role.PRODUCER: NEEDED[3],
        Role.READER: (EventName.ASSIGNED, EventName.DELIVERED),
        Role.SERVICE: needed_at(3),
    }
    return (common[0], *own[role], *common[1:])


def examine(role: Role, instances: Sequence[CheckedProcess], truth: Truth) -> Report:
    """Check each instance's lines by themselves, and compare them with what brokers have (`truth`); return level,
    counts and breaches.

    If a line of any instance broke the contract, nothing is compared with brokers. Raises OSError if output cannot be
    read.
    """
    told: list[Sequence[ProgramEvent]] = []
    breaches: list[tuple[str, Breach]] = []
    every_line = True
    for one in instances:
        lines = ProgramLines(one.lines, one.started_ns)
        own = lines.take()
        if not one.killed:
            lines.end(one.status)
        every_line &= not lines.breaches
        # the harness itself kills a producer or a reader that breaks the contract
        stop = () if lines.breaches and role is not Role.SERVICE else tuple(_of_stop(one))
        breaches += [(one.id, breach) for breach in (*lines.breaches, *stop, *_of_order(own))]
        told.append(own)
    counts = Counter(event.name for own in told for event in own)
    if every_line:  # else lines are missing, and what brokers have would be compared with the rest
        breaches += [("", breach) for breach in _against(role, told, counts, truth)]
    return Report(role, level_of(counts), counts, tuple(breaches))


def _of_stop(one: CheckedProcess) -> Iterator[Breach]:
    if not one.killed and one.status:
        how = f"ended with {one.status}"
        if one.status == -signal.SIGKILL:
            how = "did not end in time and was killed"
        yield Breach(BreachKind.STOP, 0, f"it was asked to stop, and {how}")


def _of_order(events: Sequence[ProgramEvent]) -> Iterator[Breach]:
    delivered: set[tuple[TopicPartition | None, int]] = set()
    for event in events:
        if event.name is EventName.DELIVERED:
            delivered.add((event.place, event.offset))
        elif event.name is EventName.PROCESSED and (event.place, event.offset) not in delivered:
            text = f"processed: {event.place} at {event.offset} was not told as delivered"
            yield Breach(BreachKind.UNDELIVERED, event.line, text)
            return  # one example


def _against(
    role: Role, told: Sequence[Sequence[ProgramEvent]], counts: Mapping[EventName, int], truth: Truth
) -> Iterator[Breach]:
    events = [event for own in told for event in own]
    if counts.get(EventName.ATTEMPT):
        yield from _sends(told, truth.written)
    if counts.get(EventName.COMMIT):
        yield from _commits(events, truth.committed)
    if counts.get(EventName.DELIVERED):
        yield from _deliveries(role, events, truth)
    strangers = sum(producer < 0 for producer, *_ in truth.written)
    if role is Role.PRODUCER and strangers:
        text = f"{strangers:,} records have another value than the template with n and its checksum"
        yield Breach(BreachKind.FIELD, 0, text)


def _sends(told: Sequence[Sequence[ProgramEvent]], written: Sequence[OutputRow]) -> Iterator[Breach]:
    """Yield a breach for each partition that has more records (`written`) than the instances printed attempts, and one
    for all acknowledged offsets without a record. The first argument has the events of each instance."""
    attempts = Counter[int]()
    acked: set[tuple[int, int]] = set()
    for own in told:
        place_of: dict[int, int] = {}
        for event in own:
            if event.name is EventName.ATTEMPT and event.place is not None:
                attempts[event.place.partition] += 1
                place_of[event.number] = event.place.partition
            elif event.name is EventName.RESULT and not event.error and event.offset >= 0:
                acked.add((place_of.get(event.number, -1), event.offset))
    there = {(partition, offset) for _, _, partition, offset in written}
    for partition, count in sorted(Counter(partition for partition, _ in there).items()):
        if count > attempts[partition]:
            text = (
                f"partition {partition} has {count:,} records, and {attempts[partition]:,} attempts were told: flush "
                "each attempt before the library gets the record"
            )
            yield Breach(BreachKind.UNFLUSHED, 0, text)
    if lacking := sorted(acked - there):
        partition, offset = lacking[0]
        example = f"such as {offset} of partition {partition}"
        text = f"result: {len(lacking):,} acknowledged offsets hold no record, {example}"
        yield Breach(BreachKind.ANSWER, 0, text)


def _commits(events: Sequence[ProgramEvent], committed: Mapping[TopicPartition, int]) -> Iterator[Breach]:
    asked: dict[TopicPartition, int] = {}
    for event in events:
        for place, offset in event.positions if event.name is EventName.COMMIT else ():
            asked[place] = max(offset, asked.get(place, -1))
    for place, offset in sorted(committed.items()):
        if offset > asked.get(place, -1):
            text = f"the group has offset {offset} of {place}, and no commit of it was told before"
            yield Breach(BreachKind.COMMIT, 0, text)
    for place, offset in sorted(asked.items()):
        if offset > committed.get(place, -1):
            text = (
                f"commit: {place} at {offset} was told, and the group has {committed.get(place, 'nothing')}"
            )
            yield Breach(BreachKind.COMMIT, 0, text)


def _deliveries(role: Role, events: Sequence[ProgramEvent], truth: Truth) -> Iterator[Breach]:
    """Yield one breach if the program must have got records and printed no `delivered` for them: for a reader
    all records of the topic, for a service those below its committed offset."""
    told = {
        (event.place.partition, event.offset)
        for event in events
        if event.name is EventName.DELIVERED and event.place is not None
    }
    behind = {place.partition: offset for place, offset in truth.committed.items()}
    untold = [
        (partition, offset)
        for _, _, partition, offset in truth.input
        if (partition, offset) not in told and (role is Role.READER or offset < behind.get(partition, 0))
    ]
    if untold:
        what = "are in the topic" if role is Role.READER else "were committed past"
        partition, offset = untold[0]
        text = f"delivered: {len(untold):,} records {what} and were not told, such as {offset} of partition {partition}"
        yield Breach(BreachKind.UNTOLD, 0, text)


def check_client(command: Sequence[str], role: Role, folder: Path, kafka: KafkaBuild) -> Report:
    """Run two instances of a program (`command`) in this role on a cluster of one broker, which runs the build `kafka`.
    All files of the run are in `folder`. Return what `examine` found. Raises `AckproofError` if the cluster or an
    instance cannot be run, or if committed offsets stay unknown."""
    run, run_id = CaseDir(folder), secrets.token_hex(8)
    tag = RunTag(run_id, folder, folder)
    topic = TopicSpec(partitions=_PARTITIONS, replication_factor=1)
    with Timeline(run.timeline, RunClock.start()) as timeline:
        cluster = make_cluster(
            "process",
            ClusterSpec(brokers=1, combined=True, kafka=kafka),
            run.nodes,
            tag,
            to_timeline(timeline),
        )
        try:
            cluster.start()
            cluster.create_topics({INPUT: topic} | ({OUTPUT: topic} if role is Role.SERVICE else {}))
            client = ClientChoice(COMMAND, command=tuple(command))
            spec = WorkloadSpec(
                producers=ProducerSpec(
                    **({"client": client, "count": 2} if role is Role.PRODUCER else {}), rate=_RATE
                ),
                consumers=ConsumerSpec(client=client, live=2) if role is Role.READER else ConsumerSpec(),
            )
            load = Workload(spec, {INPUT: topic}, cluster.bootstrap, timeline, tag)
            service = None
            if role is Role.SERVICE:
                wanted = ServiceSpec(
                    command=tuple(command), count=2, input=INPUT, output=OUTPUT, group=_GROUP, level=3
                )
                service = Service(wanted, run, tag, cluster.bootstrap, _PARTITIONS)
            instances = _run(load, service, cluster, role, run)
            return examine(role, instances, _truth(cluster, role, run_id))
        finally:
            cluster.stop()
            end_children(lambda child: child.run_id == run_id)


def _run(
    load: Workload, service: Service | None, cluster: Cluster, role: Role, run: CaseDir
) -> list[CheckedProcess]:
    """Start the program, let it work, kill one of its instances, and stop the rest. Return its instances. Nothing is
    raised if the program dies: `examine` finds why."""
    try:
        if service is not None:
            service.start()
        with suppress(ClientDied, WaitTimeout):  # `examine` finds why
            load.start()
            _work(load, service, role)
        with suppress(ClientDied):
            load.stop()
    finally:
        load.abort()
    if service is not None:
        service.await_rest(cluster)
        victim = service.instances[1]
        return [
            CheckedProcess(
                one.id, victim.folder.parent / one.id / LINES, one.started_ns, one.status, one.id == victim.id
            )
            for one in service.stop()
        ]
    own = [client.id for client in load.clients if client.id.startswith(role[0])]
    return [
        CheckedProcess(name, run.clients / name / LINES, *load.end_of(name), killed=name.endswith("1"))
        for name in own
    ]


def _work(load: Workload, service: Service | None, role: Role) -> None:
    """Wait until the program is at work, at most `_BEGIN_S`. Then load it for `_LOAD_S`, kill the second instance, and
    load it as long again. Raises `ClientDied` if a producer or reader ends by itself."""

    def await_load() -> None:
        until = time.monotonic() + _LOAD_S

        def over() -> bool:
            load.check()
            return time.monotonic() >= until

        wait_until(over, what="the load", timeout_s=_LOAD_S + 10)

    def at_work() -> bool:
        load.check()
        if service is not None:
            return any(one.child.poll() is not None for one in service.instances) or all(
                (one.folder / LINES).stat().st_size for one in service.instances
            )
        return bool(load.acked() and (role is Role.PRODUCER or load.read()))

    with suppress(WaitTimeout):
        wait_until(at_work, what="the program to work", timeout_s=_BEGIN_S)
    await_load()
    if service is not None:
        service.instances[1].child.signal(signal.SIGKILL)
    else:
        load.kill(f"{role[0]}1")
    await_load()


def _truth(cluster: Cluster, role: Role, run_id: str) -> Truth:
    """Read from the brokers what the program is compared with. Raises `EvidenceMissing` if the coordinator of a
    service's group does not answer."""
    identify = partial(identity_of, where="value", run_id=run_id)
    rows, _ = read_output(cluster.bootstrap, ends(cluster, INPUT), identify)
    if role is not Role.SERVICE:
        return Truth(input=rows, written=rows if role is Role.PRODUCER else ())
    written, _ = read_output(cluster.bootstrap, ends(cluster, OUTPUT), identify)
    answer = ask_coordinator(cluster, _GROUP)
    if answer.reason and answer.partition >= 0:
        raise EvidenceMissing(f"committed offsets of group {_GROUP} are unknown: {answer.reason}")
    return Truth(rows, written, answer.of_partition)
