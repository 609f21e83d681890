"""Samples of the cluster as strips: who led, how large the ISR was, how long the unreplicated tail was."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ackproof.rundir.observed import Sample, iterate_samples
from ackproof.rundir.partition import TopicPartition

SILENCE_NS: Final = 1_500_000_000
"""Longer without a sample and the strip shows a hole: nobody looked, so nothing is drawn."""
MAX_TAIL_POINTS: Final = 1500


@dataclass(frozen=True)
class Stretch:
    """A time in which what was seen of a partition did not change."""

    start_ns: int
    end_ns: int
    leader: int
    epoch: int
    isr: tuple[int, ...]


@dataclass
class Strip:
    """What was seen of one partition."""

    replicas: int = 0
    stretches: list[Stretch] = field(default_factory=list)
    tail: list[tuple[int, int]] = field(default_factory=list)
    """(ns, the leader's log end − high watermark); only where both were answered."""


def read_strips(path: Path, absent: list[str]) -> dict[TopicPartition, Strip]:
    """One pass over the samples; memory grows with changes, not with samples."""
    strips: dict[TopicPartition, Strip] = {}
    if not path.exists():
        absent.append(
            "observed/partitions.jsonl: missing, so leader, ISR and unreplicated tail cannot be shown"
        )
        return strips
    for sample in iterate_samples(path):
        strip = strips.setdefault(TopicPartition(sample.topic, sample.partition), Strip())
        strip.replicas = max(strip.replicas, len(sample.replicas), len(sample.isr))
        _extend(strip, sample)
        end = sample.log_ends.get(sample.leader, -1)
        if end >= 0 and sample.high_watermark >= 0:
            strip.tail.append((sample.t_ns, max(0, end - sample.high_watermark)))
    for strip in strips.values():
        strip.tail = thinned(strip.tail)
    return strips


def _extend(strip: Strip, sample: Sample) -> None:
    now = (sample.leader, sample.leader_epoch, sample.isr)
    if strip.stretches:
        last = strip.stretches[-1]
        if sample.t_ns - last.end_ns <= SILENCE_NS:
            # What held at the last look is taken to hold until this one: the change lies in between.
            strip.stretches[-1] = Stretch(last.start_ns, sample.t_ns, last.leader, last.epoch, last.isr)
            if now == (last.leader, last.epoch, last.isr):
                return
    strip.stretches.append(Stretch(sample.t_ns, sample.t_ns, *now))


def thinned(points: list[tuple[int, int]], limit: int = MAX_TAIL_POINTS) -> list[tuple[int, int]]:
    """At most about `limit` points: of each group of neighbours the highest, so that no peak goes."""
    if len(points) <= limit:
        return points
    step = -(-len(points) // limit)
    return [max(points[at : at + step], key=lambda point: point[1]) for at in range(0, len(points), step)]
