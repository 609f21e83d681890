"""What stands in the place of a call, so that a fault or its healing does not do what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any, TypeAlias

from ackproof.cluster.disks import file_systems
from ackproof.network.addresses import Address
from ackproof.network.requests.rules import FrameSide

Spoilt: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Given a call, what is in its place."""


def nothing(real: Callable[..., Any]) -> Callable[..., Any]:
    """Says that it did it."""
    del real
    return lambda *given, **named: None


def without_its_act(real: Callable[..., Any]) -> Callable[..., Any]:
    """A rule that says that it acts, and does nothing."""

    def spoilt(*given: Any) -> str:
        lines = real(*given).splitlines()
        return "\n".join("DO NOTHING" if line.startswith("DO ") else line for line in [*lines, ""])

    return spoilt


def that_never_fires(real: Callable[..., Any]) -> Callable[..., Any]:
    """A rule that is loaded, and whose condition never holds."""

    def spoilt(*given: Any) -> str:
        lines = real(*given).splitlines()
        return "\n".join("IF FALSE" if line.startswith("IF ") else line for line in [*lines, ""])

    return spoilt


def says(word: object) -> Spoilt:
    """Does nothing, and answers this."""
    return lambda real: lambda *given, **named: word


def once(real: Callable[..., Any]) -> Callable[..., Any]:
    """Does it the first time alone."""
    return _where(real, lambda number: number == 1)


def not_at_first(real: Callable[..., Any]) -> Callable[..., Any]:
    """The first time nothing happens; cleaning up works."""
    return _where(real, lambda number: number > 1)


def _where(real: Callable[..., Any], does: Callable[[int], bool]) -> Callable[..., Any]:
    numbers = count(1)
    return lambda *given, **named: real(*given, **named) if does(next(numbers)) else None


def astray(elsewhere: str) -> Spoilt:
    """Rules for an address at which nobody is."""

    def spoilt(real: Callable[..., Any]) -> Callable[..., Any]:
        def lay(rules: Any, mark: str, addresses: Any, effect: Any) -> Any:
            return real(rules, mark, [Address(elsewhere, each.port) for each in addresses], effect)

        return lay

    return spoilt


def of_another_api(real: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for requests that nobody sends: the proxy believes that it does what it was told."""
    return lambda links, rule: real(links, replace(rule, api=47))


def of_the_other_side(real: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for the responses in place of the requests."""
    return lambda links, rule: real(links, replace(rule, side=FrameSide.RESPONSE))


def of_any_partition(real: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for all requests of the API."""
    return lambda links, rule: real(links, replace(rule, places=()))


def right_behind(real: Callable[..., Any]) -> Callable[..., Any]:
    """A rule that does at once what it should do later."""
    return lambda links, rule: real(links, replace(rule, delay=0.0))


def spared(file: str) -> Spoilt:
    """Files of this name stay."""
    return lambda real: lambda path, **named: None if path.name == file else real(path, **named)


def wrong_password(real: Callable[..., Any]) -> Callable[..., Any]:
    """The servers expect another password than this one, and end no session."""
    del real
    return lambda session: b"x" * 16


def synced_first(real: Callable[..., Any]) -> Callable[..., Any]:
    """The power goes when all had been written."""

    def lose_power(system: file_systems.FileSystem) -> None:
        system.sync()
        real(system)

    return lose_power
