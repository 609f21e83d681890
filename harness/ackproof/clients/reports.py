"""Delivery reports on their way into the journal and the counters.

Acknowledgements are collected while reports are served and written down together: at a high rate a report then costs
a third of what it costs alone. Nothing waits: the producer settles after each time it serves reports, and a long
serving settles in between.

Some errors mean `failed` only if the record was sent once. Where its age does not show that, it is indeterminate at
first and decided by the next statistics (`Epochs`).
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaError, Message

from ackproof.clients.counters import SharedCounters
from ackproof.clients.journal import DONE, OFFSET, RESULT, SENT, WORDS, Journal, Matrix, pack_result
from ackproof.clients.settings import ProducerSettings, resend_after_s
from ackproof.rundir.guarantees import classify_report
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition

_SEQ: Final = struct.Struct(">q")
_SEQ_AT: Final = 16
_MOST: Final = 1024
"""Acknowledgements that are held back at most: half a millisecond's worth."""
_FEW: Final = 12
"""Up to so many it is faster to take them one by one."""
_LARGE: Final = 4096
"""Values above this many bytes are not joined to read their seqs at once."""

Numbers = npt.NDArray[np.int64]

_unpack: Callable[[bytes | None, int], tuple[int]] = _SEQ.unpack_from  # type: ignore[assignment]


@dataclass
class _Span:
    """One epoch, from when to when it was seen, in CLOCK_MONOTONIC ns."""

    epoch: int
    first_ns: int
    last_ns: int


class Epochs:
    """Which leader epochs the client has seen of each place, and when: whether a partition changed leader meanwhile.

    With retries=0 librdkafka still sends a record again after NOT_LEADER_OR_FOLLOWER and its like
    (`settings.resend_after_s`). Kafka gives such an answer after an append only when the partition has got another
    leader, and with it another leader epoch, and the client sends again only to a leader that it has learned of. So a
    record whose partition had one and the same epoch before its send and after its report was appended by none of the
    sends before the one that was answered. The epochs come with librdkafka's statistics; they never go down.
    """

    def __init__(self, places: Sequence[TopicPartition]) -> None:
        self._index = {place: number for number, place in enumerate(places)}
        self._spans: list[list[_Span]] = [[] for _ in places]

    def take(self, statistics: str) -> int:
        """Take note of one emission of statistics; when it was made, in CLOCK_MONOTONIC ns."""
        said = json.loads(statistics)
        at_ns = int(said["ts"]) * 1000
        for topic, about in said["topics"].items():
            for partition, state in about["partitions"].items():
                number = self._index.get(TopicPartition(topic, int(partition)))
                if number is not None and state["leader_epoch"] >= 0:
                    self._see(self._spans[number], state["leader_epoch"], at_ns)
        return at_ns

    def _see(self, spans: list[_Span], epoch: int, at_ns: int) -> None:
        if spans and spans[-1].epoch == epoch:
            spans[-1].last_ns = at_ns
        else:
            spans.append(_Span(epoch, at_ns, at_ns))

    def unchanged(self, place: Numbers, sent_ns: Numbers, done_ns: Numbers) -> npt.NDArray[np.bool_]:
        """For each record, whether its place had one epoch from before `sent_ns` until after `done_ns`."""
        same = np.zeros(len(place), np.bool_)
        for number in np.unique(place).tolist():
            here = place == number
            for span in self._spans[number]:
                same |= here & (sent_ns > span.first_ns) & (done_ns < span.last_ns)
        return same


@dataclass(frozen=True)
class _Unvalued:
    """The report of a record without a value, which would have been `told`."""

    told: bytes
    message: Message

    def value(self) -> bytes:
        return self.told

    def offset(self) -> int | None:
        return self.message.offset()


class Reports:
    """Takes the reports of one producer. `fatal` is the text of the error that ended its client, or ''."""

    def __init__(self, settings: ProducerSettings, journal: Journal, counters: SharedCounters) -> None:
        self.fatal = ""
        self._acked: list[Message | _Unvalued] = []
        self._journal = journal
        self._counters = counters
        self._counts = np.frombuffer(counters.counts, np.int64)
        self._shift = settings.chunk_rows.bit_length() - 1
        self._mask = settings.chunk_rows - 1
        self._first = settings.first_place
        self._places = len(settings.places)
        self._singly = settings.value_size > _LARGE or settings.tombstone_every > 0
        self._size = settings.value_size
        # acks=0: the offsets that librdkafka gives are made up (None, then 0, 1, 2 …)
        self._with_offset = settings.config["acks"] != "0"
        self._resend_after_ns = int(resend_after_s(settings.config) * 1e9)
        self._epochs = Epochs(settings.places)
        self._undecided: list[int] = []

    def callback(self) -> Callable[[KafkaError | None, Message | _Unvalued], None]:
        """What librdkafka's client is to call. It runs once for every record: a closure over plain names."""
        acked, take, most, settle, failed = self._acked, self._acked.append, _MOST, self.settle, self._failed

        def report(error: KafkaError | None, message: Message | _Unvalued) -> None:
            if error is None:
                take(message)
                if len(acked) >= most:
                    settle()
            else:
                failed(error, message)

        return report

    def unvalued(self, told: bytes) -> Callable[[KafkaError | None, Message], None]:
        """What librdkafka's client is to call for a record without a value, which would have been this."""
        report = self.callback()
        return lambda error, message: report(error, _Unvalued(told, message))

    def settle(self) -> None:
        """Write down the acknowledgements that were collected."""
        acked = self._acked
        if not acked:
            return
        if len(acked) <= _FEW:
            self._one_by_one()
        else:
            self._together()
        acked.clear()

    def _one_by_one(self) -> None:
        now, views, counts = time.monotonic_ns(), self._journal.views, self._counters.counts
        for message in self._acked:
            (seq,) = _unpack(message.value(), _SEQ_AT)
            row = views[seq >> self._shift]
            at = (seq & self._mask) * WORDS
            offset = message.offset()
            row[at + OFFSET] = offset if self._with_offset and offset is not None else -1
            row[at + DONE] = now
            counts[(seq + self._first) % self._places] += 1

    def _together(self) -> None:
        seqs = self._seqs()
        offsets = self._offsets()
        now = time.monotonic_ns()
        chunk = seqs >> self._shift
        row = seqs & self._mask
        lowest, highest = int(chunk.min()), int(chunk.max())
        if lowest == highest:
            _acknowledge(self._journal.matrices[lowest], row, offsets, now)
        else:
            for index in range(lowest, highest + 1):
                there = chunk == index
                if there.any():
                    _acknowledge(self._journal.matrices[index], row[there], offsets[there], now)
        self._counts += np.bincount((seqs + self._first) % self._places, minlength=self._places)

    def _seqs(self) -> Numbers:
        count = len(self._acked)
        if self._singly:
            return np.fromiter(
                (_unpack(message.value(), _SEQ_AT)[0] for message in self._acked), np.int64, count
            )
        raw = b"".join(map(Message.value, self._acked))  # type: ignore[arg-type]
        seqs: Numbers = np.ndarray((count,), ">i8", raw, offset=_SEQ_AT, strides=(self._size,))
        return seqs.astype(np.int64)

    def _offsets(self) -> Numbers:
        count = len(self._acked)
        if not self._with_offset:
            return np.full(count, -1, np.int64)
        try:
            return np.fromiter(map(Message.offset, self._acked), np.int64, count)  # type: ignore[arg-type]
        except TypeError:  # one without an offset: a duplicate of an idempotent producer; or without a value
            offsets = (message.offset() for message in self._acked)
            return np.fromiter((-1 if offset is None else offset for offset in offsets), np.int64, count)

    def _failed(self, error: KafkaError, message: Message | _Unvalued) -> None:
        (seq,) = _unpack(message.value(), _SEQ_AT)
        row = self._journal.views[seq >> self._shift]
        at = (seq & self._mask) * WORDS
        done = time.monotonic_ns()
        code = error.code()
        old = done - row[at + SENT] >= self._resend_after_ns
        outcome = classify_report(code, may_resend=old)
        if old and self._resend_after_ns and classify_report(code, may_resend=False) is Outcome.FAILED:
            self._journal.pinned.add(seq >> self._shift)
            self._undecided.append(seq)
        row[at + RESULT] = pack_result(row[at + RESULT] & 0xFFFFFFFF, code, outcome)
        row[at + DONE] = done
        if outcome is Outcome.FAILED:
            self._counters.failed += 1
        else:
            self._counters.indeterminate += 1
        self.ended_by(error)

    @property
    def undecided(self) -> int:
        """How many attempts wait for statistics to be decided."""
        return len(self._undecided)

    def on_statistics(self, statistics: str) -> None:
        """Decide what can be decided: attempts that were reported before these statistics were made."""
        at_ns = self._epochs.take(statistics)
        waiting = []
        pinned = set()
        by_chunk: dict[int, list[int]] = {}
        for seq in self._undecided:
            by_chunk.setdefault(seq >> self._shift, []).append(seq & self._mask)
        for index, rows in by_chunk.items():
            late = self._decide(self._journal.matrices[index], np.array(rows, np.int64), at_ns)
            waiting += [(index << self._shift) + row for row in late]
            if late:
                pinned.add(index)
        self._undecided[:] = waiting
        self._journal.pinned = pinned

    def _decide(self, matrix: Matrix, row: Numbers, at_ns: int) -> list[int]:
        """Decide these rows of a chunk; those that were reported after `at_ns` are left, and returned."""
        due = matrix[row, DONE] < at_ns
        late, row = row[~due], row[due]
        result = matrix[row, RESULT]
        once = row[self._epochs.unchanged(result & 0xFFFFFFFF, matrix[row, SENT], matrix[row, DONE])]
        matrix[once, RESULT] += (Outcome.FAILED - Outcome.INDETERMINATE) << 48
        self._counters.failed += len(once)
        self._counters.indeterminate -= len(once)
        return [int(one) for one in late]

    def ended_by(self, error: KafkaError) -> None:
        """Take note of an error if it is one after which the client is dead."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            self.fatal = self.fatal or error.str()


def _acknowledge(matrix: Matrix, row: Numbers, offset: Numbers, done: int) -> None:
    matrix[row, OFFSET] = offset
    matrix[row, DONE] = done  # last: it makes the rows whole
