"""What retention keeps under given settings, and whether a case plans anything that may remove acknowledged records."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from ackproof.experiment.case import Case
from ackproof.experiment.promises import InForce, may_compact, settings_in_force

_MS: Final = {
    "retention.ms": 1,
    "log.retention.ms": 1,
    "log.retention.minutes": 60_000,
    "log.retention.hours": 3_600_000,
}
"""Settings for the retention time in order of precedence, each with its factor to milliseconds."""
_BYTES: Final = ("retention.bytes", "log.retention.bytes")
SETTINGS: Final = frozenset({"cleanup.policy", "log.cleanup.policy", *_MS, *_BYTES})
"""Settings that decide which records are removed."""
_WEEK_MS: Final = 7 * 24 * 3_600_000


class Retention(NamedTuple):
    """Retention limits of a topic, in ms and bytes; infinite if the limit deletes nothing."""

    ms: float
    bytes: float


def retention(settings: InForce) -> Retention:
    """Return the retention limits of a topic under these settings; infinite if cleanup.policy lacks delete. Limits that
    they do not give are Kafka's defaults: a week, and no limit in bytes."""
    config = settings.config
    if "delete" not in settings.policies:
        return Retention(math.inf, math.inf)
    ms = next((int(config[name]) * factor for name, factor in _MS.items() if name in config), _WEEK_MS)
    size = next((int(config[name]) for name in _BYTES if name in config), -1)
    return Retention(ms if ms >= 0 else math.inf, size if size >= 0 else math.inf)


def may_remove(case: Case) -> bool:
    """Return True if a case plans something that may remove acknowledged records.

    Compaction, the deletion of a topic and a retention limit by size can do so. A retention time can if it is not
    longer than the load plus the greatest jump ahead of a clock.
    """
    spec = case.planned
    ahead = max((fault.clock_shift for fault in spec.faults), default=0.0)
    longest_ms = (spec.workload.duration + max(ahead, 0.0)) * 1000
    for topic in spec.topics:
        settings = settings_in_force(spec, topic)
        if any(fault.drops(topic) for fault in spec.faults) or may_compact(spec, topic):
            return True
        if any(one.ms <= longest_ms or not math.isinf(one.bytes) for one in map(retention, settings)):
            return True
    return False
