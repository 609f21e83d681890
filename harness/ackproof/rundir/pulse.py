"""`observed/pulse.jsonl`: once a second, how the machine and the harness itself were doing while the load went on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import ValidationError

from ackproof.rundir.documents import Document

EVERY_S: Final = 1.0


class Pulse(Document):
    """One second, as its end saw it. Shares are of this second's time, 0 … 1; -1 is unknown.

    `late_ms`: how much later than it was due this was written, which nobody but the harness' own process decides.
    `looks`: how often the sampler looked at the cluster since the last. `sent`, `acked`: records of all producers so
    far. `busy`: of the processors' time, `stolen`: of it taken by the hypervisor (/proc/stat). The pressures are the
    shares in which somebody waited for it (/proc/pressure, `some`).
    """

    t_ns: int
    late_ms: float
    looks: int
    sent: int
    acked: int
    busy: float = -1
    stolen: float = -1
    cpu_pressure: float = -1
    io_pressure: float = -1
    memory_pressure: float = -1


def read_pulses(path: Path) -> list[Pulse]:
    """All whole lines; none where there is no such file, as in runs of the model and of older versions."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            found.append(Pulse.model_validate_json(line))
        except ValidationError:
            continue  # torn; the seal tells of it
    return found
