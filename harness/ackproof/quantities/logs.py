"""Quantities of the replicas' logs on disk at the end of a run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Final

from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Argument, Ask, Quantity, Unknown, Value, Witness
from ackproof.rundir.bounds import Unit, Window
from ackproof.rundir.partition import TopicPartition

if TYPE_CHECKING:
    from ackproof.rundir.replicas import Replica

_UNSEEN: Final = "nobody looked at the logs on disk"


def _replicas(evidence: Evidence, ask: Ask) -> Sequence[Replica]:
    """Return the replicas on disk that the question is about; empty if the run did not read the logs."""
    every = () if evidence.replicas is None else evidence.replicas.replicas
    return [one for one in every if ask.place in (None, one.place) and ask.node in (None, one.node)]


def _hole(evidence: Evidence, replicas: Iterable[Replica] = ()) -> str:
    """Return in words the first thing that is missing from the logs that were read, or from these replicas' logs; '' if
    nothing is."""
    reasons = [*(evidence.replicas.reasons if evidence.replicas else (_UNSEEN,))]
    reasons += [f"the log of {one.place} on node {one.node}: {one.reason}" for one in replicas if one.reason]
    return next(iter(reasons), "")


def _added(of: Callable[[Evidence, Replica], float], evidence: Evidence, ask: Ask, _: Window) -> Value:
    if evidence.replicas is None:
        raise Unknown(_UNSEEN)
    replicas = _replicas(evidence, ask)
    return Value.at_least(sum(of(evidence, one) for one in replicas), _hole(evidence, replicas))


def _bytes(evidence: Evidence, replica: Replica) -> float:
    batches = evidence.logs.of_replica(replica.place, replica.node)
    return float(sum(batches["bytes"].to_pylist()) + replica.rest)


def _in_log_dirs(pick: Callable[[Iterable[int]], int], evidence: Evidence, ask: Ask, _: Window) -> Value:
    """Return `pick` (such as `max`) of the numbers of replicas in each log dir; empty log dirs count too. Raises
    `Unknown` if the logs were not read completely."""
    hole = _hole(evidence)
    if evidence.replicas is None or hole:
        raise Unknown(hole)
    held = Counter((one.node, one.folder.rpartition("/")[0]) for one in _replicas(evidence, ask))
    counts = [
        held[node, path]
        for node, paths in evidence.replicas.log_dirs.items()
        if ask.node in (None, node)
        for path in paths
    ]
    if not counts:
        raise Unknown(_UNSEEN)
    return Value.exactly(pick(counts))


def _differing(evidence: Evidence, ask: Ask, _: Window) -> Value:
    replicas = _replicas(evidence, ask)
    hole = _hole(evidence, replicas)
    if evidence.replicas is None or not replicas:
        raise Unknown(hole or f"there is no log of {ask.place or 'any partition'}")
    alike: dict[TopicPartition, list[Replica]] = defaultdict(list)
    for one in replicas:
        alike[one.place].append(one)
    count = sum(len(set(_differing_batches(evidence, each))) for each in alike.values())
    return Value.at_least(count, hole)


def _differing_batches(evidence: Evidence, replicas: Sequence[Replica]) -> Iterator[tuple[int, ...]]:
    """Yield the batches (`LogBatches.copies`) that one log has and another lacks, within the offsets of both; maybe
    several times.

    All pairs of logs are compared, so that a short log hides no differences between the others.
    """
    logs = [(one, evidence.logs.copies(one.place, one.node)) for one in replicas]
    for (one, mine), (other, theirs) in combinations(logs, 2):
        begin, end = max(one.log_start, other.log_start), min(one.log_end, other.log_end)
        yield from (row for row in mine ^ theirs if begin <= row[0] and row[1] < end)


_FOLDERS: Final = "observed/replicas.json"
_BATCHES: Final = "observed/replicas.parquet, observed/replicas.json"


_UNREADABLE: Final = "where a log dir or a log could not be read; unknown where nobody looked."
_count = partial(
    Quantity,
    name="logs",
    unit=Unit.COUNT,
    unknown=f"At least as many as were seen {_UNREADABLE}",
    needs=Witness.LOGS,
    takes_time=False,
)
_BOTH: Final = (Argument.PLACE, Argument.NODE)
_WITHOUT: Final = "Without t/p, node N: of all partitions and brokers together."
QUANTITIES: Final = (
    _count(
        variant="folders",
        definition=f"How many replicas have a folder in a log dir. {_WITHOUT}",
        source=_FOLDERS,
        optional=_BOTH,
        measure=partial(_added, lambda _, __: 1.0),
    ),
    *(
        _count(
            variant=f"{word} in a log dir",
            definition=f"How many replicas have a folder in the log dir that has the {word}. Without node N: of all "
            "brokers.",
            source=_FOLDERS,
            unknown=f"Unknown {_UNREADABLE}",
            optional=(Argument.NODE,),
            measure=partial(_in_log_dirs, pick),
        )
        for word, pick in (("most", max), ("fewest", min))
    ),
    _count(
        variant="records",
        definition=f"How many records the logs hold. {_WITHOUT}",
        source=_FOLDERS,
        optional=_BOTH,
        measure=partial(_added, lambda _, replica: replica.records),
    ),
    _count(
        variant="bytes",
        definition=f"How many bytes the logs hold, indexes aside. {_WITHOUT}",
        source=_BATCHES,
        optional=_BOTH,
        measure=partial(_added, _bytes),
    ),
    _count(
        variant="differing",
        definition="How many batches (offsets, leader epoch, checksum) one replica has and another has not, where both "
        "were not deleted yet and not yet at their end. Without t/p: of all partitions. Compaction and a log that is "
        "truncated make them differ, too.",
        source=_BATCHES,
        optional=(Argument.PLACE,),
        measure=_differing,
    ),
)
