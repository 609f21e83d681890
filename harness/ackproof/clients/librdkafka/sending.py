"""Sends the records and transactions of a producer with librdkafka.

Every send is in the journal before the library sees it. If the library's queue is full, the record is offered again
after reports were served. A record that the library refuses for another reason is a failed attempt.

At full speed all records of one partition in a `Sender.send` share one call of the library, in order of seq, and one
send time. A record and its report then take a third less processor time than with a call of their own. The seqs of a
ledger have no gaps, however its producer ends.

A line of `transactions.log` is `begin <txn> <first seq> <ns>`, `commit <txn> <ns>` (before the commit is requested) or
`end <txn> <outcome> <ns>`: number of the transaction from 0, number of a `TxnOutcome`, ns since the run's start.
Without a `commit` line, nobody can ever commit the transaction of a killed producer. With `commit` and without `end`
its outcome is unknown.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ackproof.clients.channel import SharedCounters
from ackproof.clients.contract import ProducerSettings
from ackproof.clients.journal import DONE, RESULT, SENT, WORDS, Journal, Matrix, pack_result
from ackproof.clients.librdkafka.adapter import delivery_timeout_s
from ackproof.rundir.guarantees import REFUSED
from ackproof.rundir.outcome import TxnOutcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import HEADER, SEQ, Keys, identity_text, wrap

_MANY: Final = 8
"""Number of records per partition from which on `produce_batch` is faster than single calls."""
_END_S: Final = 1.0
"""Longest time in seconds for which a producer that must stop still completes its block of records."""
_ROOM_S: Final = 0.01
"""Seconds for which delivery reports are served when the library's queue is full, before the next try."""


class Sender:
    """Sender of one producer's records. Record seq goes to partition `places[(seq + first_place) % len(places)]`.

    `serve(seconds)` serves delivery reports for at most this time. `ending` returns True if nothing more is to be sent.
    `failed` is called with the error of a refused `produce` call. If a `produce_batch` call refuses records, `failed`
    is called once, with the last one's error. `tombstone_callback(payload)` returns the delivery callback of a record
    whose value does not hold its identity. Records with timestamps, keys or an `identity` are sent one by one, because
    the library's `produce_batch` takes neither timestamps nor headers.
    """

    def __init__(
        self,
        client: Producer,
        journal: Journal,
        counters: SharedCounters,
        settings: ProducerSettings,
        *,
        serve: Callable[[float], None],
        ending: Callable[[], bool],
        failed: Callable[[KafkaError], None],
        tombstone_callback: Callable[[bytes], Callable[[KafkaError | None, Message], None]],
    ) -> None:
        self._client = client
        self._journal = journal
        self._counters = counters
        self._mask = settings.chunk_rows - 1
        self._first = settings.first_place
        self._places = settings.places
        self._round: list[TopicPartition] = list(settings.places)
        self._serve = serve
        self._ending = ending
        self._failed = failed
        self._tombstone_callback = tombstone_callback
        self._producer = settings.producer
        self._keys = Keys(settings.keys, settings.tombstone_every) if settings.keys else None
        self._identity = settings.identity
        self._until = 0.0
        self._stamps_from_ns = settings.stamps_from_ns if settings.stamps else None

    def send(self, seq: int, values: list[bytes]) -> int:
        """Send the records seq, seq + 1, … with these values. Their rows are in the journal's current chunk.

        Return how many were sent or refused: fewer than all only when the producer is to stop.
        """
        if self._stamps_from_ns is None and len(values) >= _MANY * len(self._places):
            return self._send_batches(seq, values)
        other = self._produce_identified if self._identity else self._produce_keyed
        plain = self._keys is None and not self._identity
        produce, now = self._client.produce if plain else other, time.monotonic_ns
        words = self._journal.current.words
        at = (seq & self._mask) * WORDS
        begin = (seq + self._first) % len(self._places)
        while len(self._round) < begin + len(values):
            self._round += self._places
        places = self._round[begin : begin + len(values)]
        for sent, (value, (topic, partition)) in enumerate(zip(values, places, strict=True)):
            while True:
                words[at] = sent_ns = now()
                try:
                    produce(topic, value, None, partition, timestamp=self._timestamp_ms(sent_ns))
                except BufferError:
                    words[at] = 0  # the library took nothing, so there is no attempt yet
                    if self._ending():
                        return sent
                    self._serve(_ROOM_S)
                    continue
                except KafkaException as error:
                    self._fail(self._journal.current.matrix, at // WORDS, error.args[0].code())
                    self._failed(error.args[0])
                    self._serve(_ROOM_S)
                break
            at += WORDS
        return len(values)

    def _timestamp_ms(self, sent_ns: int) -> int:
        """Return the timestamp of a record that is sent at `sent_ns` of CLOCK_MONOTONIC; 0: the library sets it."""
        return 0 if self._stamps_from_ns is None else (self._stamps_from_ns + sent_ns) // 1_000_000

    def _produce_keyed(self, topic: str, value: bytes, _: None, partition: int, *, timestamp: int) -> None:
        """Produce one record with its key; parameters as of the library's `produce`. A tombstone gets no value, and its
        identity in a header."""
        assert self._keys is not None
        seq = int.from_bytes(value[SEQ], "big")
        key = self._keys.record_key(self._producer, seq)
        if self._keys.deletes(seq):
            self._client.produce(
                topic,
                None,
                key,
                partition,
                on_delivery=self._tombstone_callback(value),
                timestamp=timestamp,
                headers={HEADER: value},
            )
        else:
            self._client.produce(topic, value, key, partition, timestamp=timestamp)

    def _produce_identified(
        self, topic: str, value: bytes, _: None, partition: int, *, timestamp: int
    ) -> None:
        """Produce one record with its identity where the service under test keeps it: in a header, the key or the
        value. Parameters as of the library's `produce`."""
        seq = int.from_bytes(value[SEQ], "big")
        text = identity_text(self._producer, seq)
        key = None if self._keys is None else self._keys.record_key(self._producer, seq)
        if self._identity == "header":
            self._client.produce(
                *(topic, value, key, partition), timestamp=timestamp, headers={HEADER: text.encode()}
            )
        elif self._identity == "key":
            self._client.produce(topic, value, text.encode(), partition, timestamp=timestamp)
        else:
            self._client.produce(
                *(topic, wrap(value, self._identity, text), key, partition),
                on_delivery=self._tombstone_callback(value),  # the report has the document
                timestamp=timestamp,
            )

    def _send_batches(self, seq: int, values: list[bytes]) -> int:
        number = len(self._places)
        row = seq & self._mask
        rows = self._journal.current.matrix[row : row + len(values)]
        # Write all rows first. If the producer is killed in between, seqs have no gap; some rows were never offered.
        rows[:, SENT] = time.monotonic_ns()
        rest: list[int] = []
        for nth in range(number):
            place = self._places[(seq + nth + self._first) % number]
            full = self._send_batch(rows[nth::number], place, values[nth::number])
            rest += [nth + number * index for index in full]
        return self._give_up(rows, rest) if rest else len(values)

    def _send_batch(self, rows: Matrix, place: TopicPartition, values: list[bytes]) -> list[int]:
        """Send values to one partition. `rows`: their rows in the journal.

        Return the indices of values for which the queue had no room before the producer had to stop; [] for none.
        """
        offered: Sequence[int] = range(len(values))
        stamped: slice | list[int] = slice(None)  # cheaper than a list of all indices
        while True:
            messages: list[dict[str, object]] = [{"value": values[index]} for index in offered]
            rows[stamped, SENT] = time.monotonic_ns()
            try:
                taken: int = self._client.produce_batch(place.topic, messages, place.partition)
            except (
                KafkaException
            ) as error:  # the whole batch is refused, for example because of the topic's name
                taken, messages = 0, [{"_error": error.args[0]} for _ in messages]
            if taken == len(messages):
                return []
            offered = stamped = self._not_taken(rows, offered, messages)
            if not stamped or (self._ending() and self._out_of_time()):
                return stamped
            self._serve(_ROOM_S)

    def _out_of_time(self) -> bool:
        """Return True if `_END_S` have passed since the first call. The first call is made when the producer must
        stop."""
        now = time.monotonic()
        self._until = self._until or now + _END_S
        return now >= self._until

    def _give_up(self, rows: Matrix, rest: list[int]) -> int:
        """Mark the records `rest` (indices in `rows`), for which the queue had no room before the producer had to stop.
        Return the number of rows that stay in the ledger: those up to the last record that the library took or refused,
        0 if there is none.

        Records of `rest` among these rows are marked as failed, because the seqs of a ledger have no gaps. Later ones
        are marked as not sent.
        """
        taken = set(range(len(rows))) - set(rest)
        count = max(taken, default=-1) + 1
        for index in rest:
            if index < count:
                self._fail(rows, index, KafkaError._QUEUE_FULL)
            else:
                rows[index, SENT] = 0
        return count

    def _not_taken(
        self, rows: Matrix, offered: Sequence[int], messages: list[dict[str, object]]
    ) -> list[int]:
        """Return the indices of records for which the queue had no room. Mark records with other errors as refused.
        `messages`: offered to the library, which set their errors. `offered`: index in `rows` of each message."""
        full = []
        refused: KafkaError | None = None
        for index, message in zip(offered, messages, strict=True):
            error = message.get("_error")
            if not isinstance(error, KafkaError):
                continue
            if error.code() == KafkaError._QUEUE_FULL:
                full.append(index)
                continue
            refused = error
            self._fail(rows, index, error.code())
        if refused is not None:
            self._failed(refused)
            self._serve(_ROOM_S)
        return full

    def _fail(self, rows: Matrix, index: int, code: int) -> None:
        rows[index, RESULT] = pack_result(int(rows[index, RESULT]) & 0xFFFFFFFF, code, REFUSED)
        rows[index, DONE] = time.monotonic_ns()
        self._counters.failed += 1


_ASK_S: Final = 2.0
_FENCED: Final = frozenset({KafkaError._FENCED, 47, 90})
"""Error codes of a fenced producer: librdkafka's own, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED."""


class Transactions:
    """The transactions of one producer, one after the other, of `settings.transaction_size` records each.

    `starts[k]` is the first seq of transaction k. `gave_up` says why a transaction could not be begun or ended, and is
    '' before: once it is set, the client must not be used any more. `log`: path of `transactions.log`. `flush` waits
    for all delivery reports. `ending` returns True once the producer is to stop. `fatal` is called with the error of a
    failed call, except for a commit that the library answers with "abort first".
    """

    def __init__(
        self,
        client: Producer,
        log: Path,
        settings: ProducerSettings,
        *,
        flush: Callable[[], None],
        ending: Callable[[], bool],
        fatal: Callable[[KafkaError], None],
    ) -> None:
        self.starts: list[int] = []
        self.gave_up = ""
        self._client = client
        self._log = log
        self._settings = settings
        self._size = settings.transaction_size
        self._draw = random.Random(f"{settings.first_place}/{settings.producer}")
        self._flush = flush
        self._ending = ending
        self._fatal = fatal
        self._open = False
        self._asked_commit = True
        """False if the library refused to commit the last transaction before it asked the coordinator."""

    def join(self) -> bool:
        """Register the transactional id with the coordinator (InitProducerId), which fences the former producer of this
        id.

        Retriable errors are ignored. Return False if `ending` returns True first, for example after a fatal error.
        Raises KafkaException for an error that is neither fatal nor retriable.
        """
        while not self._ending():
            try:
                self._client.init_transactions(_ASK_S)
            except KafkaException as error:
                self._fatal(error.args[0])
                if not error.args[0].retriable() and not self._ending():
                    raise
            else:
                return True
        return False

    def room(self, seq: int) -> int:
        """Return how many records from `seq` on belong to the open transaction; 0: send no more records.

        Ends a full transaction and begins the next one. A random share (`settings.abort_share`) of the full ones is
        aborted, the others are committed.
        """
        if self._open and seq - self.starts[-1] >= self._size:
            self.finish(commit=self._draw.random() >= self._settings.abort_share)
        if self.gave_up:
            return 0
        if not self._open:
            try:
                self._client.begin_transaction()
            except KafkaException as error:  # for example, the producer was fenced meanwhile
                self._fatal(error.args[0])
                self.gave_up = error.args[0].str()
                return 0
            self.starts.append(seq)
            self._write(f"begin {len(self.starts) - 1} {seq}")
            self._open = True
        return self.starts[-1] + self._size - seq

    def finish(self, *, commit: bool) -> None:
        """Commit the open transaction, if there is one, or abort it (`commit` False), and log how it ended. Sets
        `gave_up` if it could not be ended. A transaction that the library cannot commit is aborted."""
        if not self._open:
            return
        self._open = False
        self._flush()
        outcome = TxnOutcome.ABORTED
        if commit:
            self._write(f"commit {len(self.starts) - 1}")
            outcome = self._end(self._client.commit_transaction, TxnOutcome.COMMITTED)
        if not commit or outcome is TxnOutcome.ABORTED:
            outcome = self._end(self._client.abort_transaction, TxnOutcome.ABORTED)
            if not (commit and self._asked_commit):
                outcome = TxnOutcome.ABORTED  # the coordinator was never asked to commit it
        self._write(f"end {len(self.starts) - 1} {int(outcome)}")

    def _end(self, call: Callable[[float], None], good: TxnOutcome) -> TxnOutcome:
        """Call commit or abort (`call`), again after each retriable error until the delivery time-out is over. Return
        `good` on success.

        Return ABORTED if the library requires that the transaction is aborted instead of committed: the caller must
        abort it, and `_asked_commit` says whether the coordinator may have been asked to commit. Return FENCED if the
        producer is fenced; UNKNOWN after an error that is fatal or not retriable, or when the time is over. FENCED and
        UNKNOWN also set `gave_up`.
        """
        deadline = time.monotonic() + delivery_timeout_s(self._settings.config)
        asked = False
        while True:
            try:
                call(_ASK_S)
            except KafkaException as failed:
                error = failed.args[0]
                if error.txn_requires_abort() and good is TxnOutcome.COMMITTED:
                    # An error of the library's own at the first call: it gave a record up, and sends no EndTxn.
                    self._asked_commit = asked or error.code() >= 0
                    return TxnOutcome.ABORTED
                self._fatal(error)
                if error.code() in _FENCED:
                    self.gave_up = error.str()
                    return TxnOutcome.FENCED
                if error.fatal() or not error.retriable() or time.monotonic() > deadline:
                    self.gave_up = error.str()
                    return TxnOutcome.UNKNOWN
                asked = True
            else:
                return good

    def _write(self, line: str) -> None:
        with self._log.open("a", encoding="ascii") as file:
            file.write(f"{line} {time.monotonic_ns() - self._settings.origin_ns}\n")
