"""The registry finds every kind of fault by the text of its module, and imports only the kinds that are looked up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ackproof.experiment.fault import FaultSpec
from ackproof.faults import registry
from ackproof.faults.registry import fault_kinds, import_all


def _below(kind: type[FaultSpec]) -> Iterator[type[FaultSpec]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def test_every_kind_that_is_declared_is_found() -> None:
    import_all()
    declared = {
        one for one in _below(FaultSpec) if "KIND" in vars(one) and one.__module__.startswith("ackproof.")
    }
    assert {(one.KIND, one) for one in declared} == set(fault_kinds().items())
    assert list(fault_kinds()) == sorted(fault_kinds())


def test_a_name_that_is_taken_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = ["ackproof.faults.processes", "ackproof.faults.processes"]
    monkeypatch.setattr(registry.pkgutil, "walk_packages", lambda *_: [_Found(name) for name in twice])
    fault_kinds.cache_clear()
    try:
        with pytest.raises(ValueError, match="two kinds of fault are called 'kill'"):
            fault_kinds()
    finally:
        fault_kinds.cache_clear()


class _Found:
    ispkg = False

    def __init__(self, name: str) -> None:
        self.name = name
