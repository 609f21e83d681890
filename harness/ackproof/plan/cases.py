"""Cases: cell × repeat, each with its own seed and every random choice drawn before it starts.

A cell is one combination of the matrix. A case's seed depends only on the experiment's seed and on the case's id. It
determines the case's random choices; only a storm (a fault that draws others) with `pairs: all` takes the experiment's
seed. So one case can be run again without the others. Settings of the command line override the file. On a cluster that
ackproof does not own, each case has topics of its own.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Final, Literal, cast

from pydantic import Field, JsonValue, ValidationError

from ackproof.base.advice import advice_of
from ackproof.base.errors import BadInput
from ackproof.experiment.case import Case, StormDraw, find_cases
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.problems import (
    NOWHERE,
    InvalidExperiment,
    MapNode,
    Node,
    ScalarNode,
    nodes_of,
    path_text,
    plain,
)
from ackproof.experiment.spec import attached_topic
from ackproof.faults.pairs import PairShares, distribute_pairs, draw_pairs, pair_storm_of
from ackproof.faults.storm import Storm, draw_storm
from ackproof.plan.axes import matrix_of
from ackproof.plan.builds import fill_in_builds
from ackproof.plan.check_faults import able_on
from ackproof.plan.diagnostics import Problems
from ackproof.plan.matrix import MAX_CASES, Plan, analyse
from ackproof.plan.paths import may_stand_at, override, parse_path, wrong_path
from ackproof.plan.reader import read_drawn, reread, spelt_out
from ackproof.plan.soaking import Soak, soaked
from ackproof.plan.source import lines_of, parse, plain_scalar, read
from ackproof.rundir.document import Document
from ackproof.rundir.documents import Scalar


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
    """Return the whole case as JSON, from which `case_from_json` restores it. `experiment` is written as in a file."""
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
    """Return the case that `case_to_json` wrote. Raises `BadInput` or `InvalidExperiment` if the value is no such
    case."""
    try:
        written = _Resolved.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"not a resolved case: {where}: {first['msg']}") from error
    # Keep what was accepted then, even if this version would refuse it.
    experiment = reread(f"case {written.case}", written.experiment)
    # Keep what was drawn then, even if this version would draw something else.
    drawn = {
        number: StormDraw(
            read_drawn(number, [dict(one) for one in storm.faults]), storm.left_out, storm.unable
        )
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
    path: FilePath,
    settings: Sequence[str] = (),
    *,
    backend: str | None = None,
    repeat: int | None = None,
    soak: Soak | None = None,
) -> Plan:
    """Return the plan of an experiment file: read, and checked with every cell of its matrix.

    `settings` (PATH=VALUE), `backend` and `repeat` override the file, and are checked as if the file had them, so that
    an impossible combination is refused here. `soak`: repeat the load of the file, window after window, for this long;
    None: once. Raises `InvalidExperiment` with all problems. Raises `BadInput` if the file cannot be read at all, one
    of `settings` is wrong, or the file and the soak do not fit together. Raises OSError if a file of a Kafka build
    cannot be read.
    """
    file, raw = read(path)
    try:
        root = _with_settings(spelt_out(parse(raw, file)), settings)
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
            analyse(file, root)  # reports problems of the file itself once, not for each window
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
    """Return all cases in the order of the matrix (the last axis varies fastest), the repeats of a cell next to each
    other.

    `seed` and `repeat` override the experiment's; a storm with `pairs: all` sets the number of repeats itself. `only`:
    names of the cases to keep (`find_cases`); None: all. Raises `BadInput` for a name that selects none or is
    ambiguous, for `repeat` below 1, and if cells × `repeat` are more than `MAX_CASES`.
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
        _make_case(
            case_id,
            cell.settings,
            number,
            _case_seed(own, case_id),
            cell.experiment.model_copy(update={"seed": own}),
            cell.label,
            deals[cell.name],
        )
        for case_id, (cell, number) in every.items()
        if only is None or case_id in chosen
    ]


def reseeded(case: Case, seed: int) -> Case:
    """Return a case of the same cell and repeat, with its random choices drawn from another seed of the experiment.
    Faults of a storm with `pairs: all` stay the same: the experiment's own seed draws them."""
    dealt = pairs_of(case.experiment)
    own = _case_seed(seed, case.id)
    return _make_case(case.id, case.settings, case.repeat, own, case.experiment, case.cell, dealt)


def pairs_of(experiment: ExperimentSpec) -> PairShares | None:
    """Return the pairs of fault kinds that each repeat gets, and the pairs that cannot be run. Return None if the
    experiment has no storm with `pairs: all`. The result does not depend on the seed."""
    storm = pair_storm_of(experiment)
    return None if storm is None else distribute_pairs(storm, experiment, able_on(experiment))


def _case_seed(seed: int, case_id: str) -> int:
    """Return the seed of one case: the first 63 bits of SHA-256 over the experiment's seed and the case's id."""
    digest = hashlib.sha256(f"{seed}/{case_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _make_case(
    case_id: str,
    settings: dict[str, Scalar],
    number: int,
    own: int,
    experiment: ExperimentSpec,
    cell: str,
    dealt: PairShares | None,
) -> Case:
    able = able_on(experiment)
    drawn: dict[int, StormDraw] = {}
    for fault in experiment.faults:
        if isinstance(fault, Storm) and fault.pairs is not None and dealt is not None:
            # Seeded by the experiment: a pair is drawn in the same way in every share.
            drawn[fault.number] = draw_pairs(
                fault, experiment, dealt.shares[number - 1], experiment.seed, able
            )
        elif isinstance(fault, Storm):
            drawn[fault.number] = draw_storm(fault, experiment, own, able)
    case = Case(case_id, settings, number, own, experiment, cell, drawn=drawn)
    orders = {}
    for fault in case.faults:
        # Each fault has its own generator, so that adding a fault at the end of the file changes no other draw.
        brokers = list(experiment.cluster.broker_ids)
        random.Random(f"{own}/fault/{fault.number}").shuffle(brokers)
        orders[fault.number] = tuple(brokers)
    return replace(case, orders=orders)


EXAMPLE: Final = "cluster.kafka=4.2.1"
_TEXTS: Final = frozenset({"kafka", "settings_from"})
"""Fields whose value is text even if it looks like a number: a shell removes the quotes that a file would have."""


def _with_settings(root: MapNode, settings: Sequence[str]) -> MapNode:
    """Return the experiment with each `PATH=VALUE` set; paths are written as in a matrix.

    Raises `BadInput` if a text is wrong, or if the file's matrix varies the setting, because expectations refer
    to that axis.
    """
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise BadInput(f"--set {setting}: expected PATH=VALUE, such as {EXAMPLE}")
        try:
            path = parse_path(key.strip())
            if text.startswith("{") and may_stand_at(key.strip(), MapNode()):
                node: Node = _mapping(text)
            else:
                node = ScalarNode(text if path[-1] in _TEXTS else plain_scalar(text), text, NOWHERE)
        except (ValueError, InvalidExperiment) as error:
            raise BadInput(advice_of(error).after(f"--set {setting}: ")) from error
        if (wrong := wrong_path(path, root)) is not None:
            raise BadInput(wrong.after(f"--set {setting}: "))
        # Problems of the matrix are reported when the file is checked.
        if path in matrix_of(Problems("", root)).paths:
            fact = f"--set {setting}: the matrix varies {path_text(path)}"
            raise BadInput(fact, "choose among its cases with --case")
        root = override(root, path, node)
        if Problems("", root).node(path) is not node:
            raise BadInput(f"--set {setting}: a value of the file that has no fields stands on this path")
    return root


def _mapping(text: str) -> MapNode:
    """Return the node of a mapping that `--set` gives as text, such as the build `{path: ../kafka}`; its paths
    are relative to the working folder. Raises ValueError if the text is no mapping, `InvalidExperiment` if it
    is no YAML."""
    node = nodes_of(plain(parse(f"value: {text}".encode(), "--set"))["value"])  # type: ignore[index, call-overload]
    if not isinstance(node, MapNode):
        raise ValueError("expected a mapping such as {path: ../kafka}")
    return replace(node, mark=NOWHERE)


def on_foreign_ground(case: Case, run_id: str) -> Case:
    """Return the case with topics that are unique to the run (`attached_topic`), for a cluster that ackproof did not
    start.

    The names of topics change in producers, faults (roles, triggers, commands) and expectations. The case's id,
    settings and claims keep the names of the file. `cluster.timing` becomes `kafka`: Kafka's defaults decide what is
    late.
    """
    names = {name: attached_topic(name, run_id) for name in case.experiment.topics}
    resolved = cast(dict[str, JsonValue], case_to_json(case))
    experiment = cast(dict[str, JsonValue], resolved["experiment"])
    # The time-outs of such a cluster were not shortened: Kafka's defaults decide what is late.
    cast(dict[str, JsonValue], experiment["cluster"])["timing"] = "kafka"
    experiment["topics"] = {
        names[name]: topic for name, topic in cast(dict[str, JsonValue], experiment["topics"]).items()
    }
    workload = cast(dict[str, JsonValue], experiment["workload"])
    producers = cast(dict[str, JsonValue], workload["producers"])
    if "topics" in producers:
        producers["topics"] = _rename_topics(producers["topics"], names)
    experiment["faults"] = _rename_topics(experiment["faults"], names)
    resolved["storms"] = _rename_topics(resolved["storms"], names)
    for expectation in cast(list[dict[str, JsonValue]], experiment["expect"]):
        given = cast(dict[str, JsonValue], expectation.get("given", {}))
        expectation["given"] = {_path(path, names): value for path, value in given.items()}
        for quantity in [name for name in expectation if name != "given"]:
            expectation[cast(str, _rename_topics(quantity, names))] = expectation.pop(quantity)
    return case_from_json(resolved)


def _rename_topics(value: JsonValue, names: Mapping[str, str]) -> JsonValue:
    """Return a value with renamed topics: in every text that is a topic's name, and in every `topic/0` within a text.
    Keys of mappings stay. `names`: new name by old name."""
    match value:
        case str():
            if value in names:
                return names[value]
            for name, own in names.items():
                value = re.sub(rf"(?<![A-Za-z0-9._-]){re.escape(name)}(?=/[0-9])", own, value)
            return value
        case list():
            return [_rename_topics(item, names) for item in value]
        case dict():
            return {key: _rename_topics(item, names) for key, item in value.items()}
        case _:
            return value


def _path(text: str, names: Mapping[str, str]) -> str:
    try:
        path = parse_path(text)
    except ValueError:
        return text
    if len(path) > 1 and path[0] == "topics" and path[1] in names:
        return path_text(("topics", names[str(path[1])], *path[2:]))
    return text
