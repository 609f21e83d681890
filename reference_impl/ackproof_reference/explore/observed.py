"""What an observer has of worlds that commit by themselves: the quorum's and PacificA's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ackproof_reference.explore.invariants import records
from ackproof_reference.log import Log


class Observed(NamedTuple):
    """The longest prefix that anybody committed; and what broke it."""

    committed: tuple[int, ...] = ()
    wrong: tuple[tuple[str, str], ...] = ()

    def commits(self, who: str, log: Log) -> Observed:
        """What anybody commits must agree with what was committed."""
        shown = records(log.below(log.high_watermark))
        same = min(len(shown), len(self.committed))
        if shown[:same] != self.committed[:same]:
            text = f"{who} commits {shown}, committed was {self.committed}"
            return self._replace(wrong=(("conflict", text),))
        return self._replace(committed=max(shown, self.committed, key=len))

    def leads(self, who: str, log: Log) -> Observed:
        """Who comes to lead must hold all that was committed. `who`: with how it came to that."""
        held = records(log.batches)
        if held[: len(self.committed)] != self.committed:
            return self._replace(wrong=(("lost", f"{who} with {held}, committed was {self.committed}"),))
        return self


def wrong(observed: Observed) -> Iterator[tuple[str, str]]:
    """As an invariant for the search."""
    yield from observed.wrong
