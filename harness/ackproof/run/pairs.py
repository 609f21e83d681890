"""Which pairs of fault kinds the runs of a batch had in force together: by their timelines, not by what was planned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import combinations

from ackproof.base.errors import BadInput
from ackproof.experiment.case import Case, cell_of
from ackproof.faults.pairs import Pair, deal, pair_storm_of
from ackproof.faults.registry import fault_kinds
from ackproof.plan.cases import case_from_json
from ackproof.plan.check_faults import able_on
from ackproof.quantities.evidence import Evidence
from ackproof.rundir.batch import BatchFile, PairEntry, PairOutcome, PairsFile, PairTable
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.lifelines import FaultLife
from ackproof.rundir.timeline import FaultFailed, FaultMissed


def write_pairs(directory: BatchDir, batch: BatchFile) -> None:
    """Write `pairs.json` of a batch with a storm of pairs; nothing for another."""
    cells: dict[str, list[tuple[Case, CaseDir]]] = {}
    for entry in batch.cases:
        run = CaseDir(directory.path / entry.run)
        with suppress(BadInput):  # a run that cannot be read has its verdict for that
            case = case_from_json(CaseFile.load(run.case_json).resolved)
            if pair_storm_of(case.experiment) is not None:
                cells.setdefault(f"{case.experiment.name} {cell_of(case.id)}", []).append((case, run))
    if cells:
        PairsFile(tables=tuple(_table(runs) for runs in cells.values())).save(directory.pairs_json)


def _table(runs: list[tuple[Case, CaseDir]]) -> PairTable:
    first = runs[0][0]
    storm = pair_storm_of(first.experiment)
    assert storm is not None
    dealt = deal(storm, first.experiment, able_on(first.experiment))
    found: dict[Pair, PairEntry] = {
        pair: PairEntry(kinds=pair, outcome=PairOutcome.NOT_RUN) for share in dealt.shares for pair in share
    }
    for case, run in runs:
        try:
            evidence = Evidence.of_run(run)
        except BadInput:
            continue
        for pair in _together(evidence.faults):
            if pair in found and found[pair].outcome is not PairOutcome.COVERED:
                found[pair] = PairEntry(kinds=pair, outcome=PairOutcome.COVERED, case=case.id)
        for pair, why in _not_together(case, evidence):
            if pair in found and found[pair].outcome is PairOutcome.NOT_RUN:
                found[pair] = PairEntry(kinds=pair, outcome=PairOutcome.NOT_BITTEN, case=case.id, why=why)
    refused = [
        PairEntry(kinds=pair, outcome=PairOutcome.REFUSED, why=why) for pair, why in dealt.refused.items()
    ]
    cluster = first.experiment.cluster
    return PairTable(
        experiment=first.experiment.name,
        cell=cell_of(first.id),
        kafka=f"{cluster.kafka}, {cluster.mode}",
        runs=len(dealt.shares),
        pairs=(*found.values(), *refused),
    )


def _together(lives: Mapping[int, FaultLife]) -> Iterator[Pair]:
    """The pairs of kinds of which both bit and were in force at one time."""
    spans = [(life.kind, span) for life in lives.values() if (span := _in_force(life)) is not None]
    for (one, mine), (other, its) in combinations(spans, 2):
        if one != other and max(mine[0], its[0]) < min(mine[1], its[1]):
            yield (one, other) if one < other else (other, one)


def _in_force(life: FaultLife) -> tuple[int, int] | None:
    """From its confirmation to its healing; what ends by itself is in force from when it was asked for to its end."""
    kind = fault_kinds().get(life.kind)
    if kind is None or life.confirmed is None or life.over is None:
        return None
    if kind.HOLD_KEY is None:
        return life.asked, life.over
    return life.confirmed, life.over if life.healed is None else life.healed


def _not_together(case: Case, evidence: Evidence) -> Iterator[tuple[Pair, str]]:
    """The pairs that this run was to have in force together, each with what went wrong if they were not."""
    drawn = {fault.number: fault for fault in case.faults if fault.is_drawn}
    reasons = {
        event.fault: event.what.reason
        for event in reversed(evidence.events)
        if isinstance(event.what, FaultMissed | FaultFailed)
    }
    for number in sorted(drawn)[::2]:
        pair = [drawn[one] for one in (number, number + 1) if one in drawn]
        if len(pair) == 2:
            one, other = sorted(fault.kind for fault in pair)
            why = (f"{fault}: {reasons[fault.number]}" for fault in pair if fault.number in reasons)
            yield (one, other), next(why, "the one was over before the other was in force")
