"""Tests of quantities of consumer groups, on planted runs and against a plain second implementation."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ackproof.plan.cases import cases, load
from ackproof.quantities.answer import measured, rows
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.groups import QUANTITIES
from ackproof.quantities.quantity import Value
from ackproof.quantities.vocabulary import parse_ask
from ackproof.rundir.bounds import WHOLE
from ackproof.rundir.clock import RunClock
from ackproof.rundir.groups import CommitResult, GroupsFile, MembershipEvent, ProcessingState
from ackproof.rundir.ledger import parts, read_parts
from ackproof.rundir.schema import PRODUCED
from ackproof.rundir.timeline import PhaseBegan, Timeline
from planted_groups import PlantedGroups
from written_group import MS, START

Rows = list[dict[str, Any]]
LOAD_ENDS = START + 10**9


class Plain:
    """Second implementation of the quantities of consumer groups: plain loops over the run's ledgers, as
    docs/quantities.md defines them. Its methods return the quantity's unit (s, a count or a share)."""

    def __init__(self, evidence: Evidence) -> None:
        run = evidence.run
        self.deliveries = [
            row for path in (run.deliveries,) for row in _list(path) if row["processed_ns"] >= 0
        ]
        self.effective = [one for one in self.deliveries if one["state"] == ProcessingState.EFFECTIVE]
        self.commits, self.membership = _list(run.commits_ledger), _list(run.membership)
        self.produced = read_parts(run.produced, PRODUCED).to_pylist()
        assert evidence.groups is not None
        self.caught_up = evidence.groups.groups[0].caught_up

    def first(self, record: dict[str, Any]) -> float:
        key = record["producer"], record["seq"]
        times = [one["processed_ns"] for one in self.effective if (one["producer"], one["seq"]) == key]
        return min(times, default=math.inf)

    def end_to_end(self, share: float) -> float:
        waits = sorted(
            self.first(one) - one["sent_ns"] for one in self.produced if self.first(one) < math.inf
        )
        least = (wait for wait in waits if sum(other <= wait for other in waits) >= share * len(waits) - 1e-9)
        return next(least) / 1e9

    def waits(self) -> list[tuple[int, float]]:
        acked = [one for one in self.produced if one["done_ns"] < LOAD_ENDS]
        return [(one["done_ns"], min(self.first(one), LOAD_ENDS)) for one in acked]

    def lag_time(self) -> float:
        return max(0.0, *(end - begin for begin, end in self.waits())) / 1e9

    def lag_records(self) -> int:
        waits = self.waits()
        return max(sum(begin <= at < end for begin, end in waits) for at, _ in waits)

    def commits_of(self, result: CommitResult) -> int:
        return len({(one["member"], one["number"]) for one in self.commits if one["result"] == result})

    def rebalance(self) -> float | None:
        """Return the longest rebalance in s; None if no partition changed its owner."""
        spans = []
        for partition in sorted({one["partition"] for one in self.membership} - {-1}):
            events = sorted(
                (one["t_ns"], one["event"], one["member"])
                for one in self.membership
                if one["partition"] == partition and one["event"] in ("assigned", "revoked", "lost")
            )
            given_up, ever = None, False
            for number, (at, event, member) in enumerate(events):
                if event != "assigned":
                    given_up = at if given_up is None else given_up
                elif not ever:
                    ever, given_up = True, None
                else:
                    begin = at if given_up is None else given_up
                    until = events[number + 1][0] if number + 1 < len(events) else math.inf
                    processed = [
                        one["processed_ns"]
                        for one in self.deliveries
                        if (one["partition"], one["member"]) == (partition, member)
                        and at <= one["processed_ns"] < until
                    ]
                    if processed:
                        spans.append((begin, min(processed)))
                    given_up = None if processed or until == math.inf else begin
        spans = [span for span in spans if span[0] < LOAD_ENDS]
        changed = True
        while changed:
            changed = False
            for one in spans:
                for other in spans:
                    if one is not other and one[0] <= other[1] and other[0] <= one[1]:
                        spans = [span for span in spans if span not in (one, other)]
                        spans.append((min(one[0], other[0]), max(one[1], other[1])))
                        changed = True
                        break
                if changed:
                    break
        return max(end - begin for begin, end in spans) / 1e9 if spans else None

    def stopped(self) -> float:
        """Return the share of time (0 … 1) without any assigned partition, counted per ms from the first assignment."""
        begin = min(one["t_ns"] for one in self.membership if one["event"] == "assigned")
        total, times = 0, range(begin, LOAD_ENDS, MS)
        for at in times:
            owners: set[tuple[int, int]] = set()
            for one in sorted(self.membership, key=lambda one: one["t_ns"]):
                member, key = one["member"], (one["member"], one["partition"])
                if one["t_ns"] > at:
                    break
                if one["event"] == "assigned":
                    owners = owners | {key}
                elif one["event"] in ("revoked", "lost"):
                    owners = owners - {key}
                elif one["event"] == "closed":
                    owners = {other for other in owners if other[0] != member}
            total += not owners
        return total / len(times)


def _list(folder: Path) -> Rows:
    import pyarrow.parquet as pq

    return [row for path in parts(folder) for row in pq.read_table(path).to_pylist()]


def _evidence(folder: Path, planted: PlantedGroups, *, caught_up: bool = True) -> Evidence:
    run = planted.write(folder)
    file = GroupsFile.load(run.groups)
    (end,) = file.groups
    file.model_copy(update={"groups": (end.model_copy(update={"caught_up": caught_up}),)}).save(run.groups)
    with Timeline(run.timeline, RunClock.start()) as timeline:
        for phase, at in (("load", 0), ("drain", LOAD_ENDS), ("end", LOAD_ENDS + 1)):
            timeline.add(PhaseBegan(phase=phase), t_ns=at)
    evidence = Evidence.of_run(run)
    assert evidence.load_ends == LOAD_ENDS
    return evidence


def value(evidence: Evidence, text: str) -> Value:
    return measured(evidence, parse_ask(text), WHOLE)


def _shuffled(seed: int) -> PlantedGroups:
    """Return a group with unprocessed and aborted records, rebalances, refused and unknown commits, drawn from
    `seed`."""
    chance = random.Random(seed)
    planted = PlantedGroups(records=30, partitions=2)
    columns = planted.deliveries.columns
    columns["processed_ns"] = columns["processed_ns"] + [
        chance.randrange(0, 40) * MS for _ in columns["processed_ns"]
    ]
    for at in chance.sample(range(60), 5):
        columns["state"][at] = int(ProcessingState.ABORTED)
    for at in chance.sample(range(60), 4):
        planted.deliveries.there[at] = False
    for at in chance.sample(range(planted.commits.length), 3):
        planted.commits.columns["result"][at] = chance.choice([1, 2])
    for partition in (0, 1):
        at = START + chance.randrange(0, 20) * MS
        for member in (1 - partition, partition):
            if chance.random() < 0.8:
                planted.member_event(MembershipEvent.REVOKED, 1 - member, partition, at)
            at += chance.randrange(1, 8) * MS
            planted.member_event(MembershipEvent.ASSIGNED, member, partition, at)
            at += chance.randrange(1, 12) * MS
    for _ in range(20):
        row = planted.deliveries.row(chance.randrange(60))
        planted.deliveries.extra.append({**row, "member": 1 - row["member"]})
    return planted


@pytest.mark.parametrize("seed", range(8))
def test_beside_a_plain_second_implementation(tmp_path: Path, seed: int) -> None:
    evidence = _evidence(tmp_path, _shuffled(seed))
    plain = Plain(evidence)
    expected = {
        "end_to_end(p50, billing)": plain.end_to_end(0.5),
        "end_to_end(p95, billing)": plain.end_to_end(0.95),
        "end_to_end(p99, billing)": plain.end_to_end(0.99),
        "end_to_end(max, billing)": plain.end_to_end(1),
        "group_lag(records, billing)": plain.lag_records(),
        "group_lag(time, billing)": plain.lag_time(),
        "group_commits(accepted, billing)": plain.commits_of(CommitResult.ACCEPTED),
        "group_commits(refused, billing)": plain.commits_of(CommitResult.REFUSED),
        "group_commits(unknown, billing)": plain.commits_of(CommitResult.UNKNOWN),
        "commit_rate(billing)": plain.commits_of(CommitResult.ACCEPTED) / (LOAD_ENDS / 1e9),
        "rebalance_time(billing)": plain.rebalance(),
        "stop_the_world(billing)": plain.stopped(),
    }
    assert len(expected) == len(QUANTITIES)
    for text, number in expected.items():
        found = value(evidence, text)
        assert (found.low if found.is_known else None) == pytest.approx(number), text
        assert found.low == found.high or not found.is_known


def test_a_rebalance_with_known_times(tmp_path: Path) -> None:
    """Partition 0 moves from g0 to g1: g0 gives it up at 5 ms, g1 gets it at 9 ms and processes a record at 12 ms."""
    planted = PlantedGroups(records=10, partitions=2)
    planted.member_event(MembershipEvent.REVOKED, 0, 0, START + 5 * MS)
    planted.member_event(MembershipEvent.ASSIGNED, 1, 0, START + 9 * MS)
    planted.deliveries.extra.append(
        {**planted.deliveries.row(9), "member": 1, "processed_ns": START + 12 * MS}
    )
    evidence = _evidence(tmp_path, planted)
    assert value(evidence, "rebalance_time(billing)") == Value.exactly(0.007)


@pytest.mark.parametrize("caught_up", [True, False])
def test_a_partition_that_is_never_processed_again(tmp_path: Path, caught_up: bool) -> None:
    planted = PlantedGroups(records=10, partitions=2, members=3)
    planted.member_event(MembershipEvent.REVOKED, 0, 0, START + 5 * MS)
    planted.member_event(MembershipEvent.ASSIGNED, 2, 0, START + 500 * MS)
    found = value(_evidence(tmp_path, planted, caught_up=caught_up), "rebalance_time(billing)")
    assert found.is_known is not caught_up
    assert caught_up or (found.low, found.high) == (pytest.approx(0.995), math.inf)


def test_what_is_not_known(tmp_path: Path) -> None:
    evidence = _evidence(tmp_path, PlantedGroups(records=10, partitions=1, members=1))
    assert value(evidence, "rebalance_time(billing)").why == "no partition changed hands under load"
    for text in ("end_to_end(p99, other)", "stop_the_world(other)", "group_lag(records, other)"):
        assert not value(evidence, text).is_known
    assert value(evidence, "group_lag(records, billing, orders/0)").is_known


def test_each_is_a_row_of_the_run(tmp_path: Path) -> None:
    found = [one.quantity for one in rows(_evidence(tmp_path, PlantedGroups(records=10)), partitions=False)]
    assert len([name for name in found if "billing" in name]) == len(QUANTITIES)


CASE = """\
name: t
topics: {{orders: {{partitions: 1}}}}
workload: {{groups: {{My-group.1: {{members: 1}}}}}}
expect:
  - {expect}
"""


def _load(folder: Path) -> Callable[[str], object]:
    def check(expect: str) -> object:
        file = folder / "x.yaml"
        file.write_text(CASE.format(expect=expect))
        return cases(load(file))

    return check


def test_an_experiment_may_expect_them(tmp_path: Path) -> None:
    check = _load(tmp_path)
    assert check('rebalance_time(My-group.1): "< 5s"')
    assert check('end_to_end(p99, My-group.1): "< 500ms"')
    with pytest.raises(Exception, match="group 'other' does not exist"):
        check('rebalance_time(other): "< 5s"')
    with pytest.raises(Exception, match="lacks 'G'"):
        check('rebalance_time: "< 5s"')
