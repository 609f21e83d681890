"""Consumer groups of a run: their members, the wait until they have caught up, and what is left of them.

Members are `g0`, `g1`, … in the order of their start, over all groups. One that takes another's place takes over its
group.instance.id (static membership) and its transactional id.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from ackproof.base.errors import WaitTimeout
from ackproof.base.processes import RunTag
from ackproof.base.wait import wait_until
from ackproof.clients.command.events import LINES
from ackproof.clients.command.output import OutputRow, await_ends, identity_of, read_output, write_output
from ackproof.clients.contract import SETTINGS, MemberSettings, client_adapter
from ackproof.clients.group_ledgers import convert
from ackproof.clients.instances import Instance, Instances
from ackproof.clients.launch import verify_config
from ackproof.cluster.protocol import Cluster
from ackproof.experiment.client import COMMAND
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.group import GroupProtocol, GroupSpec
from ackproof.observe.committed import ask_coordinator
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.documents import Client
from ackproof.rundir.groups import GroupEnd, GroupsFile, MemberEnd
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.observed import Unrecovered
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import ClientDied, ClientEnded, ClientStarted, Note, Timeline

_GOAL_S: Final = 15.0
_STOP_S: Final = 25.0
"""A member finishes its batch, leaves the group within 10 s, and closes."""
_ASK_S: Final = 2.0
_LOOK_EVERY_S: Final = 0.3
_HEAD: Final = 1 << 16
_ASSIGNED: Final = b'"assigned"'


@dataclass
class _Member:
    """What a member is besides its process. `slot`: number of the first member that it stands for."""

    group: str
    number: int
    slot: int
    client: Client
    settings: MemberSettings
    ended: bool = False
    """True once its end is in the timeline."""


@dataclass
class _Progress:
    """How far a group has come while the run waits for it. `committed`: sum of its committed offsets."""

    goal: dict[TopicPartition, int]
    began: float
    moved: float
    committed: int = -1
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    caught_up: bool = False
    ended: float | None = None
    """When it had caught up, or the wait was over."""


class Groups(Instances):
    """The members of all groups of a run. `hidden`: library settings with secrets, which no file may hold."""

    def __init__(
        self,
        spec: ExperimentSpec,
        run: CaseDir,
        tag: RunTag,
        bootstrap: str,
        timeline: Timeline,
        hidden: Mapping[str, str],
    ) -> None:
        super().__init__(tag)
        self.spec = spec
        self._run = run
        self._bootstrap = bootstrap
        self._timeline = timeline
        self._hidden = dict(hidden)
        self._members: dict[str, _Member] = {}
        self._protocols: dict[str, GroupProtocol] = {}
        """By group: the protocol of members that start from now on, if a fault changed it."""
        self._breaches: list[tuple[str, str]] = []
        self._converted = False

    def start(self) -> None:
        """Start the members that each group begins with. Raises `BadInput` for settings that a library refuses, and for
        a program that cannot be started."""
        for name, group in self.spec.workload.groups.items():
            config = client_adapter(group.library).member_config(group, self._bootstrap, "g0", name)
            verify_config(group.library, "consumer", config, self._hidden)
        for name, group in self.spec.workload.groups.items():
            for _ in range(group.members):
                self.start_member(name)

    def start_member(self, group: str) -> str:
        """Start one more member of a group. Return its id. Raises KeyError for an unknown group."""
        with self._lock:
            return self._start(group).id

    def stop_member(self, client_id: str) -> None:
        """Ask a member to leave its group and to close. Returns at once."""
        self.find(client_id).stop()

    def group_of(self, client_id: str) -> str:
        """Return the group of a member."""
        return self._members[client_id].group

    def tell(self, client_id: str, line: str) -> None:
        """Write a line to a member's standard input. Raises OSError if it has ended."""
        os.write(self.find(client_id).control, f"{line}\n".encode())

    def use_protocol(self, group: str, protocol: GroupProtocol) -> None:
        """Let members of a group that start from now on use this rebalance protocol, with its default assignor."""
        self._protocols[group] = protocol

    def output(self, client_id: str) -> Path:
        """Return the file to which a member prints its events."""
        return self.find(client_id).folder / LINES

    def _spec_of(self, name: str) -> GroupSpec:
        group = self.spec.workload.groups[name]
        if self._protocols.get(name, group.protocol) == group.protocol:
            return group
        return group.model_copy(update={"protocol": self._protocols[name], "assignor": None})

    def start_instance(self, after: Instance | None = None) -> Instance:
        if after is None:
            raise KeyError("a member needs a group")
        before = self._members[after.id]
        return self._start(before.group, before.slot)

    def _start(self, name: str, slot: int | None = None) -> Instance:
        group, number = self._spec_of(name), len(self.instances)
        client = f"g{number}"
        slot = number if slot is None else slot
        settings = self._settings(name, group, client, number, slot)
        folder = self._run.clients / client
        folder.mkdir(parents=True)
        path = folder / SETTINGS
        settings.write(path)
        adapter = client_adapter(group.library)
        cwd = Path() if settings.command else folder
        hidden = adapter.security_text(self._hidden) if self._hidden else None
        command = adapter.member_command(settings, path)
        instance = self.launch(
            client, command, folder, cwd, tells=True, of=f"workload.groups.{name}", hidden=hidden
        )
        known = Client(
            id=client,
            kind="member",
            group=name,
            topics=tuple(settings.topics),
            isolation=group.isolation,
            library=settings.library,
            library_version=settings.library_version,
        )
        self._members[client] = _Member(name, number, slot, known, settings)
        self._timeline.add(ClientStarted(pid=instance.child.pid), client=client)
        return instance

    def _settings(self, name: str, group: GroupSpec, client: str, number: int, slot: int) -> MemberSettings:
        adapter = client_adapter(group.library)
        library = adapter.installed_library(group.client.release_for(self.spec.cluster.kafka))
        instance = f"ackproof-{name}-{slot}" if group.static else ""
        transactional_id = (
            f"ackproof-{self._tag.run_id}-{name}-{slot}" if group.commit == "transaction" else ""
        )
        return MemberSettings(
            client=client,
            run_id=self._tag.run_id,
            case_dir=str(self._run.path.absolute()),
            places=(),
            origin_ns=self._timeline.clock.origin_ns,
            config=adapter.member_config(group, self._bootstrap, client, name, instance),
            library=library.name,
            library_version=library.version,
            command=group.client.command,
            group=name,
            member=number,
            topics=self.spec.input_of(name),
            cooperative=group.protocol == "consumer" or group.assignor == "cooperative-sticky",
            commit=group.commit,
            commit_s=group.commit_every,
            group_metadata=group.group_metadata,
            output=group.output or "",
            output_config=(
                {}
                if group.output is None
                else adapter.output_config(self._bootstrap, client, transactional_id)
            ),
            start=group.start,
            reset=group.resolved_reset,
            batch=group.batch,
            record_s=group.record_time,
            instance=instance,
        )

    @property
    def clients(self) -> tuple[Client, ...]:
        """Every member that was started, in the order of their start."""
        with self._lock:
            return tuple(
                self._members[one.id].client.model_copy(update={"killed": one.killed})
                for one in self.instances
            )

    def note_ends(self) -> None:
        """Add an event to the timeline for each member that has ended since the last call."""
        with self._lock:
            for one in self.instances:
                status, member = one.child.poll(), self._members[one.id]
                if status is None or member.ended:
                    continue
                member.ended = True
                asked = one.killed or (one.asked and status == 0)
                what = (
                    ClientEnded(status=status) if asked else ClientDied(status=status, output=one.last_words)
                )
                self._timeline.add(what, client=one.id)

    def kill(self, client_id: str) -> None:
        """SIGKILL a member, and the processes that it started."""
        with self._lock:
            super().kill(client_id)
            self.note_ends()

    def at_work(self, client_id: str) -> bool:
        """Return True if a member runs, and was assigned partitions or none; or if it was asked to leave."""
        instance = self.find(client_id)
        if instance.asked:
            return True
        with (instance.folder / LINES).open("rb") as lines:
            return instance.child.poll() is None and _ASSIGNED in lines.read(_HEAD)

    @property
    def joined(self) -> bool:
        """True once each member that runs has had an assignment."""
        return all(self.at_work(name) or name not in self.running() for name in self.running())

    # -- the end of a run -------------------------------------------------------------------------------------------

    def finish(self, cluster: Cluster) -> list[Unrecovered]:
        """Wait until the groups have caught up; then stop their members, ask for the committed offsets, read outputs
        back, convert the ledgers and write `observed/groups.json`. Return the partitions of groups that stalled.
        """
        self._timeline.add(Note(note="waiting until consumer groups have caught up"))
        progress = self.settle(cluster)
        stalled = [one for name, found in progress.items() for one in self._stalled(name, found)]
        self.stop()
        ends = tuple(self._end_of(cluster, name, found) for name, found in progress.items())
        members = tuple(self._member_end(one) for one in self.instances)
        self._convert()
        GroupsFile(groups=ends, members=members, breaches=tuple(self._breaches)).save(self._run.groups)
        return stalled

    def settle(self, cluster: Cluster) -> dict[str, _Progress]:
        """Wait until each group has committed the end of its input, at most its `settle`. A group whose members have
        all ended is not waited for."""
        found: dict[str, _Progress] = {}
        for name in self.spec.workload.groups:
            goal: dict[TopicPartition, int] = {}
            for topic in self.spec.input_of(name):
                goal |= await_ends(cluster, topic, self.spec.topics[topic].partitions, _GOAL_S)[0]
            found[name] = _Progress(goal, time.monotonic(), time.monotonic())

        def look() -> bool:
            self.note_ends()
            for name, one in found.items():
                if one.ended is None:
                    self._look(cluster, name, one)
            return all(one.ended is not None for one in found.values())

        longest = max(group.settle for group in self.spec.workload.groups.values())
        with suppress(WaitTimeout):
            wait_until(
                look,
                what="consumer groups to catch up",
                timeout_s=longest + _GOAL_S * len(found),
                interval_s=_LOOK_EVERY_S,
            )
        return found

    def _look(self, cluster: Cluster, name: str, one: _Progress) -> None:
        """Ask once how far a group has come."""
        group, now = self.spec.workload.groups[name], time.monotonic()
        answer = ask_coordinator(cluster, name, within_s=_ASK_S)
        if not answer.reason:
            one.offsets = answer.of_partition
            if (committed := sum(one.offsets.values())) != one.committed:
                one.committed, one.moved = committed, now
            one.caught_up = self._has_caught_up(group, one)
        if one.caught_up or now - one.began >= group.settle or not self._runs(name):
            one.ended = now

    def _has_caught_up(self, group: GroupSpec, one: _Progress) -> bool:
        """Return True if a group has committed all records of its input; those at the end may be control records."""
        latest = group.start == "latest"  # where nothing came after its start, it has nothing to commit
        left = {
            place: end
            for place, end in one.goal.items()
            if one.offsets.get(place, end if latest else 0) < end
        }
        if not left or self.spec.workload.producers.transaction_size is None:
            return not left
        starts = {place: one.offsets.get(place, 0) for place in left}
        try:
            rows, problem = read_output(
                *(self._bootstrap, left, lambda _: (0, 0)),
                starts=starts,
                isolation=group.isolation,
                hidden=self._hidden,
                idle_s=_ASK_S,
            )
        except KafkaException:
            return False
        return not rows and not problem

    def _runs(self, group: str) -> bool:
        return any(self.group_of(name) == group for name in self.running())

    def _stalled(self, name: str, found: _Progress) -> list[Unrecovered]:
        """Return the partitions in which a group does not advance. A group of which a member died by itself is none:
        the death is told."""
        idle_s = (found.ended or time.monotonic()) - found.moved
        bound = self.spec.evidence.recovery.get("stalled", self.spec.workload.groups[name].stalled_after)
        died = any(self.group_of(one.id) == name for one in self.dead())
        if found.caught_up or idle_s < bound or died or not self._runs(name):
            return []
        return [
            Unrecovered(
                anomaly=Anomaly.STALLED,
                topic=place.topic,
                partition=place.partition,
                group=name,
                seen=f"group {name} has committed {found.offsets.get(place, -1)} of {place}, whose high watermark is "
                f"{end}, and nothing for {idle_s:.1f} s; its members run",
                for_s=round(idle_s, 3),
                log_end=end,
            )
            for place, end in sorted(found.goal.items())
            if found.offsets.get(place, 0) < end
        ]

    def stop(self) -> None:
        """Ask all members to leave and close, and wait; SIGKILL those that do not."""
        batch_s = max(one.batch * one.record_time for one in self.spec.workload.groups.values())
        self.stop_all(_STOP_S + batch_s)
        for one in self.instances:
            one.end()
        self.note_ends()

    def abort(self) -> None:
        """End all members of a run that failed, and convert their ledgers."""
        for one in self.instances:
            if one.child.poll() is None:
                self.kill(one.id)
            one.end()
        self._convert()

    def _convert(self) -> None:
        if self._converted:
            return
        self._converted = True
        for one in self.instances:
            member = self._members[one.id]
            found = convert(self._run, member.settings, one.started_ns, one.end())
            if member.settings.library == COMMAND:
                self._breaches += [(one.id, str(breach)) for breach in found]

    def _member_end(self, one: Instance) -> MemberEnd:
        member = self._members[one.id]
        return MemberEnd(
            client=one.id,
            group=member.group,
            member=member.number,
            pid=one.child.pid,
            started_ns=one.started_ns,
            status=one.end(),
            asked=one.asked,
            killed=one.killed,
            instance=member.settings.instance,
            last_words=one.last_words,
        )

    def _end_of(self, cluster: Cluster, name: str, found: _Progress) -> GroupEnd:
        """Ask for the committed offsets of a group without members, and read its output back."""
        group, ended = self.spec.workload.groups[name], found.ended or time.monotonic()
        reached: dict[TopicPartition, int] = {}
        problem = ""
        if group.output is not None:
            partitions = self.spec.topics[self.spec.input_of(name)[0]].partitions
            reached, unrest = await_ends(cluster, group.output, partitions, group.settle)
            rows: list[OutputRow] = []
            try:
                identify = partial(identity_of, where="value", run_id=self._tag.run_id)
                rows, problem = read_output(self._bootstrap, reached, identify, hidden=self._hidden)
            except KafkaException as error:
                problem = str(error)
            problem = "; ".join(filter(None, (unrest, problem)))
            write_output(self._run.group_output(name), rows)
        return GroupEnd(
            group=name,
            committed=ask_coordinator(cluster, name),
            ends=tuple((*place, end) for place, end in sorted(found.goal.items())),
            caught_up=found.caught_up,
            waited_s=round(ended - found.began, 3),
            idle_s=round(ended - found.moved, 3),
            output_ends=tuple((*place, end) for place, end in sorted(reached.items())),
            problem=problem,
        )


def start_groups(
    spec: ExperimentSpec,
    run: CaseDir,
    tag: RunTag,
    bootstrap: str,
    timeline: Timeline,
    hidden: Mapping[str, str],
) -> Groups | None:
    """Start the members of the experiment's groups; None without one. Raises as `Groups.start`."""
    if not spec.workload.groups:
        return None
    groups = Groups(spec, run, tag, bootstrap, timeline, hidden)
    groups.start()
    return groups
