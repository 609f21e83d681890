"""Storms of pairs (`pairs: all`) without a cluster: each pair of kinds is in one run, or refused with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pytest

from ackproof.experiment.case import Case
from ackproof.experiment.triggers import ChainTrigger
from ackproof.faults.registry import fault_kinds
from ackproof.plan import Plan, cases, load
from ackproof.plan.cases import case_from_json, case_to_json, pairs_of
from ackproof.plan.schedule import describe, describe_pairs
from ackproof.run.conclude import write_pairs
from ackproof.run.options import BatchOptions, plan_batch
from ackproof.rundir.batch import BatchCase, BatchFile, PairOutcome, PairsFile, merge_pairs
from ackproof.rundir.clock import RunClock
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.timeline import (
    EventDetail,
    FaultAsked,
    FaultConfirmed,
    FaultHealed,
    FaultMissed,
    FaultRecovered,
    Timeline,
)
from run_directory import case_file, write_run

HEAD = "name: t\ncluster: {controllers: 3}\ntopics: {orders: {}}\nfaults:\n"
FEW = "{stop: {target: brokers}, kill: {target: brokers}, cut: {link: broker(1) -> broker(2)}, restart: 1, pause: 1}"
"""Menu of a storm. Of its kinds, `kill` and `stop` cannot be paired: both keep all brokers down."""


def read(folder: Path, storm: str, head: str = HEAD) -> Plan:
    file = folder / "e.yaml"
    file.write_text(head + f"  - storm: {storm}\n    at: 1s\n", encoding="utf-8")
    return load(file)


def test_every_pair_is_dealt_once_or_refused(tmp_path: Path) -> None:
    plan = read(tmp_path, "{pairs: all, count: 10}")
    dealt = pairs_of(plan.cells[0].experiment)
    assert dealt is not None
    every = [pair for share in dealt.shares for pair in share]
    kinds = sorted(kind for kind in fault_kinds() if kind != "storm")
    assert sorted([*every, *dealt.refused]) == list(combinations(kinds, 2))
    assert {len(share) for share in dealt.shares[:-1]} == {5}
    assert all(dealt.refused.values())
    assert len(every) > 900, "most pairs can be"
    # The pairs of a share do not depend on the seed, whom they hit does.
    one, other = (cases(plan, seed=seed, only="case#3")[0] for seed in (1, 2))
    assert [fault.kind for fault in one.faults[1::2]] != []
    assert {fault.kind for fault in one.faults} == {fault.kind for fault in other.faults}
    assert one.faults != other.faults


def test_a_pair_is_together_and_the_one_that_lasts_is_first(tmp_path: Path) -> None:
    plan = read(tmp_path, f"{{pairs: all, count: 4, menu: {FEW}}}")
    dealt = pairs_of(plan.cells[0].experiment)
    assert dealt is not None
    why = "kill finds nothing to break while stop brokers keeps one of 1, 2, 3 down"
    assert dealt.refused == {("kill", "stop"): why}
    every = cases(plan)
    every = cases(plan)
    assert [case.id for case in every] == [f"case#{number}" for number in range(1, 6)]
    for case in every:
        assert case_from_json(case_to_json(case)) == case
        for first, second in zip(case.faults[1::2], case.faults[2::2], strict=True):
            assert first.trigger == ChainTrigger(1) and second.trigger == ChainTrigger(first.number, 0.3)
            assert first.HOLD_KEY is not None and first.number % 2 == 1
            assert not second.at_odds(first, case.experiment), "it finds something to break"
    lines = "\n".join(describe(every[0]))
    assert "storm of 2 pairs" in lines and "at least 1 must bite" in lines and " with fault 1.1" in lines
    assert list(describe_pairs(plan, 3)) == [
        "case: 9 pairs of fault kinds in 5 runs, about 0.1 h; 3 of the runs here; 1 pairs refused",
        f"  1 of them: {why}",
    ]


def test_shards_have_all_cases_once(tmp_path: Path) -> None:
    read(tmp_path, f"{{pairs: all, count: 2, menu: {FEW}}}")

    def ids(shard: tuple[int, int] | None) -> list[str]:
        return [case.id for _, case in plan_batch(BatchOptions((tmp_path / "e.yaml",), shard=shard)).cases]

    assert ids((1, 4)) == ["case#1", "case#5", "case#9"]
    assert sorted(one for index in range(1, 5) for one in ids((index, 4))) == ids(None)


TIMES = {
    # asked, confirmed, healed, over, in ms; None: it never came
    "both": ((0, 100, 900, 1000), (300, 400, 950, 1000)),
    "one after the other": ((0, 100, 300, 400), (200, 300, 500, 600)),
    "the second did not bite": ((0, 100, 900, 1000), (300, None, None, 700)),
}


def _write(run: CaseDir, case: Case, times: Sequence[tuple[int | None, ...]]) -> None:
    write_run(run.path, case_json=case_file(case))
    timeline = Timeline(run.timeline, RunClock.start())
    for fault, (asked, confirmed, healed, over) in zip(case.faults[1:], times, strict=True):
        bit = confirmed is not None
        events: list[tuple[int | None, EventDetail]] = [
            (asked, FaultAsked(kind=fault.kind)),
            (confirmed, FaultConfirmed()),
            (healed, FaultHealed()),
            (over, FaultRecovered() if bit else FaultMissed(reason="aimed at nothing")),
        ]
        for at, what in events:
            if at is not None:
                timeline.add(what, fault=fault.number, t_ns=at * 1_000_000)
    timeline.close()


@pytest.mark.parametrize(
    ("times", "outcome", "why"),
    [
        ("both", PairOutcome.COVERED, ""),
        ("one after the other", PairOutcome.NOT_BITTEN, "one ended before the other was in force"),
        ("the second did not bite", PairOutcome.NOT_BITTEN, ": aimed at nothing"),
    ],
)
def test_a_pair_is_covered_by_what_the_timeline_says(
    tmp_path: Path, times: str, outcome: PairOutcome, why: str
) -> None:
    menu = "{stop: {target: brokers}, kill: {target: brokers}, pause: 1}"
    case, *rest = cases(read(tmp_path, f"{{pairs: all, count: 2, menu: {menu}}}"))
    batch = BatchDir(tmp_path / "batch")
    _write(batch.case(case.id), case, TIMES[times])
    entry = BatchCase(case=case.id, settings={}, repeat=1, run=batch.case(case.id).path.name)
    write_pairs(batch, BatchFile(verdict=None, exit_code=0, seed=1, name="t", command="", cases=(entry,)))
    (table,) = PairsFile.load(batch.pairs_json).tables
    (mine,) = table.having(outcome)
    assert set(mine.kinds) == {fault.kind for fault in case.faults[1:]} and mine.case == case.id
    assert mine.why.endswith(why)
    left = [len(table.having(one)) for one in (PairOutcome.NOT_RUN, PairOutcome.REFUSED)]
    assert (table.runs, left) == (2, [1, 1])
    # Another shard covers another pair, and the same one better.
    other = BatchDir(tmp_path / "other")
    entries = []
    for one in (case, rest[0]):
        _write(other.case(one.id), one, TIMES["both"])
        entries.append(BatchCase(case=one.id, settings={}, repeat=1, run=other.case(one.id).path.name))
    write_pairs(
        other, BatchFile(verdict=None, exit_code=0, seed=1, name="t", command="", cases=tuple(entries))
    )
    (both,) = merge_pairs([PairsFile.load(one.pairs_json) for one in (batch, other)]).tables
    assert [len(both.having(one)) for one in PairOutcome] == [2, 0, 0, 1]
