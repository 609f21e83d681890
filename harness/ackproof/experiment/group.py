"""Readers of the records that an experiment writes: consumer groups, share groups, and a service under test.

Members of a consumer group (`workload.groups`) read topics of the experiment in batches. They take a given time for
each record, and commit in one of several modes. Share groups (`workload.share_groups`, KIP-932) need Kafka 4.2. A
service (`workload.service`) is a program of the user that copies records from one topic to another, or into a store of
its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, JsonValue, PlainSerializer, WithJsonSchema, model_validator

from ackproof.base.advice import expected
from ackproof.base.units import Duration, wrong
from ackproof.experiment.base import Config, Flag, Spec, Text, Whole, matching
from ackproof.experiment.client import JAVA, ClientChoice, ClientField, read_command
from ackproof.experiment.roles import GROUP_ID

GroupProtocol: TypeAlias = Literal["classic", "consumer"]
Assignor: TypeAlias = Literal["range", "roundrobin", "cooperative-sticky", "uniform"]
CommitMode: TypeAlias = Literal["before", "after", "timed", "auto", "transaction"]
_ASSIGNORS: Final[dict[GroupProtocol, tuple[Assignor, ...]]] = {
    "classic": ("range", "roundrobin", "cooperative-sticky"),
    "consumer": ("uniform", "range"),
}
"""Assignors of each protocol; the first is its default."""

_LIMITS_S: Final = {
    "group.session.timeout.ms": (6.0, 1800.0),
    "group.consumer.session.timeout.ms": (45.0, 60.0),
    "group.consumer.heartbeat.interval.ms": (5.0, 15.0),
}
"""Smallest and greatest value in seconds that brokers allow by default for each setting
(`group.min.session.timeout.ms`, `group.max.session.timeout.ms`, …)."""

GroupName: TypeAlias = Annotated[
    str,
    matching(GROUP_ID, "a group id: up to 200 letters, digits, '.', '_' and '-'"),
    WithJsonSchema({"type": "string", "pattern": r"^[A-Za-z0-9._-]{1,200}$"}),
]


_HEARTBEATS: Final = 6
"""Number of heartbeats that a member sends within its session time-out."""


class GroupSpec(Spec):
    """A consumer group. Members are named `g0`, `g1`, … in the order of their start, numbered through all groups."""

    client: ClientField = Field(
        default_factory=ClientChoice,
        description="Client library of the members: librdkafka, java, {java: RELEASE}, or a program of yours "
        "(docs/clients.md, role member).",
    )
    members: Whole = Field(2, ge=1, le=100, description="How many members start with the load.")
    topics: tuple[Text, ...] | None = Field(
        None,
        min_length=1,
        description="Topics that it subscribes to; those that producers write to by default.",
    )
    protocol: GroupProtocol = Field(
        "classic", description="Rebalance protocol: classic, or consumer (KIP-848, Kafka 4.0 and later)."
    )
    assignor: Assignor | None = Field(
        None,
        description="classic: range (default), roundrobin, cooperative-sticky; consumer: uniform (default), range.",
    )
    static: Flag = Field(
        False,
        description="Static membership: a member that replaces another takes over its group.instance.id.",
    )
    commit: CommitMode = Field(
        "after",
        description="When a member commits: before it processes a batch (at most once), after it (at least once), "
        "timed (what it has processed, every commit_every), auto (the library, every commit_every), or in a "
        "transaction with its output (exactly once).",
    )
    commit_every: Duration = Field(
        1.0, ge=0.01, le=600, description="Interval of timed and automatic commits."
    )
    group_metadata: Flag = Field(
        True,
        description="A transaction names member and generation, so that the coordinator can fence zombies.",
    )
    output: Text | None = Field(
        None,
        description="Topic to which a member copies each record that it processes. It is created with partitions, "
        "replicas and settings of the first input topic. Needed for commit: transaction.",
    )
    start: Literal["earliest", "latest", "committed"] = Field(
        "earliest",
        description="Where a partition without a committed offset begins: at the beginning, at the end, or nowhere "
        "(a member fails).",
    )
    reset: Literal["earliest", "latest", "error"] | None = Field(
        None,
        description="auto.offset.reset where the committed offset is not in the log; by default as start, and error "
        "for start: committed.",
    )
    isolation: Literal["read_uncommitted", "read_committed"] = Field(
        "read_committed", description="isolation.level of the members."
    )
    batch: Whole = Field(50, ge=1, le=100_000, description="Most records of a batch.")
    record_time: Duration = Field(0.0, ge=0, le=600, description="Time that a member takes for each record.")
    session_timeout: Duration = Field(
        6.0,
        ge=1,
        le=1800,
        description="After how long without a heartbeat a member is removed. With protocol consumer the harness sets "
        "it on the brokers.",
    )
    max_poll_interval: Duration = Field(
        300.0, ge=1, le=86_400, description="How long a member may take for a batch."
    )
    settle: Duration = Field(
        30.0, gt=0, description="How long the group may take to catch up once the producers have stopped."
    )
    config: Config = Field(default_factory=dict, description="Further settings of the client library.")

    @model_validator(mode="after")
    def _check(self) -> GroupSpec:
        if self.assignor is not None and self.assignor not in _ASSIGNORS[self.protocol]:
            known = ", ".join(_ASSIGNORS[self.protocol])
            raise wrong(f"protocol {self.protocol} has no assignor {self.assignor}: choose {known}")
        if self.commit == "transaction" and self.output is None:
            raise wrong("commit: transaction needs an output topic: write output: copies")
        if not self.group_metadata and self.commit != "transaction":
            raise wrong("group_metadata: false is for commit: transaction")
        if self.max_poll_interval < self.session_timeout and self.protocol == "classic":
            raise wrong("max_poll_interval must be at least session_timeout")
        return self

    @property
    def resolved_assignor(self) -> Assignor:
        """The group's assignor; if the experiment names none, the default of its rebalance protocol."""
        return self.assignor or _ASSIGNORS[self.protocol][0]

    @property
    def resolved_reset(self) -> Literal["earliest", "latest", "error"]:
        """Policy for a committed offset that is not in the log: go on at the earliest or latest offset, or fail. The
        default is filled in."""
        if self.reset is not None:
            return self.reset
        return "error" if self.start == "committed" else self.start

    @property
    def heartbeat(self) -> float:
        """Seconds between heartbeats of a member."""
        return self.session_timeout / _HEARTBEATS

    @property
    def broker_settings(self) -> dict[str, str]:
        """Broker settings that the group needs: no delay before its first rebalance, limits that allow its
        time-outs, and with protocol consumer the time-outs themselves."""
        times = {"session.timeout.ms": self.session_timeout, "heartbeat.interval.ms": self.heartbeat}
        found = {"group.initial.rebalance.delay.ms": "0"}
        prefix = "group.consumer." if self.protocol == "consumer" else "group."
        for name, seconds in times.items() if self.protocol == "consumer" else (*times.items(),)[:1]:
            text, (least, most) = str(round(seconds * 1e3)), _LIMITS_S[prefix + name]
            if self.protocol == "consumer":
                found[prefix + name] = text
            if seconds < least:
                found[f"{prefix}min.{name}"] = text
            if seconds > most:
                found[f"{prefix}max.{name}"] = text
        return found

    @property
    def stalled_after(self) -> float:
        """Seconds without progress after which the group counts as stalled, unless `evidence.recovery` sets it."""
        return self.settle / 2


_SESSION_S: Final = 6.0
"""Session time-out of members, in seconds. A killed member keeps its partitions until it has passed."""
_HEARTBEAT_S: Final = 1.0


class ShareGroupSpec(Spec):
    """A share group. Its members are named `h0`, `h1`, … in the order of their start, counted over all share groups.

    A member accepts each record, except every Nth offset of a partition: it rejects that record, or first releases it
    or renews its lock and accepts it later. N is `reject_every`, `release_every` or `renew_every`; 0: no record.
    """

    client: ClientField = Field(
        ClientChoice(JAVA), description="Java client of the members: java, or {java: RELEASE}, 4.2 or later."
    )
    members: Whole = Field(2, ge=1, le=100, description="How many members start with the load.")
    topics: tuple[Text, ...] | None = Field(
        None,
        min_length=1,
        description="Topics that it subscribes to; those that producers write to by default.",
    )
    release_every: Whole = Field(0, ge=0, description="N: every Nth record is released; 0: none.")
    releases: Whole = Field(
        1, ge=1, description="How many deliveries of such a record are released; the next one is accepted."
    )
    reject_every: Whole = Field(0, ge=0, description="N: every Nth record is rejected; 0: none.")
    renew_every: Whole = Field(
        0, ge=0, description="N: the lock of every Nth record is renewed once, then it is accepted; 0: none."
    )
    lock: Duration = Field(
        15.0, ge=1, le=3600, description="share.record.lock.duration.ms: how long a member may hold a record."
    )
    delivery_limit: Whole = Field(
        5,
        ge=2,
        le=10,
        description="share.delivery.count.limit: after so many deliveries a record is given up.",
    )
    acquire: Literal["record_limit", "batch_optimized"] = Field(
        "record_limit", description="share.acquire.mode: only record_limit bounds a poll by batch."
    )
    batch: Whole = Field(50, ge=1, le=100_000, description="Most records of a batch (max.poll.records).")
    record_time: Duration = Field(0.0, ge=0, le=600, description="Time that a member takes for each record.")
    dead_letters: Text | None = Field(
        None,
        description="Dead-letter topic (Kafka 4.4, share.version 2): brokers copy to it what the group gives up.",
    )
    settle: Duration = Field(
        60.0, gt=0, description="How long the group may take to come to rest once the producers have stopped."
    )
    config: Config = Field(default_factory=dict, description="Further settings of the client library.")

    @model_validator(mode="after")
    def _check(self) -> ShareGroupSpec:
        if self.client.library != JAVA:
            raise wrong("share groups need the Java client")
        return self

    @property
    def group_settings(self) -> dict[str, str]:
        """Dynamic settings of the group, which its members set before they join."""
        dead = {
            "errors.deadletterqueue.topic.name": self.dead_letters or "",
            "errors.deadletterqueue.copy.record.enable": "true",
        }
        return {
            "share.auto.offset.reset": "earliest",
            "share.isolation.level": "read_committed",
            **(dead if self.dead_letters is not None else {}),
        }

    @property
    def broker_settings(self) -> dict[str, str]:
        """Broker settings that the group needs: its time-outs, lock duration and delivery limit, and bounds
        that allow them. With `dead_letters` also an empty prefix of dead-letter topics."""
        lock_ms, session_ms, heartbeat_ms = (
            round(seconds * 1000) for seconds in (self.lock, _SESSION_S, _HEARTBEAT_S)
        )
        return {
            "group.share.min.session.timeout.ms": str(session_ms),
            "group.share.session.timeout.ms": str(session_ms),
            "group.share.min.heartbeat.interval.ms": str(heartbeat_ms),
            "group.share.heartbeat.interval.ms": str(heartbeat_ms),
            "group.share.min.record.lock.duration.ms": str(min(lock_ms, 15_000)),
            "group.share.max.record.lock.duration.ms": str(max(lock_ms, 60_000)),
            "group.share.record.lock.duration.ms": str(lock_ms),
            "group.share.delivery.count.limit": str(self.delivery_limit),
            **({} if self.dead_letters is None else {"errors.deadletterqueue.topic.name.prefix": ""}),
        }

    @property
    def rest_s(self) -> float:
        """Seconds without a delivery after which all acquisition locks have expired, and killed members are no longer
        assigned any partition."""
        return max(self.lock, _SESSION_S) + 3.0


Promise: TypeAlias = Literal["at-least-once", "exactly-once", "at-most-once"]
_JSON: Final = "json"
_WORDS: Final = ("value", "header", "key")
_TEXTS: Final[dict[str, JsonValue]] = {
    "type": "array",
    "items": {"type": "string"},
    "minItems": 1,
    "title": "Command",
}


def _read_identity(value: object) -> str:
    """Parse where a service keeps the identity of a record. Return `value`, `header` or `key` as written, and for a
    mapping `{json: POINTER}` the JSON pointer (RFC 6901). A text that begins with `/` is returned as a pointer, too.

    Raises `PydanticCustomError` for any other value, and for a pointer that does not begin with `/`, or contains `~` or
    `"`.
    """
    pointer = value[_JSON] if isinstance(value, Mapping) and list(value) == [_JSON] else value
    if isinstance(pointer, str) and pointer.startswith("/") and "~" not in pointer and '"' not in pointer:
        return pointer
    if isinstance(value, Mapping) and list(value) == [_JSON]:
        raise wrong("a pointer into a JSON value begins with a slash, such as {json: /order/id}")
    if isinstance(value, str) and value in _WORDS:
        return value
    raise wrong(expected("value, header, key or {json: /order/id}"))


IdentityField: TypeAlias = Annotated[
    str,
    BeforeValidator(_read_identity),
    PlainSerializer(
        lambda identity: {_JSON: identity} if identity.startswith("/") else identity, return_type=JsonValue
    ),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(_WORDS)},
                {
                    "type": "object",
                    "additionalProperties": False,
                    "required": [_JSON],
                    "properties": {_JSON: {"type": "string", "pattern": "^/"}},
                },
            ],
            "title": "Identity",
        }
    ),
]
Command: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(read_command), WithJsonSchema(_TEXTS)]


class ServiceSpec(Spec):
    """A service under test: the user's command, its input and output, and the guarantee that it promises."""

    command: Command = Field(description="Its command line; {settings}, {bootstrap}, {group} are filled in.")
    count: Whole = Field(1, ge=1, le=20, description="How many instances run.")
    input: Text = Field(description="Topic that it reads. The producers write to it.")
    output: Text | None = Field(
        None,
        description="Topic that it writes to. It is created with partitions, replicas and settings of the input.",
    )
    sink: Command | None = Field(
        None,
        title="Sink",
        description="In place of an output topic: a command that prints the identities in the service's store, one "
        "a line.",
    )
    identity: IdentityField = Field(
        "value",
        description="Where the service keeps a record's identity: value, header, key, or {json: POINTER}.",
    )
    group: Text = Field("ackproof-service", description="Its consumer group, whose commits are looked up.")
    promise: Promise = Field("at-least-once", description="What the service promises for each input record.")
    level: Whole = Field(
        0,
        ge=0,
        le=3,
        description="What it tells (docs/clients.md): 0 nothing, 1 deliveries, 2 commits too, 3 sends too.",
    )
    settle: Duration = Field(
        30.0, gt=0, description="How long it may take to catch up once the producers have stopped."
    )
