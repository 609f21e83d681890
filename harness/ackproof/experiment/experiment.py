"""An experiment as a type: its parts, its faults, and what is expected of it."""

from __future__ import annotations

import re
from typing import Final

from pydantic import Field, SerializeAsAny, field_validator

from ackproof.experiment.backends import BACKENDS, Backend, BackendRow
from ackproof.experiment.base import Spec, Text, Whole
from ackproof.experiment.expectations import ExpectSpec
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.quantities import wrong
from ackproof.experiment.spec import ClusterSpec, EvidenceSpec, TopicName, TopicSpec, WorkloadSpec
from ackproof.rundir.documents import Scalar

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")


class ExperimentSpec(Spec):
    """One experiment: a cluster, topics, a workload, faults, a matrix of settings, expectations."""

    name: Text = Field(description="Name of the experiment: letters, digits, '.', '_' and '-'.")
    description: Text = Field("", description="What the experiment shows, in a sentence or two.")
    claims: tuple[Text, ...] = Field((), description="Claims that the experiment bears on, such as C09.")
    backend: Backend = Field(
        "process",
        description="Where it runs: brokers as processes of this machine, in containers (docker), in containers where "
        "an engine answers and else as processes (auto), on a cluster that someone else runs (attach), or (model) in "
        "the reference implementation, in virtual time.",
    )
    cluster: ClusterSpec = Field(default_factory=ClusterSpec, description="The cluster under test.")
    topics: dict[TopicName, TopicSpec] = Field(description="The topics, by name.")
    workload: WorkloadSpec = Field(default_factory=WorkloadSpec, description="What is written and read.")
    matrix: dict[Text, tuple[Scalar, ...]] = Field(
        default_factory=dict, description="Settings to vary, by their path: every combination is a case."
    )
    faults: tuple[SerializeAsAny[FaultSpec], ...] = Field((), description="The faults, in order.")
    expect: tuple[ExpectSpec, ...] = Field((), description="What is expected to be seen.")
    evidence: EvidenceSpec = Field(
        default_factory=EvidenceSpec, description="What a run must show before it is judged."
    )
    repeat: Whole = Field(1, ge=1, le=1000, description="How often each case runs.")
    seed: Whole = Field(0, ge=0, le=2**63 - 1, description="All random choices follow from it.")

    @field_validator("name")
    @classmethod
    def _fit_for_a_folder(cls, value: str) -> str:
        if not _NAME.match(value):
            raise wrong(
                "expected a name of up to 100 letters, digits, '.', '_' and '-' that begins with a letter or digit"
            )
        return value

    @property
    def ground(self) -> BackendRow:
        """What its backend is."""
        return BACKENDS[self.backend]

    def topic_names(self) -> tuple[str, ...]:
        """The topics that producers write to, in file order."""
        return self.workload.producers.topics or tuple(self.topics)
