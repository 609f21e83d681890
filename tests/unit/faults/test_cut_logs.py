"""The replay knows every fault that takes from a disk what a broker had appended."""

from __future__ import annotations

from ackproof.faults.disks.log_files import PartitionFault
from ackproof.faults.registry import fault_kinds
from ackproof_model.replay.observed import CUTS_LOGS


def test_who_takes_records_from_a_log() -> None:
    """Losses of power, files of a log that rot, a log dir that fails under its broker, and what nobody knows."""
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
