"""A case: one cell of the matrix × one repeat, every random choice drawn beforehand."""

from __future__ import annotations

from dataclasses import dataclass, field

from ackproof.experiment.backends import Need
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.kafka import KafkaBuild
from ackproof.rundir.documents import Scalar


@dataclass(frozen=True)
class Drawn:
    """What one storm came to in one case."""

    faults: tuple[FaultSpec, ...]
    left_out: tuple[str, ...]
    """Kinds that this seed switched off."""


@dataclass(frozen=True)
class Case:
    """One cell of the matrix, one repeat of it: everything is resolved."""

    id: str
    settings: dict[str, Scalar]
    """The matrix's values for this case by their full paths."""
    repeat: int
    """Counts from 1."""
    seed: int
    """Of this case alone: all random choices of its run follow from it."""
    experiment: ExperimentSpec
    """This cell, without a matrix; `expect` holds what is expected of this case."""
    cell: str = ""
    """The part of its name that stands for settings which go together: their name where the file gives one."""
    orders: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The draw of each fault, by its number: all brokers in a random order (`Role.resolve`)."""
    drawn: dict[int, Drawn] = field(default_factory=dict)
    """What each storm came to, by the storm's number."""

    @property
    def faults(self) -> tuple[FaultSpec, ...]:
        """Every fault of the case: those of the file, each storm followed by what it drew."""
        return tuple(
            one
            for fault in self.experiment.faults
            for one in (fault, *(self.drawn[fault.number].faults if fault.number in self.drawn else ()))
        )

    @property
    def needs(self) -> frozenset[Need]:
        """What its faults need of the ground, and who looks on, all together."""
        seen = frozenset({Need.METRICS} if self.experiment.observe.metrics else ())
        return seen.union(*(fault.needs for fault in self.faults))

    @property
    def builds(self) -> tuple[KafkaBuild, ...]:
        """What its nodes run at any time: the cluster's Kafka, and those that faults bring."""
        others = (build for fault in self.faults for build in fault.builds)
        return tuple(dict.fromkeys((self.experiment.cluster.kafka, *others)))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What is taken for granted of each Kafka that is not known, a sentence each."""
        return tuple(build.assumption for build in self.builds if build.assumption)

    @property
    def demands_a_finding(self) -> bool:
        """Whether it expects to see at least one of some anomaly."""
        return any(bound.lowest > 0 for expect in self.experiment.expect for bound in expect.counts.values())

    def order(self, fault: FaultSpec) -> tuple[int, ...]:
        """The draw of one fault."""
        return self.orders[fault.number]
