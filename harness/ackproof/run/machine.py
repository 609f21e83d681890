"""Limits of this machine, checked after planning and before running.

An experiment file means the same on every machine: `plan`, `validate` and every random draw ignore the machine. This
module finds the faults that this machine cannot inject, before anything is started. Such a fault is marked as missed if
a storm without a `menu` (the user's choice of fault kinds) drew it, and refused otherwise.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from ackproof.base.environment import free_space
from ackproof.base.errors import AckproofError, BadInput
from ackproof.experiment.backends import Need
from ackproof.experiment.case import Case
from ackproof.experiment.problems import InvalidExperiment
from ackproof.faults.life import UNABLE
from ackproof.faults.storm import Storm
from ackproof.plan.diagnostics import Problems
from ackproof.plan.source import lines_of, parse, read
from ackproof.rundir.timeline import DRAWN_FROM, fault_name


@cache
def find_lack(need: Need, backend: str) -> str:
    """Return why this machine cannot provide what faults need (`need`, such as file systems of their own for the nodes'
    data) on this backend; '' if it can."""
    try:
        from ackproof.cluster.doctor import describe_means

        describe_means(need, containers=backend == "docker")
    except BadInput as error:
        return str(error)
    return ""


def _find_lacks(case: Case) -> dict[int, str]:
    """Return the faults of the case that this machine cannot inject: the reason by fault number. Empty on backends
    that start no nodes of their own."""
    if not case.experiment.ground.prepares:
        return {}
    backend = case.experiment.backend
    lacks = {
        fault.number: next(filter(None, (find_lack(need, backend) for need in sorted(fault.needs))), "")
        for fault in case.faults
    }
    return {number: why for number, why in lacks.items() if why}


def mark_missed(case: Case) -> Case:
    """Return the case with marks on faults that this machine cannot inject. A marked fault counts as missed and is not
    injected.

    Only faults that a storm (an entry with random faults) drew from all fault kinds are marked. Other faults stay
    unmarked, because the file requires them: those that it names, and those of a storm with a `menu` (kinds that the
    user chose). `fit_to_machine` refuses them. Marks of a stored case stay, so that its replay is the same run on a
    machine that can inject more.
    """
    return _mark(case, _find_lacks(case))


def _mark(case: Case, lacks: Mapping[int, str]) -> Case:
    drawn = {
        storm.number: replace(
            case.drawn[storm.number],
            unable=dict(case.drawn[storm.number].unable)
            | {
                fault.number: lacks[fault.number]
                for fault in case.drawn[storm.number].faults
                if fault.number in lacks
            },
        )
        for storm in case.experiment.faults
        if isinstance(storm, Storm) and storm.menu is None and storm.number in case.drawn
    }
    return replace(case, drawn={**case.drawn, **drawn})


def fit_to_machine(cases: Sequence[tuple[Path, Case]]) -> list[tuple[Path, Case]]:
    """Return the cases, each with its file, and with marks on faults that this machine cannot inject (`mark_missed`).

    Raises `BadInput` if such a fault may not be marked. The message names the file of each of these faults, and its
    line if the file is an experiment. Also raises `BadInput` if a user's program for producers or readers is not found.
    """
    for file, case in cases:
        _find_programs(file, case)
    marked: list[tuple[Path, Case]] = []
    refusals: dict[Path, dict[str, int]] = {}
    for file, planned in cases:
        lacks = _find_lacks(planned)
        case = _mark(planned, lacks)
        marked.append((file, case))
        faults = {fault.number: fault for fault in case.faults}
        for number, why in lacks.items():
            if number not in case.unable:
                text = f"fault {fault_name(number)} ({faults[number]}) is {UNABLE}: {why}"
                refusals.setdefault(file, {})[text] = number // DRAWN_FROM or number
    if refusals:
        raise BadInput("\n".join(_refusal_text(file, texts) for file, texts in refusals.items()))
    return marked


def _find_programs(file: Path, case: Case) -> None:
    workload = case.experiment.workload
    for side, client in (("producers", workload.producers.client), ("consumers", workload.consumers.client)):
        if client.command and shutil.which(client.command[0]) is None:
            where = f"from {Path.cwd()}" if "/" in client.command[0] else "on PATH"
            raise BadInput(f"{file}: workload.{side}.client: no program {client.command[0]} is found {where}")


def _refusal_text(file: Path, numbers: dict[str, int]) -> str:
    """Return the message about faults that cannot be injected: one line for each, with file and line if the case comes
    from an experiment file.

    `numbers`: text about the fault → number of its entry in the file; for a fault that a storm drew, that of the storm.
    """
    if not file.is_file():
        return "\n".join(f"{file}: {text}" for text in numbers)  # a run on disk
    name, raw = read(file)
    document = Problems(name, parse(raw, name))
    error = InvalidExperiment(
        document.problem(("faults", number - 1), text) for text, number in numbers.items()
    )
    error.lines = lines_of(raw)
    return str(error)


def describe_limits(cases: Iterable[Case]) -> Iterator[str]:
    """Yield a line of text for each reason why this machine cannot inject faults of these cases, with the
    number of faults concerned."""
    lacks = [why for case in cases for why in _find_lacks(case).values()]
    for why in dict.fromkeys(lacks):
        count = "1 fault" if lacks.count(why) == 1 else f"{lacks.count(why)} faults"
        yield f"note: {UNABLE}, {count}: {why}"


RESERVE: Final = 256 << 20
"""Bytes. A run ends if less disk space is free, so that its last events can still be written."""
_NODE: Final = 24 << 20
"""Bytes of a node before its first record: logs, metadata, unpacked libraries."""
_RECORD: Final = 70
"""Bytes that Kafka adds to a record's value in a small batch: headers, timestamps, its share of the batch header."""
_ROW: Final = 20
"""Bytes of one record in the ledgers: a produced row and a consumed row, in columns."""


def disk_space_needed(cases: Sequence[Case]) -> int:
    """Return the approximate disk space, in bytes, that these cases need, run one after the other. 0 if all are
    simulated or run on a cluster that ackproof did not start.

    It is a lower bound for producers without a rate, because their number of records is unknown.
    """
    own = [case for case in cases if not (case.experiment.ground.simulated or case.experiment.ground.foreign)]
    logs = max((_logs(case) for case in own), default=0)
    return logs + sum(round(_records(case) * _ROW) for case in own) + (RESERVE if own else 0)


def _records(case: Case) -> float:
    workload = case.experiment.workload
    return (workload.producers.rate or 0.0) * workload.duration


def _logs(case: Case) -> int:
    cluster, topics = case.experiment.cluster, case.experiment.topics.values()
    copies = max((topic.replication_factor for topic in topics), default=1)
    record = case.experiment.workload.producers.value_size + _RECORD
    nodes = len({*cluster.broker_ids, *cluster.controller_ids})
    filled = cluster.disk if Need.DISKS in case.needs else 0  # a fault may fill the whole disk of a node
    return nodes * _NODE + round(_records(case) * record * copies) + filled


def require_room(out: Path, cases: Sequence[Case]) -> None:
    """Raise `BadInput` if the file system of `out` has too little free space for these cases."""
    free, wanted = free_space(out), disk_space_needed(cases)
    if free < wanted:
        raise BadInput(
            f"{out}: about {_mb(wanted)} are needed and {_mb(free)} are free. Name another place with --out, or lower "
            "the rate or the duration"
        )


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def check_room(folder: Path) -> None:
    """Raise `AckproofError` if the file system of `folder` has less than `RESERVE` bytes free."""
    free = free_space(folder)
    if free < RESERVE:
        raise AckproofError(
            f"the disk of {folder} is nearly full ({_mb(free)} left): the run was ended early"
        )
