"""`simulation.json`: what many simulated runs of a case came to (`ackproof simulate`, and a few after each real run).

Written by `ackproof_simulator.sweep`; the reports read it.
"""

from __future__ import annotations

from pydantic import Field

from ackproof.rundir.documents import Document, Scalar


class Spread(Document):
    """One quantity over all simulated runs: records, or ms where the name ends so. -1: in no run.

    `runs`: in how many it was known; `seen`: in how many it was above 0. `mean_low`, `mean_high`: 95 % interval of the
    mean (percentile bootstrap); `share_low`, `share_high`: 95 % interval of the share `seen` / `runs` (Wilson).
    """

    name: str
    runs: int
    seen: int
    least: float
    p05: float
    p50: float
    p95: float
    most: float
    mean: float
    mean_low: float
    mean_high: float
    share_low: float
    share_high: float


class Elected(Document):
    """How often a broker was the first to lead after the first fault."""

    leader: int
    runs: int


class WorstSeed(Document):
    """A seed with much of what must not be, and the one command that repeats it."""

    seed: int
    what: str
    value: float
    command: str


class Shrunk(Document):
    """The fewest faults that still show a finding at one seed; `runs`: how many schedules were tried."""

    seed: int
    what: str
    value: float
    faults: tuple[str, ...]
    before: int
    runs: int


class SimulationFile(Document):
    """Simulated runs of one case. `linger_ms`: how long a batch takes together; counts are as coarse as a batch."""

    case: str
    settings: dict[str, Scalar] = Field(default_factory=dict)
    runs: int = 0
    incomplete: int = 0
    """Runs whose final read was not complete, or in which a fault did not bite; they are in no number here."""
    first_seed: int = 0
    linger_ms: float = 0.0
    coarseness: float = 0.0
    """Records that all producers together gather in `linger_ms`: counts are known to so many."""
    seconds: float = 0.0
    spreads: tuple[Spread, ...] = ()
    elected: tuple[Elected, ...] = ()
    worst: tuple[WorstSeed, ...] = ()
    shrunk: Shrunk | None = None

    def spread(self, name: str) -> Spread | None:
        """One of them by its name."""
        return next((one for one in self.spreads if one.name == name), None)


class SweepFile(Document):
    """`ackproof simulate --json`: all cases."""

    cases: tuple[SimulationFile, ...]
    exit_code: int = 0
