"""Every kind of fault, found by looking: each module of `ackproof.faults` is imported, each `FaultSpec` with a `KIND`
in it is one. Nobody lists families or kinds by hand.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType

from ackproof import faults
from ackproof.experiment.fault import FaultSpec


@cache
def fault_kinds() -> Mapping[str, type[FaultSpec]]:
    """Every kind by its name in a file, in the order of these names. Raises ValueError for a name that is taken."""
    found: dict[str, type[FaultSpec]] = {}
    for kind in _specifications():
        if kind.KIND in found:
            raise ValueError(f"two kinds of fault are called {kind.KIND!r}")
        found[kind.KIND] = kind
    return MappingProxyType(dict(sorted(found.items())))


def _specifications() -> Iterator[type[FaultSpec]]:
    for found in pkgutil.walk_packages(faults.__path__, f"{faults.__name__}."):
        for one in vars(import_module(found.name)).values():
            if (
                isinstance(one, type)
                and issubclass(one, FaultSpec)
                and one.__module__ == found.name
                and one.KIND
            ):
                yield one
