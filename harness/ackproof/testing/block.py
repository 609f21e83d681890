"""Any fault of the catalogue in the hands of a test, for as long as a `with` block lasts.

It is carried through its life as in an experiment, by the same driver: due at once, healed when the block is over.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final

from ackproof.base.errors import AckproofError, FaultNotConfirmed
from ackproof.base.wait import wait_until
from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.roles import Role
from ackproof.faults.driver import FaultDriver
from ackproof.faults.injection import FaultContext, find_holders
from ackproof.rundir.observed import Sample
from ackproof.rundir.timeline import Timeline

LONGEST_S: Final = 3600.0
"""Every fault has bounds of its own; this is beyond any."""


class _NoLoad:
    """Nobody counts here: a fault in a block begins at once."""

    def acked(self, topic: str | None, partition: int | None) -> int:
        return 0

    def read(self, topic: str | None, partition: int | None) -> int:
        return 0

    def look(self, topic: str, partition: int) -> Sample | None:
        return None

    def metric(self, name: str, node: int | None) -> float | None:
        return None


class FaultBlock:
    """`case` has the one fault. Entering raises `AckproofError` when it does not bite, leaving when it does not heal.

    What entering gives are the numbers of the nodes that it hit.
    """

    def __init__(self, case: Case, context: FaultContext, timeline: Timeline) -> None:
        self.fault: FaultSpec = case.experiment.faults[0]
        self._case = case
        self._context = context
        self._hit: set[int] = set()
        self._over = False
        self._driver = FaultDriver(case, context, _NoLoad(), timeline, self._resolve)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Whom it hit."""
        return tuple(sorted(self._hit))

    def __enter__(self) -> tuple[int, ...]:
        number = self.fault.number
        self._driver.start()
        wait_until(
            lambda: self._driver.has_begun(number),
            what=f"{self.fault} to bite",
            timeout_s=LONGEST_S,
            stop=self._context.stop,
        )
        # One that failed was undone already: who ends blocks later has nothing to do with it.
        self._over = bool(self._driver.failures())
        self._raise_failures()
        return self.nodes

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.end()
        except AckproofError as trouble:
            if error is None:
                raise
            error.add_note(str(trouble))

    def end(self, *, awaited: bool = True) -> None:
        """Let it come to its end, heal it, and see that it healed (unless that is not `awaited`: the cluster is about
        to stop). The second time nothing happens. Raises `AckproofError`."""
        if self._over:
            return
        self._over = True
        if awaited:
            wait_until(
                lambda: not self._driver.pending,
                what=f"{self.fault} to end by itself",
                timeout_s=LONGEST_S,
                stop=self._context.stop,
            )
        self._driver.heal_all()
        if awaited:
            self._raise_failures()

    def _raise_failures(self) -> None:
        if failures := self._driver.failures():
            raise FaultNotConfirmed("; ".join(failures))

    def _resolve(self, role: Role, fault: FaultSpec) -> tuple[int, ...]:
        nodes = find_holders(self._context.cluster, role, self._case.order(fault), self._context.stop)
        self._hit.update(nodes)
        return nodes
