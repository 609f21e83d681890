"""Watches producers and readers after the last healing, while the load still goes on: do they make progress again?

A client without progress on a healthy partition is suspect. A probe, which is another client of the same kind, is then
started. The client is stuck if the probe makes progress and the client does not. A producer is stuck, too, if nobody
gets an acknowledgement although the high watermark goes up. In a healthy run, all clients pass the first check.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ackproof.base.errors import WaitTimeout
from ackproof.base.processes import process_state
from ackproof.clients.workload import Workload
from ackproof.cluster.protocol import Cluster
from ackproof.experiment.client import COMMAND
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.faults.life import AFTER_HEALING_BOUND_S
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.observed import Unrecovered
from ackproof.rundir.partition import TopicPartition

_SNAPSHOT_EVERY_S: Final = 2.0
_ASK_EVERY_S: Final = 1.0
_PROBE_AT: Final = 0.5
"""Fraction of the bound after which a probe is started."""
_PROBE_S: Final = 15.0
"""Seconds that a probe gets after the bound has passed."""
_FEWEST_SENT: Final = 3
"""A producer that sent nothing is suspect only if its configured rate made at least this many records due.
Producers count as unanswered only if the high watermark rose by at least as many."""
_CLASS: Final = {"producer": Anomaly.STUCK_PRODUCER, "reader": Anomaly.STUCK_READER}


@dataclass(frozen=True)
class _Snapshot:
    """Counters of all clients at one moment. `at_s`: seconds on a monotonic clock. `sent`: records sent by each client.

    `counts`: records acknowledged or read, by client and partition. `acked`: records acknowledged in each partition.
    """

    at_s: float
    sent: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[tuple[str, TopicPartition], int] = field(default_factory=dict)
    acked: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass
class _Suspect:
    """A client without progress on a partition that has been healthy since `since_s` (seconds on a monotonic clock).

    `began_at`, `now_at`: high watermark at the first check since `since_s`, and at the last; -1: unknown. `stuck`: True
    if the last check found it stuck (module docstring). `given_up`: True once it is not awaited any more: its partition
    stayed without a leader or a full ISR, or the time of its probe is up.
    """

    since_s: float
    began_at: int = -1
    now_at: int = -1
    stuck: bool = False
    given_up: bool = False


Waiter: TypeAlias = Callable[[Callable[[], bool], float], None]
"""Function that lets the load go on until a condition holds. Arguments: the condition, and a bound in seconds. Raises
`WaitTimeout`."""


def await_clients(clients: ClientWatch, wait: Waiter) -> list[Unrecovered]:
    """Let the load go on until each client made progress after the healing, is stuck, or cannot be judged; return the
    clients that are stuck. Probe clients may be started.

    `wait(condition, bound_s)` lets the load go on until `condition` returns True; it raises `WaitTimeout` after
    `bound_s` seconds, which ends the watch and is not passed on.
    """
    with suppress(WaitTimeout):
        wait(lambda: clients.done(time.monotonic()), clients.patience_s)
    return clients.stuck(time.monotonic())


class ClientWatch:
    """Watches the clients of one run. Call `mark` while the load goes on, `heal` once, then `done` until it is True.

    `bounds`: seconds without progress after which a client counts as stuck, by anomaly class. In a soak, and if a fault
    sends the records (`SENDS`), no client is watched: `done` is True at once, and `stuck` returns [].
    """

    def __init__(
        self, workload: Workload, cluster: Cluster, spec: ExperimentSpec, bounds: Mapping[str, float]
    ) -> None:
        self._workload = workload
        self._cluster = cluster
        self._spec = spec
        self._bounds = bounds
        self._off = spec.soak is not None or any(fault.SENDS for fault in spec.faults)
        """True if clients are not watched: in a soak, which audits windows, and if a script sends all records."""
        self._older = self._newest = _Snapshot(time.monotonic())
        self._suspects: dict[tuple[str, TopicPartition], _Suspect] = {}
        self._probes: dict[str, str] = {}
        self._asked_s = 0.0
        self._healed = False

    @property
    def patience_s(self) -> float:
        """Number of seconds after `heal` after which waiting for `done` is pointless."""
        return AFTER_HEALING_BOUND_S + 2 * _PROBE_S + max(self._bounds[name] for name in _CLASS.values())

    def mark(self, now_s: float) -> None:
        """Store the clients' counters, unless this was done less than 2 s ago. Does nothing after `heal`. `now_s`:
        seconds on a monotonic clock.
        """
        if not (self._off or self._healed) and now_s - self._newest.at_s >= _SNAPSHOT_EVERY_S:
            self._older, self._newest = self._newest, self._snapshot(now_s)

    def heal(self, now_s: float) -> None:
        """Note that all faults have healed: clients must make progress from now on. `now_s`: seconds on the clock of
        `mark`.

        In a run without faults the load ends now. So `done` compares with the second newest snapshot of `mark`
        instead of with the counters at this call.
        """
        self._healed = True
        if self._spec.faults and not self._off:
            self._older = self._snapshot(now_s)

    def done(self, now_s: float) -> bool:
        """Return True once each client has made progress since the healing, is stuck, or cannot be judged.

        `now_s`: seconds on the clock of `mark`. Starts a probe client of a kind once one client of this kind made no
        progress on a healthy partition for half its bound.
        """
        if self._off:
            return True
        lagging = self._lagging(now_s)
        self._suspects = {key: self._suspects.get(key) or _Suspect(now_s) for key in lagging}
        if not lagging:
            return True
        if now_s - self._asked_s >= _ASK_EVERY_S:
            self._asked_s = now_s
            self._ask(now_s)
        return all(one.stuck or one.given_up for one in self._suspects.values())

    def stuck(self, now_s: float) -> list[Unrecovered]:
        """Return an entry for each stuck client, over all partitions on which it is stuck. `now_s`: seconds on the
        clock of `mark`."""
        places: dict[str, list[TopicPartition]] = defaultdict(list)
        for (client, place), suspect in self._suspects.items():
            if suspect.stuck:
                places[client].append(place)
        return [self._report_stuck(client, sorted(each), now_s) for client, each in sorted(places.items())]

    # -- looks ------------------------------------------------------------------------------------------------------

    def _clients(self) -> dict[str, str]:
        """Return the kinds of the running clients by id, without probes and clients that were replaced."""
        running, workload = self._workload.running(), self._workload
        return {
            client.id: client.kind
            for client in workload.clients
            if client.id in running
            and client.id not in self._probes.values()
            and workload.successor(client.id) == client.id
        }

    def _snapshot(self, now_s: float) -> _Snapshot:
        sent, counts = {}, {}
        acked: dict[TopicPartition, int] = defaultdict(int)
        for client, kind in self._clients().items():
            counters = self._workload.counters(client)
            sent[client] = counters.sent
            for place, count in zip(self._workload.assigned(kind), counters.counts, strict=True):
                counts[client, place] = count
                acked[place] += count if kind == "producer" else 0
        return _Snapshot(now_s, sent, counts, acked)

    def _lagging(self, now_s: float) -> list[tuple[str, TopicPartition]]:
        """Return each (client, partition) that should have made progress since the healing, and did not.

        A reader should have made progress if records of the partition were acknowledged. A producer should have made
        progress if it must have sent records to the partition (`_should_send`).
        """
        then, now = self._older, self._snapshot(now_s)
        return [
            (client, place)
            for (client, place), count in now.counts.items()
            if count == then.counts.get((client, place))
            and (
                self._should_send(client, then, now)
                if client in then.sent and self._kind(client) == "producer"
                else now.acked[place] > then.acked.get(place, 0)
            )
        ]

    def _should_send(self, client: str, then: _Snapshot, now: _Snapshot) -> bool:
        """Return True if a producer must have sent to every partition since the healing. It sends to them round-robin.

        One of three conditions suffices. The producer has no rate limit. It sent at least twice as many records as
        there are partitions. It sent nothing, although its rate called for at least `_FEWEST_SENT` records.
        """
        sent, each = now.sent[client] - then.sent[client], len(self._workload.written)
        producers = self._spec.workload.producers
        if producers.rate is None or sent >= 2 * each:
            return True
        return not sent and (now.at_s - then.at_s) * producers.rate / producers.count >= _FEWEST_SENT

    def _kind(self, client: str) -> str:
        return next(one.kind for one in self._workload.clients if one.id == client)

    def _ask(self, now_s: float) -> None:
        topics = dict.fromkeys(place.topic for _, place in self._suspects)
        states, ends = self._cluster.topic_state(topics), self._cluster.partition_ends(topics)
        for (client, place), suspect in self._suspects.items():
            state, kind = states.get(place), self._kind(client)
            if state is None or state.leader < 0 or len(state.isr) < len(set(state.replicas)):
                suspect.since_s, suspect.began_at = now_s, -1
                since_healing_s = now_s - self._older.at_s
                suspect.given_up = not self._spec.faults or since_healing_s >= AFTER_HEALING_BOUND_S
                continue
            if place in ends:
                suspect.now_at = ends[place].high_watermark
                suspect.began_at = suspect.now_at if suspect.began_at < 0 else suspect.began_at
            bound, waited = self._bounds[_CLASS[kind]], now_s - suspect.since_s
            if waited >= _PROBE_AT * bound and kind not in self._probes:
                self._probes[kind] = self._workload.start_another(kind)
            if waited >= bound:
                suspect.stuck = self._is_probe_ahead(kind, client, place) or self._is_unanswered(kind, place)
                suspect.given_up = waited >= bound + _PROBE_S

    def _is_probe_ahead(self, kind: str, client: str, place: TopicPartition) -> bool:
        """Return True if the probe of this kind has made progress on a partition, and the client has not.

        A probe reader starts at offset 0 as every reader does, so it must have read more than the client. A probe
        producer needs one acknowledged record. A reader that started at a committed offset cannot be compared: False.
        """
        consumers = self._spec.workload.consumers
        if kind == "reader" and consumers.start == "committed" and int(client[1:]) >= consumers.live:
            return False
        return self._count(self._probes[kind], kind, place) > (
            self._count(client, kind, place) if kind == "reader" else 0
        )

    def _is_unanswered(self, kind: str, place: TopicPartition) -> bool:
        """Return True if no producer, not even the probe, gets an acknowledgement on a partition whose high watermark
        rises. The leader then commits records and does not answer.

        Return False for readers, for programs of the user, and for producers with transactions. A program may get
        answers that it does not report. Transaction markers raise the high watermark without any record.
        """
        producers = self._spec.workload.producers
        if (
            kind != "producer"
            or producers.client.library == COMMAND
            or producers.transaction_size is not None
        ):
            return False
        acked = self._snapshot(0.0).acked[place] - self._older.acked.get(place, 0)
        suspects = (one for (_, other), one in self._suspects.items() if other == place)
        return (
            acked == 0
            and self._count(self._probes[kind], kind, place) == 0
            and any(one.began_at >= 0 and one.now_at - one.began_at >= _FEWEST_SENT for one in suspects)
        )

    def _count(self, client: str, kind: str, place: TopicPartition) -> int:
        return int(self._workload.counters(client).counts[self._workload.assigned(kind).index(place)])

    def _report_stuck(self, client: str, places: list[TopicPartition], now_s: float) -> Unrecovered:
        kind, probe = self._kind(client), self._probes[self._kind(client)]
        process = self._workload.running().get(client)
        stopped = process is not None and process_state(process.pid, process.started) == "stopped"
        for_s = now_s - min(self._suspects[client, place].since_s for place in places)
        got = "got nothing acknowledged" if kind == "producer" else "read nothing"
        count, suspect = self._count(probe, kind, places[0]), self._suspects[client, places[0]]
        other = (
            f"the probe {probe} meanwhile {count} records on {places[0]}"
            if count
            else f"the probe {probe} neither; the high watermark of {places[0]} meanwhile went from "
            f"{suspect.began_at} to {suspect.now_at}"
        )
        seen = f"{kind} {client} {got} on {', '.join(map(str, places))} for {for_s:.1f} s, and {other}" + (
            "; its process stands still (SIGSTOP)" if stopped else ""
        )
        return Unrecovered(
            anomaly=_CLASS[kind],
            topic=places[0].topic,
            partition=places[0].partition,
            client=client,
            number=int(client[1:]),
            seen=seen,
            for_s=round(for_s, 3),
            stopped=stopped,
        )
