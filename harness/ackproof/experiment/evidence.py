"""Fields of an experiment about evidence (`evidence:`), additional observers (`observe:`), and a soak."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, field_validator

from ackproof.base.advice import expected
from ackproof.base.units import Duration, wrong
from ackproof.experiment.base import Flag, Spec, Whole

Liveness: TypeAlias = Literal[
    "leaderless",
    "stuck-replica",
    "stuck-reassignment",
    "stuck-producer",
    "stuck-reader",
    "hanging-transaction",
    "no-controller",
    "stalled",
]
"""Names of the anomaly classes for what has not recovered (`rundir.anomalies.LIVENESS`; a test compares both)."""


class EvidenceSpec(Spec):
    """Evidence that a run must show before it is judged."""

    max_indeterminate: float = Field(
        0.5, ge=0, le=1, description="Largest share of attempts whose outcome may be unknown."
    )
    ack_after_healing: Flag = Field(
        True, description="Every targeted partition must acknowledge something after the last healing."
    )
    isr_size: Whole | None = Field(
        None, ge=1, description="ISR size awaited before the final read; the replication factor by default."
    )
    node_deaths: Flag = Field(False, description="Nodes may die by themselves.")
    settle_timeout: Duration = Field(
        60.0, gt=0, description="How long the cluster may take to settle before the final read."
    )
    recovery: dict[Liveness, Annotated[Duration, Field(gt=0)]] = Field(
        default_factory=dict,
        description="Time limit after the last healing for each kind of recovery, by the liveness class that is "
        "counted if it is exceeded. The default follows from the cluster's time-outs: `ackproof plan` shows it.",
    )

    @field_validator("max_indeterminate", mode="before")
    @classmethod
    def _share(cls, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise wrong(expected("a share between 0 and 1, such as 0.5"))
        return value


class ObserveSpec(Spec):
    """Observers that a run has only if the experiment asks for them, such as metrics of the nodes."""

    metrics: Flag = Field(
        False, description="Scrape the metrics of every node once a second, through a Java agent in each."
    )
    brokers: Flag = Field(
        False,
        description="Ask each broker by itself, five times a second, what it says of the cluster and what clients get "
        "there; and let readers tell from whom they fetch.",
    )


class SoakSpec(Spec):
    """A long load, cut into windows of time, each of which is audited while the load goes on."""

    window: Duration = Field(60.0, ge=5, description="How long each window of the load lasts.")
    keep: Whole | None = Field(
        None,
        ge=1,
        description="How many of the newest windows stay on disk when those before them were found clean; all by "
        "default.",
    )
