"""A case: one repeat of one cell of the matrix, with every random choice drawn before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ackproof.base.errors import BadInput
from ackproof.experiment.backends import Need
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.kafka import KafkaBuild
from ackproof.experiment.problems import unknown_name
from ackproof.rundir.documents import Scalar


@dataclass(frozen=True)
class StormDraw:
    """The faults that one storm (a fault that starts randomly chosen faults) drew for one case."""

    faults: tuple[FaultSpec, ...]
    left_out: tuple[str, ...]
    """With `swarm: true`: kinds on the storm's menu that this seed left out for the whole case. Empty without
    `swarm`."""
    unable: Mapping[int, str] = field(default_factory=dict)
    """Number of a drawn fault → why this machine cannot do it. Such a fault counts as missed."""


@dataclass(frozen=True)
class Case:
    """One repeat of one cell of the matrix, with all settings and random choices resolved."""

    id: str
    settings: dict[str, Scalar]
    """The values of the settings that the matrix varies, by their full paths."""
    repeat: int
    """Number of the repeat, from 1."""
    seed: int
    """Seed of this case alone. All random choices of its run follow from it, except the pairs of faults in a storm of
    pairs: they follow from the experiment's seed."""
    experiment: ExperimentSpec
    """The experiment of this cell, without a matrix. Its `expect` has the expectations that apply to this case."""
    cell: str = ""
    """The part of the case's name that stands for settings that vary together: their name in the file, else their
    values. Empty if none do."""
    orders: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Number of a fault → all brokers, in the random order drawn for this fault. A role such as `broker` takes the
    first that qualify (`Role.resolve`)."""
    drawn: dict[int, StormDraw] = field(default_factory=dict)
    """Draw of each storm, by the storm's number."""

    @property
    def faults(self) -> tuple[FaultSpec, ...]:
        """Every fault of the case: the faults in the file, each storm followed by the faults that it drew."""
        return tuple(
            one
            for fault in self.experiment.faults
            for one in (fault, *(self.drawn[fault.number].faults if fault.number in self.drawn else ()))
        )

    @property
    def needs(self) -> frozenset[Need]:
        """Preparations that the faults and observers of the case require before the cluster starts. Faults in `unable`
        are left out."""
        seen = frozenset({Need.METRICS} if self.experiment.observe.metrics else ())
        return seen.union(*(fault.needs for fault in self.faults if fault.number not in self.unable))

    @property
    def planned(self) -> ExperimentSpec:
        """The experiment with every fault of the case (`faults`), those that storms drew included."""
        return self.experiment.model_copy(update={"faults": self.faults})

    @property
    def builds(self) -> tuple[KafkaBuild, ...]:
        """Every Kafka that a node runs at any time: the cluster's, and those that faults install."""
        others = (build for fault in self.faults for build in fault.builds)
        return tuple(dict.fromkeys((self.experiment.cluster.kafka, *others)))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """A sentence for each Kafka that is not a known release: it says which release's protocol rules ackproof
        assumes."""
        return tuple(build.assumption for build in self.builds if build.assumption)

    @property
    def demands_a_finding(self) -> bool:
        """True if the case meets an expectation only with a finding, such as `lost: "> 0"`."""
        return any(bound.lowest > 0 for expect in self.experiment.expect for bound in expect.counts.values())

    @property
    def unable(self) -> dict[int, str]:
        """Faults drawn by storms that this machine cannot inject: number of the fault → reason."""
        return {number: why for drawn in self.drawn.values() for number, why in drawn.unable.items()}

    def order(self, fault: FaultSpec) -> tuple[int, ...]:
        return self.orders[fault.number]


def cell_of(case_id: str) -> str:
    """Return the id of a case without its repeat: `acks=all#1` → `acks=all`. A text without `#` is returned
    unchanged."""
    return case_id.rpartition("#")[0] or case_id


def find_cases(name: str, ids: Sequence[str]) -> list[str]:
    """Return the ids in `ids` that `name` selects. `name` is an id, the name of a cell, or a beginning that only ids of
    one cell have.

    The name of a cell selects all its repeats. Raises `BadInput` if `name` selects no id, or if it is neither an id nor
    a cell and ids of several cells begin with it.
    """
    exact = [one for one in ids if name in (one, cell_of(one))]
    found = exact or [one for one in ids if name and one.startswith(name)]
    if not found:
        raise BadInput(unknown_name(f"no case is called '{name}'", name, list(ids), "there is", most=8))
    cells = dict.fromkeys(map(cell_of, found))
    if not exact and len(cells) > 1:
        raise BadInput(f"'{name}' is the beginning of {len(cells)} cases: {', '.join(list(cells)[:8])}")
    return found
