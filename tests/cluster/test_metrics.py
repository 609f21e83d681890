"""Tests of metrics of real brokers: the delay until they show a leader's death; without scrapes the delay is
unknown."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from ackproof.cluster.install import EVERY_NODE, Installation
from ackproof.cluster.protocol import Cluster
from ackproof.network.addresses import Address
from ackproof.observe.scraper import Scraper
from ackproof.quantities.answer import answered, measured
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Value
from ackproof.quantities.vocabulary import parse_ask
from ackproof.rundir.bounds import WHOLE, Bound
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.timeline import FaultAsked, Timeline

from .conftest import NEWEST
from .lies.stage import Stage

pytestmark = pytest.mark.cluster

URP = "under_replicated_partitions"
SILENT = 3
KILLED_LEADER = """\
cluster: {config: {broker.session.timeout.ms: 4000}}
topics: {orders: {assignment: [[1, 2, 3]], config: {min.insync.replicas: 2}}}
workload: {producers: {acks: all, rate: 300/s}, duration: 16s}
observe: {metrics: true}
faults:
  - kill: broker(1)
    when: metric(under_replicated_partitions, node 2) == 0
    restart_after: 12s
  - pause: broker(3)
    when: metric(under_replicated_partitions, node 2) > 0
    for: 300ms
"""


@pytest.mark.nightly  # tests/unit/observe/test_scraper.py has exporters with every push
def test_a_killed_leader_shows_and_a_silent_exporter_is_unknown(
    installs: Callable[[str], Installation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as says_nothing:
        address = Address(*says_nothing.getsockname())
        made = Scraper.__init__

        def with_a_silent_one(self: Scraper, cluster: Cluster, path: Path, timeline: Timeline) -> None:
            made(self, cluster, path, timeline)
            assert set(self._exporters) == {1, 2, SILENT, 101}
            self._exporters[SILENT] = address

        monkeypatch.setattr(Scraper, "__init__", with_a_silent_one)
        run = Stage(tmp_path, installs(NEWEST)).play("metrics", KILLED_LEADER)
    evidence = Evidence.of_run(run)

    def value(text: str) -> Value:
        return measured(evidence, parse_ask(text), WHOLE)

    shown = value(f"time_to(metric {URP} > 0, fault 1, node 2)")
    shrunk = value("time_to(isr shrunk, fault 1)")
    assert (shown.why, shown.high - shown.low < 5) == ("", True), shown
    assert shrunk.low <= shown.high < shrunk.high + 5, (shrunk, shown)
    killed, paused = (event for event in evidence.events if isinstance(event.what, FaultAsked))
    assert isinstance(paused.what, FaultAsked)
    assert paused.what.trigger == f"metric({URP}, node 2) > 0: metric is 1.0"
    assert shown.low <= (paused.t_ns - killed.t_ns) / 1e9 < shown.high + 1, "it looks at what is scraped"
    anywhere = value(f"time_to(metric {URP} > 0, fault 1)")
    assert not anywhere.is_known
    assert f"{SILENT} lived and did not tell" in anywhere.why
    never = answered(
        evidence,
        parse_ask(f"metric({URP})"),
        Bound.parse("never > 9", parse_ask(f"metric({URP})").quantity.unit),
    )
    assert never.holds is None
    assert f"{SILENT} lived and did not tell" in never.why
    environment = CaseFile.load(run.case_json).environment
    assert environment["class-data archive"] == EVERY_NODE, "the agent leaves it in use"
