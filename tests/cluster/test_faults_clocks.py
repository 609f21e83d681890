"""Tests of clock jumps: nodes log with the shifted time, and with the true time after the healing; and a dud."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from ackproof.cluster.install import Installation
from ackproof.experiment.backends import Need
from faultbench import Bench, duds_on, no_bite
from faultbench.duds import Dud

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def bench(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("bench")
    topics: dict[str, object] = {"t": {"replication_factor": 1}}
    needs = frozenset({Need.CLOCKS})
    with Bench(
        folder, installed=installs("4.4.0"), needs=needs, topics=topics, brokers=1, combined=True
    ) as made:
        yield made


@pytest.mark.parametrize(
    ("fault", "by_s"),
    [
        ("clock_jump: {target: leader(t/0), by: 1h}", 3600),
        ("clock_jump: {target: broker(1), by: -90s}", -90),
        pytest.param("clock_jump: {target: controller, by: 24h}", 86_400, marks=pytest.mark.nightly),
    ],
)
def test_it_bites_and_is_healed(bench: Bench, fault: str, by_s: int) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite
    seen = re.search(r"off by ([+-][0-9.]+) s", bite.witness)
    assert seen is not None, bite
    # On a busy machine a stamp is some tenths of a second old when it is read.
    assert float(seen[1]) == pytest.approx(by_s, abs=1.0)
    assert "off by +0." in bite.recovery or "off by -0." in bite.recovery


@pytest.mark.parametrize("dud", duds_on("clocks"))
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)
