"""Fixtures of the fault tests: links on fake nodes (`ground`), and a fault driver on fake nodes (`make_stand`)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.roles import Role
from ackproof.faults.context import FaultContext, Holds
from ackproof.faults.driver import FaultDriver
from ackproof.faults.links import injection as links
from ackproof.faults.links import named
from ackproof.faults.links import spec as link_witnesses
from ackproof.plan.cases import cases, load
from ackproof.rundir.clock import RunClock
from ackproof.rundir.timeline import Timeline
from fake_links import Ground
from fake_nodes import FakeCluster, FakeNode
from fault_stand import FakeGauges, MakeStand, Stand


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch) -> Ground:
    monkeypatch.setattr(links, "BITES_WITHIN_S", 0.3)
    monkeypatch.setattr(named, "BITES_WITHIN_S", 0.3)
    monkeypatch.setattr(links, "MENDED_WITHIN_S", 0.3)
    monkeypatch.setattr(link_witnesses, "STANDS_STILL_S", 0.01)
    return Ground()


@pytest.fixture
def make_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeStand]:
    monkeypatch.setattr("ackproof.faults.processes.GONE_WITHIN_S", 0.1)
    monkeypatch.setattr("ackproof.faults.processes.STOPPED_WITHIN_S", 0.1)
    monkeypatch.setattr("ackproof.faults.rolling.STOPPED_WITHIN_S", 0.1)
    monkeypatch.setattr("ackproof.faults.processes.SHUTDOWN_WITHIN_S", 0.5)
    stands: list[Stand] = []

    def make(faults: str, resolved: Sequence[int] = (1,), more: str = "") -> Stand:
        file = tmp_path / "e.yaml"
        file.write_text(
            f"name: t\n{more}topics:\n  orders: {{}}\nworkload: {{duration: 1s}}\nfaults:\n{faults}",
            encoding="utf-8",
        )
        case = cases(load(file))[0]
        nodes = {number: FakeNode(number) for number in (1, 2, 3)}
        stop = threading.Event()
        gauges = FakeGauges()
        timeline = Timeline(tmp_path / "timeline.jsonl", RunClock.start())

        def resolve(_role: Role, _fault: FaultSpec) -> Sequence[int]:
            return resolved

        holds = Holds()
        context = FaultContext(FakeCluster(nodes), stop, holds=holds)  # type: ignore[arg-type]
        driver = FaultDriver(case, context, gauges.look, timeline, resolve)
        stands.append(Stand(driver, nodes, gauges, stop, timeline, tmp_path / "timeline.jsonl", holds))
        return stands[-1]

    yield make
    for stand in stands:
        stand.stop.set()
        stand.driver.heal_all()
        stand.timeline.close()
