"""Tests of links that lose large packets, and of connections whose end is noticed late, in virtual time."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from ackproof_simulator.clock import MS, SECOND, Clock
from ackproof_simulator.network import RETRANSMIT_NS, TO_ACCEPTOR, Host, Network
from ackproof_simulator.run import Simulation, setting_of
from run_directory import read_case

FILE = """\
name: links
topics:
  t: {{assignment: [[1, 2, 3]], config: {{min.insync.replicas: 2}}}}
workload:
  producers: {{acks: all, rate: 100/s, linger: 100ms, value_size: {size}}}
  duration: 2s
faults:
{faults}
"""


def ran(tmp_path: Path, faults: str, size: str = "100B") -> Simulation:
    case = read_case(FILE.format(faults=faults, size=size), seed=3, backend="model")
    simulation = Simulation(setting_of(case), case)
    simulation.run()
    assert [life.reason for life in simulation.lives if life.stage.name != "RECOVERED"] == []
    assert simulation.complete, simulation.reasons
    return simulation


@pytest.mark.parametrize(("size", "dropped"), [("40B", False), ("400B", True)])
def test_a_follower_is_asked_for_by_small_packets_and_gets_no_large_ones(
    tmp_path: Path, size: str, dropped: bool
) -> None:
    """Ten records are fetched at once: 640 bytes with headers, or 4240."""
    fault = "  - drop_large: {link: broker(3) -> broker(1), above: 1KB}\n    at: 1s\n    for: 8s\n"
    shrunk = [change.image.isr for change in ran(tmp_path, fault, size).world.changes]
    assert ((1, 2) in shrunk) is dropped


def test_what_waits_behind_a_large_packet_comes_when_tcp_tries_it_again() -> None:
    """TCP tries again after 0.2 s, 0.6 s, 1.4 s, 3 s … The limit is lifted after 1 s, so the packet and its successors
    arrive at 1.4 s."""
    clock = Clock()
    network = Network(clock, Random(1), 1, 1)
    connection = network.between(network.join(Host(1)).id, network.join(Host(2)).id)
    connection.plain = False
    connection.limits.append(1000)
    came: list[tuple[str, int]] = []
    for name, size in (("small", 100), ("large", 2000), ("behind", 100)):
        network.send(connection, TO_ACCEPTOR, size, lambda name=name: came.append((name, clock.now // MS)))

    def mend() -> None:
        connection.limits.clear()
        network.widen(connection)

    clock.call_after(SECOND, mend)
    clock.run()
    assert RETRANSMIT_NS == 200 * MS
    assert came == [("small", 0), ("large", 1400), ("behind", 1400)]


def test_who_hears_late_of_a_lost_connection_sends_late_again(tmp_path: Path) -> None:
    """The leader is killed; the session is 3 s. Batches in flight wait until the producer notices the end of the
    connection."""
    kill = "  - kill: {target: leader(t/0)}\n    at: 1s\n"
    late = "  - slow_close: {link: clients -> brokers, delay: 9s}\n    at: 500ms\n"
    near = "  - delay: {link: clients -> brokers, latency: 200ms}\n    at: 300ms\n"
    at_once, later = (
        max(b.done - b.made for one in ran(tmp_path, faults).world.producers for b in one.batches)
        for faults in (near + kill, near + late + kill)
    )
    assert at_once < 6 * SECOND < 9 * SECOND < later < 11 * SECOND
