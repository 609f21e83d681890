"""`CaseRun._first_acks`: the clock of `at:` starts when every partition has acknowledged a record."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ackproof.clients.workload import Workload
from ackproof.run import case as conductor
from ackproof.run.case import CaseRun
from ackproof.rundir.partition import TopicPartition


class Slow:
    """Fake workload: each look acknowledges the first record of one more partition."""

    def __init__(self, places: int) -> None:
        self.acks = [0] * places
        self.looks = 0
        self.written = [TopicPartition("t", number) for number in range(places)]

    def check(self) -> None:
        self.looks += 1
        if self.looks <= len(self.acks):
            self.acks[self.looks - 1] = 1

    def acked(self, topic: str | None = None, partition: int | None = None) -> int:
        return sum(self.acks) if partition is None else self.acks[partition]

    def read(self) -> int:
        return 0


def run_of(workload: Slow, faults: tuple[str, ...] = ("a kill",)) -> tuple[CaseRun, list[str]]:
    notes: list[str] = []
    run = object.__new__(CaseRun)
    vars(run).update(
        spec=SimpleNamespace(
            faults=faults,
            evidence=SimpleNamespace(node_deaths=False),
        ),
        cluster=SimpleNamespace(check=lambda: None),
        sampler=SimpleNamespace(isr_text=lambda: ""),
        clients=SimpleNamespace(mark=lambda now: None),
        watcher=SimpleNamespace(live=lambda *_: None),
        timeline=SimpleNamespace(add=lambda what: notes.append(f"{what.KIND.value}: {what.note}")),
        workload=workload,
        groups=None,
        run=SimpleNamespace(path=Path.cwd()),
    )
    return run, notes


def test_it_waits_for_the_last_partition() -> None:
    slow = Slow(3)
    run, notes = run_of(slow)
    run._first_acks(cast(Workload, slow))
    assert slow.acks == [1, 1, 1]
    assert notes == []


def test_without_faults_it_does_not_wait() -> None:
    slow = Slow(3)
    run, _ = run_of(slow, faults=())
    run._first_acks(cast(Workload, slow))
    assert slow.looks == 0


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conductor, "FIRST_ACKS_BOUND_S", 0.1)
    slow = Slow(2)
    slow.acks = [1, 0]
    slow.check = lambda: None  # type: ignore[method-assign]
    run, notes = run_of(slow)
    run._first_acks(cast(Workload, slow))
    assert len(notes) == 1
    assert notes[0].startswith(
        "note: before the first fault: waited 0.1 s for a first acknowledgement on every partition"
    )
