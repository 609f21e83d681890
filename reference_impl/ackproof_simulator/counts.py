"""What one simulated run came to, in numbers, without a ledger."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ackproof.faults.life import Stage
from ackproof.rundir.outcome import Outcome, TxnOutcome
from ackproof_reference.log import DATA
from ackproof_simulator.clock import MS
from ackproof_simulator.producers import ClientBatch, Producer
from ackproof_simulator.run import Simulation
from ackproof_simulator.transactional import TransactionalProducer
from ackproof_simulator.world import World


@dataclass(frozen=True)
class Counts:
    """Records, and times in ms (-1: it did not come to that). Lost, duplicates and surfaced as the audit counts them.

    `unavailable_ms`: the longest time between two acks of a partition. The others count from the first fault:
    `new_leader_ms` until a partition had another leader, `shrink_ms` until an ISR first shrank, `full_isr_ms` until
    all of them were full again for the last time.
    """

    seed: int
    complete: bool
    faults_bit: bool
    acked: int
    lost: int
    duplicate: int
    surfaced: int
    unavailable_ms: float
    new_leader_ms: float
    shrink_ms: float
    full_isr_ms: float
    leader: int
    """The first leader after the first change, -1 none."""


def counts_of(simulation: Simulation, seed: int) -> Counts:
    """Count what is in the final logs against what was acknowledged."""
    world = simulation.world
    copies: Counter[int] = Counter()
    for at, place in enumerate(simulation.final):
        data = (batch for batch in place.batches if batch.kind == DATA)
        copies.update(id(simulation.client_batch(at, batch)) for batch in data)
    acked = lost = duplicate = surfaced = 0
    for producer in world.producers:
        for batch in producer.batches:
            there = copies[id(batch)]
            if batch.outcome is Outcome.ACKED and batch.txn >= 0 and not committed(producer, batch):
                acked += batch.count  # may be there or not: what is promised, the commit's answer promises
            elif batch.outcome is Outcome.ACKED:
                acked += batch.count
                lost += 0 if there else batch.count
            elif there and batch.outcome is not Outcome.FAILED:
                surfaced += batch.count
            if there > 1:
                duplicate += (there - 1) * batch.count
    bit = all(life.stage in (Stage.RECOVERED, Stage.MISSED) for life in simulation.lives)
    return Counts(
        seed,
        simulation.complete,
        bit,
        acked,
        lost,
        duplicate,
        surfaced,
        max(world.gaps.values(), default=0) / MS,
        *_times(simulation, world),
    )


def _times(simulation: Simulation, world: World) -> tuple[float, float, float, int]:
    begun = [life.asked_ns for life in simulation.lives if life.asked_ns is not None]
    if not begun:
        return -1, -1, -1, -1
    first = min(begun)
    leader = shrink = full = -1.0
    who = -1
    short: set[int] = set()
    for change in world.changes:
        new, old = change.image, change.before
        since = (change.at_ns - first) / MS
        if leader < 0 and new.leader >= 0 and new.leader != old.leader:
            leader, who = since, new.leader
        if len(new.isr) < len(old.isr) and shrink < 0:
            shrink = since
        if len(new.isr) < len(new.replicas):
            short.add(change.place)
        elif change.place in short:
            short.discard(change.place)
            full = since if not short else -1.0
    return leader, shrink, full, who


def committed(producer: Producer, batch: ClientBatch) -> bool:
    """Whether the commit of a batch's transaction was acknowledged."""
    if not isinstance(producer, TransactionalProducer):
        return False
    return producer.txns[batch.txn].outcome is TxnOutcome.COMMITTED
