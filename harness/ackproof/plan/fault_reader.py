"""The entries of `faults:` → fault specs.

An entry is a mapping with one key that names the kind, whose value holds the kind's own fields, and beside it the
trigger (`at` | `when` [+ `at_latest`] | `after`) and how long it lasts (`for` or `restart_after`).

What tells the kinds apart is a key, and beside it stand keys of all kinds: pydantic's discriminated unions want a field
that holds the name. So the entry is taken apart here, and each kind's own fields are pydantic's (`model_validate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from ackproof.experiment.fault import COMMON, FaultSpec
from ackproof.experiment.nodes import Data, ListNode, MapNode, Node, ScalarNode, nodes_of, plain, root_of
from ackproof.experiment.problems import InvalidExperiment, Path
from ackproof.experiment.quantities import FROM_FILE, WRONG, Duration, duration_text
from ackproof.experiment.triggers import TRIGGER_KEYS, After, At, Condition, ConditionField, Trigger, When
from ackproof.faults.registry import fault_kinds
from ackproof.plan.diagnostics import Problems, describe
from ackproof.plan.refusals import ordered, report_error
from ackproof.rundir.timeline import DRAWN_FROM

T = TypeVar("T")

MAX_FAULTS: Final = 200
HOLD_KEYS: Final = ("for", "restart_after")
BESIDE: Final = (*TRIGGER_KEYS, "at_latest", *HOLD_KEYS)
"""Keys that stand beside the kind."""
EXAMPLE: Final = "{kill: {target: leader(orders/0)}, at: 5s, restart_after: 5s}"

_DURATION: Final[TypeAdapter[float]] = TypeAdapter(Duration)
_CONDITION: Final[TypeAdapter[Condition]] = TypeAdapter(ConditionField)


def read_faults(found: Problems) -> list[FaultSpec | None]:
    """One spec per entry; None for one of which too little is right."""
    node = found.root.entries.get("faults")
    if node is None:
        return []
    if not isinstance(node, ListNode):
        found.report(("faults",), f"expected a list of faults such as {EXAMPLE}, not {describe(node)}")
        return []
    if len(node.items) > MAX_FAULTS:
        found.report(("faults",), f"{len(node.items)} faults are too many; at most {MAX_FAULTS}", key=True)
        return []
    return [_read_fault(found, ("faults", index), item) for index, item in enumerate(node.items)]


def read_drawn(storm: int, entries: Sequence[Data]) -> tuple[FaultSpec, ...]:
    """The faults that a storm drew, from what `fault_data` wrote. Raises `InvalidExperiment`."""
    found = Problems(f"storm {storm}", root_of({"faults": list(entries)}))
    faults = [_read_fault(found, ("faults", index), nodes_of(entry)) for index, entry in enumerate(entries)]
    if found.problems:
        raise InvalidExperiment(found.problems)
    return tuple(
        fault.model_copy(update={"number": storm * DRAWN_FROM + index})
        for index, fault in enumerate(faults, 1)
        if fault is not None
    )


def _read_fault(found: Problems, path: Path, node: Node) -> FaultSpec | None:
    if not isinstance(node, MapNode):
        found.report(path, f"expected a fault such as {EXAMPLE}, not {describe(node)}")
        return None
    kind = _kind_of(found, path, node)
    trigger = _read_trigger(found, path, node)
    if kind is None:
        return None
    hold = _read_hold(found, path, node, kind)
    return _read_body(found, path, node, kind, trigger, hold)


def _kind_of(found: Problems, path: Path, node: MapNode) -> type[FaultSpec] | None:
    """The kind, after all unknown keys of the entry were reported."""
    kinds = [name for name in node.entries if name in fault_kinds()]
    strangers = [name for name in node.entries if name not in fault_kinds() and name not in BESIDE]
    for name in strangers:
        looks_like_kind = not kinds and isinstance(node.entries[name], MapNode)
        if looks_like_kind:
            found.unknown((*path, name), "fault kind", fault_kinds())
        else:
            found.unknown((*path, name), "field of a fault", BESIDE if kinds else [*fault_kinds(), *BESIDE])
    for second in kinds[1:]:
        found.report((*path, second), f"a fault has one kind; this one is already '{kinds[0]}'", key=True)
    if not kinds and not strangers:
        found.report(path, f"the fault has no kind; expected one of {', '.join(fault_kinds())}")
    return fault_kinds()[kinds[0]] if kinds else None


def _read_trigger(found: Problems, path: Path, node: MapNode) -> Trigger | None:
    given = [name for name in node.entries if name in TRIGGER_KEYS]
    if not given and any(found.misspelt((*path, name)) for name in TRIGGER_KEYS):
        return None
    if not given:
        found.report(
            path, "when does the fault begin? Give one of at: 5s, when: acked >= 2000, after: {fault: 1}"
        )
        return None
    for second in given[1:]:
        found.report((*path, second), f"a fault has one trigger; this one already has '{given[0]}'", key=True)
    late = node.entries.get("at_latest")
    if late is not None and "when" not in given:
        found.report((*path, "at_latest"), "'at_latest' goes with 'when' only", key=True)
    if given[0] == "at":
        at = _read_duration(found, (*path, "at"))
        return None if at is None else At(at)
    if given[0] == "after":
        return _read_after(found, (*path, "after"), node.entries["after"])
    at_latest = None if late is None else _read_duration(found, (*path, "at_latest"), above_zero=True)
    condition = _read_value(found, (*path, "when"), _CONDITION)
    return None if condition is None else When(condition, at_latest)


def _read_after(found: Problems, path: Path, node: Node) -> After | None:
    if not isinstance(node, MapNode):
        found.report(path, f"expected another fault such as {{fault: 1, by: 1s}}, not {describe(node)}")
        return None
    for name in node.entries:
        if name not in ("fault", "by"):
            found.unknown((*path, name), "field", ("fault", "by"))
    by = _read_duration(found, (*path, "by")) if "by" in node.entries else 0.0
    number = node.entries.get("fault")
    if number is None:
        found.report(
            (*path, "fault"), "the field 'fault' is missing: the number of the other fault, counted from 1"
        )
        return None
    value = number.value if isinstance(number, ScalarNode) else None
    if not isinstance(value, int) or isinstance(value, bool):
        found.report((*path, "fault"), f"expected the number of another fault, not {describe(number)}")
        return None
    return None if by is None else After(value, by)


def _read_duration(found: Problems, path: Path, *, above_zero: bool = False) -> float | None:
    """The duration at `path` in seconds, None (and a problem) if it is none."""
    seconds = _read_value(found, path, _DURATION)
    if seconds is not None and above_zero and seconds <= 0:
        found.report(path, f"expected more than 0s, not {describe(found.node(path))}")
        return None
    return seconds


def _read_value(found: Problems, path: Path, adapter: TypeAdapter[T]) -> T | None:
    """The value at `path`, None (and a problem) if it is none."""
    node = found.node(path)
    try:
        return adapter.validate_python(
            node.value if isinstance(node, ScalarNode) else None, context=FROM_FILE
        )
    except ValidationError as error:
        (detail,) = error.errors(include_url=False)
        text = str(detail["ctx"]["text"]) if detail["type"] == WRONG else detail["msg"]
        shown = ", not '" in text or "without" in text
        found.report(path, text if shown else f"{text}, not {describe(node)}")
        return None


def _read_hold(found: Problems, path: Path, node: MapNode, kind: type[FaultSpec]) -> float | None:
    hold: float | None = None
    for name in HOLD_KEYS:
        if name not in node.entries:
            continue
        if name == kind.HOLD_KEY:
            hold = _read_duration(found, (*path, name), above_zero=True)
        elif kind.HOLD_KEY is None:
            found.report((*path, name), f"a {kind.KIND} ends by itself; it has no '{name}'", key=True)
        else:
            found.report((*path, name), f"a {kind.KIND} has no '{name}'", kind.HOLD_KEY, key=True)
    return hold


def _required(kind: type[FaultSpec]) -> set[str]:
    """The fields that a file must give, by the names it uses."""
    return {field.alias or name for name, field in kind.model_fields.items() if field.is_required()}


def _read_body(
    found: Problems,
    path: Path,
    node: MapNode,
    kind: type[FaultSpec],
    trigger: Trigger | None,
    hold: float | None,
) -> FaultSpec | None:
    body_path: Path = (*path, kind.KIND)
    body = node.entries[kind.KIND]
    own = [field.alias or name for name, field in kind.model_fields.items() if name not in COMMON]
    if not isinstance(body, MapNode):
        needed = [name for name in own if name in _required(kind)] or own[:1]
        fields = ", ".join(f"{name}: …" for name in needed)
        found.report(body_path, f"expected its fields in braces, {{{fields}}}, not {describe(body)}")
        return None
    for name in body.entries:
        if name in BESIDE:
            found.report((*body_path, name), f"'{name}' stands beside '{kind.KIND}', not inside it", key=True)
        elif name not in own:
            found.unknown((*body_path, name), "field", own)
    number = int(path[-1]) + 1
    if trigger is None:
        # A stand-in, so that the rest of the fault can be checked; nobody sees it, for the file is refused.
        trigger = At(0.0)
    data: dict[str, object] = {name: plain(body.entries[name]) for name in own if name in body.entries}
    data |= {"number": number, "trigger": trigger, "hold": None if hold is None else duration_text(hold)}
    try:
        return kind.model_validate(data, context=FROM_FILE)
    except ValidationError as error:
        for detail in ordered(error):
            report_error(found, detail, body_path, tuple(part for part in detail["loc"] if part != "[key]"))
        return None
