"""Faults of disks and of power as a file says them: what there is, what they need, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackproof.experiment.backends import Need
from ackproof.experiment.problems import InvalidExperiment
from ackproof.plan import Plan

Load = Callable[[str], Plan]

FRAME = """\
name: x
cluster: {{kafka: "4.3.1", brokers: 3, log_dirs: 2}}
topics:
  t: {{partitions: 2}}
  lone: {{replication_factor: 1}}
  synced: {{config: {{flush.messages: 1}}}}
faults:
  - {fault}
    at: 1s
"""


@pytest.mark.parametrize(
    ("fault", "needs"),
    [
        ("full_disk: {target: leader(t/0)}", {Need.DISKS}),
        ("full_disk: {target: brokers, dir: 2, leave: 1MB}", {Need.DISKS}),
        ("fail_log_dir: {target: leader(t/0)}", {Need.DISKS}),
        ("fail_log_dir: {target: leader(t/0), how: read_only}", set()),
        ("slow_disk: {target: leader(t/0), stall: 2s}", {Need.DISKS}),
        ("empty_disk: {target: leader(t/0)}", set()),
        ("power_loss: {target: brokers}", {Need.DISKS_WHERE_ROOT}),
        ("power_loss: {target: brokers, how: device}", {Need.DISKS}),
        ("power_loss: {target: brokers, how: cut, keep: 100}", set()),
        ("flip_bits: {target: leader(t/1), segment: closed}", set()),
        ("flip_bits: {target: broker(2), partition: t/1}", set()),
        ("truncate_segment: {target: leader(t/0), bytes: 1KB}", set()),
        ("delete_checkpoint: {target: brokers, file: recovery-point}", set()),
        ("delete_checkpoint: {target: leader(t/0), file: leader-epoch}", set()),
    ],
)
def test_what_there_is_and_what_it_needs(load_text: Load, fault: str, needs: set[Need]) -> None:
    (found,) = load_text(FRAME.format(fault=fault)).spec.faults
    assert found.needs == needs


@pytest.mark.parametrize(
    ("fault", "where", "said"),
    [
        ("full_disk: {}", "faults[1].full_disk.target", "missing"),
        ("full_disk: {target: brokers}", "faults[1].full_disk.target", "which of the 2 log dirs"),
        ("full_disk: {target: leader(t/0), dir: 3}", "faults[1].full_disk.dir", "cluster.log_dirs is 2"),
        ("full_disk: {target: leader(t/0), dir: 0}", "faults[1].full_disk.dir", "at least 1"),
        ("full_disk: {target: leader(t/0), leave: 5}", "faults[1].full_disk.leave", "lacks a unit"),
        ("fail_log_dir: {target: leader(t/0), how: eio}", "faults[1].fail_log_dir.how", "io_error"),
        ("slow_disk: {target: leader(t/0), stall: 1ms}", "faults[1].slow_disk.stall", "at least"),
        ("empty_disk: {target: controller}", "faults[1].empty_disk.target", "the only controller"),
        ("empty_disk: {target: controller(101)}", "faults[1].empty_disk.target", "the only controller"),
        ("empty_disk: {target: brokers, restore: tape}", "faults[1].empty_disk.restore", "stopped"),
        ("empty_disk: {target: brokers, age: 1s}", "faults[1].empty_disk", "restore: live only"),
        ("power_loss: {target: brokers, keep: 1}", "faults[1].power_loss", "goes with how: cut"),
        ("power_loss: {target: brokers, how: cut}", "faults[1].power_loss.how", "cannot honour flush.messages"),
        ("flip_bits: {target: brokers}", "faults[1].flip_bits", "which partition"),
        ("flip_bits: {target: brokers, partition: t/2}", "faults[1].flip_bits.partition", "0 to 1"),
        ("flip_bits: {target: leader(lone/0)}", "faults[1].flip_bits.target", "one replica only"),
        ("flip_bits: {target: leader(t/0), segment: old}", "faults[1].flip_bits.segment", "active"),
        ("truncate_segment: {target: leader(t/0), bytes: 0B}", "faults[1].truncate_segment.bytes", "at least"),
        ("delete_checkpoint: {target: leader(t/0)}", "faults[1].delete_checkpoint.file", "missing"),
        ("delete_checkpoint: {target: brokers, file: leader-epoch}", "faults[1].delete_checkpoint", "which part"),
    ],
)  # fmt: skip
def test_what_is_refused(load_text: Load, fault: str, where: str, said: str) -> None:
    with pytest.raises(InvalidExperiment) as caught:
        load_text(FRAME.format(fault=fault))
    (problem,) = caught.value.problems
    assert problem.path == where
    assert said in problem.message
