"""Room on the disk that runs are written to: about how much they take, and when so little is left that one must end.

What takes most are the logs of one cluster at a time, a copy of every record on each replica; they go when the case is
over. Ledgers stay.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ackproof.base.errors import AckproofError, BadInput
from ackproof.experiment.backends import Need
from ackproof.experiment.case import Case

RESERVE: Final = 256 << 20
"""With less a run ends while there is room for its last words."""
_NODE: Final = 24 << 20
"""Of a node before its first record: logs, metadata, what it unpacks."""
_RECORD: Final = 70
"""What Kafka adds to a record's value in a batch of few: headers of ours, timestamps, its share of the batch."""
_ROW: Final = 20
"""Of a record in the ledgers: once sent, once read, in columns."""


def needed(cases: Sequence[Case]) -> int:
    """Bytes that these cases take about, one after the other. At full speed nobody knows: what is sure then."""
    own = [case for case in cases if not (case.experiment.ground.simulated or case.experiment.ground.foreign)]
    logs = max((_logs(case) for case in own), default=0)
    return logs + sum(round(_records(case) * _ROW) for case in own) + (RESERVE if own else 0)


def _records(case: Case) -> float:
    workload = case.experiment.workload
    return (workload.producers.rate or 0.0) * workload.duration


def _logs(case: Case) -> int:
    cluster, topics = case.experiment.cluster, case.experiment.topics.values()
    copies = max((topic.replication_factor for topic in topics), default=1)
    record = case.experiment.workload.producers.value_size + _RECORD
    nodes = len({*cluster.broker_ids, *cluster.controller_ids})
    filled = cluster.disk if Need.DISKS in case.needs else 0  # by a fault, if it fills one
    return nodes * _NODE + round(_records(case) * record * copies) + filled


def require_room(out: Path, cases: Sequence[Case]) -> None:
    """Raises `BadInput` where the disk of the runs has too little room for them."""
    at = next(folder for folder in (out, *out.resolve().parents) if folder.exists())
    free, wanted = shutil.disk_usage(at).free, needed(cases)
    if free < wanted:
        raise BadInput(
            f"{out}: about {_mb(wanted)} are needed, and {_mb(free)} are free: --out names another "
            "place, a lower rate or a shorter duration takes less"
        )


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def check_room(folder: Path) -> None:
    """Raises `AckproofError` when the disk that a run is written to is nearly full."""
    free = shutil.disk_usage(folder).free
    if free < RESERVE:
        raise AckproofError(
            f"the disk of {folder} is nearly full ({_mb(free)} left): the run was ended early"
        )
