"""What the replicas' logs on disk are at the end."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Final

from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Argument, Ask, Quantity, Value, Witness, total
from ackproof.rundir.bounds import Unit, Window
from ackproof.rundir.partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from ackproof.rundir.replicas import Replica

_COPY: Final = ("first_offset", "last_offset", "leader_epoch", "crc")
"""What copies of a batch share."""
_UNSEEN: Final = "nobody looked at the logs on disk"


def _replicas(evidence: Evidence, ask: Ask) -> Sequence[Replica]:
    """The replicas that are asked about; none where nobody looked."""
    every = () if evidence.replicas is None else evidence.replicas.replicas
    return [
        one
        for one in every
        if ask.place in (None, TopicPartition(one.topic, one.partition)) and ask.node in (None, one.node)
    ]


def _hole(evidence: Evidence, replicas: Iterable[Replica] = ()) -> str:
    """Name what was not seen of these logs; empty if nothing."""
    reasons = [*(evidence.replicas.reasons if evidence.replicas else (_UNSEEN,))]
    reasons += [
        f"the log of {one.topic}/{one.partition} on node {one.node}: {one.reason}"
        for one in replicas
        if one.reason
    ]
    return next(iter(reasons), "")


def _added(of: Callable[[Evidence, Replica], float], evidence: Evidence, ask: Ask, _: Window) -> Value:
    """Sum a number of each replica of the question."""
    if evidence.replicas is None:
        return Value.unknown(_UNSEEN)
    replicas = _replicas(evidence, ask)
    hole = _hole(evidence, replicas)
    values = [Value.exactly(of(evidence, one)) for one in replicas]
    return total([*values, Value(0, math.inf if hole else 0, hole)])


def _bytes(evidence: Evidence, replica: Replica) -> float:
    return float(sum(_batches(evidence, replica)["bytes"].to_pylist()) + replica.rest)


def _batches(evidence: Evidence, replica: Replica) -> pa.Table:
    return evidence.logs.of_replica(TopicPartition(replica.topic, replica.partition), replica.node)


def _in_log_dirs(pick: Callable[[Iterable[int]], int], evidence: Evidence, ask: Ask, _: Window) -> Value:
    """Count replicas over the log dirs that were looked at, empty ones too."""
    hole = _hole(evidence)
    if evidence.replicas is None or hole:
        return Value.unknown(hole)
    held = Counter((one.node, one.folder.rpartition("/")[0]) for one in _replicas(evidence, ask))
    dirs = [
        (node, path)
        for node, paths in evidence.replicas.log_dirs.items()
        if ask.node in (None, node)
        for path in paths
    ]
    return Value.exactly(pick([held[one] for one in dirs])) if dirs else Value.unknown(_UNSEEN)


def _differing(evidence: Evidence, ask: Ask, _: Window) -> Value:
    replicas = _replicas(evidence, ask)
    hole = _hole(evidence, replicas)
    if evidence.replicas is None or not replicas:
        return Value.unknown(hole or f"there is no log of {ask.place or 'any partition'}")
    alike: dict[TopicPartition, list[Replica]] = defaultdict(list)
    for one in replicas:
        alike[TopicPartition(one.topic, one.partition)].append(one)
    count = sum(len(set(_differing_batches(evidence, each))) for each in alike.values())
    return Value(count, math.inf, hole) if hole else Value.exactly(count)


def _differing_batches(evidence: Evidence, replicas: Sequence[Replica]) -> Iterator[tuple[int, ...]]:
    """Batches, as `_COPY` names them, that one log has and another has not, though both were there: of any two, so
    that a log that is short hides nothing of the others."""
    logs = []
    for one in replicas:
        table = _batches(evidence, one)
        logs.append((one, set(zip(*(table[name].to_pylist() for name in _COPY), strict=True))))
    for (one, mine), (other, theirs) in combinations(logs, 2):
        begin, end = max(one.log_start, other.log_start), min(one.log_end, other.log_end)
        yield from (row for row in mine ^ theirs if begin <= row[0] and row[1] < end)


_FOLDERS: Final = "observed/replicas.json"
_BATCHES: Final = "observed/replicas.parquet, observed/replicas.json"


def _logs_quantity(
    variant: str,
    definition: str,
    source: str,
    optional: tuple[Argument, ...],
    measure: Callable[[Evidence, Ask, Window], Value],
    unknown: str = "At least as many as were seen",
) -> Quantity:  # pragma: no mutate block, makes constants of the module
    return Quantity(
        name="logs",
        variant=variant,
        unit=Unit.COUNT,
        definition=definition,
        source=source,
        unknown=f"{unknown} where a log dir or a log could not be read; unknown where nobody looked.",
        optional=optional,
        needs=Witness.LOGS,
        takes_time=False,
        measure=measure,
    )


_BOTH: Final = (Argument.PLACE, Argument.NODE)
_WITHOUT: Final = "Without t/p, node N: of all partitions and brokers together."
QUANTITIES: Final = (
    _logs_quantity(
        "folders",
        f"How many replicas have a folder in a log dir. {_WITHOUT}",
        _FOLDERS,
        _BOTH,
        partial(_added, lambda _, __: 1.0),
    ),
    *(
        _logs_quantity(
            f"{word} in a log dir",
            f"How many replicas have a folder in the log dir that has the {word}. Without node N: of all brokers.",
            _FOLDERS,
            (Argument.NODE,),
            partial(_in_log_dirs, pick),
            "Unknown",
        )
        for word, pick in (("most", max), ("fewest", min))
    ),
    _logs_quantity(
        "records",
        f"How many records the logs hold. {_WITHOUT}",
        _FOLDERS,
        _BOTH,
        partial(_added, lambda _, replica: replica.records),
    ),
    _logs_quantity(
        "bytes",
        f"How many bytes the logs hold, indexes aside. {_WITHOUT}",
        _BATCHES,
        _BOTH,
        partial(_added, _bytes),
    ),
    _logs_quantity(
        "differing",
        "How many batches (offsets, leader epoch, checksum) one replica has and another has not, where both were not "
        "deleted yet and not yet at their end. Without t/p: of all partitions. Compaction and a log that is truncated "
        "make them differ, too.",
        _BATCHES,
        (Argument.PLACE,),
        _differing,
    ),
)
