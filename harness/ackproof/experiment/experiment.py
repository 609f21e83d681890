"""An experiment as a type: its parts, its faults, its matrix, and its expectations and claims."""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias

from pydantic import (
    BeforeValidator,
    Field,
    JsonValue,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from ackproof.base.advice import Advice, expected
from ackproof.base.units import FROM_FILE, unknown, wrong
from ackproof.experiment.backends import BACKENDS, Backend, BackendRow
from ackproof.experiment.base import Spec, Text, Whole, matching
from ackproof.experiment.evidence import EvidenceSpec, ObserveSpec, SoakSpec
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.kafka import BUILD_SCHEMA
from ackproof.experiment.problems import Data, nearest
from ackproof.experiment.spec import (
    AUTO_CREATED,
    ClusterSpec,
    TopicName,
    TopicSpec,
    WorkloadSpec,
)
from ackproof.quantities.quantity import Quantity
from ackproof.quantities.vocabulary import UnknownQuantity, is_count, parse_ask
from ackproof.repeats.demand import STATISTICS, Demand, Statistic
from ackproof.rundir.bounds import WHOLE, Bound, Mode, Unit, Window
from ackproof.rundir.documents import Scalar

MOST_REPEATS: Final = 1000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_CLAIM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}\Z")
_FIRST_WORD: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9.]*)(\s+\S)?")


def _find_value(data: object, *path: str) -> object:
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data


def _read_scalar(value: object) -> object:
    if isinstance(value, (dict, list, tuple)):
        raise wrong(expected("a single value"))
    return value


def _read_values(value: object) -> object:
    if not value or not isinstance(value, (list, tuple)):
        raise wrong(expected("a list of values such as [1, 2]"))
    return value


def _name_bounds(bounds: object) -> object:
    """Return a mapping with an entry for each bound of a file: name → (name, bound, `twice`). The validator of a bound
    gets only the value, and needs the name to find the quantity. `twice`: True if an earlier name is another spelling
    of the same quantity. A value that is no mapping is returned unchanged."""
    if not isinstance(bounds, dict):
        return bounds
    names = [standard_spelling(str(name)) for name in bounds]
    return {
        name: (str(name), value, names.index(canonical) < number)
        for number, ((name, value), canonical) in enumerate(zip(bounds.items(), names, strict=True))
    }


def standard_spelling(name: str) -> str:
    """Return the name of a quantity in its standard spelling, so that equal quantities have equal names.

    A name that is no quantity is returned unchanged.
    """
    try:
        return str(parse_ask(name))
    except ValueError:
        return name


def _read_ask(name: object) -> object:
    try:
        return str(parse_ask(str(name)))
    except UnknownQuantity as error:
        raise unknown("quantity", [*error.valid, "given"], error.said) from error
    except ValueError as error:
        raise wrong(error) from error


def _find_quantity(name: str, twice: bool) -> Quantity | None:
    """Return the quantity that a bound limits; None if `name` is no quantity. `twice`: the bounds have this quantity
    already; then `PydanticCustomError` is raised."""
    try:
        quantity = parse_ask(name).quantity
    except ValueError:
        return None
    if twice:
        raise wrong(f"'{name}' stands twice", "give each bound an entry of its own")
    return quantity


def _read_bound(given: object) -> object:
    name, value, twice = given if isinstance(given, tuple) else (None, given, False)
    if name is None or isinstance(value, Bound):
        return value
    if (quantity := _find_quantity(name, twice)) is None:
        return Bound("==", 0)
    try:
        bound = Bound.parse(value, quantity.unit)
    except ValueError as error:
        raise wrong(error) from error
    _check_window(bound.window, quantity)
    return bound


def _check_window(window: Window, quantity: Quantity) -> None:
    if window != WHOLE and not quantity.windows:
        raise wrong(f"'{window}' says nothing of {quantity.key}, which is of a whole run", "leave it out")


def _is_over_repeats(bound: object) -> bool:
    """Return True if a bound begins with a statistic (`p95`). Also return True if it begins with a misspelled one
    (`medain`) that another word follows: its error then names the statistic. A `Mode`, such as `always`, is not taken
    for a misspelled statistic."""
    match = _FIRST_WORD.match(bound) if isinstance(bound, str) else None
    if match is None or match[1] in list(Mode):
        return False
    if Statistic.named(match[1]) is not None:
        return True
    return match[2] is not None and nearest(match[1], STATISTICS) is not None


def _read_demand(given: object) -> object:
    name, value, twice = given if isinstance(given, tuple) else (None, given, False)
    if name is None or isinstance(value, Demand):
        return value
    if (quantity := _find_quantity(name, twice)) is None:
        return Demand.parse("mean < 1", Unit.COUNT)
    if quantity.measure is None:
        raise wrong(
            f"{quantity.key} is a state, which has no one number in a run of which to take a statistic"
        )
    match = _FIRST_WORD.match(str(value))
    if match is not None and Statistic.named(match[1]) is None:
        near = nearest(match[1], STATISTICS)
        raise wrong(Advice(f"unknown statistic '{match[1]}'", suggestion=near or ""))
    try:
        demand = Demand.parse(str(value), quantity.unit)
    except ValueError as error:
        raise wrong(error) from error
    _check_window(demand.window, quantity)
    return demand


Single: TypeAlias = Annotated[Scalar, BeforeValidator(_read_scalar)]
_SINGLE: Final[JsonValue] = {"type": ["string", "integer", "number", "boolean", "null"]}
_ASSIGNMENT: Final[JsonValue] = {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}
_VALUE: Final[JsonValue] = {"anyOf": [_SINGLE, BUILD_SCHEMA, _ASSIGNMENT]}
TOGETHER: Final[dict[str, JsonValue]] = {
    "type": "object",
    "minProperties": 1,
    "properties": {"name": {"type": "string", "description": "What cases with these settings are called."}},
    "additionalProperties": _VALUE,
}
"""JSON schema of one value of an axis that sets several settings together, with an optional `name` for these cases."""
Values: TypeAlias = Annotated[
    tuple[JsonValue, ...],
    BeforeValidator(_read_values),
    WithJsonSchema(
        {"anyOf": [{"type": "array", "minItems": 1, "items": each} for each in (_VALUE, TOGETHER)]}
    ),
]
"""The values of one axis: single values, or mappings of settings that vary together. See `ackproof.plan.axes`."""
AskText: TypeAlias = Annotated[str, BeforeValidator(_read_ask)]
"""Text of a quantity in its standard spelling, such as `longest_gap(read)`. Unknown quantities are refused."""
Bounds: TypeAlias = Annotated[
    dict[AskText, Annotated[Bound, BeforeValidator(_read_bound)]], BeforeValidator(_name_bounds)
]

Demands: TypeAlias = Annotated[
    dict[AskText, Annotated[Demand, BeforeValidator(_read_demand)]], BeforeValidator(_name_bounds)
]


class ExpectSpec(Spec):
    """Bounds for the cases that have the `given` settings; for every case if `given` is empty.

    A setting is named by its path or by the end of it (`acks`, `min.insync.replicas`). In a file, the bounds are
    written next to `given`.
    """

    given: dict[str, Single] = Field(
        default_factory=dict,
        description="The settings of the cases that this speaks of, by their path or the end of it.",
        json_schema_extra={"examples": [{"acks": "all"}]},
    )
    bounds: Bounds = Field(default_factory=dict)
    over_repeats: Demands = Field(default_factory=dict)
    """Bounds on all repeats of a case, or on one case compared with another. They do not affect the verdict of a
    run."""

    @property
    def counts(self) -> dict[str, Bound]:
        """Return the bounds on classes of anomalies, by class."""
        return {name: bound for name, bound in self.bounds.items() if is_count(name)}

    @model_validator(mode="before")
    @classmethod
    def _bounds_stand_beside(cls, data: object, info: ValidationInfo) -> object:
        if info.context is not FROM_FILE or not isinstance(data, dict):
            return data
        found: dict[str, object] = {"given": data["given"]} if "given" in data else {}
        written = {name: bound for name, bound in data.items() if name != "given"}
        over = {name: bound for name, bound in written.items() if _is_over_repeats(bound)}
        found["bounds"] = {name: bound for name, bound in written.items() if name not in over}
        return found | ({"over_repeats": over} if over else {})

    @model_serializer
    def _as_in_a_file(self) -> dict[str, JsonValue]:
        given: dict[str, JsonValue] = {"given": dict(self.given)} if self.given else {}
        over: dict[str, JsonValue] = {name: str(demand) for name, demand in self.over_repeats.items()}
        return given | {name: bound.as_written for name, bound in self.bounds.items()} | over

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in self.given.items()) or "every case"
        every = (*self.bounds.items(), *self.over_repeats.items())
        return f"{given}: " + ", ".join(f"{name} {bound}" for name, bound in every)


ClaimName: TypeAlias = Annotated[
    str, matching(_CLAIM, "the name of a claim: up to 40 letters, digits, '.', '_' and '-', such as C09")
]
Showings: TypeAlias = Annotated[tuple[ExpectSpec, ...], Field(max_length=100)]


class ClaimSpec(Spec):
    """A statement about Kafka, with the observations by which the cases of this experiment answer it.

    If only `holds` is given, the claim is confirmed if all observations of `holds` are made, and refuted if none is. If
    `fails` is given too, the claim is qualified by its `condition` if all observations of both are made. It is refuted
    if all of `fails` and none of `holds` are made. If `measured` is given, the answer is the size of an effect over
    repeats, provided that all observations of `holds` and `fails` are made. In all other cases the answer is
    inconclusive. No observation of a claim affects the verdict of a run.
    """

    says: Text = Field(description="The claim, one sentence.")
    sources: tuple[Text, ...] = Field((), description="Who says so; `ackproof claims --tag` looks for it.")
    holds: Showings = Field((), description="What is seen where the claim is true.")
    fails: Showings = Field((), description="What is seen where it is not.")
    measured: Showings = Field(
        (),
        description="What is measured over repeats, without a bound, such as 'mean of acks=all over acks=1'.",
    )
    condition: Text = Field(
        "", description="On what it depends, one sentence: where it holds, and where not."
    )

    def sides(self) -> dict[str, tuple[ExpectSpec, ...]]:
        """Return the expected observations of the claim by its field: `holds`, `fails` and `measured`."""
        return {"holds": self.holds, "fails": self.fails, "measured": self.measured}


class ExperimentSpec(Spec):
    """One experiment: a cluster, topics, a workload, faults, a matrix of settings, expectations."""

    name: Text = Field(description="Name of the experiment: letters, digits, '.', '_' and '-'.")
    description: Text = Field("", description="What the experiment shows, in a sentence or two.")
    claims: dict[ClaimName, ClaimSpec] = Field(
        default_factory=dict,
        description="Claims that `ackproof claims` answers by its cases, by their names.",
    )
    backend: Backend = Field(
        "process",
        description="Where it runs: brokers as processes of this machine, in containers (docker), in containers where "
        "an engine answers and else as processes (auto), on a cluster that someone else runs (attach), or (model) in "
        "the reference implementation, in virtual time.",
    )
    cluster: ClusterSpec = Field(default_factory=ClusterSpec, description="The cluster under test.")
    topics: dict[TopicName, TopicSpec] = Field(description="The topics, by name.")
    workload: WorkloadSpec = Field(default_factory=WorkloadSpec, description="What is written and read.")
    matrix: dict[Text, Values] = Field(
        default_factory=dict,
        description="Settings to vary, by their path: every combination is a case. Several that go together are "
        "mappings below their group or a name of your own.",
        json_schema_extra={
            "examples": [
                {"workload.producers.acks": [0, 1, "all"]},
                {"workload.producers": [{"acks": 1}, {"name": "safe", "acks": "all", "idempotence": True}]},
            ],
            "properties": {
                name: {"type": "array", "minItems": 1, "description": said, "items": TOGETHER}
                for name, said in (
                    (
                        "exclude",
                        "Combinations that are left out: all that have these settings (or this name).",
                    ),
                    ("include", "Settings added to the combinations that they fit, or further cases."),
                )
            },
        },
    )
    faults: tuple[Annotated[FaultSpec, PlainSerializer(FaultSpec.entry, return_type=JsonValue)], ...] = Field(
        (), description="The faults, in order."
    )
    expect: tuple[ExpectSpec, ...] = Field((), max_length=200, description="What is expected to be seen.")
    observe: ObserveSpec = Field(
        default_factory=ObserveSpec, description="Observers in addition to those of every run."
    )
    soak: SoakSpec | None = Field(
        None,
        title="Soak",
        description="Audit the load window by window while it goes on; `ackproof run --soak` says this.",
    )
    evidence: EvidenceSpec = Field(
        default_factory=EvidenceSpec, description="What a run must show before it is judged."
    )
    repeat: Whole = Field(1, ge=1, le=MOST_REPEATS, description="How often each case runs.")
    seed: Whole = Field(0, ge=0, le=2**63 - 1, description="All random choices follow from it.")

    @model_validator(mode="before")
    @classmethod
    def _follow_brokers(cls, data: object) -> object:
        """Fill in partitions and replicas of topics that brokers create (`auto_created`) from the settings in
        `cluster.config`, else 1, unless the file gives them."""
        topics, config = _find_value(data, "topics"), _find_value(data, "cluster", "config")
        if not isinstance(data, dict) or not isinstance(topics, dict):
            return data
        theirs = {
            field: config[name] if isinstance(config, dict) and name in config else 1
            for field, name in AUTO_CREATED.items()
        }
        usual = {field: int(value) for field, value in theirs.items() if str(value).isdecimal()}
        followed = {
            name: {**usual, **topic} if _find_value(topic, "auto_created") is True else topic
            for name, topic in topics.items()
        }
        return {**data, "topics": followed}

    @model_validator(mode="after")
    def _serve_groups(self) -> ExperimentSpec:
        self.cluster.serve((*self.workload.groups.values(), *self.workload.share_groups.values()))
        return self

    @field_validator("name")
    @classmethod
    def _fit_for_a_folder(cls, value: str) -> str:
        if not _NAME.match(value):
            what = "a name of up to 100 letters, digits, '.', '_' and '-' that begins with a letter or digit"
            raise wrong(expected(what))
        return value

    @property
    def ground(self) -> BackendRow:
        return BACKENDS[self.backend]

    def data(self) -> dict[str, Data]:
        """Return the experiment as plain data, as a file writes it, with all defaults; fields that are None are left
        out."""
        data: dict[str, Data] = self.model_dump(mode="json", exclude_none=True)
        return data

    def topic_names(self) -> tuple[str, ...]:
        """Return the topics that producers write to, all topics by default, in file order."""
        return self.workload.producers.topics or tuple(self.topics)

    def input_of(self, group: str) -> tuple[str, ...]:
        """Return the topics that a group or share group subscribes to. Raises KeyError for an unknown group."""
        spec = self.workload.groups.get(group) or self.workload.share_groups[group]
        return spec.topics or self.topic_names()

    def output_topics(self) -> dict[str, TopicSpec]:
        """Return the specifications of the topics that the experiment needs in addition to `topics`, by name. These are
        output topics of groups and of the service under test, and dead-letter topics of share groups.

        Each has the specification of its input topic (the first, if there are several). A dead-letter topic also has
        errors.deadletterqueue.group.enable=true, without which share groups may not write to it.
        """
        service = self.workload.service
        outputs = {} if service is None or service.output is None else {service.output: service.input}
        for name, group in self.workload.groups.items():
            if group.output is not None:
                outputs[group.output] = self.input_of(name)[0]
        found = {output: self.topics[source] for output, source in outputs.items()}
        for name, share_group in self.workload.share_groups.items():
            if share_group.dead_letters is not None:
                topic = self.topics[self.input_of(name)[0]]
                config = {**topic.config, "errors.deadletterqueue.group.enable": "true"}
                found[share_group.dead_letters] = topic.model_copy(update={"config": config})
        return found
