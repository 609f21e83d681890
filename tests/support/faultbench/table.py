"""The session's table of faults × backends: confirmed, healed, ISR full again. Each row was measured in the session."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Bite:
    """Result of one injected fault. `bit`: it was confirmed. Times are seconds since its request; -1: it never came to
    that. `did`, `witness`: texts of its confirmation; `healing`: what healed it; `recovery`: text of the witness of its
    recovery."""

    name: str
    backend: str
    bit: bool
    healed: bool
    isr_back: bool
    bit_s: float = -1.0
    recovered_s: float = -1.0
    isr_back_s: float = -1.0
    did: str = ""
    witness: str = ""
    healing: str = ""
    recovery: str = ""
    failures: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()

    @property
    def good(self) -> bool:
        """True if the fault was confirmed and healed, and the ISRs are full again."""
        return self.bit and self.healed and self.isr_back


@dataclass
class Table:
    """Results of all faults of the session, one row per injected fault."""

    rows: list[Bite] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the table as text, a row per fault and backend."""
        width = max((len(row.name) for row in self.rows), default=0)
        head = f"{'fault':<{width}}  {'backend':<8} bit    healed ISR back"
        return [
            head,
            *(self._line(row, width) for row in sorted(self.rows, key=lambda row: (row.name, row.backend))),
        ]

    @staticmethod
    def _line(row: Bite, width: int) -> str:
        def cell(yes: bool, seconds: float) -> str:
            return f"{seconds:5.1f}s" if yes else "    NO"

        cells = f"{cell(row.bit, row.bit_s)} {cell(row.healed, row.recovered_s)} {cell(row.isr_back, row.isr_back_s)}"
        said = (
            "" if row.good else f"  {'; '.join(row.failures) or row.witness or 'its ISRs did not fill again'}"
        )
        return f"{row.name:<{width}}  {row.backend:<8} {cells}{said}"

    def missing(self, refusals: Mapping[str, Collection[str]], backends: Sequence[str]) -> list[str]:
        """Return each kind and backend without a good result, as `kill on docker`. `refusals`: by kind, the backends
        that cannot inject it."""
        filled = {(row.name.split()[0].rstrip(":"), row.backend) for row in self.rows if row.good}
        return [
            f"{kind} on {backend}"
            for kind, not_on in sorted(refusals.items())
            for backend in backends
            if backend not in not_on and (kind, backend) not in filled
        ]

    def save(self, path: Path) -> None:
        """Write the table as JSON lines."""
        path.write_text("".join(json.dumps(asdict(row)) + "\n" for row in self.rows), encoding="utf-8")


TABLE = Table()
"""The results of this session, printed at its end."""
