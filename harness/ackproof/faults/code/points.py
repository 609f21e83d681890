"""Points in the code of Kafka's nodes. A named point has a class and a method for each line of releases. Other points
are given in a file, by class and method.

`python -m ackproof.faults.code.points` prints the table of `docs/faults.md`. A test checks each binding with the jars
of its line (Byteman's TestScript).
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from ackproof.experiment.base import Spec, matching
from ackproof.experiment.kafka import KafkaBuild, numbers
from ackproof.provision.class_files import MissingName, find_missing_name
from ackproof.provision.jars import cached_classpath

FIRST_LINE: Final = "3.9"
"""First line of releases whose code is known here. Later lines than the last known one are taken to be like it."""
NodeSide = Literal["broker", "controller"]


@dataclass(frozen=True)
class CodePlace:
    """A place in a method, as Byteman names it.

    `at`: a location, such as `EXIT`, `INVOKE UnifiedLog.flush` or `AFTER INVOKE renameDir 1`. `when`: a condition.
    `partition`: an expression for the partition that a pass concerns, as `topic-N`, or for its topic; empty if it
    concerns none. `bind`: variables that these expressions use.
    """

    class_name: str
    method: str
    at: str = "ENTRY"
    when: str = "TRUE"
    partition: str = ""
    bind: str = ""


@dataclass(frozen=True)
class CodePoint:
    """A named point of Kafka's code. `meaning` completes the sentence "a thread is …". `places`: first line
    of releases → class and method from this line on. `side`: kind of node that passes it. `in_zookeeper`:
    class and method in ZooKeeper mode if they differ."""

    name: str
    meaning: str
    places: Mapping[str, CodePlace]
    side: NodeSide = "broker"
    in_zookeeper: CodePlace | None = None

    def place(self, version: str, mode: str = "kraft") -> CodePlace | None:
        """Return class and method of the point in a Kafka release and metadata mode (`kraft` or `zookeeper`). None if
        the release is not known to have the point."""
        line = numbers(version)[:2]
        if mode == "zookeeper" and self.in_zookeeper is not None:
            return self.in_zookeeper if line >= numbers(FIRST_LINE) else None
        fitting = [since for since in self.places if numbers(since) <= line]
        return self.places[max(fitting, key=numbers)] if fitting else None

    @property
    def since(self) -> str:
        """Return the first line of releases in which the point is known, such as `3.9`."""
        return min(self.places, key=numbers)


_STORAGE: Final = "org.apache.kafka.storage.internals.log"
_PARTITION: Final = "kafka.cluster.Partition"
_REQUEST: Final = "org.apache.kafka.common.message.AlterPartitionRequestData"
_OWN: Final = "$0.topicPartition().toString()"
_IN_FOLDER: Final = "{}.getParentFile().getName()"


def _in_log(method: str, at: str, when: str = "TRUE", *, newer: str = "") -> dict[str, CodePlace]:
    """Return the places of a method of UnifiedLog, which is in another package from 4.1 on. `at`, `when`: as in
    `CodePlace`. `newer`: the method's name from 4.1 on; '': the same."""
    return {
        "3.9": CodePlace("kafka.log.UnifiedLog", method, at, when, _OWN),
        "4.1": CodePlace(f"{_STORAGE}.UnifiedLog", newer or method, at, when, _OWN),
    }


def _fetched(data: str) -> CodePlace:
    when = f"$1.isFromFollower() && $!.{data}.records.sizeInBytes() > 0"
    return CodePlace(_PARTITION, "fetchRecords", "EXIT", when, _OWN)


def _epoch_started(log: str, method: str) -> CodePlace:
    return CodePlace(log, method, "ENTRY", 'callerMatches(".*makeLeader.*")', _OWN)


def _swapped(manager: str) -> CodePlace:
    method, place = "replaceCurrentWithFutureLog", "$2.topicPartition().toString()"
    return CodePlace(manager, method, "AFTER INVOKE renameDir 1", "TRUE", place)


_POINTS: Final = (
    CodePoint(
        "leader-appended",
        "past the leader's append, and the high watermark has not moved",
        _in_log("appendAsLeader", "EXIT"),
    ),
    CodePoint(
        "follower-fetch-read",
        "past reading records for a follower's fetch, and the answer is not sent",
        {"3.9": _fetched("fetchedData"), "4.2": _fetched("fetchedData()")},
    ),
    CodePoint(
        "checkpoint-before-rename",
        "between the temporary file of the high watermark checkpoint and its rename",
        {
            "3.9": CodePlace(
                "org.apache.kafka.server.common.CheckpointFile",
                "write",
                "INVOKE org.apache.kafka.common.utils.Utils.atomicMoveWithFallback",
                '$0.absolutePath.toString().endsWith("replication-offset-checkpoint")',
            )
        },
    ),
    CodePoint(
        "make-leader-half-done",
        "in makeLeader: the ISR is set, the leader epoch has no start offset yet",
        {
            "3.9": _epoch_started("kafka.log.UnifiedLog", "maybeAssignEpochStartOffset"),
            "4.0": _epoch_started("kafka.log.UnifiedLog", "assignEpochStartOffset"),
            "4.1": _epoch_started(f"{_STORAGE}.UnifiedLog", "assignEpochStartOffset"),
        },
    ),
    CodePoint(
        "follower-before-truncation",
        "past makeFollower in a new epoch, and the log is not truncated",
        {"3.9": CodePlace(_PARTITION, "makeFollower", "EXIT", "$!", _OWN)},
    ),
    CodePoint(
        "alter-partition",
        "about to decide an AlterPartition, in the controller's event thread",
        {
            "3.9": CodePlace(
                "org.apache.kafka.controller.ReplicationControlManager",
                "alterPartition",
                partition="$0.getTopic(named.topicId()).name()",
                bind=f"named:{_REQUEST}$TopicData = $2.topics().get(0)",
            )
        },
        side="controller",
        in_zookeeper=CodePlace(
            "kafka.controller.KafkaController",
            "processAlterPartition",
            partition="$0.controllerContext().topicNames().apply(named.topicId()).toString()",
            bind=f"named:{_REQUEST}$TopicData = $1.topics().get(0)",
        ),
    ),
    CodePoint(
        "marker-written",
        "past the append of a transaction marker, and the coordinator was not told",
        _in_log("appendAsLeader", "EXIT", f"$3 == {_STORAGE}.AppendOrigin.COORDINATOR"),
    ),
    CodePoint(
        "segment-rolled",
        "past the roll of a log's active segment",
        _in_log("roll", "EXIT", newer="roll(java.util.Optional)"),
    ),
    CodePoint(
        "index-flushed",
        "past the flush of a segment's offset index",
        {
            "3.9": CodePlace(
                f"{_STORAGE}.AbstractIndex",
                "flush",
                "EXIT",
                '$0.file().getName().endsWith(".index")',
                _IN_FOLDER.format("$0.file()"),
            )
        },
    ),
    CodePoint(
        "future-replica-promoted",
        "in a move between log dirs: the future replica is renamed, the old one is still there",
        {"3.9": _swapped("kafka.log.LogManager"), "4.4": _swapped(f"{_STORAGE}.LogManager")},
    ),
    CodePoint(
        "producer-snapshot-written",
        "past writing a snapshot of the producers' state",
        {
            "3.9": CodePlace(
                f"{_STORAGE}.ProducerStateManager",
                "writeSnapshot",
                "EXIT",
                "TRUE",
                _IN_FOLDER.format("$1"),
            )
        },
    ),
    CodePoint(
        "response-sent",
        "past writing a response to its socket, in a network thread",
        {
            "3.9": CodePlace(
                "kafka.network.Processor",
                "processCompletedSends",
                "ENTRY",
                "!$0.selector().completedSends().isEmpty()",
            )
        },
    ),
)
POINTS: Final[Mapping[str, CodePoint]] = MappingProxyType({point.name: point for point in _POINTS})


def table() -> Iterator[str]:
    """Yield the lines of a Markdown table of the points: name, meaning, method, and the unit for which passes are
    counted (node, topic or partition)."""
    yield "| point | a thread is | method | counts per |"
    yield "|---|---|---|---|"
    for point in POINTS.values():
        places = dict.fromkeys(f"`{_short(place)}`" for place in point.places.values())
        if point.in_zookeeper is not None:
            places[f"with ZooKeeper `{_short(point.in_zookeeper)}`"] = None
        newest = point.places[max(point.places, key=numbers)]
        counted = "node" if not newest.partition else "topic" if newest.bind else "partition"
        yield f"| `{point.name}` | {point.meaning} | {', '.join(places)} | {counted} |"


def _short(place: CodePlace) -> str:
    method = place.method.partition("(")[0]
    return f"{place.class_name.rpartition('.')[2]}.{method}"


CLASS_NAME: Final = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*\Z")
_METHOD: Final = re.compile(r"(<init>|[A-Za-z_$][\w$]*)(\([\w$.,\[\] ]*\))?\Z")
_PLACES: Final = "ENTRY, EXIT, EXCEPTION EXIT, LINE n, or [AFTER] INVOKE, READ, WRITE, SYNCHRONIZE, THROW"
_AT: Final = re.compile(
    r"(ENTRY|EXIT|EXCEPTION EXIT|LINE \d+|SYNCHRONIZE|THROW|(AFTER )?(INVOKE|READ|WRITE|SYNCHRONIZE) [^\n]+)\Z"
)
_CONDITION: Final = re.compile(r"(?!.*\b(DO|ENDRULE|RULE)\b)[^\n]+\Z")


class FreePoint(Spec):
    """A point of Kafka's code without a name of its own: the place in a method at which the fault acts."""

    model_config = ConfigDict(populate_by_name=True)

    class_name: Annotated[str, matching(CLASS_NAME, "the full name of a class")] = Field(
        alias="class", description="Full name of the class, such as kafka.cluster.Partition."
    )
    method: Annotated[str, matching(_METHOD, "the name of a method, with parameter types if need be")] = (
        Field(description="Method; with parameter types, only that overload.")
    )
    at: Annotated[str, matching(_AT, f"a place as Byteman names it: {_PLACES}")] = Field(
        "ENTRY", description=f"Place in the method, as Byteman names it: {_PLACES}."
    )
    when: Annotated[str, matching(_CONDITION, "a condition of one line, as Byteman takes it")] = Field(
        "TRUE",
        description="Only where this condition of Byteman's holds; $0 is the object, $1 the first argument.",
    )

    def place(self) -> CodePlace:
        return CodePlace(self.class_name, self.method, self.at, self.when)

    def missing_in(self, builds: Iterable[KafkaBuild]) -> tuple[KafkaBuild, MissingName] | None:
        """Return the first build, and the class or method that it lacks, if no build has both the class and the method.
        Return None if at least one build has both, or cannot be examined: its jars are not in the cache, or cannot be
        read."""
        lacks: list[tuple[KafkaBuild, MissingName]] = []
        for build in builds:
            jars = cached_classpath(build)
            try:
                lack = find_missing_name(self.class_name, self.method, jars) if jars else None
            except (OSError, zipfile.BadZipFile):
                return None  # a broken cache: said where the jars are verified
            if lack is None:
                return None
            lacks.append((build, lack))
        return lacks[0] if lacks else None


if __name__ == "__main__":
    import sys

    sys.stdout.write("\n".join([*table(), ""]))
