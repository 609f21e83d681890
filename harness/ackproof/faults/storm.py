"""Storms: random faults from a seed, all drawn before the case starts, from a menu with weights.

::

    - storm:
        count: 12                    # number of faults
        menu: {pause: 3, kill: 2}    # kinds and their weights; {kill: {weight: 2, lasting: 5s}} says more
        roles: [leader(orders/0), broker, controller]
        gap: 0.5s..3s                # from the beginning of a fault to the beginning of the next
        lasting: 1s..4s              # time for which each is held
        at_least: 8                  # number that must take effect, or the case is INCONCLUSIVE
        swarm: true                  # each seed leaves out whole kinds of the menu
        pairs: all                   # in place of single faults, all pairs of kinds: `faults.pairs`
      at: 2s

Drawn faults are ordinary fault specs. Their numbers are the storm's number × 1000 + 1, 2, …, shown as 1.1, 1.2. Each
begins at its time after the storm's own beginning, and each is healed, whatever else is broken by then. A fault with
nothing to break (its node is dead, or no node holds the role) is listed as missed.

Omitted fields are drawn: `storm: {count: 20}` draws from all kinds that the backend and the cluster can do. The faults
are aimed at leaders, followers, brokers and controllers. Links and parameters come from each kind's own ranges. One
seed draws the same storm on every machine; a fault that the machine cannot do is missed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import (
    BeforeValidator,
    Field,
    JsonValue,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    field_validator,
)

from ackproof.base.advice import Advice, expected
from ackproof.base.units import FROM_FILE, duration_text, wrong
from ackproof.experiment.base import Flag, Spec, Whole
from ackproof.experiment.case import StormDraw
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import NOTHING, RANGE_PATTERN, Draw, DurationRange, RangeField, places_of
from ackproof.experiment.fault import COMMON, FaultSpec
from ackproof.experiment.problems import Path, unknown_name
from ackproof.experiment.roles import RoleField, RoleKind
from ackproof.experiment.triggers import ChainTrigger
from ackproof.faults.registry import fault_kinds
from ackproof.rundir.timeline import DRAWN_FROM

MOST: Final = 200
"""Largest number of faults of one storm."""
PLACES: Final = 4
"""Largest number of partitions at whose leaders and followers a storm without `roles` and `menu` aims."""
_WEIGHT: Final[JsonValue] = {"type": "integer", "minimum": 1, "maximum": 1_000_000}
Able: TypeAlias = Callable[[FaultSpec], bool]
"""Function that returns True if the backend can inject a fault. Kinds on a menu that the backend cannot
inject are refused when the file is checked."""
TRIES: Final = 20


class MenuEntry(Spec):
    """One kind of fault on a storm's menu. `weight`: how often it is drawn, relative to the other weights."""

    weight: int = Field(ge=1)
    lasting: RangeField | None = None
    """Duration of these faults, in place of the storm's `lasting`."""
    fields: dict[str, JsonValue] = Field(default_factory=dict)
    """Fields of the kind with given values; the others are drawn."""


def _read_entry(value: object) -> object:
    if isinstance(value, MenuEntry):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, dict)):
        raise wrong(expected("a weight such as 3, or {weight: 3, …}"))
    given = {"weight": value} if isinstance(value, int) else dict(value)
    weight = given.pop("weight", 1)
    if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= 1_000_000:
        raise wrong("expected a weight of at least 1", "to exclude a kind, remove it from the menu")
    lasting = given.pop("lasting", None)
    return {"weight": weight, "lasting": lasting, "fields": given}


def _entry_data(entry: MenuEntry) -> JsonValue:
    if entry.lasting is None and not entry.fields:
        return entry.weight
    lasting: dict[str, JsonValue] = {} if entry.lasting is None else {"lasting": str(entry.lasting)}
    return {"weight": entry.weight, **lasting, **entry.fields}


MenuEntryField: TypeAlias = Annotated[
    MenuEntry,
    BeforeValidator(_read_entry),
    PlainSerializer(_entry_data, return_type=JsonValue),
    WithJsonSchema(
        {
            "anyOf": [
                _WEIGHT,
                {
                    "type": "object",
                    "properties": {
                        "weight": _WEIGHT,
                        "lasting": {"type": "string", "pattern": RANGE_PATTERN},
                    },
                },
            ],
            "examples": [3],
        }
    ),
]


def _read_kind(value: object) -> object:
    valid = [kind for kind in fault_kinds() if kind != Storm.KIND]
    if isinstance(value, str) and value not in valid:
        raise wrong(unknown_name(f"unknown fault kind '{value[:60]}'", value, valid, "expected one of"))
    return value


MenuKind: TypeAlias = Annotated[str, BeforeValidator(_read_kind)]


class Storm(FaultSpec):
    """Random faults from a seed, drawn when the case is created. Each of them is healed."""

    KIND = "storm"
    PER_NODE = NOTHING
    SUMMARY = "Many random faults, drawn beforehand from a menu with weights; each is healed."

    menu: dict[MenuKind, MenuEntryField] | None = Field(
        None,
        json_schema_extra={"minProperties": 1},
        description="Kinds of faults and their weights: {pause: 3, kill: 2}. A kind's own fields may be given: "
        "{kill: {weight: 2, lasting: 5s, target: controller}}. By default all that can be drawn here.",
    )
    pairs: Literal["all"] | None = Field(
        None,
        description="Instead of single faults draw pairs of kinds, each in force together, until a batch has had all: "
        "every case is a share, with `count` faults.",
    )
    count: Whole = Field(10, ge=1, le=MOST, description="Number of faults that are drawn.")
    roles: tuple[RoleField, ...] | None = Field(
        None,
        min_length=1,
        description="Roles that faults of nodes may be aimed at; by default broker, and without a menu leaders, "
        "followers and controllers too; of pairs every node by its number.",
    )
    gap: RangeField = Field(
        DurationRange(0.5, 3.0),
        json_schema_extra={"default": "0.5s..3s"},
        description="Time between the beginnings of two faults.",
    )
    lasting: RangeField = Field(
        DurationRange(1.0, 4.0),
        json_schema_extra={"default": "1s..4s"},
        description="Time for which each fault is held.",
    )
    at_least: Whole | None = Field(
        None,
        ge=0,
        le=MOST,
        description="Faults that must take effect, or the case is INCONCLUSIVE; default: half of them, of pairs 1.",
    )
    swarm: Flag = Field(
        False, description="Each seed leaves out whole kinds of the menu, so that others meet more often."
    )

    @field_validator("menu")
    @classmethod
    def _something(cls, value: dict[str, MenuEntry] | None) -> dict[str, MenuEntry] | None:
        if value is not None and not value:
            raise wrong(
                "the menu is empty: name kinds of faults and their weights, such as {pause: 3, kill: 2}"
            )
        return value

    def menu_entry(self, kind: str) -> MenuEntry:
        """Return the menu's entry for a kind of fault; without a menu all kinds have the same weight. Raises KeyError
        for a kind that is not on the menu."""
        return MenuEntry(weight=1) if self.menu is None else self.menu[kind]

    @property
    def least(self) -> int:
        """Return the number of drawn faults that must take effect: `at_least`; by default half of `count`, rounded up,
        or 1 with `pairs`."""
        if self.at_least is not None:
            return self.at_least
        return (self.count + 1) // 2 if self.pairs is None else 1

    def not_simulated(self, spec: ExperimentSpec) -> tuple[str, str] | None:
        del spec
        return None if self.pairs is None else ("pairs", "its faults do not wait for one another")

    def __str__(self) -> str:
        if self.pairs is not None:
            return f"storm of {self.count // 2} pairs"
        if self.menu is None:
            return f"storm of {self.count} (all kinds)"
        menu = ", ".join(f"{kind} {entry.weight}" for kind, entry in self.menu.items())
        return f"storm of {self.count} ({menu})"


def draw_storm(
    storm: Storm, experiment: ExperimentSpec, seed: int, able: Able = lambda fault: True
) -> StormDraw:
    """Return the faults of this storm in the case with this seed, and the kinds of the menu that it leaves out (with
    `swarm`). Without a menu, there may be fewer faults than `count`: a draw is dropped if no valid fault comes of it.
    Equal arguments give equal faults.

    `able(fault)`: True if the backend can inject the fault. Raises `pydantic.ValidationError` for a menu that
    `plan.check_faults` would have refused.
    """
    generator = random.Random(f"{seed}/storm/{storm.number}")
    menu = storm.menu
    if menu is None:
        possible = possible_kinds(storm, experiment, able)
        menu = {kind: MenuEntry(weight=1) for kind, why in possible.items() if not why}
    kinds = _choose_kinds(menu, storm.swarm, generator)
    draw = Draw(generator, _roles_of(storm, experiment), experiment)
    roles = {kind: roles_for_kind(storm, kind, experiment) for kind in kinds}
    weights = [menu[kind].weight for kind in kinds]
    faults: list[FaultSpec] = []
    begins = 0.0
    for index in range(1, storm.count + 1):
        begins = round(begins + draw.pick_seconds(storm.gap), 3)
        (kind,) = generator.choices(kinds, weights)
        lasts = draw.pick_seconds(menu[kind].lasting or storm.lasting)
        number = storm.number * DRAWN_FROM + index
        own = replace(draw, roles=roles[kind], more=random.Random(f"{seed}/drawn/{number}"))
        trigger = ChainTrigger(storm.number, begins)
        if storm.menu is None:
            found = make_valid_fault(kind, MenuEntry(weight=1), own, number, trigger, lasts, able)
            faults += [] if isinstance(found, str) else [found]
        else:
            faults.append(_make_fault(kind, menu[kind], own, number, trigger, lasts))
    return StormDraw(tuple(faults), tuple(kind for kind in menu if kind not in kinds))


def possible_kinds(storm: Storm, experiment: ExperimentSpec, able: Able) -> dict[str, str]:
    """Return the kinds of the menu (without a menu: all kinds but `storm`), each with the reason why it cannot be
    drawn. The reason is '' if it can. `able(fault)`: True if the backend can inject the fault."""
    kinds = [kind for kind in storm.menu or fault_kinds() if kind != Storm.KIND]
    return {kind: _impossible(storm, kind, experiment, able) for kind in kinds}


def _impossible(storm: Storm, kind: str, experiment: ExperimentSpec, able: Able) -> str:
    spec, mode = fault_kinds()[kind], experiment.cluster.mode
    if why := spec.not_on(experiment.backend):
        return f"not possible on the backend {experiment.backend}, because {why}"
    if mode in spec.NOT_IN:
        return f"not possible with cluster.mode: {mode}, because {spec.NOT_IN[mode]}"
    draw = Draw(random.Random(0), _roles_of(storm, experiment), experiment)
    found = make_valid_fault(
        kind, storm.menu_entry(kind), draw, DRAWN_FROM, ChainTrigger(storm.number), storm.lasting.high, able
    )
    return found if isinstance(found, str) else ""


def make_valid_fault(
    kind: str, entry: MenuEntry, draw: Draw, number: int, trigger: ChainTrigger, lasts: float, able: Able
) -> FaultSpec | str:
    """Return a fault that fits the experiment and the backend; or the reason why there is none. At most `TRIES` faults
    are drawn; the reason is then why the last of them does not fit.

    `kind`, `entry`: the kind and its entry in the storm's menu. `draw`: draws the fields that the entry does not give.
    `number`: the fault's number. `trigger`: when it begins. `lasts`: its duration in seconds. `able(fault)`: True if
    the backend can inject it.
    """
    why = ""
    for _ in range(TRIES):
        if not entry.fields and fault_kinds()[kind].draw_fields(draw) is None:
            return "a storm cannot draw its fields here"
        try:
            found = _make_fault(kind, entry, draw, number, trigger, lasts)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            continue
        complaints = _LastComplaint()
        found.check(draw.experiment, complaints)
        if not complaints.why and able(found):
            return found
        why = complaints.why or f"{found} is not possible on the backend {draw.experiment.backend}"
    return why


class _LastComplaint:
    """Receiver of a fault's conflicts with its experiment, of which it keeps the last."""

    def __init__(self) -> None:
        self.why = ""

    def sound(self, *paths: Path, cluster: bool = False) -> bool:
        del paths, cluster
        return True

    def report(
        self, path: Path, fact: str, hint: str = "", *, suggestion: str | None = None, key: bool = False
    ) -> None:
        del path, suggestion, key
        self.why = Advice(fact, hint)

    def unknown_value(self, path: Path, what: str, name: str, valid: Iterable[str]) -> None:
        del path, valid
        self.why = f"{what} '{name}' does not exist"


def _choose_kinds(menu: dict[str, MenuEntry], swarm: bool, generator: random.Random) -> list[str]:
    every = list(menu)
    if not swarm:
        return every
    return [kind for kind in every if generator.random() < 0.5] or [generator.choice(every)]


def _roles_of(storm: Storm, experiment: ExperimentSpec) -> list[str]:
    """Return the roles at which a storm's faults of nodes may be aimed, in the grammar of a file. They are the roles of
    the storm, or roles that fit the experiment if the storm has none."""
    if storm.roles is not None:
        return [str(role) for role in storm.roles]
    if storm.pairs is not None:  # by number, to know which faults meet on a node
        keeper = RoleKind.CONTROLLER if experiment.cluster.mode == "kraft" else RoleKind.ZOOKEEPER
        brokers = [f"{RoleKind.BROKER}({node})" for node in experiment.cluster.broker_ids]
        controllers = [f"{keeper}({node})" for node in experiment.cluster.controller_ids]
        return [*brokers, *(() if experiment.cluster.combined else controllers)]
    if storm.menu is not None:
        return [str(RoleKind.BROKER)]
    places = places_of(experiment)
    of_partitions = [f"{role}({place})" for place in places[:PLACES] for role in ("leader", "follower")]
    return [*of_partitions, str(RoleKind.BROKER), str(RoleKind.CONTROLLER)]


def roles_for_kind(storm: Storm, kind: str, experiment: ExperimentSpec) -> list[str]:
    """Return those of the storm's roles at which faults of this kind can be aimed. If no role fits, return all of them:
    the attempt to make a fault then raises an error that says why."""
    roles = _roles_of(storm, experiment)
    return [role for role in roles if _fits(storm, kind, role, experiment)] or roles


def _fits(storm: Storm, kind: str, role: str, experiment: ExperimentSpec) -> bool:
    try:
        make_sample(storm, kind, [role], experiment)
    except ValidationError as error:
        return not all(detail["loc"] == ("target",) for detail in error.errors())
    return True


def make_sample(storm: Storm, kind: str, roles: Sequence[str], experiment: ExperimentSpec) -> FaultSpec:
    """Return one fault of this kind, to check beforehand whether the storm can draw the kind. The fields of the storm's
    menu are applied. The other fields are drawn with a fixed seed. `roles`: roles from which `target` is drawn, in the
    grammar of a file.

    Equal arguments give equal faults. Raises `pydantic.ValidationError` if the fields do not fit the kind.
    """
    draw = Draw(random.Random(0), roles, experiment)
    trigger = ChainTrigger(storm.number)
    return _make_fault(kind, storm.menu_entry(kind), draw, DRAWN_FROM, trigger, storm.lasting.high)


def _make_fault(
    kind: str, entry: MenuEntry, draw: Draw, number: int, trigger: ChainTrigger, lasts: float
) -> FaultSpec:
    """Return one fault of a kind on the menu. Raises `pydantic.ValidationError` if its fields do not fit.

    `entry`: the kind's entry in the storm's menu. `draw`: draws the fields that the entry does not give. `number`: the
    fault's number. `trigger`: when it begins. `lasts`: its duration in seconds, if the kind has one.
    """
    spec = fault_kinds()[kind]
    drawn = spec.draw_fields(draw) or {}
    required = {field.alias or name for name, field in spec.model_fields.items() if field.is_required()}
    # No field is added if all required ones are given: `set: {broker: …, config: …}` gets no topic.
    whole = bool(entry.fields) and required - COMMON <= entry.fields.keys()
    fields: dict[str, object] = {**entry.fields} if whole else {**drawn, **entry.fields}
    hold = None if spec.HOLD_KEY is None else duration_text(max(lasts, 0.001))
    return spec.model_validate(
        {**fields, "number": number, "trigger": trigger, "hold": hold}, context=FROM_FILE
    )
