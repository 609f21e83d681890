"""Every kind of fault, found by reading the sources: each `KIND = "…"` in a module of `ackproof.faults` is one.

There is no hand-written list of kinds. Reading an experiment imports only the modules of its own kinds.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ackproof import faults
from ackproof.experiment.fault import FaultSpec

_DECLARED: Final = re.compile(r'^    KIND = "(\w+)"$', re.MULTILINE)


@cache
def fault_kinds() -> Mapping[str, type[FaultSpec]]:
    """Return every kind of fault by name, sorted. The module of a kind is imported when the kind is looked up. Raises
    ValueError if two kinds have the same name."""
    found: dict[str, str] = {}
    for module in _modules():
        spec = find_spec(module)
        assert spec is not None and spec.origin is not None, module
        for name in _DECLARED.findall(Path(spec.origin).read_text(encoding="utf-8")):
            if name in found:
                raise ValueError(f"two kinds of fault are called {name!r}")
            found[name] = module
    return _Kinds(dict(sorted(found.items())))


@cache
def import_all() -> None:
    """Import every module of faults, including those that hold only injections."""
    for module in _modules():
        import_module(module)


class _Kinds(Mapping[str, type[FaultSpec]]):
    """Fault kinds by name; a kind's module is imported at its first look-up. `modules`: kind → the module
    that declares it."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules

    def __getitem__(self, name: str) -> type[FaultSpec]:
        return _kind(name, self._modules[name])

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


@cache
def _kind(name: str, module: str) -> type[FaultSpec]:
    return next(
        value
        for value in vars(import_module(module)).values()
        if isinstance(value, type)
        and issubclass(value, FaultSpec)
        and value.__module__ == module
        and name == value.KIND
    )


def _modules() -> Iterator[str]:
    for found in pkgutil.walk_packages(faults.__path__, f"{faults.__name__}."):
        if not found.ispkg:
            yield found.name
