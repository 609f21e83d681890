"""Replacements of the harness's functions for duds, by which a fault or its healing has no effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any, TypeAlias

from ackproof.cluster.disks import file_systems
from ackproof.network.addresses import Address
from ackproof.network.requests.rules import FrameSide

Spoilt: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Function that returns the replacement of a function."""


def nothing(real: Callable[..., Any]) -> Callable[..., Any]:
    """Replace a function by one that does nothing and returns None."""
    del real
    return lambda *given, **named: None


def without_its_act(real: Callable[..., Any]) -> Callable[..., Any]:
    """Make a Byteman rule claim that it acted, without acting."""

    def spoilt(*given: Any) -> str:
        lines = real(*given).splitlines()
        return "\n".join("DO NOTHING" if line.startswith("DO ") else line for line in [*lines, ""])

    return spoilt


def that_never_fires(real: Callable[..., Any]) -> Callable[..., Any]:
    """Give a Byteman rule a condition that never holds."""

    def spoilt(*given: Any) -> str:
        lines = real(*given).splitlines()
        return "\n".join("IF FALSE" if line.startswith("IF ") else line for line in [*lines, ""])

    return spoilt


def says(word: object) -> Spoilt:
    """Return a `Spoilt` that replaces a function by one that only returns `word`."""
    return lambda real: lambda *given, **named: word


def once(real: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function work on its first call only."""
    return _where(real, lambda number: number == 1)


def not_at_first(real: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function do nothing on its first call; later calls, such as for cleaning up, work."""
    return _where(real, lambda number: number > 1)


def _where(real: Callable[..., Any], does: Callable[[int], bool]) -> Callable[..., Any]:
    numbers = count(1)
    return lambda *given, **named: real(*given, **named) if does(next(numbers)) else None


def astray(elsewhere: str) -> Spoilt:
    """Return a `Spoilt` that sets packet rules for the address `elsewhere`, which no node uses."""

    def spoilt(real: Callable[..., Any]) -> Callable[..., Any]:
        def lay(rules: Any, mark: str, addresses: Any, effect: Any) -> Any:
            return real(rules, mark, [Address(elsewhere, each.port) for each in addresses], effect)

        return lay

    return spoilt


def of_another_api(real: Callable[..., Any]) -> Callable[..., Any]:
    """Give the proxy a rule for an API that no client calls."""
    return lambda links, rule: real(links, replace(rule, api=47))


def of_the_other_side(real: Callable[..., Any]) -> Callable[..., Any]:
    """Give the proxy a rule for responses in place of requests."""
    return lambda links, rule: real(links, replace(rule, side=FrameSide.RESPONSE))


def of_any_partition(real: Callable[..., Any]) -> Callable[..., Any]:
    """Give the proxy a rule for all requests of the API, not only those of a partition."""
    return lambda links, rule: real(links, replace(rule, places=()))


def right_behind(real: Callable[..., Any]) -> Callable[..., Any]:
    """Give the proxy a rule without its delay, so that it acts at once."""
    return lambda links, rule: real(links, replace(rule, delay=0.0))


def spared(file: str) -> Spoilt:
    """Return a `Spoilt` for a deletion, which then keeps files with this name."""
    return lambda real: lambda path, **named: None if path.name == file else real(path, **named)


def wrong_password(real: Callable[..., Any]) -> Callable[..., Any]:
    """Replace a function by one that returns another password than the session's, so that ZooKeeper does not end the
    session."""
    del real
    return lambda session: b"x" * 16


def synced_first(real: Callable[..., Any]) -> Callable[..., Any]:
    """Sync the file system before its power loss, so that nothing is lost."""

    def lose_power(system: file_systems.FileSystem) -> None:
        system.sync()
        real(system)

    return lose_power
