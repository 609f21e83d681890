"""Samples every partition of the experiment's topics ten times a second through Kafka's protocol. It puts
little load on the cluster and never waits long for it.

All brokers are asked at once, each over its own connection and by its own thread. A sample uses the answers
that arrive within some tens of milliseconds; a later answer goes into the next sample. So a dead, paused or
slow broker delays nothing. In ZooKeeper mode the znodes count as one more view: the controller and the leader
write a partition's state there, and brokers learn of it later or never.

The newest view of a partition counts. A broker's metadata only moves forward, but paused or isolated brokers
lag. The view with the higher leader epoch is newer; within an epoch, the one that changed last. A view whose
epoch goes back belongs to the next incarnation of a deleted topic, and is newer than all earlier views. While only
lagging brokers answer, the partition is left out of the samples, for at most `FORGET_AFTER_LOOKS` of them.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ackproof.cluster import queries
from ackproof.cluster.protocol import Cluster, NodeState
from ackproof.cluster.queries import PartitionState
from ackproof.network.wire import Connection, WireError
from ackproof.observe.watcher import BrokerPoller
from ackproof.rundir.observed import Sample
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import IsrChanged, LeaderChanged, Note, Timeline

ANSWER_WITHIN_S: Final = 0.06
"""Seconds to wait for the answers of one sample. A healthy broker needs 2 ms."""
QUORUM: Final = 0
"""Key of the metadata quorum where views are mapped by broker id. Ids of brokers begin at 1."""
QUORUM_FRESH_S: Final = 0.3
"""Maximum age, in seconds, of a usable view of the quorum."""
STALE_AFTER_S: Final = 1.0
"""Maximum age, in seconds, of a usable sample."""


View = dict[TopicPartition, PartitionState]
Offsets = dict[TopicPartition, int]


@dataclass(frozen=True)
class Reply:
    """Answers of one broker in one round. `view`: its metadata of the partitions. `log_ends`: log ends of its own
    replicas. `high_watermarks`, `last_stable`: these offsets of the partitions that it leads."""

    view: View
    log_ends: Offsets
    high_watermarks: Offsets
    last_stable: Offsets


class Sampler(BrokerPoller[Reply]):
    """Writes samples to `samples_path`, one line per partition and time, and changes of leaders and ISRs to the
    timeline (the first sample counts as a change). It takes `hz` samples per second. In ZooKeeper mode it also
    notes changes of the controller in the timeline."""

    NAME = "sampler"
    DOES = "sampling"

    def __init__(
        self,
        cluster: Cluster,
        topics: Iterable[str],
        samples_path: Path,
        timeline: Timeline,
        hz: float = 10.0,
    ) -> None:
        super().__init__(cluster, topics, timeline)
        self._period_s = 1.0 / hz
        self._views = MergedViews()
        # In other modes the brokers' own views come from the log of the quorum.
        self._watches_quorum = cluster.spec.metadata.broker_controls
        self._quorum: Future[tuple[float, View]] | None = None
        self._held: tuple[float, View] = (float("-inf"), {})
        self._controller: int | None = None
        self._newest: dict[TopicPartition, PartitionState] = {}
        self._latest: dict[TopicPartition, Sample] = {}
        self.looks = 0
        """Number of rounds of requests so far."""
        samples_path.parent.mkdir(parents=True, exist_ok=True)
        self._file = samples_path.open("a", encoding="utf-8")

    # -- life -------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        super().stop()
        self._file.close()

    # -- what was seen last -------------------------------------------------------------------------------------------

    def latest(self, topic: str, partition: int) -> Sample | None:
        """Return the newest sample of a partition, however old it is; None before the first sample."""
        return self._latest.get(TopicPartition(topic, partition))

    def fresh(self, topic: str, partition: int) -> Sample | None:
        """Return the newest sample of a partition; None if there is none, or if it is older than
        `STALE_AFTER_S`.
        """
        sample = self.latest(topic, partition)
        if sample is None or self._timeline.clock.now() - sample.t_ns > STALE_AFTER_S * 1e9:
            return None
        return sample

    def isr_text(self) -> str:
        """Return the newest ISRs as a short text for the console: the sizes of ISR and replica set. It is `3 of 3` if
        all partitions are alike, else `2 of 3 ×4, 3 of 3 ×8`. For a single partition, return the ids of its ISR, such
        as `1,2,3`, or `-` if the ISR is empty. Return `-` if there is no sample."""
        samples = list(self._latest.values())
        if len(samples) == 1:
            return ",".join(map(str, samples[0].isr)) or "-"
        sizes = Counter((len(sample.isr), len(sample.replicas)) for sample in samples)
        if len(sizes) == 1:
            return "{} of {}".format(*next(iter(sizes)))
        return ", ".join(f"{isr} of {of} ×{count}" for (isr, of), count in sorted(sizes.items())) or "-"

    # -- looking ------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        for _ in self._looks(self._period_s):
            self._write(self._look())
            self.looks += 1

    def _look(self) -> dict[int, Reply]:
        """Ask every broker whose process runs and that owes no answer to an earlier round. Return, by broker
        id, the answers that came in time, and late answers to earlier rounds."""
        awaited = []
        for broker, link in self._links.items():
            if broker not in self._asked and self._cluster.nodes[broker].state() is NodeState.RUNNING:
                hosted = [place for place, state in self._newest.items() if broker in state.replicas]
                led = [place for place, state in self._newest.items() if state.leader == broker]
                self._asked[broker] = self._pool.submit(self._ask, link, hosted, led)
                awaited.append(self._asked[broker])
        wait(awaited, timeout=min(ANSWER_WITHIN_S, self._period_s * 0.6))
        answers: dict[int, Reply] = {}
        for broker, asked in list(self._asked.items()):
            if asked.done():
                del self._asked[broker]
                with contextlib.suppress(WireError):
                    answers[broker] = asked.result()
        return answers

    def _ask(
        self, link: Connection, hosted: Sequence[TopicPartition], led: Sequence[TopicPartition]
    ) -> Reply:
        """Return one broker's answers. `hosted`, `led`: partitions of which it has a replica, and that it
        leads. Log ends are requested before high watermarks, so that a log end's lead over the high watermark is never
        overstated. Raises `WireError` if the broker does not answer."""
        view, log_ends, high_watermarks, last_stable = link.ask_all(
            [
                queries.ask_partitions(self._topics, link.access),
                queries.ask_log_ends(hosted),
                queries.ask_offsets(led, what=queries.LATEST),
                queries.ask_offsets(led, what=queries.LATEST, isolation=queries.READ_COMMITTED),
            ]
        )
        return Reply(
            queries.read_pages(link, self._topics, view),
            queries.read_offsets(log_ends),
            queries.read_offsets(high_watermarks),
            queries.read_offsets(last_stable),
        )

    def _look_at_quorum(self) -> View:
        """Return the newest view that the ZooKeeper servers answered with, without waiting, and start the next request
        unless one is under way. The result is empty if that view was requested over `QUORUM_FRESH_S` seconds ago."""
        if self._quorum is not None and self._quorum.done():
            looked, self._quorum = self._quorum.result(), None
            self._held = looked if looked[1] else self._held
        if self._quorum is None:
            self._quorum = self._pool.submit(self._ask_quorum)
        began, states = self._held
        return states if time.monotonic() - began <= QUORUM_FRESH_S else {}

    def _ask_quorum(self) -> tuple[float, View]:
        """Return the time of the request (seconds on the monotonic clock) and the view of the ZooKeeper servers, which
        is empty without an answer. Add a change of the controller to the timeline."""
        began = time.monotonic()
        states = self._cluster.metadata_state(self._topics)
        controller = self._cluster.controller()
        if controller is not None and controller != self._controller:
            self._controller = controller
            self._timeline.add(Note(note=f"ZooKeeper: the controller is {controller}"), node=controller)
        return began, states

    # -- telling ------------------------------------------------------------------------------------------------------

    def _write(self, answers: dict[int, Reply]) -> None:
        now = self._timeline.clock.now()
        views = {broker: answer.view for broker, answer in answers.items()}
        if self._watches_quorum and (view := self._look_at_quorum()):
            views[QUORUM] = view
        merged = self._views.merge(views)
        lines: list[str] = []
        for place, state in sorted(merged.items()):
            self._tell_changes(place, state)
            self._newest[place] = state
            sample = _sample(now, place, state, answers)
            self._latest[place] = sample
            lines.append(sample.line() + "\n")
        if lines:
            self._file.writelines(lines)
            self._file.flush()

    def _tell_changes(self, place: TopicPartition, state: PartitionState) -> None:
        before = self._newest.get(place)
        if before is None or (before.leader, before.leader_epoch) != (state.leader, state.leader_epoch):
            self._timeline.add(
                LeaderChanged(leader=state.leader, epoch=state.leader_epoch),
                topic=place.topic,
                partition=place.partition,
            )
        if before is None or set(before.isr) != set(state.isr):
            self._timeline.add(
                IsrChanged(isr=tuple(sorted(state.isr))), topic=place.topic, partition=place.partition
            )


def _sample(now_ns: int, place: TopicPartition, state: PartitionState, answers: dict[int, Reply]) -> Sample:
    leader = answers.get(state.leader)
    return Sample(
        t_ns=now_ns,
        topic=place.topic,
        partition=place.partition,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        replicas=state.replicas,
        isr=tuple(sorted(state.isr)),
        high_watermark=-1 if leader is None else leader.high_watermarks.get(place, -1),
        last_stable=-1 if leader is None else leader.last_stable.get(place, -1),
        log_ends={
            broker: answer.log_ends[place]
            for broker, answer in sorted(answers.items())
            if place in answer.log_ends
        },
        eligible=state.eligible,
    )


FORGET_AFTER_LOOKS: Final = 50
"""Number of samples without the newest view of a partition after which an older view counts again. Otherwise a broker
that missed the deletion of a topic, and so counts fewer incarnations, would be ignored for good.
"""
Age = tuple[int, int]
"""Age of a view: incarnation of the topic, as far as that broker observed it, and leader epoch."""


@dataclass(frozen=True)
class _View:
    state: PartitionState
    changed: int
    """Number of the sample in which the view changed."""
    life: int
    """Incarnation of the topic: number of times that the leader epoch in this broker's view went back."""

    @property
    def age(self) -> Age:
        return self.life, self.state.leader_epoch


class MergedViews:
    """Merges the views that brokers have of partitions: the newest view of each partition counts."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, TopicPartition], _View] = {}
        self._newest: dict[TopicPartition, tuple[Age, int]] = {}
        """Newest age of each partition, and the number of the last sample that had it."""
        self._look = 0
        """Number of calls of `merge` so far."""

    def merge(
        self, answered: Mapping[int, Mapping[TopicPartition, PartitionState]]
    ) -> dict[TopicPartition, PartitionState]:
        """Return the newest view of each partition among these answers, which belong to one sample. `answered`: views
        by broker id (`QUORUM`: ZooKeeper's).

        A partition is left out if one of the last `FORGET_AFTER_LOOKS` calls returned a newer view of it.
        """
        self._look += 1
        best: dict[TopicPartition, _View] = {}
        for broker, states in answered.items():
            for place, state in states.items():
                view = self._seen[broker, place] = self._since(self._seen.get((broker, place)), state)
                newest = best.get(place)
                if newest is None or (view.age, view.changed) > (newest.age, newest.changed):
                    best[place] = view
        return {place: view.state for place, view in best.items() if self._is_news(place, view.age)}

    def _since(self, before: _View | None, state: PartitionState) -> _View:
        if before is None:
            return _View(state, self._look, 0)
        if before.state == state:
            return before
        return _View(state, self._look, before.life + (state.leader_epoch < before.state.leader_epoch))

    def _is_news(self, place: TopicPartition, age: Age) -> bool:
        newest, seen = self._newest.get(place, (age, self._look))
        if age < newest and self._look - seen < FORGET_AFTER_LOOKS:
            return False
        self._newest[place] = age, self._look
        return True
