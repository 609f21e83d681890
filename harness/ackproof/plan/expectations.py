"""Matches expectations with the cells to which they apply. Refuses an expectation whose quantity no run can measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from ackproof.base.advice import Advice
from ackproof.experiment.experiment import ExpectSpec, ExperimentSpec, standard_spelling
from ackproof.experiment.problems import Data, ListNode, MapNode, Node, Path, ScalarNode, nearest, path_text
from ackproof.plan.axes import Choice, Matrix
from ackproof.plan.diagnostics import Problems
from ackproof.plan.paths import (
    ends,
    is_called,
    label_of,
    leaves,
    may_be_at,
    override,
    parse_path,
    short_names,
    value_at,
    value_text,
)
from ackproof.plan.reader import read_experiment
from ackproof.quantities.quantity import Ask, Witness
from ackproof.quantities.vocabulary import parse_ask
from ackproof.rundir.anomalies import GROUP_CLASSES, TABLE
from ackproof.rundir.documents import Scalar
from ackproof.rundir.observed import ZNODES


class ExpectationMatcher:
    """Matches the expectations of one experiment with the cells of its matrix. Values are compared by their meaning in
    the experiment: `-1` and `all` are the same `acks`."""

    def __init__(self, found: Problems, spec: ExperimentSpec, matrix: Matrix) -> None:
        self._found = found
        self._spec = spec
        self._axes = matrix.paths
        self._named: dict[str, dict[str, None]] = {}
        """Names of items (settings that vary together), by the key of their axis."""
        for option in chain.from_iterable(matrix.choices):
            if option is not None and option.name:
                self._named.setdefault(option.axis, {})[option.name] = None
        self._leaves = leaves(spec.data())
        self._known: dict[tuple[Path, str], tuple[Data, bool]] = {}
        self.hits: dict[Path, Sequence[int]] = {}
        """Path of an expectation → indexes of the cells that it applies to. `match` fills it in."""

    def match(
        self, cells: Sequence[ExperimentSpec], choices: Sequence[Choice], *, complete: bool
    ) -> list[ExperimentSpec]:
        """Return the cells, each with the expectations that apply to it, also those of the file's `claims`.
        Expectations over repeats are left out, because they belong to no single run.

        `choices`: the matrix's combination of each cell, in the same order. `complete` False: some cells are missing,
        so an expectation that applies to no cell is not reported. In the result settings are named by their full paths.
        Reports the problems of expectations and claims, such as unknown settings, quantities that no run can measure,
        expectations that apply to no cell, and contradictions.
        """
        for name, claim in self._spec.claims.items():
            if not any(claim.sides().values()) and self._found.sound_below(("claims", name)):
                self._found.report(
                    ("claims", name), "nothing can show this claim", "give it holds, fails or measured"
                )
        data = [cell.data() for cell in cells]
        matched: list[dict[Path, ExpectSpec]] = [{} for _ in cells]
        for where, expectation in self.every():
            if not self._found.sound((*where, "given")):
                continue
            self._check_bounds(where, expectation)
            named = {name: str(value) for name, value in expectation.given.items() if name in self._named}
            settings = {name: value for name, value in expectation.given.items() if name not in named}
            given = self._resolve((*where, "given"), settings)
            if not self._check_names((*where, "given"), named) or given is None:
                continue
            hits = [
                number
                for number, (cell, choice) in enumerate(zip(data, choices, strict=True))
                if all(value_at(cell, path) == value for path, (_, value) in given.items())
                and named.items() <= {(one.axis, one.name) for one in choice if one is not None}
            ]
            self.hits[where] = hits
            # Expectations over repeats do not belong to any single run: the cases do not have them.
            full = ExpectSpec(
                given={
                    **{path_text(path): expectation.given[name] for path, (name, _) in given.items()},
                    **named,
                },
                bounds=expectation.bounds,
            )
            for number in hits:
                if full.bounds:
                    matched[number][where] = full
                for name, why in _not_given(expectation, cells[number]):
                    self._found.complain(self.place_of(where, name), why, key=True)
                for name, why in (
                    _forbidden_to_groups(expectation, cells[number]) if where[0] == "expect" else ()
                ):
                    self._found.complain((*where, name), why)
            if not hits and complete and self._found.sound_below(("matrix",)):
                self._report_no_case(where, given, data)
        for one in matched:
            self._check_contradictions({where: spec for where, spec in one.items() if where[0] == "expect"})
        return [self._with_expectations(cell, one) for cell, one in zip(cells, matched, strict=True)]

    def every(self) -> Iterator[tuple[Path, ExpectSpec]]:
        yield from ((("expect", index), one) for index, one in enumerate(self._spec.expect))
        for name, claim in self._spec.claims.items():
            for side, showings in claim.sides().items():
                yield from ((("claims", name, side, index), one) for index, one in enumerate(showings))

    def _with_expectations(self, cell: ExperimentSpec, matched: Mapping[Path, ExpectSpec]) -> ExperimentSpec:
        def below(*where: str) -> tuple[ExpectSpec, ...]:
            return tuple(one for path, one in matched.items() if path[: len(where)] == where)

        claims = {
            name: claim.model_copy(update={side: below("claims", name, side) for side in claim.sides()})
            for name, claim in self._spec.claims.items()
        }
        return cell.model_copy(update={"expect": below("expect"), "claims": claims})

    def _check_bounds(self, where: Path, expectation: ExpectSpec) -> None:
        nothing = not expectation.bounds and not expectation.over_repeats
        if nothing and self._found.sound_below(where):
            self._found.report(where, "nothing is expected: name a quantity and its bound, such as lost: 0")
        measured = where[0] == "claims" and where[2] == "measured"
        for name in expectation.bounds if measured else ():
            self._found.report((*where, name), "what is measured is a statistic of repeats, such as mean")
        for name, demand in expectation.over_repeats.items():
            if measured and not demand.is_bare:
                self._found.complain(
                    (*where, name), "what is measured has no bound", f"leave '{demand.condition}' out"
                )
            elif demand.is_bare and not measured:
                self._found.complain(
                    (*where, name), f"'{demand}' demands nothing", "give it a bound such as > 0"
                )
        for name, bound in expectation.counts.items():
            if where[0] == "expect" and TABLE[name].always_forbidden and bound.highest != 0:
                self._found.report(
                    (*where, name), f"'{name}' is forbidden in every configuration", "only 0 can be expected"
                )

    def place_of(self, where: Path, quantity: str) -> Path:
        """Return the path of a quantity in the expectation at `where`.

        Its last part is the quantity's name as the file spells it, or `quantity` if the file does not have it.
        """
        node = self._found.node(where)
        written = (
            {standard_spelling(name): name for name in node.entries} if isinstance(node, MapNode) else {}
        )
        return (*where, written.get(quantity, quantity))

    def _resolve(self, where: Path, given: dict[str, Scalar]) -> dict[Path, tuple[str, Data]] | None:
        """Return the given settings by path, each with its name and its value as the experiment reads it (such as -1 as
        `all`). Report a setting that is unknown, ambiguous or named twice, or a value that is not possible, below
        `where`; then return None."""
        resolved: dict[Path, tuple[str, Data]] = {}
        good = True
        for name, value in given.items():
            path = self.path_of((*where, name), name)
            if path is None:
                good = False
            elif path in resolved:
                why = f"'{resolved[path][0]}' already names this setting"
                self._found.report((*where, name), why, key=True)
                good = False
            else:
                understood, right = self.understood(path, value)
                resolved[path] = (name, understood)
                if not right:
                    why = f"'{value_text(value)}' is no possible value of {path_text(path)}"
                    self._found.report((*where, name), why)
                    good = False
        return resolved if good else None

    def _check_names(self, where: Path, named: Mapping[str, str]) -> bool:
        """Return True if each axis has an item of the given name (`named`: axis → name). Report the first that is
        missing at its axis below `where`."""
        for axis, name in named.items():
            if name not in self._named[axis]:
                valid = list(self._named[axis])
                message = f"'{axis}' has no item of that name, but {', '.join(valid[:10])}"
                self._found.report((*where, axis), message, suggestion=nearest(name, valid))
                return False
        return True

    def path_of(self, where: Path, name: str, *, key: bool = True) -> Path | None:
        """Return the path of the setting with this name; None if there is no such setting, or several. Then a problem
        is reported at `where` (with `key`: at the name of that field). While the matrix itself has a problem, an
        unknown setting is not reported."""
        for paths in (self._axes, self._leaves):
            fitting = [path for path in paths if is_called(path, name) or _same(path, name)]
            if len(fitting) == 1:
                return fitting[0]
            if len(fitting) > 1:
                which = " or ".join(path_text(path) for path in fitting[:4])
                self._found.report(where, f"'{name}' is ambiguous: {which}", key=key)
                return None
        if self._found.sound_below(("matrix",)):
            names = [*short_names(self._axes), *(end for path in self._leaves for end in ends(path))]
            varied = ", ".join(short_names(self._axes))
            fact, hint = f"unknown setting '{name[:60]}'", f"the matrix varies {varied}" if varied else ""
            self._found.report(where, fact, hint, suggestion=nearest(name, names), key=key)
        return None

    def understood(self, path: Path, value: Scalar) -> tuple[Data, bool]:
        """Return a value as the experiment reads it at `path` (such as -1 as `all`), and True if `path` accepts
        it.

        If `path` does not accept it, the value is None.
        """
        asked = (path, f"{type(value).__name__} {value}")
        if asked not in self._known:
            node = self._find_value(path, value) or ScalarNode(value, value_text(value))
            trial = Problems("", override(self._found.root, path, node))
            spec = read_experiment(trial)
            right = spec is not None and trial.sound(path)
            data = value_at(spec.data(), path) if spec is not None and right else None
            self._known[asked] = data, right
        return self._known[asked]

    def _find_value(self, path: Path, value: Scalar) -> Node | None:
        """Return the value of the matrix for `path` that has this label (`label_of`), such as the name of a
        build; None if there is none."""
        values = self._found.node(("matrix", path_text(path)))
        items = values.items if isinstance(values, ListNode) else ()
        return next((one for one in items if may_be_at(path, one) and label_of(one) == value), None)

    def _report_no_case(
        self, where: Path, given: dict[Path, tuple[str, Data]], cells: Sequence[dict[str, Data]]
    ) -> None:
        for path, (name, value) in given.items():
            there = {str(value_at(cell, path)): None for cell in cells}
            if str(value) not in there:
                why = Advice(f"no case has {name}={value}", f"there is {', '.join(list(there)[:10])}")
                self._found.report((*where, "given", name), why)
                return
        self._found.report(where, "no case has all of these settings")

    def _check_contradictions(self, matched: Mapping[Path, ExpectSpec]) -> None:
        lowest: dict[str, int] = {}
        highest: dict[str, int] = {}
        for where, expectation in matched.items():
            for name, bound in expectation.counts.items():
                lowest[name] = max(lowest.get(name, 0), bound.lowest)
                if bound.highest is not None:
                    highest[name] = min(highest.get(name, bound.highest), bound.highest)
                if name in highest and lowest[name] > highest[name]:
                    why = f"'{name}' {bound} contradicts an expectation above that speaks of the same case"
                    self._found.complain((*where, name), why)


def _same(path: Path, name: str) -> bool:
    try:
        return parse_path(name) == path
    except ValueError:
        return False


def _forbidden_to_groups(expectation: ExpectSpec, spec: ExperimentSpec) -> Iterator[tuple[str, str]]:
    """Yield each anomaly class of consumer groups that an expectation permits in vain, with the reason. Either there
    are no groups, or every group promises never to show the class."""
    for name, bound in expectation.counts.items():
        if name not in GROUP_CLASSES or bound.highest == 0:
            continue
        if not spec.workload.groups:
            yield name, Advice(f"'{name}' is counted for consumer groups", "write workload: {groups: …}")
            continue
        from ackproof.experiment.group_promises import may_happen  # it reads a table, which few files need

        if not may_happen(name, spec):
            yield (
                name,
                Advice(f"'{name}' is forbidden by what every group promises", "only 0 can be expected"),
            )


_CALLED: Final = {"kraft": "KRaft", "zookeeper": "ZooKeeper"}
_OUT_OF_REACH: Final = frozenset({Witness.METADATA_LOG, Witness.QUORUM, Witness.LOGS, Witness.RACKS})


def _not_given(expectation: ExpectSpec, spec: ExperimentSpec) -> Iterator[tuple[str, str]]:
    """Yield the quantities that no run of this experiment can measure, each with the reason."""
    windows = [(name, bound.window) for name, bound in expectation.bounds.items()]
    windows += [(name, demand.window) for name, demand in expectation.over_repeats.items()]
    for name, window in windows:
        faults = (fault for fault in (parse_ask(name).fault, window.fault) if fault is not None)
        if (missing := next((fault for fault in faults if fault > len(spec.faults)), None)) is not None:
            there = f"the last is fault {len(spec.faults)}" if spec.faults else "there are no faults"
            yield name, Advice(f"fault {missing} does not exist", there)
        elif (why := not_seen(name, spec)) is not None:
            yield name, why


def not_seen(quantity: str, spec: ExperimentSpec) -> str | None:
    """Return why no run of this experiment can measure a quantity; None if a run can. `quantity`: text such as
    `isr(orders/0)`; raises ValueError if `parse_ask` does not accept it. Whether a fault in the quantity or in the
    window of a bound exists is not checked here."""
    ask = parse_ask(quantity)
    if ask.place is not None:
        topic = spec.topics.get(ask.place.topic)
        if topic is None:
            return Advice(f"topic '{ask.place.topic}' does not exist", f"there is {', '.join(spec.topics)}")
        if ask.place.partition >= topic.partitions:
            count = f"{ask.place.topic} has {topic.partitions} partitions, counted from 0"
            return Advice(f"{ask.place} does not exist", count)
    if ask.group is not None and ask.group not in spec.workload.groups:
        there = f"there is {', '.join(spec.workload.groups)}" if spec.workload.groups else "there is none"
        return Advice(f"group '{ask.group}' does not exist", there)
    return _wrong_node(ask, spec) or _why_unseen(ask, spec)


def _wrong_node(ask: Ask, spec: ExperimentSpec) -> str | None:
    nodes, brokers = spec.cluster.kafka_ids, spec.cluster.broker_ids
    if ask.node is not None and ask.node not in nodes:
        return Advice(f"there is no node {ask.node} of Kafka's", f"there are {', '.join(map(str, nodes))}")
    if ask.node is not None and ask.node not in brokers and ask.quantity.needs is not Witness.METRICS:
        return Advice(f"node {ask.node} is no broker", f"there are {', '.join(map(str, brokers))}")
    if ask.viewer == ZNODES and not spec.cluster.metadata.broker_controls:
        return Advice("there are no znodes without ZooKeeper", "write cluster: {mode: zookeeper}")
    if ask.viewer not in (None, ZNODES, *brokers):
        return Advice(f"node {ask.viewer} is no broker", f"there are {', '.join(map(str, brokers))}")
    return None


def _why_unseen(ask: Ask, spec: ExperimentSpec) -> str | None:
    needs, name = ask.quantity.needs, ask.quantity.key
    if needs in (Witness.READERS, Witness.SOURCES, Witness.COMMITS) and not spec.workload.consumers.live:
        return Advice(f"{name} is not seen without live readers", "write workload: {consumers: {live: 1}}")
    if needs is Witness.COMMITS and (spec.workload.consumers.commit_every is None or spec.ground.simulated):
        if spec.ground.simulated:
            return f"{name} is not seen in the model, which has no groups"
        return Advice(
            f"{name} is not seen where no reader commits", "write workload: {consumers: {commit_every: 1s}}"
        )
    if ask.quantity.mode not in ("", spec.cluster.mode):
        return f"{name} is not seen with {_CALLED[spec.cluster.mode]}, which does not have it"
    if needs is Witness.METRICS and not spec.observe.metrics:
        return Advice(f"{name} is not seen where no metrics are scraped", "write observe: {metrics: true}")
    if needs in (Witness.BROKERS, Witness.SOURCES) and not spec.observe.brokers:
        return Advice(
            f"{name} is not seen where brokers are not asked one by one", "write observe: {brokers: true}"
        )
    if needs in _OUT_OF_REACH and spec.ground.foreign:
        what = "whose logs are" if needs is Witness.LOGS else "whose metadata log is"
        return f"{name} is not seen on a cluster that someone else runs, {what} out of reach"
    if needs is Witness.RACKS and not spec.cluster.racks:
        return Advice(f"{name} is not seen without racks", "write cluster: {racks: [a, b]}")
    if needs is Witness.QUORUM and (spec.ground.simulated or spec.cluster.mode != "kraft"):
        where = "in the model" if spec.ground.simulated else "with ZooKeeper"
        return f"{name} is not seen {where}, which has no quorum of controllers"
    return None
