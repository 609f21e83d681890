"""Mechanics of a loss: what each replica had (samples, logs on disk), and what was truncated (conformance.json)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ackproof.rundir.model import Truncation
from ackproof.rundir.observed import read_samples
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import ABORT_MARKER, COMMIT_MARKER
from ackproof.rundir.replicas import Replica
from ackproof_reports.findings import Group
from ackproof_reports.loading import CaseView
from ackproof_reports.wording import number, plural

if TYPE_CHECKING:
    from ackproof_reports.one_record import Spot


Row = dict[str, Any]
"""A row of an Arrow table by column name, as `to_pylist` returns it."""


def on_disk(batches: Mapping[TopicPartition, Sequence[Row]], spot: Spot) -> str:
    """Return the batches that contain an offset, one per replica, as a sentence. `batches`: rows of the
    replicas' logs, by partition.
    """
    by_node = {
        row["node"]: f"node {row['node']} offsets {row['first_offset']} to {row['last_offset']} of epoch "
        f"{row['leader_epoch']}"
        for row in batches.get(TopicPartition(spot.topic, spot.partition), ())
        if row["first_offset"] <= spot.offset <= row["last_offset"]
    }
    told = "; ".join(by_node[node] for node in sorted(by_node))
    return f"on disk at {spot}: {told or 'no replica has a batch there'}"


def ended(batches: Mapping[TopicPartition, Sequence[Row]], spot: Spot) -> Iterator[str]:
    """Yield one sentence about the transaction marker that ends the transaction of the record at an offset, or about
    its absence.

    The marker is the next one of the record's producer id in the same log. Yields nothing if no replica has the offset,
    or if the record has no transaction. `batches`: rows of the replicas' logs, by partition."""
    rows = batches.get(TopicPartition(spot.topic, spot.partition), ())
    for own in rows:
        if own["transactional"] and own["first_offset"] <= spot.offset <= own["last_offset"]:
            of_it = [row for row in rows if row["control"] and row["producer_id"] == own["producer_id"]]
            behind = [
                row for row in of_it if row["first_offset"] > spot.offset and row["node"] == own["node"]
            ]
            marker = min(behind, key=lambda row: row["first_offset"], default=None)
            if marker is None:
                return (yield f"no marker of its producer is behind {spot}: its transaction is open there")
            does = {ABORT_MARKER: "aborts it", COMMIT_MARKER: "commits it"}.get(
                marker["content"], "ends it, nobody knows how"
            )
            return (yield f"the next marker of its producer {does}, at offset {marker['first_offset']}")


MOST: Final = 6
"""Greatest number of truncations that are drawn; those with most acknowledged records come first."""
COLOURS: Final = 8
_ROOM: Final = 0.35
"""Number of offsets that are drawn before the truncated offsets, and again after them, as a share of their number."""


@dataclass(frozen=True)
class LogBar:
    """A range of offsets in a log. `x`, `width`: in per cent of the picture. `epoch`: its leader epoch; -1 if none is
    given, as for truncated offsets."""

    x: float
    width: float
    epoch: int = -1

    @property
    def colour(self) -> int:
        return self.epoch % COLOURS


@dataclass(frozen=True)
class ReplicaLane:
    """The log of one replica, as bars. `role`: which of the epochs before and after the truncation it led, in words; ''
    if neither. `told`: a sentence about what was truncated in the log.

    `before`: its last known extent before the truncation. `cut`: the truncated offsets; `lost`: truncated offsets with
    lost records. `after`: its extent at the end of the run."""

    node: int
    role: str
    before: tuple[LogBar, ...]
    cut: tuple[LogBar, ...]
    lost: tuple[LogBar, ...]
    after: tuple[LogBar, ...]
    told: str


@dataclass(frozen=True)
class Mechanism:
    """The drawing of one truncation: the logs of all replicas, over the offsets `low` … `high`. `epochs`: the
    leader epochs in it, for its legend.
    """

    cut: Truncation
    low: int
    high: int
    epochs: tuple[int, ...]
    lanes: tuple[ReplicaLane, ...]


@dataclass
class _Seen:
    """Samples of one replica's log end offset around a truncation. `end`, `at_ns`: log end and time of the last sample
    before the epoch of the truncation began; `after_ns`: time of the first later sample with another log end. Times are
    in ns since the run's start; -1: no such sample."""

    end: int = -1
    at_ns: int = -1
    after_ns: int = -1


@dataclass
class _Watched:
    """A truncation, with the replicas' log end offsets in the samples before and after it. `leader`: leader of the
    epoch whose records were truncated; -1 if no sample shows it."""

    cut: Truncation
    leader: int = -1
    seen: dict[int, _Seen] = field(default_factory=dict)


def mechanics_of(case: CaseView, lost: Sequence[Group]) -> tuple[Mechanism, ...]:
    """Return the drawings of the truncations that removed acknowledged records: at most `MOST`, those that removed most
    first. Empty if there was none, or if the run was not replayed.

    `lost`: groups of lost records; those with offsets are drawn over the truncated offsets."""
    cuts = [cut for cut in case.conformance.truncations if cut.acked] if case.conformance else []
    cuts.sort(key=lambda cut: -cut.acked)
    watched = _watch(case.run.samples, cuts[:MOST])
    spans: dict[TopicPartition, list[tuple[int, int]]] = {}
    for group in lost:
        if group.producer is None:
            spans.setdefault(TopicPartition(group.topic, group.partition), []).extend(group.spans)
    replicas = case.replicas.replicas if case.replicas else ()
    return tuple(_mechanism(one, replicas, spans) for one in watched)


def _watch(samples: Path, cuts: Sequence[Truncation]) -> list[_Watched]:
    watched = [_Watched(cut) for cut in cuts]
    by_place: dict[TopicPartition, list[_Watched]] = {}
    for one in watched:
        by_place.setdefault(TopicPartition(one.cut.topic, one.cut.partition), []).append(one)
    if not cuts or not samples.exists():
        return watched
    for sample in read_samples(samples):
        for one in by_place.get(TopicPartition(sample.topic, sample.partition), ()):
            if sample.leader_epoch == one.cut.old_epoch and sample.leader >= 0:
                one.leader = sample.leader
            for node, end in sample.log_ends.items():
                seen = one.seen.setdefault(node, _Seen())
                if sample.leader_epoch < one.cut.new_epoch:
                    seen.end, seen.at_ns = end, sample.t_ns
                elif seen.after_ns < 0 and end != seen.end:
                    seen.after_ns = sample.t_ns
    return watched


def _mechanism(
    one: _Watched, replicas: Sequence[Replica], spans: Mapping[TopicPartition, Sequence[tuple[int, int]]]
) -> Mechanism:
    cut = one.cut
    place = TopicPartition(cut.topic, cut.partition)
    logs = {log.node: log for log in replicas if (log.topic, log.partition) == place}
    room = max(1, round(_ROOM * (cut.to_offset - cut.from_offset)))
    ends = [cut.to_offset, *(seen.end for seen in one.seen.values())]
    low, high = max(0, cut.from_offset - room), max(ends) + room
    lanes = tuple(
        _lane(one, node, logs.get(node), (low, high), spans.get(place, ()))
        for node in sorted({*logs, *one.seen})
    )
    epochs = sorted({bar.epoch for lane in lanes for bar in (*lane.before, *lane.after)})
    return Mechanism(cut, low, high, tuple(epochs), lanes)


def _bars(shown: tuple[int, int], start: int, end: int, epoch: int = -1) -> Iterator[LogBar]:
    """Yield the bar of the offsets `start` … `end - 1`, clipped to the range `shown`; nothing if none of them
    is in it.
    """
    low, high = shown
    start, end = max(start, low), min(end, high)
    if start < end:
        size = (high - low) / 100
        yield LogBar(round((start - low) / size, 3), round((end - start) / size, 3), epoch)


def _lane(
    one: _Watched,
    node: int,
    log: Replica | None,
    shown: tuple[int, int],
    lost: Sequence[tuple[int, int]],
) -> ReplicaLane:
    cut, seen = one.cut, one.seen.get(node, _Seen())
    # What its leader acknowledged was in its log, also where no look came in time.
    had = max(seen.end, cut.to_offset if node == one.leader else -1)
    starts = [(begun.epoch, begun.start) for begun in log.epochs] if log else []
    old = [(epoch, start) for epoch, start in starts if epoch < cut.old_epoch]
    # Where the truncated epoch began; without a checkpoint, before all that is drawn.
    began = next((start for epoch, start in starts if epoch == cut.old_epoch), 0)
    led = [cut.old_epoch] if node == one.leader else []
    led += [cut.new_epoch] if node == cut.new_leader else []
    return ReplicaLane(
        node=node,
        role=", ".join(f"led epoch {epoch}" for epoch in led),
        before=(*_by_epoch(old, min(had, began), shown), *_bars(shown, began, had, cut.old_epoch)),
        cut=tuple(_bars(shown, cut.from_offset, had)),
        lost=tuple(
            bar
            for first, last in lost
            for bar in _bars(shown, max(first, cut.from_offset), min(last + 1, had, cut.to_offset))
        ),
        after=tuple(_by_epoch(starts, log.log_end, shown)) if log else (),
        told=_describe(cut, seen, had),
    )


def _by_epoch(starts: Sequence[tuple[int, int]], end: int, shown: tuple[int, int]) -> Iterator[LogBar]:
    for (epoch, start), stop in zip(starts, [*(start for _, start in starts[1:]), end], strict=False):
        yield from _bars(shown, start, stop, epoch)


def _describe(cut: Truncation, seen: _Seen, had: int) -> str:
    if had < 0:
        return "not seen before"
    reached = f"its log reached offset {number(had)}"
    if had <= cut.from_offset:
        return f"{reached}: nothing of it was cut"
    when = ""
    if seen.at_ns >= 0 and seen.after_ns >= 0:
        when = f", between {seen.at_ns / 1e9:.1f} and {seen.after_ns / 1e9:.1f} s"
    elif seen.at_ns >= 0:
        when = f", after {seen.at_ns / 1e9:.1f} s"
    return f"{reached}; {plural(had - cut.from_offset, 'offset')} from {number(cut.from_offset)} on cut{when}"
