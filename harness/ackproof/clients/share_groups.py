"""Share groups of a run: their members, the wait until they are at rest, and their ledgers.

Members are `h0`, `h1`, … in the order of their start, over all share groups. Only the Java client has share groups.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaException

from ackproof.base.errors import WaitTimeout
from ackproof.base.processes import RunTag
from ackproof.base.wait import wait_until
from ackproof.clients.command.events import LINES
from ackproof.clients.command.output import await_ends, read_output
from ackproof.clients.contract import EXIT_CLEAN, SETTINGS, ShareSettings
from ackproof.clients.instances import Instance, Instances
from ackproof.clients.java import adapter
from ackproof.clients.launch import verify_config
from ackproof.cluster.protocol import Cluster
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.share_group import ShareGroupSpec
from ackproof.rundir import storage
from ackproof.rundir.groups import MemberEnd
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.parts import mark_end
from ackproof.rundir.shares import SHARES, ShareGroupEnd, ShareResult, SharesFile
from ackproof.rundir.timeline import Note, Timeline

_STOP_S: Final = 25.0
_GOAL_S: Final = 15.0
_PART: Final = "part-000000.parquet"
_REFUSED: Final = frozenset(
    {
        "INVALID_RECORD_STATE",
        "INVALID_REQUEST",
        "INVALID_SHARE_SESSION_EPOCH",
        "SHARE_SESSION_NOT_FOUND",
        "SHARE_SESSION_LIMIT_REACHED",
        "UNKNOWN_MEMBER_ID",
        "UNKNOWN_TOPIC_ID",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "NOT_LEADER_OR_FOLLOWER",
        "FENCED_LEADER_EPOCH",
        "GROUP_ID_NOT_FOUND",
        "GROUP_AUTHORIZATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
    }
)
"""Errors of an acknowledgement that a broker returns before it changes the record's state (SharePartition.acknowledge,
SharePartitionManager)."""


class ShareGroups(Instances):
    """The members of all share groups of a run. `hidden`: library settings with secrets, which no file may hold."""

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
        self._settings: dict[str, ShareSettings] = {}

    @property
    def specs(self) -> Mapping[str, ShareGroupSpec]:
        return self.spec.workload.share_groups

    def start(self) -> None:
        """Start the members of each group. Raises `BadInput` for settings that the library refuses."""
        for name, group in self.specs.items():
            config = adapter.share_config(group, self._bootstrap, "h0", name)
            verify_config(group.client.library, "consumer", config, self._hidden)
        for name, group in self.specs.items():
            for _ in range(group.members):
                self.start_member(name)

    def start_member(self, name: str) -> str:
        """Start one more member of a group. Return its id. Raises KeyError for an unknown group."""
        with self._lock:
            group, number = self.specs[name], len(self.instances)
            client = f"h{number}"
            library = adapter.installed_library(group.client.release_for(self.spec.cluster.kafka))
            settings = ShareSettings(
                client=client,
                run_id=self._tag.run_id,
                case_dir=str(self._run.path.absolute()),
                places=(),
                origin_ns=self._timeline.clock.origin_ns,
                config=adapter.share_config(group, self._bootstrap, client, name),
                library=library.name,
                library_version=library.version,
                group=name,
                member=number,
                topics=group.topics or self.spec.topic_names(),
                release_every=group.release_every,
                releases=group.releases,
                reject_every=group.reject_every,
                renew_every=group.renew_every,
                record_s=group.record_time,
                group_config=group.group_settings,
            )
            folder = self._run.clients / client
            folder.mkdir(parents=True)
            path = folder / SETTINGS
            settings.write(path)
            self._settings[client] = settings
            hidden = adapter.security_text(self._hidden) if self._hidden else None
            command = adapter.share_command(settings, path)
            of = f"workload.share_groups.{name}"
            one = self.launch(client, command, folder, folder, tells=True, of=of, hidden=hidden)
            return one.id

    def start_instance(self, after: Instance | None = None) -> Instance:
        if after is None:
            raise KeyError("a member needs a group")
        return self.find(self.start_member(self._settings[after.id].group))

    # -- the end of a run -------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Wait until the groups are at rest, stop their members, and write ledgers and `observed/shares.json`."""
        self._timeline.add(Note(note="waiting until share groups are at rest"))
        rested = self._settle()
        self.stop_all(_STOP_S + max(one.batch * one.record_time for one in self.specs.values()))
        ends = tuple(
            ShareGroupEnd(
                group=name,
                rested=name in rested,
                waited_s=round(rested.get(name, group.settle), 3),
                dead_letters=self._dead_letters(name, group),
            )
            for name, group in self.specs.items()
        )
        SharesFile(groups=ends, members=tuple(self._close())).save(self._run.shares)

    def abort(self) -> None:
        """End all members of a run that failed, and convert their ledgers."""
        for one in self.instances:
            if one.child.poll() is None:
                self.kill(one.id)
        list(self._close())

    def _settle(self) -> dict[str, float]:
        """Wait until no member is handed records for `rest_s` while one of its group runs. Return for how many seconds
        the run waited for each group that came to rest."""
        began = time.monotonic()
        moved = dict.fromkeys(self.specs, (began, -1))
        rested: dict[str, float] = {}

        def look() -> bool:
            now = time.monotonic()
            for name, group in self.specs.items():
                own = [one for one in self.instances if self._settings[one.id].group == name]
                size = sum((one.folder / LINES).stat().st_size for one in own)
                if size != moved[name][1]:
                    moved[name] = now, size
                idle = now - moved[name][0] >= group.rest_s
                if idle and any(one.child.poll() is None for one in own) and now - began <= group.settle:
                    rested.setdefault(name, now - began)
            return len(rested) == len(self.specs)

        with suppress(WaitTimeout):
            longest = max(group.settle for group in self.specs.values())
            wait_until(look, what="share groups to come to rest", timeout_s=longest, interval_s=0.3)
        return rested

    def _dead_letters(self, name: str, group: ShareGroupSpec) -> int:
        """Return the number of records in a group's dead-letter topic; -1 without one, or if it cannot be read."""
        if group.dead_letters is None:
            return -1
        topic = (group.topics or self.spec.topic_names())[0]
        partitions = self.spec.topics[topic].partitions
        reached, unrest = await_ends(self._cluster, group.dead_letters, partitions, _GOAL_S)
        try:
            rows, unread = read_output(self._bootstrap, reached, lambda _: (0, 0), hidden=self._hidden)
        except KafkaException as error:
            rows, unread = [], str(error)
        if why := "; ".join(filter(None, (unrest, unread))):
            self._timeline.add(Note(note=f"share group {name}: {group.dead_letters}: {why}"))
            return -1
        return len(rows)

    def _close(self) -> Iterable[MemberEnd]:
        for one in self.instances:
            status, settings = one.end(), self._settings[one.id]
            convert_shares(self._run, settings, status)
            yield MemberEnd(
                client=one.id,
                group=settings.group,
                member=settings.member,
                pid=one.child.pid,
                started_ns=one.started_ns,
                status=status,
                asked=one.asked,
                killed=one.killed,
                last_words=one.last_words,
            )


def convert_shares(run: CaseDir, settings: ShareSettings, status: int) -> None:
    """Write the ledger of a share group member that has ended, with `_END` if it said `closed` and ended with 0.

    A torn last line is left out. An answer belongs to the oldest acknowledgement of its record that has none. Raises
    OSError.
    """
    raw = (run.clients / settings.client / LINES).read_bytes()
    rows: list[dict[str, Any]] = []
    handed: dict[tuple[str, int, int], dict[str, Any]] = {}
    waiting: defaultdict[tuple[str, int, int], deque[dict[str, Any]]] = defaultdict(deque)
    closed = False
    for line in raw[: raw.rfind(b"\n") + 1].splitlines():
        event = json.loads(line)
        t_ns = event["t"] - settings.origin_ns
        match event["e"]:
            case "delivered":
                place = event["topic"], event["p"], event["o"]
                producer, seq = event.get("id", (-1, -1))
                values = (settings.group, settings.member, event["batch"], *place, producer, seq, event["d"])
                times = event["q"] - settings.origin_ns, t_ns
                rest = "", -1, -1, ShareResult.UNKNOWN.value, ""
                handed[place] = dict(zip(SHARES.names, (*values, *times, *rest), strict=True))
                rows.append(handed[place])
            case "acknowledge":
                row = handed[event["topic"], event["p"], event["o"]]
                row |= {"ack": event["how"], "ack_ns": t_ns}
                waiting[event["topic"], event["p"], event["o"]].append(row)
            case "answered":
                error = event.get("x", "")
                result = (
                    ShareResult.ACKNOWLEDGED
                    if not error
                    else ShareResult.REFUSED
                    if error in _REFUSED
                    else ShareResult.UNKNOWN
                )
                for topic, partition, offset in event["os"]:
                    if waiting[topic, partition, offset]:
                        row = waiting[topic, partition, offset].popleft()
                        row |= {"answered_ns": t_ns, "result": result.value, "error": error}
            case "closed":
                closed = True
    folder = run.shares_ledger / client_folder(settings.client)
    folder.mkdir(parents=True, exist_ok=True)
    schema = SHARES.with_metadata(settings.client_library.metadata())
    with storage.create_parquet(folder / _PART, schema) as file:
        file.write_table(pa.Table.from_pylist(rows, schema=schema))
    if closed and status == EXIT_CLEAN:
        mark_end(folder)


def start_share_groups(
    spec: ExperimentSpec,
    run: CaseDir,
    tag: RunTag,
    cluster: Cluster,
    timeline: Timeline,
    hidden: Mapping[str, str],
) -> ShareGroups | None:
    """Start the members of the experiment's share groups; None without one. Raises as `ShareGroups.start`."""
    if not spec.workload.share_groups:
        return None
    groups = ShareGroups(spec, run, tag, cluster, timeline, hidden)
    groups.start()
    return groups
