"""A share group as an experiment defines it (KIP-932): `workload.share_groups`, by group id. Kafka 4.2 and later."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field, model_validator

from ackproof.base.units import Duration, wrong
from ackproof.experiment.base import Config, Spec, Text, Whole
from ackproof.experiment.client import JAVA, ClientChoice, ClientField

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
