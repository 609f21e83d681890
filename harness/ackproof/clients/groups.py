"""Members of the consumer groups and share groups of a run: starts, watches and stops them, and converts their ledgers.

Members are `g0`, `g1`, … in the order of their start, over all consumer groups, and `h0`, `h1`, … over all share
groups. A member that replaces another takes over its group.instance.id (static membership) and its transactional id.
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

from ackproof.base.errors import WaitTimeout
from ackproof.base.processes import RunTag
from ackproof.base.wait import wait_until
from ackproof.clients.command.events import LINES
from ackproof.clients.contract import (
    SETTINGS,
    ConfigValue,
    GroupSettings,
    MemberSettings,
    ShareSettings,
    client_adapter,
)
from ackproof.clients.group_ledgers import convert, convert_shares
from ackproof.clients.group_progress import ASK_S, GroupProgress, ShareProgress
from ackproof.clients.instances import Instance, Instances
from ackproof.clients.java import adapter as java
from ackproof.clients.launch import verify_config
from ackproof.clients.settings import common_fields
from ackproof.cluster.protocol import Cluster
from ackproof.experiment.client import COMMAND
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.group import GroupProtocol, GroupSpec, ShareGroupSpec
from ackproof.rundir.documents import Client
from ackproof.rundir.groups import GroupsFile, MemberEnd
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.observed import Unrecovered
from ackproof.rundir.shares import SharesFile
from ackproof.rundir.timeline import ClientDied, ClientEnded, ClientStarted, Note, Timeline

_STOP_S: Final = 25.0
"""Seconds that a member gets to leave its group (10 s) and to close, on top of the time of a batch."""
_LOOK_EVERY_S: Final = 0.3
_WATCH_EVERY_S: Final = 0.05
_HEAD: Final = 1 << 16
_ASSIGNED: Final = b'"assigned"'


@dataclass
class _Member:
    """A group member's settings and state, apart from its process. `slot`: number of the first member in its chain of
    replacements; its own number if it replaces none."""

    slot: int
    settings: GroupSettings
    client: Client
    ended: bool = False
    """True once the timeline has the end of the member's process."""


class Groups(Instances):
    """Starts, watches and ends the members of all groups of a run, and writes their ledgers. The run calls `start`, and
    `finish` or, if it failed, `abort`. `hidden`: library settings with secrets, which no file may hold."""

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
        self._specs: dict[str, GroupSpec | ShareGroupSpec] = {
            **spec.workload.groups,
            **spec.workload.share_groups,
        }
        self._run = run
        self._cluster = cluster
        self._timeline = timeline
        self._hidden = dict(hidden)
        self._members: dict[str, _Member] = {}
        self._breaches: list[tuple[str, str]] = []
        self._converted = False
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="members", daemon=True)

    def start(self) -> None:
        """Start the members that each group has at first. Raises `BadInput` for settings that a library refuses, and
        for a program that cannot be started."""
        for name, group in self._specs.items():
            config = self._consumer_config(group, "g0", name)
            verify_config(group.client.library, "consumer", config, self._hidden)
        for name, group in self._specs.items():
            for _ in range(group.members):
                self.start_member(name)
        self._watcher.start()

    def _consumer_config(
        self, group: GroupSpec | ShareGroupSpec, client: str, name: str, instance: str = ""
    ) -> dict[str, ConfigValue]:
        if isinstance(group, ShareGroupSpec):
            return java.share_config(group, self._cluster.bootstrap, client, name)
        adapter = client_adapter(group.client.library)
        return adapter.member_config(group, self._cluster.bootstrap, client, name, instance)

    def _watch(self) -> None:
        while not self._over.wait(_WATCH_EVERY_S):
            self._note_ends()

    def start_member(self, group: str) -> str:
        """Start one more member of a group, and return its id. Raises KeyError for an unknown group, `BadInput` for a
        program that cannot be started."""
        with self._lock:
            return self._start(group).id

    def stop_member(self, client_id: str) -> None:
        """Ask a member to leave its group and to close. Returns at once."""
        self.find(client_id).stop()

    def group_of(self, client_id: str) -> str:
        """Return the name of a member's group. Raises KeyError for an unknown id."""
        return self._members[client_id].settings.group

    def tell(self, client_id: str, line: str) -> None:
        """Write a line with a command, such as `record_time 0.5`, to a member's standard input. Raises OSError if the
        member has ended."""
        os.write(self.find(client_id).control, f"{line}\n".encode())

    def use_protocol(self, group: str, protocol: GroupProtocol) -> None:
        """Set the rebalance protocol of a consumer group's members that start from now on. A protocol other than the
        experiment's is used with its default assignor. Raises KeyError for any other group."""
        spec = self.spec.workload.groups[group]
        same = protocol == spec.protocol
        self._specs[group] = (
            spec if same else spec.model_copy(update={"protocol": protocol, "assignor": None})
        )

    def output(self, client_id: str) -> Path:
        """Return the file to which a member prints its events."""
        return self.find(client_id).folder / LINES

    def start_instance(self, after: Instance | None = None) -> Instance:
        if after is None:
            raise KeyError("a member needs a group")
        before = self._members[after.id]
        return self._start(before.settings.group, before.slot)

    def _start(self, name: str, slot: int | None = None) -> Instance:
        group = self._specs[name]
        letter = "h" if isinstance(group, ShareGroupSpec) else "g"
        number = sum(client.startswith(letter) for client in self._members)
        client, slot = f"{letter}{number}", number if slot is None else slot
        adapter = client_adapter(group.client.library)
        settings = self._settings(name, client, number, slot)
        folder = self._run.clients / client
        folder.mkdir(parents=True)
        path = folder / SETTINGS
        settings.write(path)
        section = "share_groups" if isinstance(group, ShareGroupSpec) else "groups"
        instance = self.launch(
            client,
            adapter.member_command(settings, path),
            folder,
            Path() if settings.command else folder,
            tells=True,
            of=f"workload.{section}.{name}",
            hidden=adapter.security_text(self._hidden) if self._hidden else None,
        )
        known = Client(
            id=client,
            kind="member",
            group=name,
            topics=tuple(settings.topics),
            isolation="read_committed" if isinstance(group, ShareGroupSpec) else group.isolation,
            library=settings.library,
            library_version=settings.library_version,
        )
        self._members[client] = _Member(slot, settings, known)
        self._timeline.add(ClientStarted(pid=instance.child.pid), client=client)
        return instance

    def _settings(self, name: str, client: str, number: int, slot: int) -> GroupSettings:
        group = self._specs[name]
        instance = f"ackproof-{name}-{slot}" if isinstance(group, GroupSpec) and group.static else ""
        config = self._consumer_config(group, client, name, instance)
        kafka, clock = self.spec.cluster.kafka, self._timeline.clock
        common = common_fields(client, group.client, kafka, self._tag, clock, (), config) | {
            "group": name,
            "member": number,
            "topics": self.spec.input_of(name),
            "record_s": group.record_time,
        }
        if isinstance(group, ShareGroupSpec):
            return ShareSettings(
                **common,
                release_every=group.release_every,
                releases=group.releases,
                reject_every=group.reject_every,
                renew_every=group.renew_every,
                group_config=group.group_settings,
            )
        output_config: dict[str, ConfigValue] = {}
        if group.output is not None:
            own = f"ackproof-{self._tag.run_id}-{name}-{slot}" if group.commit == "transaction" else ""
            adapter = client_adapter(group.client.library)
            output_config = adapter.output_config(self._cluster.bootstrap, client, own)
        return MemberSettings(
            **common,
            cooperative=group.protocol == "consumer" or group.assignor == "cooperative-sticky",
            commit=group.commit,
            commit_s=group.commit_every,
            group_metadata=group.group_metadata,
            output=group.output or "",
            output_config=output_config,
            start=group.start,
            reset=group.resolved_reset,
            batch=group.batch,
            instance=instance,
        )

    @property
    def clients(self) -> tuple[Client, ...]:
        """Every member that was started, in order of start."""
        with self._lock:
            return tuple(
                self._members[one.id].client.model_copy(update={"killed": one.killed})
                for one in self.instances
            )

    def _note_ends(self) -> None:
        """Add an event to the timeline for each member that ended since the last call. `ClientEnded`: the harness
        killed the member, or it stopped with status 0 on request. Otherwise `ClientDied`."""
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
        """Send SIGKILL to a member and to the processes that it started. Note its end in the timeline."""
        with self._lock:
            super().kill(client_id)
            self._note_ends()

    def at_work(self, client_id: str) -> bool:
        """Return True if a member runs and is in its group. Also return True if it was asked to leave, so that nobody
        waits for its assignment.

        A member of a consumer group is in it once it got an assignment, also an empty one. A member of a share group is
        in it once it has printed an event.
        """
        instance = self.find(client_id)
        if instance.asked:
            return True
        if isinstance(self._members[client_id].settings, ShareSettings):
            return super().at_work(client_id)
        with (instance.folder / LINES).open("rb") as lines:
            return instance.child.poll() is None and _ASSIGNED in lines.read(_HEAD)

    # -- the end of a run -------------------------------------------------------------------------------------------

    def finish(self) -> list[Unrecovered]:
        """Wait until consumer groups have committed the end of their input and share groups get no more records, for
        their `settle` seconds at most. Then stop them. Write committed offsets, outputs, ledgers,
        `observed/groups.json` and `observed/shares.json`. Return the partitions of consumer groups that
        stalled although their members ran and none had died."""
        self._timeline.add(Note(note="waiting until groups have caught up"))
        workload, known = self.spec.workload, (self._cluster, self.spec)
        progress = [GroupProgress(*known, name, self._hidden) for name in workload.groups]
        shares = [
            ShareProgress(*known, name, self._hidden, printed_bytes=partial(self._printed_bytes, name))
            for name in workload.share_groups
        ]
        self._settle((*progress, *shares))
        dead = {self.group_of(one.id) for one in self.dead()}  # the timeline has the deaths
        stalled = [
            one
            for found in progress
            if found.name not in dead and self._runs(found.name)
            for one in found.stalled(partial(self._waiting, found.name))
        ]
        self.stop()
        ends = tuple(one.end(self._run, self._tag.run_id) for one in progress)
        share_ends = [one.end() for one in shares]
        for _, problem in share_ends:
            if problem:
                self._timeline.add(Note(note=problem))
        self._convert()
        members = {
            kind: tuple(self._member_end(one) for one in self.instances if one.id.startswith(kind))
            for kind in ("g", "h")
        }
        if ends:
            file = GroupsFile(groups=ends, members=members["g"], breaches=tuple(self._breaches))
            file.save(self._run.groups)
        if share_ends:
            SharesFile(groups=tuple(end for end, _ in share_ends), members=members["h"]).save(
                self._run.shares
            )
        return stalled

    def _waiting(self, group: str) -> str:
        """Return a clause, `; g0 has waited 2.5 s for the answer to a commit`, for each running member of the group
        that has waited at least `ASK_S` seconds. Name the library's bug if a known one explains the wait. Return ''
        if no member waits."""
        return "".join(
            f"; {one.id} has waited {waited_s:.1f} s for the answer to a commit"
            + client_adapter(settings.library).known_wait(settings, one.silent_s)
            for one in self.instances
            if self.group_of(one.id) == group and one.child.poll() is None
            if (waited_s := one.commit_in_flight_s) >= ASK_S
            for settings in (self._members[one.id].settings,)
        )

    def _printed_bytes(self, group: str) -> int:
        return sum(
            (one.folder / LINES).stat().st_size for one in self.instances if self.group_of(one.id) == group
        )

    def _settle(self, progress: Sequence[GroupProgress | ShareProgress]) -> None:
        """Wait for all groups: until each has caught up or is at rest, has no running member, or has had its `settle`
        seconds."""

        def look() -> bool:
            for one in progress:
                one.look(self._runs(one.name))
            return all(one.over for one in progress)

        longest = max(one.group.settle for one in progress)
        with suppress(WaitTimeout):
            wait_until(
                look,
                what="groups to catch up",
                timeout_s=2 * longest + ASK_S * len(progress),
                interval_s=_LOOK_EVERY_S,
            )

    def _runs(self, group: str) -> bool:
        return any(self.group_of(name) == group for name in self.running())

    def stop(self) -> None:
        """Ask all members to leave their groups and to close, and wait for their end. Members that still run after 25 s
        and the time of the longest batch get SIGKILL."""
        self.stop_all(_STOP_S + max(one.batch * one.record_time for one in self._specs.values()))
        self._end()

    def abort(self) -> None:
        """Kill all members of a run that failed, and convert their ledgers."""
        try:
            for name in self.running():
                self.kill(name)
        finally:
            self._end()
            self._convert()

    def _end(self) -> None:
        self._over.set()
        if self._watcher.is_alive():
            self._watcher.join()
        for one in self.instances:
            one.end()
        self._note_ends()

    def _convert(self) -> None:
        if self._converted:
            return
        self._converted = True
        for one in self.instances:
            settings = self._members[one.id].settings
            if isinstance(settings, MemberSettings):
                found = convert(self._run, settings, one.started_ns, one.end())
                if settings.library == COMMAND:
                    self._breaches += [(one.id, str(breach)) for breach in found]
            elif isinstance(settings, ShareSettings):
                convert_shares(self._run, settings, one.end())

    def _member_end(self, one: Instance) -> MemberEnd:
        settings = self._members[one.id].settings
        return MemberEnd(
            client=one.id,
            group=settings.group,
            member=settings.member,
            instance=settings.instance,
            **one.outcome(),
        )
