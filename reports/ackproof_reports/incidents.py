"""Incidents of a member of a consumer group: killed, frozen, lost partitions, resets, commits that were not
accepted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.rundir.groups import COMMITS, MEMBERSHIP, CommitResult, MembershipEvent
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.ledger import read_parts
from ackproof.rundir.lifelines import Lifelines
from ackproof.rundir.timeline import ClientDied
from ackproof_reports.mechanics import Row
from ackproof_reports.wording import number

_LASTING: Final = {"pause_client": "paused", "slow_member": "slowed"}
"""Kind of the incident by kind of fault, for faults that last and leave the member's process alive."""


@dataclass(frozen=True)
class Incident:
    """An event in the life of a group member, `t_ns` ns after the run's start.

    `kind`: killed, paused, slowed, over (the end of a pause or slowing), fault (another fault), lost (a partition),
    reset (of its position), refused or unknown (a commit). `last_ns`: time of the last of `count` similar incidents; -1
    if `count` is 1."""

    t_ns: int
    member: str
    kind: str
    text: str
    last_ns: int = -1
    count: int = 1

    def __str__(self) -> str:
        return self.text if self.count == 1 else f"{self.count} times {self.text}"


class MemberLife:
    """Faults, commits, membership events and incidents of one group member, from the timeline and its ledgers.

    `client`: id of the member. `lines`: the run's timeline, sorted by fault, node and client. Raises OSError or
    ArrowException if a ledger cannot be read."""

    def __init__(self, run: CaseDir, lines: Lifelines, client: str) -> None:
        self.client = client
        self.own = lines.client(client)
        self.faults = [
            one for one in lines.every_fault.values() if client in one.clients and one.confirmed is not None
        ]
        self.pauses = [one for one in self.faults if one.kind in _LASTING]
        self.commits: pa.Table = read_parts(run.commits_ledger / client_folder(client), COMMITS)
        self.membership: list[Row] = read_parts(
            run.membership / client_folder(client), MEMBERSHIP
        ).to_pylist()
        found = sorted(self._incidents(), key=lambda one: one.t_ns)
        self.incidents = tuple(_merged(found))
        """In order of time."""

    def _incidents(self) -> Iterator[Incident]:
        name = self.client
        for fault in self.faults:
            kind = _LASTING.get(fault.kind) or ("killed" if fault.kind.startswith("kill") else "fault")
            text = f"{fault.done} by fault {fault.name}, {fault.title}"
            yield Incident(fault.confirmed or 0, name, kind, text)
            if fault in self.pauses and fault.healed is not None:
                yield Incident(fault.healed, name, "over", f"fault {fault.name} over")
        for event in self.own.ends:
            if isinstance(event.what, ClientDied):
                yield Incident(event.t_ns, name, "killed", f"died, status {event.what.status}")
        for row in self.membership:
            place = f"{row['topic']}/{row['partition']}"
            if row["event"] == MembershipEvent.LOST:
                yield Incident(row["t_ns"], name, "lost", f"lost {place}, generation {row['generation']}")
            elif row["event"] == MembershipEvent.RESET and (row["from_offset"], row["offset"]) != (-1, 0):
                # Not to the beginning because nothing was committed: so every group starts.
                yield Incident(row["t_ns"], name, "reset", f"reset {place} {reset_text(row)}")
        for row in self.commits.filter(pc.field("result") != CommitResult.ACCEPTED.value).to_pylist():
            kind = CommitResult(row["result"]).name.lower()
            text = f"commit {kind}: {row['error'] or 'no answer'}"
            yield Incident(max(row["begun_ns"], row["done_ns"]), name, kind, text)


def reset_text(row: Row) -> str:
    """Return a reset of a member's position as text: `from 200 to 215: REASON`. `row`: the reset's row in the
    membership ledger."""
    came = "no committed offset" if row["from_offset"] == -1 else number(row["from_offset"])
    return f"from {came} to {number(row['offset'])}: {row['why']}"


def _merged(found: Iterable[Incident]) -> Iterator[Incident]:
    """Yield incidents in order. Successive incidents with the same kind and text become one, at the first time."""
    for _, alike in groupby(found, lambda one: (one.kind, one.text)):
        first, *rest = alike
        yield replace(first, last_ns=rest[-1].t_ns, count=1 + len(rest)) if rest else first
