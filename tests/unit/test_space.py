"""Disk space of runs: estimated before the start, and a run ends early while its last events still fit."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from ackproof.base.errors import AckproofError, BadInput
from ackproof.experiment.case import Case
from ackproof.run.machine import RESERVE, check_room, disk_space_needed, require_room
from run_directory import read_case

MB = 1_000_000
YAML = """\
name: t
backend: {backend}
cluster: {{brokers: 3, controllers: 1}}
topics:
  orders: {{partitions: 1, replication_factor: {copies}}}
workload:
  producers: {{rate: {rate}, value_size: {value}}}
  duration: {duration}
{faults}"""
KILL = "faults: [{kill: {target: leader(orders/0)}, at: 1s}]"


def case(**changes: object) -> Case:
    values = {"backend": "process", "copies": 3, "rate": "1000/s", "value": "930B", "duration": "10s"}
    return read_case(YAML.format(**{**values, "faults": KILL, **changes}))


def test_each_replica_has_a_copy_and_each_case_its_ledgers() -> None:
    """10,000 records with 930 bytes of value and 70 bytes of overhead each."""
    base = 4 * (24 << 20) + RESERVE
    ledger = 10_000 * 20
    assert disk_space_needed([case()]) == base + 30 * MB + ledger
    assert disk_space_needed([case(copies=1)]) == base + 10 * MB + ledger
    assert disk_space_needed([case(duration="20s")]) == base + 60 * MB + 2 * ledger
    assert disk_space_needed([case(rate="full")]) == base, "nobody knows"
    # one cluster at a time
    assert disk_space_needed([case(), case(copies=1)]) == base + 30 * MB + 2 * ledger


def test_a_disk_that_a_fault_fills_takes_its_size() -> None:
    plain = case()
    filled = case(faults="faults: [{full_disk: {target: leader(orders/0)}, at: 1s, for: 1s}]")
    assert disk_space_needed([filled]) - disk_space_needed([plain]) == filled.experiment.cluster.disk


def test_the_model_takes_none() -> None:
    assert disk_space_needed([case(backend="model")]) == 0


def free(monkeypatch: pytest.MonkeyPatch, amount: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=amount))


def test_too_little_room_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = case()
    wanted = disk_space_needed([one])
    free(monkeypatch, wanted)
    require_room(tmp_path / "runs" / "of" / "mine", [one])
    free(monkeypatch, wanted - 1)
    with pytest.raises(
        BadInput, match=r"runs: about 399 MB are needed and 399 MB are free. Name another place with --out"
    ):
        require_room(tmp_path / "runs", [one])


def test_a_run_ends_while_there_is_room_for_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, RESERVE)
    check_room(tmp_path)
    free(monkeypatch, RESERVE - 1)
    with pytest.raises(AckproofError, match=r"is nearly full \(268 MB left\): the run was ended early"):
        check_room(tmp_path)
