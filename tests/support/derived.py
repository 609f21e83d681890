"""Numbers that are derived, each with a check against a second, plain count, and mistakes that the check must find.

A check calls what it holds through its module or class: there a mistake is planted in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import Phase, settings

Check = Callable[[], None]
QUICK: Final = settings(
    max_examples=200, deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
)
"""A mistake must be noticed each time, by the same examples, which need be neither small nor kept."""


class Mistake(NamedTuple):
    """`wrong` makes a mistaken function of the right one, which is `owner.name`."""

    owner: object
    name: str
    wrong: Callable[[Any], Any]


class Numbers:
    """The numbers of one file of tests."""

    def __init__(self) -> None:
        self.checks: dict[str, Check] = {}
        self.mistakes: dict[tuple[str, str], Mistake] = {}

    def derived(
        self, name: str, **mistakes: tuple[object, str, Callable[[Any], Any]]
    ) -> Callable[[Check], Check]:
        """Remember the check of a number, with its mistakes by their names."""

        def remember(check: Check) -> Check:
            self.checks[name] = check
            self.mistakes |= {(name, what): Mistake(*planted) for what, planted in mistakes.items()}
            return check

        return remember

    def is_noticed(self, name: str, what: str, patch: pytest.MonkeyPatch) -> bool:
        """Plant a mistake, and return True if the check of its number fails."""
        owner, attribute, wrong = self.mistakes[name, what]
        patch.setattr(owner, attribute, wrong(getattr(owner, attribute)))
        try:
            self.checks[name]()
        except (AssertionError, ArithmeticError, LookupError, ValueError):
            return True
        return False
