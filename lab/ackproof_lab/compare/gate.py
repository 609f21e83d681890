"""What a comparison must not show (`--fail-on slower:20%`)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ackproof.quantities.vocabulary import parse_ask
from ackproof.rundir.bounds import Unit
from ackproof.rundir.lab import ComparedDifference, ComparedQuantity, ComparisonFile

_GATE: Final = re.compile(r"slower:([0-9]{1,4}(?:\.[0-9]{1,3})?)%\Z")


@dataclass(frozen=True)
class Gate:
    """No time may be longer, and no rate lower, by more than this share (0.2: a fifth)."""

    share: float
    text: str

    @classmethod
    def parse(cls, text: str) -> Gate:
        """Read `slower:20%`. Raises ValueError."""
        match = _GATE.match(text.strip())
        if match is None:
            raise ValueError(f"expected slower:20%, not '{text[:60]}'")
        return cls(float(match[1]) / 100, text.strip())

    def held(self, found: ComparisonFile) -> ComparisonFile:
        """The same, with what is slower for certain, and of how much it cannot be told."""
        broken: list[str] = []
        told = untold = 0
        for case, quantity, batch, beyond in _looked_at(found):
            holds = None if beyond is None else self._slower(quantity, beyond)
            told += holds is not None
            untold += holds is None
            if holds and beyond is not None:
                where = f"{case}: {quantity.quantity} {quantity.window}".rstrip()
                broken.append(f"{where}: {batch}: {beyond.interval} times that of the first")
        return found.model_copy(
            update={"fail_on": self.text, "broken": tuple(broken), "untold": untold, "told": told}
        )

    def _slower(self, quantity: ComparedQuantity, beyond: ComparedDifference) -> bool | None:
        """Whether it is slower for certain, or for certain not by so much; None where the interval is on both sides."""
        low = 0.0 if beyond.sure_low is None else beyond.sure_low
        high = math.inf if beyond.sure_high is None else beyond.sure_high
        if Unit(quantity.unit) is Unit.PER_SECOND:
            low, high = (1 / high if high else math.inf), (1 / low if low else math.inf)
        if low > 1 + self.share:
            return True
        return False if high <= 1 + self.share else None


def _looked_at(
    found: ComparisonFile,
) -> Iterator[tuple[str, ComparedQuantity, str, ComparedDifference | None]]:
    for case in found.cases:
        for one in case.quantities:
            quantity = parse_ask(one.quantity).quantity
            if quantity.takes_time and quantity.unit in (Unit.SECONDS, Unit.PER_SECOND):
                for batch, beyond in zip(found.batches[1:], one.beyond, strict=True):
                    yield case.case, one, batch.directory, beyond
