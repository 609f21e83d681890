"""Cases: cell × repeat, each with its own seed and every random choice drawn beforehand.

A case's seed depends on the experiment's seed and on the case's id alone, and its draws on that seed alone, so that
one case can be run again without the others.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import Field, JsonValue, ValidationError

from ackproof.base.errors import BadInput
from ackproof.experiment.case import Case, Drawn, find_cases
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.nodes import NOWHERE, ScalarNode
from ackproof.experiment.problems import InvalidExperiment
from ackproof.faults.pairs import Deal, deal, draw_pairs, pair_storm_of
from ackproof.faults.storm import Storm, draw_storm
from ackproof.plan.builds import fill_in_builds
from ackproof.plan.checks_backend import able_on, unable_here
from ackproof.plan.entries import read_drawn, spelt_out
from ackproof.plan.matrix import MAX_CASES, Plan, analyse
from ackproof.plan.overrides import with_settings
from ackproof.plan.paths import override
from ackproof.plan.reader import reread
from ackproof.plan.soaking import Soak, soaked
from ackproof.plan.source import lines_of, parse, read
from ackproof.rundir.documents import Document, Scalar


class _ResolvedStorm(Document):
    left_out: tuple[str, ...] = ()
    faults: tuple[dict[str, JsonValue], ...] = ()
    unable: dict[int, str] = Field(default_factory=dict)


class _Resolved(Document):
    format: Literal[1] = 1
    case: str
    settings: dict[str, Scalar]
    repeat: int = Field(ge=1)
    seed: int = Field(ge=0)
    cell: str = ""
    orders: dict[int, tuple[int, ...]]
    storms: dict[int, _ResolvedStorm] = Field(default_factory=dict)
    experiment: dict[str, JsonValue]


def case_to_json(case: Case) -> JsonValue:
    """All of it as JSON: `case_from_json` gives the same case again. `experiment` is in the grammar of a file."""
    return _Resolved(
        case=case.id,
        settings=case.settings,
        repeat=case.repeat,
        seed=case.seed,
        cell=case.cell,
        orders=case.orders,
        storms={
            number: _ResolvedStorm(
                left_out=drawn.left_out,
                faults=tuple(fault.entry() for fault in drawn.faults),
                unable=dict(drawn.unable),
            )
            for number, drawn in case.drawn.items()
        },
        experiment=case.experiment.data(),
    ).model_dump(mode="json")


def case_from_json(value: JsonValue) -> Case:
    """The case that `resolved` wrote. Raises `BadInput` (or `InvalidExperiment`) when it is none."""
    try:
        written = _Resolved.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"not a resolved case: {where}: {first['msg']}") from error
    # As it was checked then, whatever this version would refuse.
    experiment = reread(f"case {written.case}", written.experiment)
    # As they were drawn then, whatever this version would draw.
    drawn = {
        number: Drawn(read_drawn(number, [dict(one) for one in storm.faults]), storm.left_out, storm.unable)
        for number, storm in written.storms.items()
    }
    return Case(
        written.case,
        written.settings,
        written.repeat,
        written.seed,
        experiment,
        written.cell,
        written.orders,
        drawn,
    )


def load(
    path: Path,
    settings: Sequence[str] = (),
    *,
    backend: str | None = None,
    repeat: int | None = None,
    soak: Soak | None = None,
) -> Plan:
    """Read and check an experiment file, every cell of its matrix included, `settings` (PATH=VALUE) over it.

    With `soak` its load is a window of one that lasts so long.

    `backend` and `repeat` are checked as if the file said them: what cannot be is refused here and not while it runs.
    Raises `InvalidExperiment` with all that is wrong, or `BadInput` if the file cannot be read at all.
    """
    file, raw = read(path)
    try:
        root = with_settings(spelt_out(parse(raw, file)), settings)
        if backend is not None:
            root = override(root, ("backend",), ScalarNode(backend, backend, NOWHERE))
        if repeat is not None:
            root = override(root, ("repeat",), ScalarNode(repeat, str(repeat), NOWHERE))
        root = fill_in_builds(file, root, path.parent)
        if soak is None:
            return analyse(file, root)
        try:
            return analyse(file, soaked(file, root, soak))
        except InvalidExperiment:
            analyse(file, root)  # what is wrong with the file itself is told once, and not for each window
            raise
    except InvalidExperiment as error:
        error.lines = lines_of(raw)
        raise


def cases(
    plan: Plan,
    *,
    seed: int | None = None,
    repeat: int | None = None,
    only: str | Sequence[str] | None = None,
) -> list[Case]:
    """All cases in the order of the matrix (the last axis varies fastest), the repeats of a cell side by side.

    `seed` and `repeat` replace the experiment's. `only` keeps the cases that these names choose (`find_cases`). Raises
    `BadInput` for a name that chooses none, a repeat below 1, more than `MAX_CASES` cases.
    """
    times = plan.spec.repeat if repeat is None else repeat
    own = plan.spec.seed if seed is None else seed
    if times < 1:
        raise BadInput(f"repeat: each case runs at least once, not {times} times")
    if len(plan.cells) * times > MAX_CASES:
        raise BadInput(f"{len(plan.cells)} cases × {times} repeats are more than {MAX_CASES} runs")
    deals = {cell.name: pairs_of(cell.experiment) for cell in plan.cells}
    counts = {name: times if dealt is None else len(dealt.shares) for name, dealt in deals.items()}
    every = {
        f"{cell.name}#{number}": (cell, number)
        for cell in plan.cells
        for number in range(1, counts[cell.name] + 1)
    }
    wanted = [only] if isinstance(only, str) else only or ()
    chosen = {case_id for name in wanted for case_id in find_cases(name, list(every))}
    return [
        _drawn(
            case_id,
            cell.settings,
            number,
            case_seed(own, case_id),
            cell.experiment.model_copy(update={"seed": own}),
            cell.label,
            deals[cell.name],
        )
        for case_id, (cell, number) in every.items()
        if only is None or case_id in chosen
    ]


def reseeded(case: Case, seed: int) -> Case:
    """The same cell with all that is random drawn from another seed of the experiment."""
    dealt = pairs_of(case.experiment)
    own = case_seed(seed, case.id)
    return _drawn(case.id, case.settings, case.repeat, own, case.experiment, case.cell, dealt)


def pairs_of(experiment: ExperimentSpec) -> Deal | None:
    """All pairs of fault kinds in shares, a share for each repeat; None for an experiment without a storm of pairs."""
    storm = pair_storm_of(experiment)
    return None if storm is None else deal(storm, experiment, able_on(experiment))


def case_seed(seed: int, case_id: str) -> int:
    """The seed of one case: the first 63 bits of SHA-256 over the experiment's seed and the case's id."""
    digest = hashlib.sha256(f"{seed}/{case_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _drawn(
    case_id: str,
    settings: dict[str, Scalar],
    number: int,
    own: int,
    experiment: ExperimentSpec,
    cell: str,
    dealt: Deal | None,
) -> Case:
    able = able_on(experiment)
    drawn: dict[int, Drawn] = {}
    for fault in experiment.faults:
        if isinstance(fault, Storm) and fault.pairs is not None and dealt is not None:
            # By the experiment's seed: a pair is drawn alike whatever share it is in.
            found = draw_pairs(fault, experiment, dealt.shares[number - 1], experiment.seed, able)
            drawn[fault.number] = _as_able(fault, experiment, found)
        elif isinstance(fault, Storm):
            drawn[fault.number] = _as_able(fault, experiment, draw_storm(fault, experiment, own, able))
    case = Case(case_id, settings, number, own, experiment, cell, drawn=drawn)
    return replace(case, orders={fault.number: _order(own, fault, experiment) for fault in case.faults})


def _as_able(storm: Storm, experiment: ExperimentSpec, drawn: Drawn) -> Drawn:
    """What a storm drew, with what this machine cannot do of it. What a menu names is refused instead."""
    return drawn if storm.menu is not None else replace(drawn, unable=unable_here(experiment, drawn.faults))


def able_again(case: Case) -> Case:
    """A stored case, with what this machine cannot do of what its storms drew."""
    storms = [
        fault for fault in case.experiment.faults if isinstance(fault, Storm) and fault.number in case.drawn
    ]
    drawn = {one.number: _as_able(one, case.experiment, case.drawn[one.number]) for one in storms}
    return replace(case, drawn={**case.drawn, **drawn})


def _order(seed: int, fault: FaultSpec, experiment: ExperimentSpec) -> tuple[int, ...]:
    # A generator per fault: a further fault in the file does not change the draws of those before it.
    brokers = list(experiment.cluster.broker_ids)
    random.Random(f"{seed}/fault/{fault.number}").shuffle(brokers)
    return tuple(brokers)
