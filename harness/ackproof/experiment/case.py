"""A case: one cell of the matrix × one repeat, every random choice drawn beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ackproof.base.errors import BadInput
from ackproof.experiment.backends import Need
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.kafka import KafkaBuild
from ackproof.experiment.problems import hint
from ackproof.rundir.documents import Scalar


@dataclass(frozen=True)
class StormDraw:
    """Faults that one storm drew for one case."""

    faults: tuple[FaultSpec, ...]
    left_out: tuple[str, ...]
    """Kinds that this seed switched off."""
    unable: Mapping[int, str] = field(default_factory=dict)
    """Why this machine cannot do one of these faults, by its number: it is missed."""


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
    drawn: dict[int, StormDraw] = field(default_factory=dict)
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
        """Union of the needs of its faults and observers."""
        seen = frozenset({Need.METRICS} if self.experiment.observe.metrics else ())
        return seen.union(*(fault.needs for fault in self.faults if fault.number not in self.unable))

    @property
    def planned(self) -> ExperimentSpec:
        return self.experiment.model_copy(update={"faults": self.faults})

    @property
    def builds(self) -> tuple[KafkaBuild, ...]:
        """Every Kafka that a node runs at any time: the cluster's own, and those that faults install."""
        others = (build for fault in self.faults for build in fault.builds)
        return tuple(dict.fromkeys((self.experiment.cluster.kafka, *others)))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """One sentence for each unknown Kafka: whose rules are assumed."""
        return tuple(build.assumption for build in self.builds if build.assumption)

    @property
    def demands_a_finding(self) -> bool:
        return any(bound.lowest > 0 for expect in self.experiment.expect for bound in expect.counts.values())

    @property
    def unable(self) -> dict[int, str]:
        """Why this machine cannot do a fault that a storm drew, by its number."""
        return {number: why for drawn in self.drawn.values() for number, why in drawn.unable.items()}

    def order(self, fault: FaultSpec) -> tuple[int, ...]:
        return self.orders[fault.number]


def cell_of(case_id: str) -> str:
    """The id of a case without its repeat."""
    return case_id.rpartition("#")[0] or case_id


def find_cases(name: str, ids: Sequence[str]) -> list[str]:
    """Return the ids that `name` chooses: an id, a cell, or the only cell that begins so; of cells all repeats.

    Raises `BadInput` if no cell fits, or several do.
    """
    exact = [one for one in ids if name in (one, cell_of(one))]
    found = exact or [one for one in ids if name and one.startswith(name)]
    if not found:
        raise BadInput(f"no case is called '{name}'{hint(name, list(ids), 'there is', most=8)}")
    cells = dict.fromkeys(map(cell_of, found))
    if not exact and len(cells) > 1:
        raise BadInput(f"'{name}' is the beginning of {len(cells)} cases: {', '.join(list(cells)[:8])}")
    return found
