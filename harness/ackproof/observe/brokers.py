"""Asks each broker separately, five times a second, for its metadata and for the records and offsets that clients get.

Each round also sends a Produce that the broker must refuse: the error shows whether the broker would accept writes. In
ZooKeeper mode it reads the znodes too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from pathlib import Path
from typing import Any, Final, TypeAlias

from ackproof.cluster import queries
from ackproof.cluster.disks.log import Batch, batch_at
from ackproof.cluster.protocol import Cluster, NodeState
from ackproof.cluster.queries import PartitionState
from ackproof.network.wire import Connection, Question, WireError
from ackproof.observe.watcher import BrokerPoller
from ackproof.rundir.observed import (
    ROUND_EVERY_S,
    ZNODES,
    BrokerRound,
    PartitionView,
    ServedReplica,
    ViewerAnswer,
)
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Timeline

_ANSWER_WITHIN_S: Final = 0.45
"""Longest time in seconds that a round waits for answers, so that a slow broker delays the next round little."""
_MOST_BYTES: Final = 1 << 20
_LEADER_ONLY: Final = 1
"""Value of acks in a Produce request that waits for no follower."""
_SPOILT: Final = struct.pack(">qiibIhiqqqhii", 0, 49, -1, 2, 0xBAD, 0, 0, 0, 0, -1, -1, -1, 1)
"""Header of a batch of one record (org.apache.kafka.common.record.DefaultRecordBatch) with a wrong checksum. No
broker appends such a batch."""


_Reply: TypeAlias = tuple[ViewerAnswer | None, int | None]
"""(answer, controller) of a viewer. A broker gives no controller (None). The quorum gives an answer only in
ZooKeeper mode, and the controller's id; -1: none is known."""


class BrokerObserver(BrokerPoller[_Reply]):
    """Asks each running broker five times a second for its metadata, log ends and readable records, and tests whether
    it takes writes. Appends each round to `path` as one line of JSON (`BrokerRound`).

    The metadata quorum is asked for the active controller. In ZooKeeper mode, ZooKeeper is asked for its metadata too.
    A viewer is a broker or the quorum: each is asked for its own view of the cluster. Its id is the broker's, or
    `ZNODES` for the quorum.
    """

    NAME = "brokers"
    DOES = "asking each broker"

    def __init__(self, cluster: Cluster, topics: Iterable[str], path: Path, timeline: Timeline) -> None:
        super().__init__(cluster, topics, timeline)
        self._path = path
        self._replicas: dict[TopicPartition, tuple[int, ...]] = {}
        """Replicas of each partition, from the latest answer of any viewer."""
        self._from: dict[tuple[int, TopicPartition], int] = {}
        """Start offset of each broker's next Fetch: the last offset below the high watermark of the previous answer,
        but at least its log start offset. After an error it is the log start offset of that answer."""

    def _watch(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            for _ in self._looks(ROUND_EVERY_S):
                file.write(self._round().model_dump_json() + "\n")
                file.flush()

    def _round(self) -> BrokerRound:
        """Ask every viewer (running broker or quorum) that owes no answer at once. Return the answers of this round.

        `silent` lists the viewers that run but did not answer in time, or answered with an error; the quorum only in
        ZooKeeper mode. A viewer that refused or broke its connection is neither in `silent` nor among the answers. A
        late answer belongs to no round.
        """
        began, late = self._timeline.clock.now(), dict(self._asked)
        for viewer in (ZNODES, *self._links):
            if viewer not in late and self._can_be_asked(viewer):
                self._asked[viewer] = self._pool.submit(self._ask, viewer)
        wait([asked for viewer, asked in self._asked.items() if viewer not in late], timeout=_ANSWER_WITHIN_S)
        replies, silent = {}, []
        for viewer, asked in list(self._asked.items()):
            if asked.done():
                del self._asked[viewer]
            if asked.done() and viewer not in late:
                try:
                    replies[viewer] = asked.result()
                except WireError as error:
                    silent += [] if isinstance(error.__cause__, ConnectionError) else [viewer]
            elif self._can_be_asked(viewer):
                silent.append(viewer)
        answers = tuple(answer for answer, _ in replies.values() if answer is not None)
        for answer in answers:
            self._replicas |= {
                TopicPartition(it.topic, it.partition): it.replicas for it in answer.partitions
            }
        if not self._cluster.spec.metadata.broker_controls:
            silent = [viewer for viewer in silent if viewer != ZNODES]
        return BrokerRound(
            t_ns=began,
            done_ns=self._timeline.clock.now(),
            controller=replies[ZNODES][1] if ZNODES in replies else None,
            told=answers,
            silent=tuple(sorted(silent)),
        )

    def _can_be_asked(self, viewer: int) -> bool:
        return viewer == ZNODES or self._cluster.nodes[viewer].state() is NodeState.RUNNING

    def _ask(self, viewer: int) -> _Reply:
        if viewer == ZNODES:
            return self._ask_quorum()
        return self._ask_broker(viewer, self._links[viewer]), None

    def _ask_quorum(self) -> _Reply:
        """Return (answer, controller). The answer is the metadata that the ZooKeeper servers hold; None in KRaft mode,
        whose quorum is asked for its controller only. The controller is the id of the active one; -1: none is known.
        Raises `WireError` if ZooKeeper does not answer."""
        controller = self._cluster.controller()
        answer = None
        if (brokers := self._cluster.registered()) is not None:
            answer = ViewerAnswer(
                viewer=ZNODES,
                brokers=tuple(sorted(brokers)),
                partitions=_partitions(self._cluster.metadata_state(self._topics)),
            )
        return answer, -1 if controller is None else controller

    def _ask_broker(self, broker: int, link: Connection) -> ViewerAnswer:
        """Return one broker's answer: its metadata, log ends and fetched records, and the error with which it refuses a
        Produce of an invalid batch (`produce_question`). Raises `WireError` if it does not answer.

        The log ends are requested before the records. So a log end above the high watermark of the Fetch shows that the
        log had a record beyond that mark. Only replicas that earlier metadata placed on this broker are asked for;
        those without a settled high watermark (`_settled_marks`) are left out.
        """
        hosted = [place for place, replicas in sorted(self._replicas.items()) if broker in replicas]
        starts = {place: self._from.get((broker, place), 0) for place in hosted}
        view, ends, fetched, produced = link.ask_all(
            [
                Question("Metadata", 9, topics=list(self._topics), allow_auto_topic_creation=False),
                queries.ask_log_ends(hosted),
                fetch_question(starts),
                produce_question(hosted),
            ]
        )
        log_ends = queries.read_offsets(ends)
        refusals = _rows(produced, "index")
        served = []
        rows = _rows(fetched, "partition_index")
        given = {place: [*_batches(bytes(row.records or b""))] for place, row in rows.items()}
        marks = {place: row.high_watermark for place, row in rows.items()}
        for place, mark in _settled_marks(link, marks, given).items():
            row, batches = rows[place], given[place]
            answer = ServedReplica(
                topic=place.topic,
                partition=place.partition,
                log_end=log_ends.get(place, -1),
                fetch=row.error_code,
                records=sum(batch.records for batch in batches if not batch.control),
                beyond=_count_beyond(batches, mark),
                high_watermark=row.high_watermark,
                produce=refusals[place].error_code,
            )
            served.append(answer)
            last = answer.high_watermark - 1 if row.error_code == 0 else row.log_start_offset
            self._from[broker, place] = max(0, row.log_start_offset, last)
        return ViewerAnswer(
            viewer=broker,
            brokers=tuple(sorted(queries.read_brokers(view))),
            partitions=_partitions(queries.read_partitions(view)),
            served=tuple(served),
        )


def _settled_marks(
    link: Connection, marks: Mapping[TopicPartition, int], batches: Mapping[TopicPartition, Sequence[Batch]]
) -> Mapping[TopicPartition, int]:
    """Return for each replica the high watermark that bounds its records: a correct broker returns none beyond it.

    A broker reads the high watermark that it returns before it reads the records, which may reach up to a later mark
    (Partition.readRecords). So if records lie beyond the mark, a second Fetch is sent, and the greater mark counts. A
    replica that answers this Fetch with an error is left out. `marks`, `batches`: of the first Fetch.
    """
    doubted = {place: mark for place, mark in marks.items() if _count_beyond(batches[place], mark)}
    if not doubted:
        return marks
    (again,) = link.ask_all([fetch_question(doubted)])
    later = {
        place: max(doubted[place], row.high_watermark)
        for place, row in _rows(again, "partition_index").items()
        if row.error_code == 0
    }
    return {
        place: later.get(place, mark)
        for place, mark in marks.items()
        if place in later or place not in doubted
    }


def fetch_question(starts: Mapping[TopicPartition, int]) -> Question:
    """Return the Fetch request of a consumer at read_uncommitted that starts at these offsets, has no rack and does not
    wait. It asks for 1 MiB at most."""
    return Question(
        "Fetch",
        11,
        replica_id=queries.CONSUMER,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_MOST_BYTES,
        isolation_level=queries.READ_UNCOMMITTED,
        session_id=0,
        session_epoch=-1,
        topics=_by_topic((place, (-1, start, 0, _MOST_BYTES)) for place, start in starts.items()),
        forgotten_topics_data=[],
        rack_id="",
    )


def produce_question(places: Iterable[TopicPartition]) -> Question:
    """Return a Produce request with one batch per partition. The checksum of each batch is wrong, so no broker appends
    it."""
    rows = _by_topic((place, (_SPOILT,)) for place in places)
    return Question("Produce", 8, transactional_id=None, acks=_LEADER_ONLY, timeout_ms=1000, topic_data=rows)


def _by_topic(
    rows: Iterable[tuple[TopicPartition, tuple[object, ...]]],
) -> list[tuple[str, list[tuple[object, ...]]]]:
    found: dict[str, list[tuple[object, ...]]] = {}
    for (topic, partition), fields in rows:
        found.setdefault(topic, []).append((partition, *fields))
    return list(found.items())


def _rows(response: Any, number: str) -> dict[TopicPartition, Any]:  # noqa: ANN401 — kafka-python's messages are untyped
    """Return the rows of a Fetch or Produce response by partition. `number`: name of the field with the partition's
    number."""
    return {
        TopicPartition(getattr(topic, "topic", "") or topic.name, getattr(row, number)): row
        for topic in response.responses
        for row in getattr(topic, "partitions", None) or topic.partition_responses
    }


def _count_beyond(batches: Iterable[Batch], mark: int) -> int:
    """Return the number of offsets at or above `mark` that the batches cover, those of transaction markers included."""
    return sum(max(0, batch.last + 1 - max(batch.first, mark)) for batch in batches)


def _batches(data: bytes) -> Iterator[Batch]:
    """Yield the complete batches of a Fetch answer; the last one may be incomplete and is left out."""
    position = 0
    while (batch := batch_at(data, position, len(data))) is not None:
        yield batch
        position = batch.end


def _partitions(states: Mapping[TopicPartition, PartitionState]) -> tuple[PartitionView, ...]:
    return tuple(
        PartitionView(
            topic=place.topic,
            partition=place.partition,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            replicas=state.replicas,
            isr=tuple(sorted(state.isr)),
        )
        for place, state in sorted(states.items())
    )
