"""Result of one simulated run in numbers, without a ledger; and of many runs, with their uncertainty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final

import numpy as np

from ackproof.faults.life import Stage
from ackproof.rundir.model import FirstLeader, SimulatedSpread
from ackproof.rundir.outcome import Outcome, TxnOutcome
from ackproof_reference.log import DATA
from ackproof_simulator.clock import MS
from ackproof_simulator.producers import ClientBatch, Producer
from ackproof_simulator.run import Simulation
from ackproof_simulator.transactional import TransactionalProducer
from ackproof_simulator.world import World


@dataclass(frozen=True)
class Counts:
    """Counted records and times in ms (-1: the event did not happen) of one simulated run.

    `complete`: all logs were at rest and replicated before the final read (`Simulation.complete`). `faults_confirmed`:
    every fault took effect and healed; faults that a storm drew may have had no effect. `acked`: acknowledged records.
    `lost`: acknowledged records that the final read lacks; those of a transaction count only if its commit was
    acknowledged. `duplicate`: surplus copies in the final read. `surfaced`: records in the final read that were neither
    acknowledged nor failed.

    `unavailable_ms`: longest time between two successive acknowledgements of a partition; 0 with fewer than two. The
    other times count from the first fault: `new_leader_ms` until a partition first got a leader in place of another one
    or of none; `shrink_ms` until an ISR first shrank; `full_isr_ms` until an ISR last became full again (-1 if another
    ISR was not full then)."""

    seed: int
    complete: bool
    faults_confirmed: bool
    acked: int
    lost: int
    duplicate: int
    surfaced: int
    unavailable_ms: float
    new_leader_ms: float
    shrink_ms: float
    full_isr_ms: float
    leader: int
    """Broker that became leader at `new_leader_ms`; -1 if no partition got a new leader."""


def counts_of(simulation: Simulation, seed: int) -> Counts:
    """Compare the final logs of a finished simulation with the acknowledged records; return the counts. `seed`: seed of
    the run, which the result names."""
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
    """Return True if the commit of a batch's transaction was acknowledged; False without transactions."""
    if not isinstance(producer, TransactionalProducer):
        return False
    return producer.txns[batch.txn].outcome is TxnOutcome.COMMITTED


QUANTITIES: Final = (
    "lost",
    "duplicate",
    "surfaced",
    "unavailable_ms",
    "new_leader_ms",
    "shrink_ms",
    "full_isr_ms",
)
RESAMPLES: Final = 1000
Z: Final = 1.959963985
"""Quantile of the normal distribution for two-sided 95 % intervals."""


def wilson(seen: int, runs: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of the share `seen / runs` (Wilson 1927); (0, 1) without any run."""
    if runs == 0:
        return 0.0, 1.0
    share, square = seen / runs, Z * Z
    middle = (share + square / (2 * runs)) / (1 + square / runs)
    half = Z * sqrt(share * (1 - share) / runs + square / (4 * runs * runs)) / (1 + square / runs)
    return max(0.0, middle - half), min(1.0, middle + half)


def bootstrap(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean of `values` (at least one), from resamples with a fixed seed; of
    a single value, that value twice.
    """
    found = np.asarray(values, np.float64)
    random = np.random.default_rng(0)
    means = [float(found[random.integers(0, len(found), len(found))].mean()) for _ in range(RESAMPLES)]
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def spread(name: str, runs: Sequence[Counts]) -> SimulatedSpread:
    """Return the distribution of one of `QUANTITIES` over the runs in which it is known (not -1). Without such a run
    all values are -1, and the interval of the share of runs with a value above 0 is (0, 1)."""
    values = [value for one in runs if (value := float(getattr(one, name))) >= 0]
    seen = sum(value > 0 for value in values)
    low, high = wilson(seen, len(values))
    if not values:
        nothing = dict.fromkeys(("least", "p05", "p50", "p95", "most", "mean", "mean_low", "mean_high"), -1.0)
        return SimulatedSpread(name=name, runs=0, seen=0, share_low=low, share_high=high, **nothing)
    p05, p50, p95 = (float(value) for value in np.quantile(values, [0.05, 0.5, 0.95]))
    mean_low, mean_high = bootstrap(values)
    return SimulatedSpread(
        name=name,
        runs=len(values),
        seen=seen,
        least=min(values),
        p05=p05,
        p50=p50,
        p95=p95,
        most=max(values),
        mean=float(np.mean(values)),
        mean_low=mean_low,
        mean_high=mean_high,
        share_low=low,
        share_high=high,
    )


def elected(runs: Sequence[Counts]) -> tuple[FirstLeader, ...]:
    """Return in how many runs each broker became the first new leader, the most frequent first. Runs without a new
    leader are left out."""
    count = Counter(one.leader for one in runs if one.leader >= 0)
    return tuple(FirstLeader(leader=leader, runs=number) for leader, number in count.most_common())
