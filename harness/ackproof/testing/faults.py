"""A fault within a test's `with` block, and the warnings that nodes logged around it.

The driver of experiments runs the fault: it injects the fault at once, and heals it at the end of the block.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Final, NamedTuple

from ackproof.base.errors import AckproofError, FaultNotConfirmed
from ackproof.base.wait import wait_until
from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.roles import Role
from ackproof.faults.context import FaultContext
from ackproof.faults.driver import FaultDriver
from ackproof.faults.holders import find_holders
from ackproof.rundir.timeline import Timeline

LONGEST_S: Final = 3600.0
"""Seconds to wait at most until the fault of a block has begun, and until it has ended by itself: longer than any fault
takes."""


class FaultBlock:
    """A `with` block of one fault, the first of `case`. Entering returns the nodes that the fault hit.

    Entering raises `AckproofError` if the fault does not take effect. Leaving raises it if the fault does not heal. If
    the block itself raised, its exception goes on, with the failed healing as a note.
    """

    def __init__(self, case: Case, context: FaultContext, timeline: Timeline) -> None:
        self.fault: FaultSpec = case.experiment.faults[0]
        self._case = case
        self._context = context
        self._hit: set[int] = set()
        self._over = False
        # The fault begins at once: no trigger reads a number.
        self._driver = FaultDriver(case, context, lambda _: None, timeline, self._resolve)

    def __enter__(self) -> tuple[int, ...]:
        number = self.fault.number
        self._driver.start()
        wait_until(
            lambda: self._driver.has_begun(number),
            what=f"{self.fault} to bite",
            timeout_s=LONGEST_S,
            stop=self._context.stop,
        )
        # The driver has already undone a fault that failed.
        self._over = bool(self._driver.failures())
        self._raise_failures()
        return tuple(sorted(self._hit))

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
        """Wait until a fault that ends by itself has ended, heal the fault, and confirm the healing.

        A second call does nothing. Raises `AckproofError` if it is not healed. With `awaited=False` the fault is healed
        at once without confirmation, because the cluster is about to stop.
        """
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


MOST: Final = 10
"""Greatest number of log lines in a report, over all nodes."""
BEFORE_S: Final = 0.5
AFTER_S: Final = 5.0
"""Seconds after a fault in which its effects are logged: a broker's session ends after 3 s or more."""
_WIDTH: Final = 240
_BAD: Final = re.compile(r"\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})\] (WARN|ERROR|FATAL) (.*)")
_NUMBERS: Final = re.compile(r"\d+")


class _BadLine(NamedTuple):
    """A log line at WARN or above. `at`: seconds since 1970. `severe`: True for ERROR and FATAL."""

    at: float
    severe: bool
    node: str
    text: str

    @property
    def kind(self) -> tuple[str, str]:
        """Node and text of the line, with `#` for each number. Lines that differ only in numbers have the same kind."""
        return self.node, _NUMBERS.sub("#", self.text.partition("] ")[2])


def bad_lines(logs: Mapping[str, str], moments: Sequence[float], since: float = 0.0) -> list[str]:
    """Return the most relevant lines at WARN and above from the nodes' logs (text by node), ERROR and FATAL preferred.

    Only lines from `BEFORE_S` before to `AFTER_S` seconds after one of the `moments` are returned, or, without moments,
    lines from `since` on. Times are in seconds since 1970. If lines of one node differ only in numbers, the first is
    returned, with their count. At most `MOST` lines are returned, in order of time; a last line then has the number of
    those left out.
    """
    found = sorted(
        line
        for node, log in logs.items()
        for line in _bad(node, log)
        if (not moments and line.at >= since)
        or any(moment - BEFORE_S <= line.at <= moment + AFTER_S for moment in moments)
    )
    count = Counter(line.kind for line in found)
    firsts = list({line.kind: line for line in reversed(found)}.values())
    shown = sorted(sorted(firsts, key=lambda line: (not line.severe, line.at))[:MOST])
    lines = []
    for line in shown:
        text = line.text if len(line.text) <= _WIDTH else f"{line.text[:_WIDTH]}…"
        times = count[line.kind]
        lines.append(f"{line.node}: {text}" + (f" ({times} such lines)" if times > 1 else ""))
    left = len(firsts) - len(shown)
    return lines + ([f"… and {left} more kinds of lines at WARN or above"] if left else [])


def _bad(node: str, log: str) -> Iterator[_BadLine]:
    for line in log.splitlines():
        if found := _BAD.match(line):
            yield _BadLine(datetime.fromisoformat(found[1]).timestamp(), found[2] != "WARN", node, line)
