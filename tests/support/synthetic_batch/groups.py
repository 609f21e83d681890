"""Adds to a synthetic case a consumer group that commits before processing, with one killed and one frozen member."""

from __future__ import annotations

from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq

from ackproof.rundir.committed import GroupOffsets
from ackproof.rundir.documents import AuditFile, ClassJudgement, GroupCounts, VerdictFile
from ackproof.rundir.groups import (
    CommitResult,
    GroupEnd,
    GroupsFile,
    MemberEnd,
    ProcessingState,
)
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.schema import GROUP_FINDINGS
from ackproof.rundir.service import OUTPUT
from ackproof.rundir.timeline import Event, EventKind, read_timeline
from run_directory import write_run
from synthetic_batch.recipes import WALL_NS, ns

GROUP = "billing"
BATCH = 20
KILLED_S, FROZEN_S, RESUMED_S = 6.05, 4.5, 10.8
UNPROCESSED = range(12)
"""Records of the last batch of g1 that it did not process before its death, counted from the batch's end."""

SKIPPED = 15
"""Number of records that the reset of g0 skipped."""


class _Member:
    def __init__(self, number: int) -> None:
        self.number, self.generation = number, 1
        self.deliveries: list[dict[str, object]] = []
        self.commits: list[dict[str, object]] = []
        self.membership: list[dict[str, object]] = []
        self._batch, self._number = count(), count()

    def event(
        self, event: str, partition: int, t_s: float, came: int = -1, to: int = -1, why: str = ""
    ) -> None:
        place = {"topic": "orders", "partition": partition, "from_offset": came, "offset": to}
        who = {"group": GROUP, "member": self.number, "member_id": f"m-{self.number}"}
        self.membership.append(
            {**who, **place, "event": event, "generation": self.generation, "why": why, "t_ns": ns(t_s)}
        )

    def commit(self, partition: int, offset: int, t_s: float, error: str = "") -> None:
        result = CommitResult.REFUSED if error else CommitResult.ACCEPTED
        self.commits.append(
            {"group": GROUP, "member": self.number, "number": next(self._number), "topic": "orders"}
            | {"partition": partition, "offset": offset, "generation": self.generation, "result": int(result)}
            | {"begun_ns": ns(t_s), "done_ns": ns(t_s + 0.004), "error": error, "transaction": False}
            | {"generation_after": self.generation}
        )

    def batch(self, partition: int, offset: int, t_s: float, processed: int = BATCH) -> int:
        """Let the member get a batch, commit it, and process `processed` of its records; return the offset after it."""
        number = next(self._batch)
        self.commit(partition, offset + BATCH, t_s + 0.002)
        for at in range(BATCH):
            done = at < processed
            state = ProcessingState.EFFECTIVE if done else ProcessingState.NOT_PROCESSED
            self.deliveries.append(
                {"group": GROUP, "member": self.number, "generation": self.generation, "batch": number}
                | {"topic": "orders", "partition": partition, "offset": offset + at, "producer": partition}
                | {"seq": offset + at, "delivered_ns": ns(t_s), "state": int(state), "commit": -1}
                | {"processed_ns": ns(t_s + 0.01 + at * 0.005) if done else -1}
            )
        return offset + BATCH


def add_group(run: CaseDir) -> tuple[int, int]:
    """Add the group to a case; return partition and offset of the first record that no member processed.

    g0 owns orders/0, g1 orders/1, g2 orders/2. g1 is killed in the middle of a batch that it has committed, and g3
    replaces it. g2 is frozen; g0 takes over orders/2 and resets its position, and the commit of g2 is refused."""
    members = [_Member(number) for number in range(4)]
    g0, g1, g2, g3 = members
    ends = [0, 0, 0]
    for member, until in ((g0, 13.0), (g1, KILLED_S - 0.2), (g2, FROZEN_S - 0.2)):
        member.event("assigned", member.number, 2.5)
        t_s = 2.6
        while t_s < until:
            ends[member.number] = member.batch(member.number, ends[member.number], t_s)
            t_s += 0.17 if t_s < 5 or member is not g0 else 0.4
    gone = ends[1] + BATCH - len(UNPROCESSED)
    ends[1] = g1.batch(1, ends[1], KILLED_S - 0.06, processed=BATCH - len(UNPROCESSED))
    for member in (g0, g2, g3):
        member.generation = 2
    g0.event("assigned", 2, 8.6)
    g0.event("reset", 2, 8.61, came=ends[2], to=ends[2] + SKIPPED, why="_AUTO_OFFSET_RESET")
    g0.event("revoked", 2, 11.1)
    g2.generation = 1
    g2.commit(2, ends[2] + BATCH, RESUMED_S + 0.01, error="UNKNOWN_MEMBER_ID")
    g2.event("lost", 2, RESUMED_S + 0.1)
    g2.generation = g0.generation = g3.generation = 3
    g3.event("assigned", 1, 8.6)
    g2.event("assigned", 2, 11.2)
    skipped = range(ends[2], ends[2] + SKIPPED)
    ends[2] += SKIPPED
    for member, partition, t_s in ((g3, 1, 8.7), (g2, 2, 11.3)):
        while t_s < 13.4:
            ends[partition] = member.batch(partition, ends[partition], t_s)
            t_s += 0.15
    for member in (g0, g2, g3):
        member.event("closed", -1, 14.0)
    _documents(run, members, ends, gone, skipped)
    sent = [
        {"producer": partition, "seq": seq, "topic": "orders", "partition": partition, "offset": seq}
        | {"sent_ns": ns(2.4), "done_ns": ns(2.41), "outcome": int(Outcome.ACKED)}
        for partition, end in enumerate(ends)
        for seq in range(end)
    ]
    write_run(
        run.path,
        produced={"p0": sent},
        deliveries={f"g{one.number}": one.deliveries for one in members},
        commits_ledger={f"g{one.number}": one.commits for one in members},
        membership={f"g{one.number}": one.membership for one in members},
        timeline=_events(run),
    )
    return 1, gone


def _documents(run: CaseDir, members: list[_Member], ends: list[int], gone: int, skipped: range) -> None:
    offsets = tuple(("orders", partition, end) for partition, end in enumerate(ends))
    GroupsFile(
        groups=(
            GroupEnd(
                group=GROUP,
                committed=GroupOffsets(group=GROUP, partition=3, coordinator=1, offsets=offsets),
                ends=(offsets[0], offsets[1], ("orders", 2, ends[2] + 30)),
                waited_s=4.2,
            ),
        ),
        members=tuple(
            MemberEnd(
                client=f"g{one.number}", group=GROUP, member=one.number, pid=100 + one.number, started_ns=0,
                status=-9 if one.number == 1 else 0, asked=True, killed=one.number == 1,
            )
            for one in members
        ),
    ).save(run.groups)  # fmt: skip
    lost = [("undelivered", gone + at, 1, 1) for at in UNPROCESSED]
    passed = [("skipped-by-reset", offset, 2, 0) for offset in skipped]
    rows = [
        {"class": name, "topic": "orders", "partition": partition, "producer": partition, "seq": offset}
        | {"offset": offset, "detail": "", "group": GROUP, "member": member}
        for name, offset, partition, member in lost + passed
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=GROUP_FINDINGS), run.findings / "part-9.parquet")
    output = [{"producer": 0, "seq": 5, "partition": 0, "offset": 77}] * 2
    pq.write_table(pa.Table.from_pylist(output, schema=OUTPUT), run.group_output(GROUP))
    counts = dict.fromkeys(
        (
            "undelivered",
            "skipped-by-reset",
            "redelivered",
            "lost-commit",
            "regressed-commit",
            "zombie-commit",
        ),
        0,
    ) | {"undelivered": len(lost), "skipped-by-reset": len(passed)}
    rows_of = [row for one in members for row in one.deliveries]
    audit = AuditFile.load(run.audit_json)
    group = GroupCounts(
        group=GROUP,
        counts=counts,
        input=sum(ends),
        delivered=len(rows_of),
        processed=sum(row["processed_ns"] != -1 for row in rows_of),
        output=len(output),
        accepted=sum(len(one.commits) for one in members) - 1,
        refused=1,
        reasons=("two-owners: the ledger of member g9 is missing",),
    )
    audit.model_copy(update={"groups": (group,), "counts": audit.counts | counts}).save(run.audit_json)
    why = "billing: a member commits before it processes (at most once)"
    judged = VerdictFile.load(run.verdict_json)
    classes = [
        ClassJudgement(
            group=GROUP,
            predicted="possible" if name == "undelivered" else "",
            anomaly=name,
            count=count,
            forbidden=name not in ("undelivered", "redelivered"),
            why=why,
        )
        for name, count in counts.items()
    ]
    judged.model_copy(update={"classes": (*judged.classes, *classes), "group_classes": tuple(classes)}).save(
        run.verdict_json
    )


def _events(run: CaseDir) -> list[Event]:
    events, _ = read_timeline(run.timeline)
    killed = {"kind": "kill_client", "done": "killed", "role": "member(billing)"}
    paused = {"kind": "pause_client", "done": "paused", "role": "member(billing)"}
    said: list[tuple[float, EventKind, dict[str, object]]] = [
        *((2.3, EventKind.CLIENT_STARTED, {"client": f"g{number}"}) for number in range(3)),
        (FROZEN_S - 0.02, EventKind.FAULT_ASKED, {"fault": 3, "detail": paused}),
        (FROZEN_S, EventKind.FAULT_CONFIRMED, {"fault": 3, "detail": {"clients": ["g2"]}}),
        (KILLED_S - 0.02, EventKind.FAULT_ASKED, {"fault": 4, "detail": killed}),
        (KILLED_S, EventKind.FAULT_CONFIRMED, {"fault": 4, "detail": {"clients": ["g1"]}}),
        (KILLED_S, EventKind.CLIENT_ENDED, {"client": "g1", "detail": {"status": -9}}),
        (8.0, EventKind.CLIENT_STARTED, {"client": "g3"}),
        (8.7, EventKind.FAULT_HEALED, {"fault": 4, "detail": {"did": "started g3"}}),
        (8.8, EventKind.FAULT_RECOVERED, {"fault": 4, "detail": {"witness": "g3 is at work"}}),
        (RESUMED_S, EventKind.FAULT_HEALED, {"fault": 3, "detail": {"did": "SIGCONT to g2"}}),
        (RESUMED_S + 0.01, EventKind.FAULT_RECOVERED, {"fault": 3, "detail": {"witness": "g2 runs again"}}),
        *((14.1, EventKind.CLIENT_ENDED, {"client": f"g{n}", "detail": {"status": 0}}) for n in (0, 2, 3)),
    ]
    events += [
        Event.model_validate({"t_ns": ns(t_s), "wall_ns": WALL_NS + ns(t_s), "kind": kind, **rest})
        for t_s, kind, rest in said
    ]
    return sorted(events, key=lambda event: event.t_ns)
