"""Decides whether the machine had enough resources for this run: slow results on a busy machine say nothing of Kafka.

The sending rate and the acknowledgement times are examined in the seconds of load without a fault. The bounds are far
from the numbers of a healthy machine and near to what a person would call stuck. A verdict on records needs none of
them. Late acknowledgements are no excuse if the load was modest and the kernel's counters show that the brokers'
machine had room in the same seconds: then Kafka itself was slow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from ackproof.experiment.backends import BACKENDS
from ackproof.experiment.client import COMMAND
from ackproof.quantities.quantity import Quantity, Value
from ackproof.rundir import storage
from ackproof.rundir.documents import QuietSeconds
from ackproof.rundir.lifelines import Spans
from ackproof.rundir.observed import Pulse
from ackproof.rundir.timeline import ClientReset, Event

if TYPE_CHECKING:
    from ackproof.judge.facts import Facts

LEAST_SENT: Final = 0.8
"""Least share of the requested send rate in a run that is not starved. On a healthy machine it is 1.00."""
SLOWEST_MS: Final = 500.0
"""Greatest median of acknowledgement times, in ms, in a run that is not starved. On a healthy machine it is a few ms,
on a busy one some tens of ms."""
MOST_STOLEN: Final = 0.1
"""Greatest share of processor time that the hypervisor takes (steal time) in a run that is not starved."""
LATEST_MS: Final = 2000.0
"""Greatest delay, in ms, of the harness' own loop (once a second) in a run that is not starved."""
FEWEST_LOOKS: Final = 5.0
"""Least number of rounds of samples per second in a run that is not starved. On a healthy machine it is 10."""
_HAD_ROOM: Final = {"busy": 0.8, "cpu_pressure": 0.7, "io_pressure": 0.1, "memory_pressure": 0.1}
"""Shares of a second below which processors, disks and memory had room. One run alone on two processors keeps them busy
for a share of 0.4 to 0.6; tasks wait for a processor for 0.2 to 0.5. Eight runs at once keep them busy for 0.95 or
more. The kernel takes the mean over processors, so that one disk that stands still shows little on a large machine."""
_ON_TIME_MS: Final = 20.0
"""Delay in ms of the harness' own loop below which a processor was free for it. On a healthy machine it is one or two.
A limit on a group of processes (cpu.max, cpusets), under which /proc/stat shows an idle machine, delays it by more.
"""
_ROOMY: Final = 0.75
"""Least share of the seconds without a fault in which the machine had room. If more than half of the acknowledgements
were late, some were then late in a second with room.
"""
_FEWEST_ROOMY: Final = 3
"""Least number of seconds with room for `had_room_in` to be True. Cold brokers are slow for a second or two."""
_MODEST_PER_S: Final = 10_000
_MODEST_BYTES_PER_S: Final = 10_000_000
"""Rates of all producers together that any machine and client library carries. Above them records queue in the client.
"""
_SETTLES_NS: Final = 5_000_000_000
"""Time after the end of a fault in which its effects may still be seen."""
_BEGINS_NS: Final = 1_000_000_000
"""Time after the begin of the load in which cold brokers may still be slow."""
_LEAST_NS: Final = 2_000_000_000
"""Least length of fault-free load, in ns, whose acknowledgement times say something of the machine. A shorter
time before the first fault shows cold brokers."""
STARVED: Final = "the machine was starved"


def widen_if_starved(quantity: Quantity, value: Value) -> Value:
    """Return a value that was measured on a too busy machine, with wider bounds if that can have changed it. A time may
    have been shorter on an idle machine (lower bound 0), a rate higher (no upper bound)."""
    if not (value.is_known and quantity.takes_time):
        return value
    if quantity.falls:
        return replace(value, high=math.inf, why=STARVED, starved=True)
    return replace(value, low=0.0, why=STARVED, never=False, starved=True)


def calm(facts: Facts) -> QuietSeconds | None:
    """Measure the machine and the clients under load; None if no load was recorded. Callers use `Facts.calm`,
    which is computed once.

    `seconds`, the sending rate and the acknowledgement time are of the seconds without a fault; rate and time are -1 if
    there are too few. All other numbers are of the whole load but its first second.
    """
    spans = facts.quiet
    pulses = [
        (before, after)
        for before, after in pairwise(facts.pulses)
        if before.t_ns < after.t_ns and _inside(before, after, _load(facts))
    ]
    if not pulses:
        return None
    still = [pair for pair in pulses if _inside(*pair, spans)]
    seconds = _seconds(still)
    found = QuietSeconds(
        seconds=seconds,
        asked_rate=facts.case.experiment.workload.producers.rate,
        sent_rate=sum(after.sent - before.sent for before, after in still) / seconds if still else -1,
        median_ms=_median_ms(facts.run.series, spans),
        late_ms=max(one.late_ms for _, one in pulses),
        looks_per_s=sum(one.looks for _, one in pulses) / _seconds(pulses),
        busy=_mean([one.busy for _, one in pulses]),
        stolen=_mean([one.stolen for _, one in pulses]),
        cpu_pressure=_mean([one.cpu_pressure for _, one in pulses]),
        io_pressure=_mean([one.io_pressure for _, one in pulses]),
        memory_pressure=_mean([one.memory_pressure for _, one in pulses]),
    )
    had_room = _is_modest(facts) and had_room_in([one for _, one in still])
    died = any(_is_dead_producer(event, spans) for event in facts.events)
    return found.model_copy(update={"starved": _starved(found, had_room=had_room, died=died)})


def _is_modest(facts: Facts) -> bool:
    """Return True if every machine can carry the load, the brokers run on this machine, and the producers are no
    program of the user. Then only Kafka, or a machine without room, makes acknowledgements late."""
    producers = facts.case.experiment.workload.producers
    rate = math.inf if producers.rate is None else producers.rate
    return (
        not BACKENDS[facts.backend].foreign
        and producers.client.library != COMMAND
        and rate <= _MODEST_PER_S
        and rate * producers.value_size <= _MODEST_BYTES_PER_S
    )


def had_room_in(seconds: Sequence[Pulse]) -> bool:
    """Return True if processors, disks and memory were not exhausted, and the harness' loop was on time, in most of
    these seconds (share `_ROOMY`). False also if that holds for fewer than `_FEWEST_ROOMY` seconds, or if the kernel
    does not measure all three."""
    roomy = [
        one.late_ms < _ON_TIME_MS
        and all(0 <= getattr(one, name) < bound for name, bound in _HAD_ROOM.items())
        for one in seconds
    ]
    return sum(roomy) >= max(_FEWEST_ROOMY, _ROOMY * len(roomy))


def _is_dead_producer(event: Event, spans: Spans) -> bool:
    """Return True if the event is a producer's fatal error within `spans` (times without a fault), after which a
    successor was started. Return False for the same event of a reader: it has a position, from which the reader goes
    on."""
    what = event.what
    return (
        isinstance(what, ClientReset)
        and what.position is None
        and any(begin <= event.t_ns <= end for begin, end in spans)
    )


def _starved(seen: QuietSeconds, *, had_room: bool, died: bool) -> tuple[str, ...]:
    """Return the reasons why times of this run say nothing about Kafka; () if they do.

    `had_room`: the load was modest and the brokers' machine not exhausted. Late acknowledgements, and what producers
    could not send meanwhile, are then Kafka's doing. `died`: a producer ended by a fatal error, so that its successor
    had to be started.
    """
    said = []
    none_acked = seen.median_ms < 0 and seen.seconds * 1e9 >= _LEAST_NS
    slow = seen.median_ms > SLOWEST_MS or none_acked
    if seen.asked_rate is not None:
        if 0 <= seen.sent_rate < LEAST_SENT * seen.asked_rate and not (had_room and (slow or died)):
            said.append(
                f"{seen.asked_rate:,.0f} records a second were asked for, all producers together, and "
                f"{seen.sent_rate:,.0f} were sent"
            )
        # at full speed every record waits for those before it
        if seen.median_ms > SLOWEST_MS and not had_room:
            said.append(f"half of the acknowledgements took longer than {seen.median_ms / 1e3:.1f} s")
    if seen.late_ms > LATEST_MS:
        said.append(f"the harness itself stood still for {seen.late_ms / 1e3:.1f} s")
    if seen.looks_per_s < FEWEST_LOOKS:
        said.append(f"the cluster was looked at {seen.looks_per_s:.1f} times a second instead of 10")
    if seen.stolen > MOST_STOLEN:
        said.append(f"{seen.stolen:.0%} of the processors' time went to other machines of the host")
    return tuple(said)


def quiet(facts: Facts) -> Spans:
    """Return the time spans (begin, end in ns since the run's start) of load without an active fault, in order.

    A fault is active from its request until five seconds after it has recovered, or has missed: it found nothing to
    break, or had no effect. A fault without such an event is active to the end. The first second of the load is left
    out. Callers use `Facts.quiet`, which is computed once.
    """
    lives = [
        (life.asked, math.inf if life.gone_ns is None else life.gone_ns + _SETTLES_NS)
        for life in facts.faults.values()
    ]
    spans: list[tuple[float, float]] = []
    for begin, end in _load(facts):
        for first, last in sorted(lives):
            spans.append((begin, min(first, end)))
            begin = max(begin, last)
        spans.append((begin, end))
    return tuple((first, last) for first, last in spans if first < last)


def _load(facts: Facts) -> Spans:
    begins, ends = facts.phases.get("load"), facts.phases.get("heal")
    return () if begins is None else ((begins + _BEGINS_NS, math.inf if ends is None else ends),)


def _inside(before: Pulse, after: Pulse, spans: Spans) -> bool:
    return any(begin <= before.t_ns and after.t_ns <= end for begin, end in spans)


def _seconds(pulses: Sequence[tuple[Pulse, Pulse]]) -> float:
    return sum(after.t_ns - before.t_ns for before, after in pulses) / 1e9


def _median_ms(series: Path, spans: Spans) -> float:
    """Return the median, over bins of 100 ms in `spans`, of the median acknowledgement time in ms. Return -1 if the
    spans are shorter than 2 s together, or if `series.parquet` is missing or has no acknowledgement in them."""
    if not series.exists() or sum(last - first for first, last in spans) < _LEAST_NS:
        return -1
    table = storage.read_table(series, columns=["start_ns", "acked", "p50_ms"])
    start, acked, p50 = (table[name].to_numpy() for name in table.column_names)
    inside = np.zeros(len(start), np.bool_)
    for first, last in spans:
        inside |= (start >= first) & (start < last)
    chosen = p50[inside & (acked > 0)]
    return float(np.median(chosen)) if len(chosen) else -1


def _mean(shares: Sequence[float]) -> float:
    known = [share for share in shares if share >= 0]
    return sum(known) / len(known) if known else -1
