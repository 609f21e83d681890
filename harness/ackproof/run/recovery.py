"""Watches the cluster recover, after the load and before its logs are read back.

`RecoveryWatch` waits until every partition has a leader, a full ISR, no open transaction and no reassignment, and a
controller is active. It gives up on what makes no progress for longer than its liveness class allows
(`experiment.timing.recovery_bounds`), and writes it to `observed/recovery.json`. The judge decides if it is forbidden.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Final

from ackproof.base.errors import WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.clients.final_read import End, Ends, ends_of
from ackproof.clients.final_readers import FinalReadOrder
from ackproof.cluster import admin, queries
from ackproof.cluster.protocol import Cluster, NodeState
from ackproof.cluster.queries import PartitionState
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.timing import recovery_bounds
from ackproof.faults.planned.reassignments import THROTTLE_RATES, THROTTLED
from ackproof.network.wire import Connection, WireError
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.observed import RecoveryFile, Unrecovered
from ackproof.rundir.partition import TopicPartition

_LOOK_EVERY_S: Final = 0.2
_MARGIN_S: Final = 2.0
_FAILED: Final = r"Partition {place} marked as failed|Error while processing data for partition {place} "
_LINE: Final = 400
_PREPARES: Final = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")


@dataclass
class _Trouble:
    """A partition, client or quorum that has not recovered. `best`: highest number of its progress, first reached at
    `since_s` (monotonic clock)."""

    found: Unrecovered
    since_s: float
    best: int


def recover(
    cluster: Cluster,
    spec: ExperimentSpec,
    order: FinalReadOrder,
    run: CaseDir,
    stop: Event | None = None,
    clients: Sequence[Unrecovered] = (),
) -> FinalReadOrder:
    """Watch the cluster recover, and write `observed/recovery.json`, with the `clients` that were stuck under load.

    Return `order` with the partitions whose recovery the final read must not await: with a short ISR, without a leader,
    or with a hanging transaction. Raises `Interrupted` when `stop` is set.
    """
    bounds, settle_s = recovery_bounds(spec), spec.evidence.settle_timeout
    watch = RecoveryWatch(cluster, ends_of(cluster), order.places, bounds, settle_s, run.nodes)
    file = watch.wait(stop, clients)
    file.save(run.recovery)
    leaderless, hanging = (
        frozenset(one.place for one in file.of_class(name))
        for name in (Anomaly.LEADERLESS, Anomaly.HANGING_TRANSACTION)
    )
    return replace(order, short=watch.short, leaderless=leaderless, hanging=hanging)


class RecoveryWatch:
    """Watches a cluster without load until everything has recovered or is stuck, or the time is up.

    `bounds`: seconds without progress after which something counts as stuck, by liveness class. `settle_s`: the same
    bound for everything without a class. `ends` asks brokers for the offsets of partitions; `node_logs`: folder of the
    nodes' logs, which are searched for reasons."""

    def __init__(
        self,
        cluster: Cluster,
        ends: Ends,
        places: Sequence[TopicPartition],
        bounds: Mapping[str, float],
        settle_s: float,
        node_logs: Path,
    ) -> None:
        self._cluster = cluster
        self._ends = ends
        self._places = places
        self._topics = tuple(dict.fromkeys(place.topic for place in places))
        self._bounds = bounds
        self._settle_s = settle_s
        self._patience_s = max(settle_s, max(bounds.values()) + _MARGIN_S)
        self._node_logs = node_logs
        self._troubles: dict[tuple[object, ...], _Trouble] = {}
        self.short: dict[TopicPartition, int] = {}
        """Partition → size of its ISR, for partitions whose ISR is short although the missing replica's broker runs."""

    def wait(self, stop: Event | None = None, clients: Sequence[Unrecovered] = ()) -> RecoveryFile:
        """Wait until all has recovered or is stuck, at most about twice the longest bound. Return what is stuck, with
        the given `clients`, and as `undecided` what else has not recovered. Raises `Interrupted` when `stop` is set."""
        began = time.monotonic()

        def is_over() -> bool:
            now = time.monotonic()
            return self.look(now) or (now >= began + self._patience_s and not self._may_be_stuck(now))

        with suppress(WaitTimeout):
            wait_until(
                is_over,
                what="the cluster to recover",
                timeout_s=2 * self._patience_s,
                interval_s=_LOOK_EVERY_S,
                stop=stop,
            )
        now = time.monotonic()
        return RecoveryFile(
            bounds=dict(self._bounds),
            waited_s=round(now - began, 3),
            running=tuple(sorted(self._cluster.running_links())),
            unrecovered=(*clients, *self._stuck(now)),
            undecided=tuple(self._open(now)),
        )

    def look(self, now_s: float) -> bool:
        """Ask the cluster for its state once. Return True if nothing is left that may still recover. `now_s`: monotonic
        time in seconds."""
        current = {
            (found.anomaly, found.topic, found.partition, found.node): (found, mark)
            for found, mark in self._find_troubles()
        }
        for key in self._troubles.keys() - current.keys():
            del self._troubles[key]
        for key, (found, mark) in current.items():
            known = self._troubles.get(key)
            if known is None:
                self._troubles[key] = _Trouble(found, now_s, mark)
                continue
            known.found = found
            if mark > known.best:
                known.best, known.since_s = mark, now_s
        return all(self._is_stuck(trouble, now_s) for trouble in self._troubles.values())

    def _is_stuck(self, trouble: _Trouble, now_s: float) -> bool:
        return now_s - trouble.since_s >= self._bounds.get(trouble.found.anomaly, self._settle_s)

    def _may_be_stuck(self, now_s: float) -> bool:
        """Return True if something of a liveness class is not stuck yet, but made no progress for half of its bound."""
        return any(
            not self._is_stuck(trouble, now_s)
            and now_s - trouble.since_s >= self._bounds.get(trouble.found.anomaly, math.inf) / 2
            for trouble in self._troubles.values()
        )

    def _open(self, now_s: float) -> Iterator[str]:
        for trouble in self._troubles.values():
            found, for_s = trouble.found, now_s - trouble.since_s
            if not found.anomaly:
                yield found.seen
            elif not self._is_stuck(trouble, now_s):
                yield f"{found.seen}; it last moved {for_s:.1f} s before the watch ended: slow, not stuck"

    # -- what a look finds ------------------------------------------------------------------------------------------

    def _find_troubles(self) -> Iterator[tuple[Unrecovered, int]]:
        """Yield each thing that has not recovered, with its progress: a number that rises. Also update `short`."""
        ends = self._ends(self._places)
        restless = []
        for place in self._places:
            end = ends.get(place)
            if end is None or end.unrest(len(set(end.replicas))):
                restless.append(place)
        self.short = {
            place: len(end.isr) for place, end in ends.items() if len(end.isr) < len(set(end.replicas))
        }
        nodes = self._cluster.controllers()
        running = [node.id for node in nodes if node.state() is NodeState.RUNNING]
        controlled = 2 * len(running) <= len(nodes) or self._cluster.controller() is not None
        if not controlled:
            seen = f"controllers {running} of {[node.id for node in nodes]} run, and none is active"
            yield Unrecovered(anomaly=Anomaly.NO_CONTROLLER, seen=seen, for_s=0.0), 0
        states = self._cluster.topic_state(self._topics) if restless else {}
        unfenced: frozenset[int] = frozenset()
        for link in self._cluster.running_links().values() if restless else ():
            with suppress(WireError):
                unfenced = queries.brokers(link)
                break
        for place in restless:
            yield from self._check_partition(place, states.get(place), ends.get(place), unfenced, controlled)
        if controlled:
            yield from self._reassignments()

    def _check_partition(
        self,
        place: TopicPartition,
        state: PartitionState | None,
        end: End | None,
        unfenced: frozenset[int],
        controlled: bool,
    ) -> Iterator[tuple[Unrecovered, int]]:
        if state is not None and state.leader < 0:
            seen = f"{place} has no leader; its ISR is {list(state.isr)}, its replicas {list(state.replicas)}"
            yield _unrecovered(Anomaly.LEADERLESS, place, seen, isr=state.isr, replicas=state.replicas), 0
        elif state is None or end is None or not end.is_known:
            why = f"{place}: " + (
                "no broker describes it" if state is None else f"leader {state.leader} does not answer"
            )
            yield _unrecovered("", place, why), 0
            links = self._cluster.running_links()
            led = (
                state
                if controlled and state is not None and state.leader in links.keys() & unfenced
                else None
            )
            # A leader without a high watermark answers no ListOffsets (KIP-207). Its followers may be why. One that
            # does not tell its log end either is no proof.
            if led is not None and (own := _log_end(links[led.leader], place)) >= 0:
                known = End(led.leader, led.leader_epoch, led.isr, -1, -1, -1, own, led.replicas)
                yield from self._behind(place, known, unfenced)
        else:
            if controlled:
                yield from self._behind(place, end, unfenced)
            yield from _check_offsets(place, end)

    def _behind(
        self, place: TopicPartition, end: End, unfenced: frozenset[int]
    ) -> Iterator[tuple[Unrecovered, int]]:
        links = self._cluster.running_links()
        for node in sorted(set(end.replicas) - set(end.isr)):
            if node not in links:
                self.short.pop(place, None)  # its broker does not run; the final read waits for the broker
                continue
            if node not in unfenced:
                why = f"{place}: broker {node} runs and is fenced"
                yield _unrecovered("", place, why), 0
                continue
            own = _log_end(links[node], place)
            seen = (
                f"replica {node} of {place} is not in the ISR {sorted(end.isr)}: its log ends at "
                f"{own if own >= 0 else 'an unknown offset'}, the leader's at {end.log_end}"
            )
            fields = {"node": node, "log_end": own, "leader_end": end.log_end}
            yield _unrecovered(Anomaly.STUCK_REPLICA, place, seen, end.isr, end.replicas, **fields), own

    def _reassignments(self) -> Iterator[tuple[Unrecovered, int]]:
        listed: Mapping[TopicPartition, admin.Reassignment] = {}
        with suppress(WireError):
            if (link := self._cluster.admin_link()) is not None:
                listed = admin.reassignments(link)
        links = self._cluster.running_links()
        for place, one in sorted(listed.items()):
            if place.topic in self._topics:
                ends = {node: _log_end(links[node], place) for node in one.adding if node in links}
                seen = (
                    f"the reassignment of {place} goes on: adding {list(one.adding)} (log ends "
                    f"{ends or 'unknown: none of them runs'}), removing {list(one.removing)}"
                )
                found = _unrecovered(Anomaly.STUCK_REASSIGNMENT, place, seen, (), one.replicas)
                found = found.model_copy(update={"adding": one.adding})
                # Progress: fewer replicas to add or remove count first, then higher log ends of the added ones.
                yield found, sum(ends.values()) - (1 << 50) * len((*one.adding, *one.removing))

    # -- what the cluster says of what is stuck ---------------------------------------------------------------------

    def _stuck(self, now_s: float) -> Iterator[Unrecovered]:
        for trouble in list(self._troubles.values()):
            found = trouble.found
            if not found.anomaly or not self._is_stuck(trouble, now_s):
                continue
            try:
                more = self._evidence(found)
                why = "" if more is not None else "its coordinator still has that transaction open"
            except WireError as error:
                more, why = None, f"not explained: {error}"
            if more is None:
                trouble.found = found.model_copy(update={"anomaly": "", "seen": f"{found.seen}; {why}"})
                continue
            yield found.model_copy(update={"for_s": round(now_s - trouble.since_s, 3), **more})

    def _evidence(self, found: Unrecovered) -> dict[str, object] | None:
        """Return what brokers say as fields of `Unrecovered` ({}: nothing); None: not stuck. Raises `WireError`."""
        match found.anomaly:
            case Anomaly.LEADERLESS:
                offline = self._offline(found)
                seen = found.seen + (
                    f"; brokers {list(offline)} run, and have it in none of their log dirs" if offline else ""
                )
                return {"offline": offline, "seen": seen}
            case Anomaly.STUCK_REPLICA:
                reason = self._own_words(found.node, found.place)
                seen = found.seen + (f"; its broker says: {reason}" if reason else "")
                return {"throttled": self._throttled(found), "reason": reason, "seen": seen}
            case Anomaly.STUCK_REASSIGNMENT:
                return {"throttled": self._throttled(found)}
            case Anomaly.HANGING_TRANSACTION:
                return self._holder(found)
        return {}

    def _offline(self, found: Unrecovered) -> tuple[int, ...]:
        links, offline = self._cluster.running_links(), []
        for node in set(found.replicas) & links.keys():
            with suppress(WireError):
                if not any(found.place in held for held in admin.log_dirs(links[node]).values()):
                    offline.append(node)
        return tuple(sorted(offline))

    def _throttled(self, found: Unrecovered) -> bool:
        """Return True if a topic is throttled and a running broker of the partition has a rate. Raises `WireError`."""
        links = self._cluster.running_links()
        if (link := next(iter(links.values()), None)) is None:
            raise WireError("no broker runs")
        named = admin.describe_config(link, admin.Owner(admin.ResourceType.TOPIC, found.topic), THROTTLED)
        if not any(setting.value for setting in named.values()):
            return False
        for node in set(found.replicas) & links.keys():
            owner = admin.Owner(admin.ResourceType.BROKER, str(node))
            rates = admin.describe_config(links[node], owner, THROTTLE_RATES)
            if any(setting.value and int(setting.value) < 1 << 62 for setting in rates.values()):
                return True
        return False

    def _own_words(self, node: int, place: TopicPartition) -> str:
        """Return the newest line (cut) in a broker's log about the failure of a replica; '' if there is none."""
        failed = re.compile(_FAILED.format(place=re.escape(f"{place.topic}-{place.partition}")))
        said = ""
        paths = (self._node_logs / str(node)).glob("server.log*")
        for path in sorted(paths, key=lambda path: path.stat().st_mtime):
            with path.open(encoding="utf-8", errors="replace") as lines:
                said = next(reversed([line for line in lines if failed.search(line)]), said)
        return said.strip()[:_LINE]

    def _holder(self, found: Unrecovered) -> dict[str, object] | None:
        """Return evidence on the open transaction that holds back the last stable offset, as fields of `Unrecovered`:
        `producer_id`, `coordinator` (the transaction's state; '' if no broker knows it), `seen` (all this in words).

        Return {} if the leader knows no open transaction. Return None if it does not hang: a coordinator says that it
        is Ongoing. Raises `WireError` if a broker does not answer, or the leader does not run.
        """
        links = self._cluster.running_links()
        described = self._cluster.topic_state([found.topic]).get(found.place)
        if described is None or described.leader not in links:
            raise WireError("its leader does not run")
        opened = admin.open_transactions(links[described.leader], found.place)
        if not opened:
            return {}
        since, producer_id, epoch = opened[0]
        # Every broker must answer: one that does not, or is still loading, may coordinate the open transaction.
        states = [one for link in links.values() for one in admin.transactions_of(link, producer_id)]
        if "Ongoing" in states:
            return None
        state = next((one for one in states if one in _PREPARES), next(iter(states), ""))
        seen = (
            f"{found.seen}; the leader remembers an open transaction of producer id {producer_id} (epoch {epoch}) from "
            f"offset {since}; the coordinator says {state or 'that it knows no such transaction'}"
        )
        return {"producer_id": producer_id, "coordinator": state, "seen": seen}


def _check_offsets(place: TopicPartition, end: End) -> Iterator[tuple[Unrecovered, int]]:
    if end.last_stable < end.high_watermark:
        seen = f"{place}: the last stable offset {end.last_stable} is behind the high watermark {end.high_watermark}"
        marks = {"last_stable": end.last_stable, "high_watermark": end.high_watermark}
        found = _unrecovered(Anomaly.HANGING_TRANSACTION, place, seen, end.isr, end.replicas, **marks)
        yield found, end.last_stable
    elif end.high_watermark < end.log_end:
        why = f"{place}: the high watermark {end.high_watermark} is behind the leader's log end {end.log_end}"
        yield _unrecovered("", place, why), end.high_watermark


def _unrecovered(
    anomaly: str,
    place: TopicPartition,
    seen: str,
    isr: Sequence[int] = (),
    replicas: Sequence[int] = (),
    **numbers: int,
) -> Unrecovered:
    return Unrecovered(
        anomaly=anomaly,
        topic=place.topic,
        partition=place.partition,
        seen=seen,
        for_s=0.0,
        isr=tuple(isr),
        replicas=tuple(replicas),
        **numbers,
    )


def _log_end(link: Connection, place: TopicPartition) -> int:
    """Return a replica's own log end offset; -1 if its broker does not answer, or does not have the replica."""
    with suppress(WireError):
        return queries.read_offsets(link.ask(queries.ask_log_ends([place]))).get(place, -1)
    return -1
