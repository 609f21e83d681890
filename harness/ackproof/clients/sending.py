"""Records on their way to librdkafka: one by one, or a place at a time when many are due.

Every send is in the journal before the library sees it. A record that the library does not take for want of room
(back-pressure) is tried again once reports were served. One that it refuses for another reason is a failed attempt.

At full speed the records of a block go out place by place, in order of their seqs within each: with its report a
record takes a third less of the processor than by a call of its own. They share one `sent`, that of the call. The
seqs that a ledger has are without gaps all the same, however its producer ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ackproof.clients.counters import SharedCounters
from ackproof.clients.journal import DONE, RESULT, SENT, WORDS, Journal, Matrix, pack_result
from ackproof.clients.settings import ProducerSettings
from ackproof.rundir.guarantees import REFUSED
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import HEADER, SEQ, Keys

_MANY: Final = 8
"""So many records for each place are faster handed over together."""
_END_S: Final = 1.0
"""So long a block that was begun is brought to its end, though nothing more is to be sent."""
_ROOM_S: Final = 0.01
"""How long reports are served before a record is offered again, and after one was refused: the next hardly fares
better."""


class Sender:
    """Sends the records of one producer. Record seq goes to place (seq + first_place) % len(places).

    `serve` serves delivery reports for so many seconds at most, `ending` says whether nothing more is to be sent,
    `failed` takes the errors that the library gives at once, `unvalued` the report of a record without a value, which
    would have been this. Keyed records go one by one: the library takes no headers for many.
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
        unvalued: Callable[[bytes], Callable[[KafkaError | None, Message], None]],
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
        self._unvalued = unvalued
        self._producer = settings.producer
        self._keys = Keys(settings.keys, settings.tombstone_every) if settings.keys else None
        self._until = 0.0

    def send(self, seq: int, values: list[bytes]) -> int:
        """Send the records seq, seq + 1, …, which are in the journal's current chunk.

        Returns how many were sent or refused; fewer than all only when ending.
        """
        if self._keys is None and len(values) >= _MANY * len(self._places):
            return self._place_by_place(seq, values)
        return self._one_by_one(seq, values)

    # -- one by one ---------------------------------------------------------------------------------------------

    def _one_by_one(self, seq: int, values: list[bytes]) -> int:
        produce, now = self._client.produce if self._keys is None else self._keyed, time.monotonic_ns
        words = self._journal.current.words
        at = (seq & self._mask) * WORDS
        for sent, (value, (topic, partition)) in enumerate(
            zip(values, self._places_from(seq, len(values)), strict=True)
        ):
            while True:
                words[at] = now()
                try:
                    produce(topic, value, None, partition)
                except BufferError:
                    words[at] = 0  # nothing was taken: no attempt yet
                    if self._ending():
                        return sent
                    self._serve(_ROOM_S)
                    continue
                except KafkaException as error:
                    self._refused(at // WORDS, error.args[0])
                break
            at += WORDS
        return len(values)

    def _keyed(self, topic: str, value: bytes, _: None, partition: int) -> None:
        """As the library's own, with the record's key. A tombstone has who sent it in a header."""
        assert self._keys is not None
        seq = int.from_bytes(value[SEQ], "big")
        key = self._keys.record_key(self._producer, seq)
        if self._keys.deletes(seq):
            self._client.produce(
                topic, None, key, partition, on_delivery=self._unvalued(value), headers={HEADER: value}
            )
        else:
            self._client.produce(topic, value, key, partition)

    def _places_from(self, seq: int, count: int) -> list[TopicPartition]:
        number = len(self._places)
        begin = (seq + self._first) % number
        while len(self._round) < begin + count:
            self._round += self._places
        return self._round[begin : begin + count]

    def _refused(self, row: int, error: KafkaError) -> None:
        """The library did not take the record: a failed attempt."""
        self._fail(self._journal.current.matrix, row, error.code())
        self._failed(error)
        self._serve(_ROOM_S)

    # -- a place at a time --------------------------------------------------------------------------------------

    def _place_by_place(self, seq: int, values: list[bytes]) -> int:
        number = len(self._places)
        row = seq & self._mask
        rows = self._journal.current.matrix[row : row + len(values)]
        # All of them now: one that is killed in between has no seq left out, only some that it never offered.
        rows[:, SENT] = time.monotonic_ns()
        left: list[int] = []
        for nth in range(number):
            place = self._places[(seq + nth + self._first) % number]
            not_taken = self._together(rows[nth::number], place, values[nth::number])
            left += [nth + number * one for one in not_taken]
        return self._without(rows, left) if left else len(values)

    def _together(self, rows: Matrix, place: TopicPartition, values: list[bytes]) -> list[int]:
        """Send these to one place. `rows` is theirs, a view of the journal. Those not taken before the end."""
        offered: Sequence[int] = range(len(values))
        stamped: slice | list[int] = slice(None)  # all of them, for less than by a list of their numbers
        while True:
            messages: list[dict[str, object]] = [{"value": values[one]} for one in offered]
            rows[stamped, SENT] = time.monotonic_ns()
            if self._offer(messages, place) == len(messages):
                return []
            offered = stamped = self._not_taken(rows, offered, messages)
            if not stamped or (self._ending() and self._out_of_time()):
                return stamped
            self._serve(_ROOM_S)

    def _out_of_time(self) -> bool:
        """Whether a block that was begun has had its time since the end was near."""
        now = time.monotonic()
        self._until = self._until or now + _END_S
        return now >= self._until

    def _without(self, rows: Matrix, left: list[int]) -> int:
        """At the end there was no room for some. Those between others that were taken are failed attempts: they were
        offered, and seqs have no gaps. The others are none. How many were sent or refused."""
        taken = set(range(len(rows))) - set(left)
        count = max(taken, default=-1) + 1
        for one in left:
            if one < count:
                self._fail(rows, one, KafkaError._QUEUE_FULL)
            else:
                rows[one, SENT] = 0
        return count

    def _offer(self, messages: list[dict[str, object]], place: TopicPartition) -> int:
        """How many the library took. Those that it did not have its reason in `_error`."""
        try:
            taken: int = self._client.produce_batch(place.topic, messages, place.partition)
        except KafkaException as error:  # the topic's name, say: none was taken
            for message in messages:
                message["_error"] = error.args[0]
            return 0
        return taken

    def _not_taken(
        self, rows: Matrix, offered: Sequence[int], messages: list[dict[str, object]]
    ) -> list[int]:
        """Those for which there was no room. The others that were not taken are refused."""
        full = []
        refused: KafkaError | None = None
        for one, message in zip(offered, messages, strict=True):
            error = message.get("_error")
            if not isinstance(error, KafkaError):
                continue
            if error.code() == KafkaError._QUEUE_FULL:
                full.append(one)
                continue
            refused = error
            self._fail(rows, one, error.code())
        if refused is not None:
            self._failed(refused)
            self._serve(_ROOM_S)
        return full

    def _fail(self, rows: Matrix, one: int, code: int) -> None:
        rows[one, RESULT] = pack_result(int(rows[one, RESULT]) & 0xFFFFFFFF, code, REFUSED)
        rows[one, DONE] = time.monotonic_ns()
        self._counters.failed += 1
