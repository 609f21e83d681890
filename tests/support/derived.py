"""Checks of derived numbers against a second, plain computation, and planted mistakes that each check must find.

A check calls the code under test through its module or class, so that a mistake can be planted there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import Phase, settings

Check = Callable[[], None]
QUICK: Final = settings(
    max_examples=60, deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
)
"""Settings of hypothesis: the same examples each time, neither shrunk nor stored, so that a mistake is always
noticed."""


class Mistake(NamedTuple):
    """A planted mistake: `wrong` returns a wrong function for the right one, `owner.name`."""

    owner: object
    name: str
    wrong: Callable[[Any], Any]


class Numbers:
    """The checks and mistakes of one test module, by name."""

    def __init__(self) -> None:
        self.checks: dict[str, Check] = {}
        self.mistakes: dict[tuple[str, str], Mistake] = {}

    def derived(
        self, name: str, **mistakes: tuple[object, str, Callable[[Any], Any]]
    ) -> Callable[[Check], Check]:
        """Return a decorator that registers a check under `name`. Each keyword of `mistakes` names a planted mistake;
        its value holds the fields of `Mistake`."""

        def remember(check: Check) -> Check:
            self.checks[name] = check
            self.mistakes |= {(name, what): Mistake(*planted) for what, planted in mistakes.items()}
            return check

        return remember

    def is_noticed(self, name: str, what: str, patch: pytest.MonkeyPatch) -> bool:
        """Plant the mistake `what` of the check `name`, and return True if that check fails. A failed assertion, or an
        arithmetic, lookup or value error is a failure; any other exception is raised. `patch` undoes the mistake."""
        owner, attribute, wrong = self.mistakes[name, what]
        patch.setattr(owner, attribute, wrong(getattr(owner, attribute)))
        try:
            self.checks[name]()
        except (AssertionError, ArithmeticError, LookupError, ValueError):
            return True
        return False
