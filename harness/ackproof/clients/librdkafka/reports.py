"""Delivery reports of librdkafka, written into the journal and the counters.

Acknowledgements are collected while reports are served and written together: at a high rate a report then costs a third
of what it costs alone. They are written each time after the producer has served reports, and during a long serving
after each `_MOST` acknowledgements.

Some errors mean `failed` only if the record was sent once. If the record's age does not show that, its outcome is
indeterminate at first. The next statistics decide it (`LeaderEpochs`).
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

from ackproof.clients.channel import SharedCounters
from ackproof.clients.contract import ProducerSettings
from ackproof.clients.journal import DONE, OFFSET, RESULT, SENT, WORDS, Journal, Matrix, pack_result
from ackproof.clients.librdkafka.adapter import resend_after_s
from ackproof.rundir.guarantees import DEFINITE_CODES, LIBRDKAFKA, classify_report
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition

_SEQ: Final = struct.Struct(">q")
_SEQ_AT: Final = 16
_MOST: Final = 1024
"""Number of acknowledgements after which the collected ones are written: half a millisecond's worth."""
_FEW: Final = 12
"""Up to this number of acknowledgements, writing them one by one is faster."""
_LARGE: Final = 4096
"""Values longer than this many bytes are decoded one by one, not joined into one buffer."""

Numbers = npt.NDArray[np.int64]

_unpack: Callable[[bytes | None, int], tuple[int]] = _SEQ.unpack_from  # type: ignore[assignment]


@dataclass
class _EpochSpan:
    """One leader epoch of a partition, with the first and last time at which statistics showed it
    (CLOCK_MONOTONIC ns)."""

    epoch: int
    first_ns: int
    last_ns: int


class LeaderEpochs:
    """Leader epochs of each partition as the library's statistics show them. They tell if the leader changed between
    the send of a record and its report.

    With retries=0 librdkafka still sends a record again after NOT_LEADER_OR_FOLLOWER and similar errors
    (`adapter.resend_after_s`). Kafka gives such an answer after an append only if the partition has another leader by
    then, with another epoch; and the client sends again only to a leader that it knows. So if a partition had one epoch
    from before the send until after the report, no earlier send of the record was appended. Epochs never go down.
    """

    def __init__(self, places: Sequence[TopicPartition]) -> None:
        self._index = {place: number for number, place in enumerate(places)}
        self._spans: list[list[_EpochSpan]] = [[] for _ in places]

    def add(self, statistics: str) -> int:
        """Add one statistics event of the library (JSON). Return the time at which the library made it, in
        CLOCK_MONOTONIC ns."""
        emission = json.loads(statistics)
        at_ns = int(emission["ts"]) * 1000
        for topic, states in emission["topics"].items():
            for partition, state in states["partitions"].items():
                number, epoch = self._index.get(TopicPartition(topic, int(partition))), state["leader_epoch"]
                if number is None or epoch < 0:
                    continue
                spans = self._spans[number]
                if spans and spans[-1].epoch == epoch:
                    spans[-1].last_ns = at_ns
                else:
                    spans.append(_EpochSpan(epoch, at_ns, at_ns))
        return at_ns

    def unchanged(self, place: Numbers, sent_ns: Numbers, done_ns: Numbers) -> npt.NDArray[np.bool_]:
        """Return a mask of records: True if the partition had one leader epoch from before `sent_ns` until
        after `done_ns`.

        `place`: index of each record's partition.
        """
        same = np.zeros(len(place), np.bool_)
        for number in np.unique(place).tolist():
            here = place == number
            for span in self._spans[number]:
                same |= here & (sent_ns > span.first_ns) & (done_ns < span.last_ns)
        return same


@dataclass(frozen=True)
class _TombstoneReport:
    """Delivery report of a tombstone or of a JSON document. `payload`: the bytes that hold the record's identity. The
    record's own value is null or the document."""

    payload: bytes
    message: Message

    def value(self) -> bytes:
        return self.payload

    def offset(self) -> int | None:
        return self.message.offset()


class DeliveryReports:
    """Receiver of one producer's delivery reports, by `callback`. It writes each attempt's outcome into the journal and
    the counters; acknowledgements at the next `settle`. `fatal`: text of the error that ended the library's client, ''
    before."""

    def __init__(self, settings: ProducerSettings, journal: Journal, counters: SharedCounters) -> None:
        self.fatal = ""
        self._acked: list[Message | _TombstoneReport] = []
        self._journal = journal
        self._counters = counters
        self._counts = np.frombuffer(counters.counts, np.int64)
        self._shift = settings.chunk_rows.bit_length() - 1
        self._mask = settings.chunk_rows - 1
        self._first = settings.first_place
        self._places = len(settings.places)
        other_values = settings.tombstone_every > 0 or settings.identity.startswith(
            "/"
        )  # see `tombstone_callback`
        self._singly = settings.value_size > _LARGE or other_values
        self._size = settings.value_size
        # with acks=0 librdkafka makes offsets up (None, then 0, 1, 2 …)
        self._with_offset = settings.config["acks"] != "0"
        self._resend_after_ns = int(resend_after_s(settings.config) * 1e9)
        self._epochs = LeaderEpochs(settings.places)
        self._undecided: list[int] = []

    def callback(self) -> Callable[[KafkaError | None, Message | _TombstoneReport], None]:
        """Return the delivery callback for librdkafka, which gets (error or None, message) for each record. It avoids
        attribute look-ups, because it runs once for every record."""
        acked, take, most, settle, failed = self._acked, self._acked.append, _MOST, self.settle, self._failed

        def report(error: KafkaError | None, message: Message | _TombstoneReport) -> None:
            if error is None:
                take(message)
                if len(acked) >= most:
                    settle()
            else:
                failed(error, message)

        return report

    def tombstone_callback(self, payload: bytes) -> Callable[[KafkaError | None, Message], None]:
        """Return the delivery callback of one record whose value does not hold its identity: a tombstone, or a JSON
        document. `payload`: the bytes that hold the identity."""
        report = self.callback()
        return lambda error, message: report(error, _TombstoneReport(payload, message))

    def settle(self) -> None:
        """Write the collected acknowledgements into the journal and the counters."""
        acked = self._acked
        if not acked:
            return
        if len(acked) <= _FEW:
            self._settle_singly()
        else:
            self._settle_together()
        acked.clear()

    def _settle_singly(self) -> None:
        now, chunks, counts = time.monotonic_ns(), self._journal.chunks, self._counters.counts
        for message in self._acked:
            (seq,) = _unpack(message.value(), _SEQ_AT)
            row = chunks[seq >> self._shift].words
            at = (seq & self._mask) * WORDS
            offset = message.offset()
            row[at + OFFSET] = offset if self._with_offset and offset is not None else -1
            row[at + DONE] = now
            counts[(seq + self._first) % self._places] += 1

    def _settle_together(self) -> None:
        seqs = self._seqs()
        offsets = self._offsets()
        now = time.monotonic_ns()
        chunk = seqs >> self._shift
        row = seqs & self._mask
        lowest, highest = int(chunk.min()), int(chunk.max())
        if lowest == highest:
            _acknowledge(self._journal.chunks[lowest].matrix, row, offsets, now)
        else:
            for index in range(lowest, highest + 1):
                there = chunk == index
                if there.any():
                    _acknowledge(self._journal.chunks[index].matrix, row[there], offsets[there], now)
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
        except TypeError:  # no offset: a duplicate of an idempotent producer; or a tombstone's report
            offsets = (message.offset() for message in self._acked)
            return np.fromiter((-1 if offset is None else offset for offset in offsets), np.int64, count)

    def _failed(self, error: KafkaError, message: Message | _TombstoneReport) -> None:
        (seq,) = _unpack(message.value(), _SEQ_AT)
        row = self._journal.chunks[seq >> self._shift].words
        at = (seq & self._mask) * WORDS
        done = time.monotonic_ns()
        code = error.code()
        old = done - row[at + SENT] >= self._resend_after_ns
        outcome = classify_report(code, LIBRDKAFKA, may_resend=old)
        if old and self._resend_after_ns and code in DEFINITE_CODES[LIBRDKAFKA]:
            self._journal.pinned.add(seq >> self._shift)
            self._undecided.append(seq)
        row[at + RESULT] = pack_result(row[at + RESULT] & 0xFFFFFFFF, code, outcome)
        row[at + DONE] = done
        if outcome is Outcome.FAILED:
            self._counters.failed += 1
        else:
            self._counters.indeterminate += 1
        self.note_fatal(error)

    @property
    def undecided(self) -> int:
        """Number of attempts that may have been sent twice, with an error that proves failure only after a single send.
        Their outcome is indeterminate until the next statistics, whose leader epochs may show that no earlier send was
        appended (`LeaderEpochs`). Always 0 if the library may send records twice at any age."""
        return len(self._undecided)

    def on_statistics(self, statistics: str) -> None:
        """Decide the outcome of undecided attempts that were reported before librdkafka emitted these statistics
        (JSON). An attempt failed if its partition kept its leader epoch; else it stays indeterminate.
        """
        at_ns = self._epochs.add(statistics)
        waiting = []
        pinned = set()
        by_chunk: dict[int, list[int]] = {}
        for seq in self._undecided:
            by_chunk.setdefault(seq >> self._shift, []).append(seq & self._mask)
        for index, rows in by_chunk.items():
            late = self._decide(self._journal.chunks[index].matrix, np.array(rows, np.int64), at_ns)
            waiting += [(index << self._shift) + row for row in late]
            if late:
                pinned.add(index)
        self._undecided[:] = waiting
        self._journal.pinned = pinned

    def _decide(self, matrix: Matrix, row: Numbers, at_ns: int) -> list[int]:
        """Change the outcome of these rows of a chunk from INDETERMINATE to FAILED where the partition kept its leader
        epoch between send and report: no earlier send of such a record was appended.

        Rows that were reported at `at_ns` or later stay undecided, and are returned.
        """
        due = matrix[row, DONE] < at_ns
        late, row = row[~due], row[due]
        result = matrix[row, RESULT]
        once = row[self._epochs.unchanged(result & 0xFFFFFFFF, matrix[row, SENT], matrix[row, DONE])]
        matrix[once, RESULT] += (Outcome.FAILED - Outcome.INDETERMINATE) << 48
        self._counters.failed += len(once)
        self._counters.indeterminate -= len(once)
        return [int(number) for number in late]

    def note_fatal(self, error: KafkaError) -> None:
        """Keep the error's text in `fatal` if it is fatal: the client cannot be used after it. The first such text
        stays."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            self.fatal = self.fatal or error.str()


def _acknowledge(matrix: Matrix, row: Numbers, offset: Numbers, done: int) -> None:
    matrix[row, OFFSET] = offset
    matrix[row, DONE] = done  # last: it makes the rows whole
