"""Consumer groups of a run: their members, the wait until they have caught up, and what is left of them.

Members are `g0`, `g1`, … in the order of their start, over all groups. One that takes another's place takes over its
group.instance.id (static membership) and its transactional id.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
from ackproof.clients.group_progress import ASK_S, GroupProgress
from ackproof.clients.instances import Instance, Instances
from ackproof.clients.launch import verify_config
from ackproof.cluster.protocol import Cluster
from ackproof.experiment.client import COMMAND
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.group import GroupProtocol, GroupSpec
from ackproof.observe.committed import ask_coordinator
from ackproof.rundir.documents import Client
from ackproof.rundir.groups import GroupEnd, GroupsFile, MemberEnd
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.observed import Unrecovered
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import ClientDied, ClientEnded, ClientStarted, Note, Timeline

_STOP_S: Final = 25.0
"""A member finishes its batch, leaves the group within 10 s, and closes."""
_LOOK_EVERY_S: Final = 0.3
_WATCH_EVERY_S: Final = 0.05
_HEAD: Final = 1 << 16
_ASSIGNED: Final = b'"assigned"'


@dataclass
class _Member:
    """A member besides its process. `slot`: number of the first member whose place it has."""

    group: str
    number: int
    slot: int
    client: Client
    settings: MemberSettings
    ended: bool = False
    """True once its end is in the timeline."""


class Groups(Instances):
    """The members of all groups of a run. `hidden`: library settings with secrets, which no file may hold."""

    def __init__(
        self,
        spec: ExperimentSpec,
        run: CaseDir,
        tag: RunTag,
        cluster: Cluster,
        timeline: Timeline,
        hidden: Mapping[str, str],
    ) -> None:
        super().__init__(tag)
        self.spec = spec
        self._run = run
        self._cluster = cluster
        self._bootstrap = cluster.bootstrap
        self._timeline = timeline
        self._hidden = dict(hidden)
        self._members: dict[str, _Member] = {}
        self._protocols: dict[str, GroupProtocol] = {}
        """By group: the protocol of members that start from now on, if a fault changed it."""
        self._breaches: list[tuple[str, str]] = []
        self._converted = False
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="members", daemon=True)

    def start(self) -> None:
        """Start the members that each group begins with. Raises `BadInput` for settings that a library refuses, and for
        a program that cannot be started."""
        for name, group in self.spec.workload.groups.items():
            config = client_adapter(group.library).member_config(group, self._bootstrap, "g0", name)
            verify_config(group.library, "consumer", config, self._hidden)
        for name, group in self.spec.workload.groups.items():
            for _ in range(group.members):
                self.start_member(name)
        self._watcher.start()

    def _watch(self) -> None:
        while not self._over.wait(_WATCH_EVERY_S):
            self._note_ends()

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

    def _note_ends(self) -> None:
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
            self._note_ends()

    def at_work(self, client_id: str) -> bool:
        """Return True if a member runs, and was assigned partitions or none; or if it was asked to leave."""
        instance = self.find(client_id)
        if instance.asked:
            return True
        with (instance.folder / LINES).open("rb") as lines:
            return instance.child.poll() is None and _ASSIGNED in lines.read(_HEAD)

    # -- the end of a run -------------------------------------------------------------------------------------------

    def finish(self) -> list[Unrecovered]:
        """Wait until the groups have caught up; then stop their members, ask for the committed offsets, read outputs
        back, convert the ledgers and write `observed/groups.json`. Return the partitions of groups that stalled.
        """
        self._timeline.add(Note(note="waiting until consumer groups have caught up"))
        progress = [
            GroupProgress.start(self._cluster, self.spec, name, self._hidden)
            for name in self.spec.workload.groups
        ]
        self._settle(progress)
        dead = {self.group_of(one.id) for one in self.dead()}  # the timeline has the deaths
        stalled = [
            one
            for found in progress
            if found.name not in dead and self._runs(found.name)
            for one in found.stalled()
        ]
        self.stop()
        ends = tuple(self._end_of(found) for found in progress)
        members = tuple(self._member_end(one) for one in self.instances)
        self._convert()
        GroupsFile(groups=ends, members=members, breaches=tuple(self._breaches)).save(self._run.groups)
        return stalled

    def _settle(self, progress: Sequence[GroupProgress]) -> None:
        """Wait until each group has caught up, has no members left, or has had its `settle`."""

        def look() -> bool:
            for one in progress:
                one.look(self._runs(one.name))
            return all(one.over for one in progress)

        longest = max(one.group.settle for one in progress)
        with suppress(WaitTimeout):
            wait_until(
                look,
                what="consumer groups to catch up",
                timeout_s=2 * longest + ASK_S * len(progress),
                interval_s=_LOOK_EVERY_S,
            )

    def _runs(self, group: str) -> bool:
        return any(self.group_of(name) == group for name in self.running())

    def stop(self) -> None:
        """Ask all members to leave and close, and wait; SIGKILL those that do not."""
        batch_s = max(one.batch * one.record_time for one in self.spec.workload.groups.values())
        self.stop_all(_STOP_S + batch_s)
        for one in self.instances:
            one.end()
        self._end_watch()

    def abort(self) -> None:
        """End all members of a run that failed, and convert their ledgers."""
        for one in self.instances:
            if one.child.poll() is None:
                self.kill(one.id)
            one.end()
        self._end_watch()
        self._convert()

    def _end_watch(self) -> None:
        self._over.set()
        if self._watcher.is_alive():
            self._watcher.join()
        self._note_ends()

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

    def _end_of(self, found: GroupProgress) -> GroupEnd:
        """Ask for the committed offsets of a group without members, and read its output back."""
        name, group = found.name, found.group
        reached: dict[TopicPartition, int] = {}
        problem = ""
        if group.output is not None:
            partitions = self.spec.topics[self.spec.input_of(name)[0]].partitions
            reached, unrest = await_ends(self._cluster, group.output, partitions, group.settle)
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
            committed=ask_coordinator(self._cluster, name),
            ends=tuple((*place, end) for place, end in sorted(found.goal.items())),
            caught_up=found.caught_up,
            waited_s=round(found.over_s - found.began_s, 3),
            idle_s=round(found.over_s - found.moved_s, 3),
            output_ends=tuple((*place, end) for place, end in sorted(reached.items())),
            problem=problem,
        )


def all_joined(groups: Groups | None) -> bool:
    """Return True once each member that runs has had an assignment; also without groups."""
    return groups is None or all(map(groups.at_work, groups.running()))


def start_groups(
    spec: ExperimentSpec,
    run: CaseDir,
    tag: RunTag,
    cluster: Cluster,
    timeline: Timeline,
    hidden: Mapping[str, str],
) -> Groups | None:
    """Start the members of the experiment's groups; None without one. Raises as `Groups.start`."""
    if not spec.workload.groups:
        return None
    groups = Groups(spec, run, tag, cluster, timeline, hidden)
    groups.start()
    return groups
