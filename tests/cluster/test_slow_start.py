"""`at: 0s` is when every partition has acknowledged something, however long the first acknowledgements take."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ackproof.cluster.launch import Installation
from ackproof.conductor import Phase, Running
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.timeline import EventKind

from .conftest import NEWEST
from .lies.stage import Stage

pytestmark = pytest.mark.cluster

STALL_S = 2.0
AT_ONCE = """\
cluster: {brokers: 1, combined: true}
topics: {orders: {partitions: 2, replication_factor: 1}}
workload: {producers: {rate: 400/s}, duration: 1s}
faults: [{restart: {target: broker(1)}, at: 0s}]
"""


def test_a_fault_waits_for_the_first_acknowledgements(
    tmp_path: Path, installs: Callable[[str], Installation]
) -> None:
    def stall(running: Running) -> None:
        assert running.cluster is not None
        (broker,) = running.cluster.brokers()
        broker.pause()
        threading.Timer(STALL_S, broker.resume).start()

    stage = Stage(tmp_path, installs(NEWEST))
    stage.play("slow-start", AT_ONCE, {Phase.LOAD: stall})
    judged = stage.judge()["slow-start"]
    assert judged.verdict.verdict is Verdict.PASS, judged.reasons
    (load,) = [event for event in judged.events(EventKind.PHASE) if event.detail["phase"] == "load"]
    (asked,) = judged.events(EventKind.FAULT_ASKED)
    assert asked.t_ns - load.t_ns >= STALL_S * 1e9
