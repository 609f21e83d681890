"""A consumer group as an experiment defines it: `workload.groups`, by group id. Its members read topics of the
experiment in batches, take a given time for each record, and commit in one of several modes."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, WithJsonSchema, model_validator

from ackproof.base.units import Duration, wrong
from ackproof.experiment.base import Config, Flag, Spec, Text, Whole, matching
from ackproof.experiment.client import ClientChoice, ClientField
from ackproof.experiment.roles import GROUP_ID

GroupProtocol: TypeAlias = Literal["classic", "consumer"]
Assignor: TypeAlias = Literal["range", "roundrobin", "cooperative-sticky", "uniform"]
CommitMode: TypeAlias = Literal["before", "after", "timed", "auto", "transaction"]
_ASSIGNORS: Final[dict[GroupProtocol, tuple[Assignor, ...]]] = {
    "classic": ("range", "roundrobin", "cooperative-sticky"),
    "consumer": ("uniform", "range"),
}
"""Assignors of each protocol, its default first."""

_LIMITS_S: Final = {
    "group.session.timeout.ms": (6.0, 1800.0),
    "group.consumer.session.timeout.ms": (45.0, 60.0),
    "group.consumer.heartbeat.interval.ms": (5.0, 15.0),
}
"""Least and greatest value that brokers allow by default: `group.min.session.timeout.ms` and so on."""

GroupName: TypeAlias = Annotated[
    str,
    matching(GROUP_ID, "a group id: up to 200 letters, digits, '.', '_' and '-'"),
    WithJsonSchema({"type": "string", "pattern": r"^[A-Za-z0-9._-]{1,200}$"}),
]


_HEARTBEATS: Final = 6
"""Heartbeats of a member within its session time-out."""


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

    @property
    def library(self) -> str:
        """Name of the members' client library in `rundir.guarantees`."""
        return self.client.library
