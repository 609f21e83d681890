"""The registry finds every kind of fault by the text of its module, and imports only the kinds that are looked up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ackproof.experiment.fault import FaultSpec
from ackproof.faults import registry
from ackproof.faults.disks.log_files import PartitionFault
from ackproof.faults.registry import fault_kinds, import_all
from ackproof_model.replay.observed import CUTS_LOGS


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


def test_who_takes_records_from_a_log() -> None:
    """These may remove records from a log: power losses, damaged files, failing log dirs, unknown commands."""
    taken = {
        name
        for name, kind in fault_kinds().items()
        if issubclass(kind, PartitionFault)
        or (kind.PER_NODE and kind.PER_NODE.power_losses)
        or kind.UNPREDICTABLE
    }
    assert {
        "power_loss",
        "empty_disk",
        "flip_bits",
        "truncate_segment",
        "delete_checkpoint",
        "command",
    } <= taken
    assert taken | {"fail_log_dir"} == CUTS_LOGS
