"""One case from its start to its final read in virtual time, through the same phases as a real run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ackproof.experiment.case import Case
from ackproof.experiment.triggers import COUNT_WITHIN_S, StateTrigger
from ackproof.faults.clients.client import ClientFault
from ackproof.faults.life import (
    AFTER_HEALING_BOUND_S,
    AFTER_HEALING_S,
    FIRST_ACKS_BOUND_S,
    Life,
    awaits_a_count,
    pending,
)
from ackproof.rundir.timeline import PhaseBegan
from ackproof_model.predict.cases import code_for
from ackproof_reference.broker import Leader
from ackproof_reference.log import DATA, Batch
from ackproof_reference.transactions import aborted, open_transactions
from ackproof_simulator.clock import MS, SECOND, seconds, timing_of
from ackproof_simulator.producers import ClientBatch
from ackproof_simulator.schedule import Say, Schedule
from ackproof_simulator.world import Setting, World, make_world

REST_NS = SECOND
LOOK_NS = 10 * MS
FLUSH_MARGIN_NS = SECOND
"""Nanoseconds beyond the delivery time-out in which producers may finish; records without an outcome are then purged.
"""
FETCH_BATCHES = 1_000_000
"""Greatest number of batches in one fetch response: no limit in practice. The explorer's default is 1."""
LIMIT_NS = 3600 * SECOND


def setting_of(case: Case) -> Setting:
    """Return the parts of a case that are the same for every seed. Raises ValueError for a release without
    rules."""
    return Setting(
        timing_of(case.experiment.cluster),
        {topic: replace(code_for(case), max_fetch_batches=FETCH_BATCHES) for topic in case.experiment.topics},
    )


@dataclass(frozen=True)
class FinalPlace:
    """Result of the final read of one partition, in leader `epoch`: all `batches` from offset `start` up to the high
    watermark `end`, also markers and aborted ones.

    If no leader answered, `epoch`, `start` and `end` are -1, and `batches` is empty. `why`: what was still unsettled at
    the read, such as a replica missing in the ISR; '' if all was settled."""

    epoch: int
    start: int
    end: int
    batches: tuple[Batch, ...]
    why: str
    aborted: frozenset[int] = frozenset()
    """Base offsets of batches of aborted transactions."""

    def is_handed(self, batch: Batch) -> bool:
        """Return True if a reader at read_committed gets the records of this batch."""
        return batch.kind == DATA and batch.base not in self.aborted


class Simulation:
    """One simulated run of a case; `run` carries it out.

    `complete`: True if all logs were at rest and replicated before the final read. `reasons`: why `complete` is False.
    `final`: the final read, by partition. `world`: the cluster and its clients, with what was observed of them.
    `say(detail, fault)` is called with timeline events; `fault`: number of the fault, None for none. `reading`: True to
    simulate readers even if no trigger or fault needs them. `wall_ns`: wall-clock time of its start, in ns since the
    Unix epoch."""

    def __init__(
        self,
        setting: Setting,
        case: Case,
        say: Say | None = None,
        *,
        reading: bool = False,
        wall_ns: int = 0,
    ) -> None:
        self.case = case
        self.world: World = make_world(setting, case, wall_ns)
        self._say = say
        self.schedule = Schedule(case, self.world, say)
        self.complete = False
        self.reasons: list[str] = []
        self.final: list[FinalPlace] = []
        self.load_began = -1
        """Virtual time in ns at which the load began, from which `at:` triggers count; -1 before."""
        self._reading = reading or any(
            (isinstance(fault.trigger, StateTrigger) and fault.trigger.condition.gauge == "read")
            or (isinstance(fault, ClientFault) and fault.client.kind == "reader")
            for fault in case.faults
        )

    def run(self) -> None:
        world, workload = self.world, self.case.experiment.workload
        self._phase("start")
        self._phase("load")
        if self._reading:
            for _ in range(workload.consumers.live):
                world.add_reader()
        for _ in range(workload.producers.count):
            world.add_producer().start()
        self._written = sorted({line.place for p in world.producers for line in p.lines})
        self._wait(self._first_acks, seconds(FIRST_ACKS_BOUND_S), self._go)
        world.clock.call_at(LIMIT_NS, self._stop)
        world.clock.run()

    def _stop(self) -> None:
        self.reasons.append("the simulated run came to no end within an hour")
        self.world.clock.over = True

    def _phase(self, name: str) -> None:
        if self._say is not None:
            self._say(PhaseBegan(phase=name), None)

    def _wait(self, done: Callable[[], bool], bound: int, then: Callable[[], None]) -> None:
        """Call `done` every 10 ms, and call `then` when `done` returns True or after `bound` ns."""
        self._look(done, self.world.clock.now + bound, then)

    def _look(self, done: Callable[[], bool], until: int, then: Callable[[], None]) -> None:
        if done() or self.world.clock.now >= until:
            then()
        else:
            self.world.clock.call_after(LOOK_NS, self._look, done, until, then)

    # -- load ---------------------------------------------------------------------------------------------------

    def _first_acks(self) -> bool:
        return not self.case.faults or all(self.world.acked_at.get(at) for at in self._written)

    def _go(self) -> None:
        self.load_began = self.world.clock.now
        self.schedule.start()
        self.world.clock.call_after(seconds(self.case.experiment.workload.duration), self._duration_over)

    def _duration_over(self) -> None:
        self._wait(
            lambda: not awaits_a_count(self.schedule.lives), seconds(COUNT_WITHIN_S), self._patience_over
        )

    def _patience_over(self) -> None:
        self.schedule.no_more_states()
        self._wait(lambda: not pending(self.schedule.lives), 600 * SECOND, self._heal)

    def _heal(self) -> None:
        self._phase("heal")
        self.schedule.heal_all()
        self._wait(lambda: self.schedule.over, 120 * SECOND, self._healed)

    def _healed(self) -> None:
        before = {at: self.world.acked_at.get(at, 0) for at in self._written}
        began = self.world.clock.now
        need = self.case.experiment.evidence.ack_after_healing

        def acks_continue() -> bool:
            return self.world.clock.now - began >= seconds(AFTER_HEALING_S) and (
                not need or all(self.world.acked_at.get(at, 0) > count for at, count in before.items())
            )

        self._wait(acks_continue, seconds(AFTER_HEALING_BOUND_S) if self.case.faults else 0, self._drain)

    def _drain(self) -> None:
        self._phase("drain")
        for producer in self.world.producers:
            producer.stopping = True
        bound = seconds(self.case.experiment.workload.producers.delivery_timeout) + FLUSH_MARGIN_NS
        self._wait(
            lambda: all(producer.idle or not producer.host.up for producer in self.world.producers),
            bound,
            self._drained,
        )

    def _drained(self) -> None:
        for producer in self.world.producers:
            if producer.host.up:
                producer.purge()
            producer.closed = True
        self._phase("read")
        bound = seconds(self.case.experiment.evidence.settle_timeout)
        # The wire may hold what acks=0 never waits for: it is at rest when two looks a second apart agree.
        self._rest: list[tuple[int, int]] = []
        self._settle(self.world.clock.now + bound)

    def _settle(self, until: int) -> None:
        ends = [self._end(at) for at in range(len(self.world.partitions))]
        unrest = [why for _, _, why in ends if why]
        now = [(epoch, end) for epoch, end, _ in ends]
        if not unrest and now == self._rest:
            self.complete = True
        elif self.world.clock.now < until:
            self._rest = [] if unrest else now
            self.world.clock.call_after(100 * MS if unrest else REST_NS, self._settle, until)
            return
        else:
            self.reasons += unrest or ["the cluster did not come to rest"]
        self._read()

    def _end(self, at: int) -> tuple[int, int, str]:
        partition = self.world.partitions[at]
        name = f"{partition.topic}/{partition.number}"
        state = partition.image.partition
        broker = partition.brokers.get(state.leader)
        wanted = self.case.experiment.evidence.isr_size or len(state.replicas)
        if broker is None or not isinstance(broker.process.role, Leader):
            return -1, -1, f"{name}: no answer from a leader"
        log = broker.log
        why = ""
        if len(state.isr) < wanted:
            why = f"{name}: ISR is {sorted(state.isr)}, {wanted} replicas are awaited"
        elif log.high_watermark != log.end:
            why = f"{name}: high watermark {log.high_watermark} and log end {log.end} differ"
        elif self.world.coordinator is not None and open_transactions(log):
            why = f"{name}: a transaction is open"
        return broker.process.role.epoch, log.end, why

    def _read(self) -> None:
        for at, partition in enumerate(self.world.partitions):
            epoch, _, why = self._end(at)
            log = partition.log(partition.image.partition.leader) if epoch >= 0 else None
            batches = () if log is None else tuple(b for b in log.batches if b.next <= log.high_watermark)
            self.final.append(
                FinalPlace(
                    epoch,
                    -1 if log is None else log.start,
                    -1 if log is None else log.high_watermark,
                    batches,
                    why,
                    frozenset(b.base for b in batches if log is not None and aborted(log, b)),
                )
            )
        self._phase("end")
        self.world.clock.over = True

    # -- what came of it ----------------------------------------------------------------------------------------

    def client_batch(self, at: int, batch: Batch) -> ClientBatch:
        return self.world.partitions[at].written[batch.producer, batch.producer_epoch, batch.sequence]

    @property
    def lives(self) -> list[Life]:
        return list(self.schedule.lives.values())
