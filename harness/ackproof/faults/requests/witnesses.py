"""Who vouches for what befalls requests: a question of that API, one of another beside it, and the kernel.

None of them asks the proxy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ackproof.network.requests.questions import Asked

SILENT_FOR_S: Final = 0.8
"""How long an answer is waited for before it is called none: a node in good health takes 5 ms."""
ANSWERS_WITHIN_S: Final = 2.0


class Look(NamedTuple):
    """What came of the question, and of the control: one of another API at the same time."""

    asked: Asked
    control: Asked

    def __str__(self) -> str:
        error = f" with error {self.asked.error}" if self.asked.error else ""
        return f"a question of it {self.asked}{error}; another {self.control.how}"


@dataclass(frozen=True)
class Witness:
    """Of a link on which nothing is done: the question arrives once, and is answered."""

    word: str = "passes"
    timeout_s: float = ANSWERS_WITHIN_S
    look_after_s: float | None = None
    """When it is looked whether the question has arrived; None: at the end."""
    wanted: int = 1
    """How often the question is to arrive."""
    later_s: float = 0.0
    """By how much the last of these comes later."""

    def sees(self, look: Look) -> bool:
        """Whether it shows."""
        return look.control.answered and look.asked.answered


@dataclass(frozen=True)
class Unanswered(Witness):
    """Of what is held or lost: nothing comes back, and it arrived at the node only if it is the answer that is."""

    timeout_s: float = SILENT_FOR_S
    arrives: bool = field(kw_only=True)

    def sees(self, look: Look) -> bool:
        return (
            look.control.answered and look.asked.how == "silent" and bool(look.asked.arrived) is self.arrives
        )


@dataclass(frozen=True)
class Closed(Witness):
    """Of connections that are closed."""

    def sees(self, look: Look) -> bool:
        return look.control.answered and look.asked.how == "closed"


@dataclass(frozen=True)
class Late(Witness):
    """Of what comes so many seconds later, at least; after half of them it has arrived if its answer is late."""

    least_s: float = field(kw_only=True)
    arrives: bool = field(kw_only=True)

    def sees(self, look: Look) -> bool:
        asked, control = look
        # Between two looks at the kernel's tables: a shorter time tells nothing of where it is.
        placed = self.look_after_s is None or bool(asked.arrived) is self.arrives
        return (
            control.answered and asked.answered and control.seconds < self.least_s <= asked.seconds and placed
        )


@dataclass(frozen=True)
class Told(Witness):
    """Of what is answered with this error, before the question arrives or in place of what the node answered."""

    code: int = field(kw_only=True)
    arrives: bool = field(kw_only=True)

    def sees(self, look: Look) -> bool:
        asked = look.asked
        if not (look.control.answered and asked.answered and asked.error == self.code):
            return False
        return bool(asked.arrived) is self.arrives


@dataclass(frozen=True)
class Twice(Witness):
    """Of what is sent twice: so often it arrives, the second time no sooner than it should, and one answer comes."""

    wanted: int = 2

    def sees(self, look: Look) -> bool:
        asked = look.asked
        arrived = asked.arrived == self.wanted and asked.arrived_s >= self.later_s
        return look.control.answered and asked.answered and arrived
