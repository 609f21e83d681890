"""Simulates many seeds of one case, in this process, in several, or over Spark, and sums up; shrinks fault schedules.

`shrink` searches for a few of the case's faults that suffice for a finding. Spark's workers get the case as JSON and
their seeds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from pydantic import JsonValue

from ackproof.base.errors import AckproofError
from ackproof.base.units import duration_text
from ackproof.experiment.case import Case
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.triggers import ChainTrigger, TimeTrigger
from ackproof.faults.storm import Storm
from ackproof.plan.cases import case_from_json, case_to_json, reseeded
from ackproof.plan.check_faults import lacks
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import ShrunkSchedule, SimulationFile, WorstSeed
from ackproof_model.predict import answers
from ackproof_simulator.clock import SECOND
from ackproof_simulator.counts import QUANTITIES, Counts, counts_of, elected, spread
from ackproof_simulator.producers import FULL_RATE
from ackproof_simulator.run import Simulation, setting_of
from ackproof_simulator.world import Setting

BATCHES: Final = 100
"""Approximate number of batches per run, unless an option sets it."""
CHUNK: Final = 25
"""Number of seeds in one task of a worker process."""
WORST: Final = 3
SHRINK_BY: Final = ("lost", "duplicate")
RUNS: Final = 60
WITHIN_S: Final = 1.5
"""Time limit in seconds for the simulation that accompanies a run on real brokers."""
FEW: Final = 50
"""Up to this number of seeds run in this process, because starting other processes takes longer."""

Progress = Callable[[int, int], None]
"""Called with the number of seeds that have been simulated so far, and the number of all seeds."""
Mapper = Callable[[JsonValue, Sequence[Sequence[int]]], Iterable[Sequence[Counts]]]
"""Runs a case, given as JSON, with chunks of seeds; yields the counts of the runs of each chunk, in any order."""


def linger_for(spec: ExperimentSpec, batches: int) -> float:
    """Return the linger in seconds with which a run has about `batches` batches, of all producers and partitions
    together. It is at least the linger of the experiment. A run with fewer batches is simulated faster."""
    producers, load = spec.workload.producers, spec.workload.duration
    topics = [spec.topics[name] for name in spec.topic_names()]
    lines = producers.count * sum(topic.partitions for topic in topics)
    return max(producers.linger, round(load * lines / batches, 3))


def with_linger(case: Case, seconds: float) -> Case:
    """Return the case on backend `model`, with a linger of `seconds`."""
    spec = case.experiment
    producers = spec.workload.producers.model_copy(update={"linger": seconds})
    workload = spec.workload.model_copy(update={"producers": producers})
    return replace(case, experiment=spec.model_copy(update={"workload": workload, "backend": "model"}))


def runs_of(case: Case, seeds: Iterable[int]) -> Iterator[Counts]:
    """Simulate a case at each seed in this process, and yield the counts of each run in the order of the
    seeds.
    """
    setting = setting_of(case)
    return (_simulated(setting, reseeded(case, seed), seed)[1] for seed in seeds)


def _simulated(setting: Setting, case: Case, seed: int) -> tuple[Simulation, Counts]:
    simulation = Simulation(setting, case)
    simulation.run()
    return simulation, counts_of(simulation, seed)


def _chunk_of(resolved: JsonValue, seeds: Sequence[int]) -> list[Counts]:
    """Simulate the case at these seeds, and return the counts of each run. `resolved`: the case as JSON. Worker
    processes call this function."""
    return list(runs_of(case_from_json(resolved), seeds))


def in_processes(resolved: JsonValue, chunks: Sequence[Sequence[int]]) -> Iterator[Sequence[Counts]]:
    """Run chunks of seeds in parallel, in one process per core, and yield each chunk's counts as it finishes, in any
    order. `resolved`: the case as JSON."""
    for _, done in answers.in_processes(partial(_chunk_of, resolved), chunks):
        yield done


def sweep(
    case: Case,
    seeds: range,
    command: Callable[[int], str],
    mapper: Mapper | None,
    progress: Progress,
    *,
    shrinks: bool = True,
) -> SimulationFile:
    """Simulate every seed, and return the distribution of each quantity over the runs that are complete and whose
    faults were all confirmed.

    `command` returns the command line that repeats a seed. `mapper(case as JSON, chunks of seeds)` runs the seeds
    elsewhere and yields the counts of each chunk; None: all run in this process. `progress(done, total)` is called from
    time to time. `shrinks`: also search for a few faults with which the worst seed still loses or duplicates records
    (`shrink`)."""
    began = time.monotonic()
    runs: list[Counts] = []
    if mapper is None:
        for one in runs_of(case, seeds):
            runs.append(one)
            if len(runs) % CHUNK == 0:
                progress(len(runs), len(seeds))
    else:
        chunks = [list(seeds[at : at + CHUNK]) for at in range(0, len(seeds), CHUNK)]
        for found in mapper(case_to_json(case), chunks):
            runs.extend(found)
            progress(len(runs), len(seeds))
    runs.sort(key=lambda one: one.seed)
    worst = _worst([one for one in runs if _good(one)], command)
    found_by = next((one for one in worst if one.what in SHRINK_BY), None)
    shrunk = None
    if shrinks and found_by is not None and case.faults:
        shrunk = shrink(reseeded(case, found_by.seed), found_by.seed, found_by.what)
    return _summed(case, runs, began, first_seed=seeds.start, worst=worst, shrunk=shrunk)


def simulate_beside(run: CaseDir) -> None:
    """Simulate the case of a run that was made elsewhere, 1 to 60 times in about 1.5 s, and write `simulation.json` for
    the report.

    No verdict depends on it. Write nothing if the model cannot simulate the case, or if the run used a cluster that
    someone else runs. Raises `BadInput` for a missing or broken `case.json`.
    """
    case = case_from_json(CaseFile.load(run.case_json).resolved)
    if case.experiment.ground.foreign or lacks(case.experiment) is not None:
        return
    began = time.monotonic()
    coarse = with_linger(case, linger_for(case.experiment, BATCHES))
    setting = setting_of(coarse)
    found: list[Counts] = []
    for number in range(RUNS):
        if found and time.monotonic() - began > WITHIN_S:
            break
        found.append(_simulated(setting, replace(coarse, seed=coarse.seed + number), number)[1])
    _summed(coarse, found, began).save(run.simulation_json)


def _good(run: Counts) -> bool:
    return run.complete and run.faults_confirmed


def _summed(
    case: Case,
    runs: Sequence[Counts],
    began: float,
    *,
    first_seed: int = 0,
    worst: tuple[WorstSeed, ...] = (),
    shrunk: ShrunkSchedule | None = None,
) -> SimulationFile:
    good, producers = [one for one in runs if _good(one)], case.experiment.workload.producers
    return SimulationFile(
        case=case.id,
        settings=case.settings,
        runs=len(runs),
        incomplete=len(runs) - len(good),
        first_seed=first_seed,
        linger_ms=producers.linger * 1000,
        # Counts are no more exact than the records that all producers together gather in one linger.
        coarseness=(FULL_RATE if producers.rate is None else producers.rate) * producers.linger,
        seconds=time.monotonic() - began,
        spreads=tuple(spread(name, good) for name in QUANTITIES),
        elected=elected(good),
        worst=worst,
        shrunk=shrunk,
    )


def _worst(runs: Sequence[Counts], command: Callable[[int], str]) -> tuple[WorstSeed, ...]:
    found = []
    for what in ("lost", "duplicate", "unavailable_ms"):
        ranked = sorted(runs, key=lambda one: (-getattr(one, what), one.seed))[:WORST]
        found += [
            WorstSeed(seed=one.seed, what=what, value=getattr(one, what), command=command(one.seed))
            for one in ranked
            if getattr(one, what) > 0
        ]
    return tuple(found)


@contextmanager
def over_spark(master: str | None) -> Iterator[Mapper]:
    """Start a Spark context, and yield a function that runs simulations on it. The context ends with the block,
    unless this process had one before.

    The function takes a case as JSON and chunks of seeds, and yields the counts of the runs of each chunk.
    `master`: URL; None for a local master. `ackproof` must be installed on the workers. Raises `MissingTool` without
    Java, `AuditFailed` if Spark does not start.
    """
    from ackproof.spark.session import SparkTarget, spark_context

    with spark_context(SparkTarget(master), lambda _: None) as context:

        def mapper(resolved: JsonValue, chunks: Sequence[Sequence[int]]) -> Iterator[Sequence[Counts]]:
            # One round of as many chunks as there are cores at a time: progress can be shown, and Ctrl-C ends it soon.
            width = max(1, context.defaultParallelism) * 4
            for at in range(0, len(chunks), width):
                rows = context.parallelize(chunks[at : at + width], len(chunks[at : at + width]))
                yield from rows.map(partial(_chunk_of, resolved)).collect()

        yield mapper


# -- shrinking a schedule: delta debugging over its faults (Zeller 1999) ---------------------------------------------

TRIES = 200


def fewest(faults: Sequence[FaultSpec], shows: Callable[[Sequence[FaultSpec]], bool]) -> list[FaultSpec]:
    """Return a subset of the faults for which `shows` is True, and of which no single fault can be left out
    (delta debugging, Zeller 1999). It has at least one fault.

    `shows` must be True for all `faults`.
    """
    kept, parts = list(faults), 2
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        chunks = [kept[at : at + size] for at in range(0, len(kept), size)]
        for chunk in chunks:
            rest = [fault for fault in kept if fault not in chunk]
            if rest and shows(rest):
                kept, parts = rest, max(parts - 1, 2)
                break
        else:
            if parts >= len(kept):
                return kept
            parts = min(parts * 2, len(kept))
    return kept


def shrink(case: Case, seed: int, what: str) -> ShrunkSchedule | None:
    """Search for few faults of a case with which a run still shows a finding. `what`: the finding, a quantity of
    `Counts`, which a run shows if its value is above 0. `seed`: the seed of `case`, for the result.

    Return the smallest set of faults that was found (delta debugging). It has all faults that began if no smaller set
    shows the finding. None if the case itself does not show it, or none of its faults began. About 200 schedules are
    simulated at most."""
    setting = setting_of(case)
    first, counted = _simulated(setting, case, seed)
    value = getattr(counted, what)
    start = max(first.load_began, 0)
    begun = {life.number: life.asked_ns for life in first.lives if life.asked_ns is not None}
    faults = [fault for fault in case.faults if not isinstance(fault, Storm) and fault.number in begun]
    if value <= 0 or not faults:
        return None
    tries = 0

    def run(chosen: Sequence[FaultSpec]) -> Counts | None:
        nonlocal tries
        tries += 1
        simulation = Simulation(setting, _with_faults(case, chosen, begun, start))
        try:
            simulation.run()
        except AckproofError:
            return None
        return counts_of(simulation, seed)

    def shows(chosen: Sequence[FaultSpec]) -> bool:
        if tries >= TRIES:
            return False
        found = run(chosen)
        return found is not None and found.complete and getattr(found, what) > 0

    kept = fewest(faults, shows) if shows(faults) else faults
    last = run(kept)
    pinned = _with_faults(case, kept, begun, start).faults
    return ShrunkSchedule(
        seed=seed,
        what=what,
        value=value if last is None else getattr(last, what),
        faults=tuple(f"{fault}: {_when(fault)}" for fault in pinned),
        before=len(faults),
        runs=tries,
    )


def _with_faults(case: Case, chosen: Sequence[FaultSpec], begun: dict[int, int], start: int) -> Case:
    numbers = {fault.number for fault in chosen}
    faults = tuple(
        fault.model_copy(update={"trigger": TimeTrigger(round((begun[fault.number] - start) / SECOND, 3))})
        if isinstance(fault.trigger, ChainTrigger) and fault.trigger.fault not in numbers
        else fault
        for fault in chosen
    )
    experiment = case.experiment.model_copy(update={"faults": faults})
    return replace(case, experiment=experiment, drawn={})


def _when(fault: FaultSpec) -> str:
    held = "" if fault.hold is None else f", {fault.HEALING} {duration_text(fault.hold)} later"
    return f"{fault.trigger}{held}"
