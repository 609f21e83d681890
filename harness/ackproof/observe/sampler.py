"""Samples every partition ten times a second, through the protocol, without loading the cluster or waiting for it.

One thread asks all brokers at once over connections of its own and takes what has come after some tens of
milliseconds; a broker that is dead, paused or slow is missing from the sample and delays nobody.
"""

from __future__ import annotations

import select
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ackproof.cluster.protocol import Cluster, NodeState, PartitionState
from ackproof.observe.probe import Answer, Probe
from ackproof.observe.quorum_watch import QuorumWatch
from ackproof.observe.views import Views
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.samples import Sample
from ackproof.rundir.timeline import IsrChanged, LeaderChanged, Note, Timeline

ANSWER_WITHIN_S: Final = 0.06
"""How long a look waits for answers: a broker in good health needs 2 ms."""
QUORUM: Final = 0
"""Among the brokers' views: the one of the metadata quorum itself. Brokers count from 1."""
STALE_AFTER_S: Final = 1.0
"""An older sample says nothing of now."""


class Sampler:
    """Writes samples to `samples_path`, one line per partition and look, and changes of leaders and ISRs into the
    timeline (the first look counts as one). `hz` looks per second.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Iterable[str],
        samples_path: Path,
        timeline: Timeline,
        hz: float = 10.0,
    ) -> None:
        self._cluster = cluster
        self._topics = tuple(topics)
        self._timeline = timeline
        self._period_s = 1.0 / hz
        self._probes = {
            broker: Probe(address, cluster.access) for broker, address in cluster.client_addresses().items()
        }
        self._views = Views()
        self._watch = None
        if cluster.spec.metadata.broker_controls:  # else the brokers' own views are the log of the quorum
            self._watch = QuorumWatch(cluster, self._topics, timeline)
        self._newest: dict[TopicPartition, PartitionState] = {}
        self._latest: dict[TopicPartition, Sample] = {}
        self._stop = threading.Event()
        samples_path.parent.mkdir(parents=True, exist_ok=True)
        self._file = samples_path.open("a", encoding="utf-8")
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self._watch is not None:
            self._watch.start()
        self._thread.start()

    def stop(self) -> None:
        """End, and close the file. May be called again."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._watch is not None:
            self._watch.stop()
        self._file.close()

    # -- what was seen last -------------------------------------------------------------------------------------------

    def latest(self, topic: str, partition: int) -> Sample | None:
        """The newest sample of a partition, however old; None before the first."""
        return self._latest.get(TopicPartition(topic, partition))

    def isr_size(self, topic: str, partition: int) -> int | None:
        """Size of the in-sync replica set; None if nobody said within the last second."""
        sample = self._fresh(topic, partition)
        return None if sample is None else len(sample.isr)

    def lag(self, topic: str, partition: int) -> int | None:
        """The leader's log end − high watermark, in records; None if the leader did not say in the last second."""
        sample = self._fresh(topic, partition)
        if sample is None or sample.high_watermark < 0 or sample.leader not in sample.log_ends:
            return None
        return max(0, sample.log_ends[sample.leader] - sample.high_watermark)

    def isr_text(self) -> str:
        """The in-sync replica sets in a few words, for people."""
        samples = list(self._latest.values())
        if len(samples) == 1:
            return ",".join(map(str, samples[0].isr)) or "-"
        sizes = Counter((len(sample.isr), len(sample.replicas)) for sample in samples)
        if len(sizes) == 1:
            return "{} of {}".format(*next(iter(sizes)))
        return ", ".join(f"{isr} of {of} ×{count}" for (isr, of), count in sorted(sizes.items())) or "-"

    # -- looking ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        due = time.monotonic()
        try:
            while not self._stop.is_set():
                self._write(self._look())
                # After a look that took too long the next is due at once, but none is made up for.
                due = max(due + self._period_s, time.monotonic())
                self._stop.wait(due - time.monotonic())
        except Exception as error:  # noqa: BLE001 — a thread's crash must become a fact of the run, not vanish
            self._timeline.add(Note(note=f"sampling ended: {type(error).__name__}: {error}"))
        finally:
            for probe in self._probes.values():
                probe.close()

    def _look(self) -> dict[int, Answer]:
        """Ask every broker whose process runs; the answers that came in time, late ones of earlier looks too."""
        awaited: set[int] = set()
        for broker, probe in self._probes.items():
            was_busy = probe.busy
            if self._cluster.nodes[broker].state() is NodeState.RUNNING:
                probe.ask(self._topics, self._hosted(broker), self._led(broker))
                if not was_busy and probe.busy:
                    awaited.add(broker)
        answers: dict[int, Answer] = {}
        deadline = time.monotonic() + min(ANSWER_WITHIN_S, self._period_s * 0.6)
        while True:
            self._collect(answers, max(0.0, deadline - time.monotonic()) if awaited else 0.0)
            awaited = {broker for broker in awaited if self._probes[broker].busy}
            if not awaited or time.monotonic() >= deadline:
                return answers

    def _collect(self, answers: dict[int, Answer], timeout_s: float) -> None:
        poll = select.poll()
        by_descriptor: dict[int, int] = {}
        for broker, probe in self._probes.items():
            if probe.busy:
                by_descriptor[probe.descriptor] = broker
                poll.register(probe.descriptor, select.POLLIN)
        if not by_descriptor:
            return
        for descriptor, _ in poll.poll(timeout_s * 1000):
            broker = by_descriptor[descriptor]
            answer = self._probes[broker].receive()
            if answer is not None:
                answers[broker] = answer

    def _hosted(self, broker: int) -> list[TopicPartition]:
        return [place for place, state in self._newest.items() if broker in state.replicas]

    def _led(self, broker: int) -> list[TopicPartition]:
        return [place for place, state in self._newest.items() if state.leader == broker]

    # -- telling ------------------------------------------------------------------------------------------------------

    def _write(self, answers: dict[int, Answer]) -> None:
        now = self._timeline.clock.now()
        views = {broker: answer.view for broker, answer in answers.items()}
        if self._watch is not None and (held := self._watch.latest()):
            views[QUORUM] = held
        merged = self._views.merge(views)
        lines: list[str] = []
        for place, state in sorted(merged.items()):
            self._tell_changes(place, state)
            self._newest[place] = state
            sample = _sample(now, place, state, answers)
            self._latest[place] = sample
            lines.append(sample.model_dump_json() + "\n")
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

    def _fresh(self, topic: str, partition: int) -> Sample | None:
        sample = self._latest.get(TopicPartition(topic, partition))
        if sample is None or self._timeline.clock.now() - sample.t_ns > STALE_AFTER_S * 1e9:
            return None
        return sample


def _sample(now_ns: int, place: TopicPartition, state: PartitionState, answers: dict[int, Answer]) -> Sample:
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
