"""Record of the clients of the code under test: every produce attempt, and every record that they read.

Each produced record gets a header `ackproof` with its identity; its value stays unchanged. Layout, big-endian::

    magic      4 B   b"AKH1"
    run        8 B   the run's id; records of other runs have another
    producer   i32
    seq        i64
    partition  i32   the partition that was asked for, -1 where a partitioner chose
    topic_len  u16
    topic      topic_len bytes, UTF-8
    crc        u32   CRC-32 of all before it, and of key and value, each after its length as i64 (-1: none)
"""

from __future__ import annotations

import struct
import threading
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from ackproof.rundir.guarantees import NO_ERROR, REFUSED, classify_report
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.parts import ClientLibrary
from ackproof.rundir.payload import FOREIGN, NOBODY, Identity, run_bytes


class Content(NamedTuple):
    """Topic, key and value of a record as it is sent. Records with equal content count as copies of each other."""

    topic: str
    key: bytes | None
    value: bytes | None


class Received(NamedTuple):
    """A record that a client library returned: key and value as bytes. `timestamp_ms`: timestamp of the record, by the
    clock of a producer or a broker. `leader_epoch`: -1 unknown."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    timestamp_ms: int
    headers: Iterable[tuple[str, str | bytes | None]] | None
    key: bytes | None
    value: bytes | None


class Place(NamedTuple):
    """A position in a log: topic, partition and offset."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} offset {self.offset}"


def as_bytes(part: str | bytes | None) -> bytes | None:
    """Return a key or value as the bytes that clients send: text in UTF-8; None stays None."""
    if isinstance(part, str):
        return part.encode()
    return None if part is None else bytes(part)


def or_unknown(number: int | None) -> int:
    """Return the number as a ledger stores it: -1 stands for None (unknown)."""
    return -1 if number is None else number


@dataclass(slots=True)
class Attempt:
    """One produce call. Times are nanoseconds since the run's start. -1 is unknown, also for `partition` and `offset`.

    `known`: True once its delivery report or an exception arrived. `code`, `error`: error code and text of the report.
    `taken`: False if the client library had no room or no metadata for it. `transaction`: number of its transaction;
    -1: none. `given_up`: its transaction was aborted.
    """

    producer: int
    seq: int
    content: Content
    partition: int
    sent_ns: int
    done_ns: int = -1
    outcome: Outcome = Outcome.INDETERMINATE
    code: int = NO_ERROR
    offset: int = -1
    error: str = "no report came"
    known: bool = False
    taken: bool = True
    transaction: int = -1
    given_up: bool = False


class Read(NamedTuple):
    """One record that a reader received. `assignment`: number of the reader's assignment at that time.

    `leader_epoch`: -1 unknown. `read_ns`: ns since the run's start.
    """

    assignment: int
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    identity: Identity
    read_ns: int
    timestamp_ms: int


@dataclass
class ProducerBook:
    """Attempts of one producer, in order of seq.

    `not_taken`: calls for which the client library had no room or no metadata; they are no attempts. `offsets_lie`:
    True once a record was acknowledged without an offset, as with acks=0. No offset of the producer then counts,
    because librdkafka reports offsets that no broker assigned. `transaction`: number of its latest transaction; -1: it
    has begun none.
    """

    number: int
    library: ClientLibrary
    attempts: list[Attempt] = field(default_factory=list)
    not_taken: list[Attempt] = field(default_factory=list)
    offsets_lie: bool = False
    transaction: int = -1

    def begin_transaction(self) -> None:
        self.transaction += 1

    def give_up_transaction(self) -> None:
        """Mark the records of the latest transaction as given up, because the transaction is aborted: they may be
        missing."""
        for attempt in self.attempts:
            if attempt.transaction == self.transaction >= 0:
                attempt.given_up = True

    def count_unreported(self) -> int:
        return sum(not attempt.known for attempt in self.attempts)


class Book:
    """Attempts and reads of all clients of a test.

    `origin_ns`: monotonic time in ns from which their times count. `changes`: a counter that rises with each
    change that could alter an audit.
    """

    def __init__(self, run_id: str, origin_ns: int) -> None:
        self.run_id = run_id
        self.origin_ns = origin_ns
        self.producers: list[ProducerBook] = []
        self.readers: list[list[Read]] = []
        """Reads of each consumer, in the order in which the consumers were created."""
        self.reader_libraries: list[ClientLibrary] = []
        self.reader_groups: list[str] = []
        """`group.id` of each consumer; '' without one."""
        self.processed: list[tuple[str, Place]] = []
        """Group and place of each message that the test marked as processed."""
        self.changes = 0
        self.lock = threading.RLock()

    def now(self) -> int:
        return time.monotonic_ns() - self.origin_ns

    def read(self, record: Received, assignment: int) -> Read:
        identity = identity_of(self.run_id, record.headers, record.key, record.value)
        place = (record.topic, record.partition, record.offset, record.leader_epoch)
        return Read(assignment, *place, identity, self.now(), record.timestamp_ms)

    def new_producer(self, library: ClientLibrary) -> ProducerBook:
        with self.lock:
            self.producers.append(ProducerBook(len(self.producers), library))
            return self.producers[-1]

    def new_reader(self, library: ClientLibrary, group: str = "") -> list[Read]:
        """Add a consumer of this group ('': none). Return the list to which its reads are to be appended."""
        with self.lock:
            self.readers.append([])
            self.reader_libraries.append(library)
            self.reader_groups.append(group)
            return self.readers[-1]

    def attempt(self, producer: ProducerBook, content: Content, partition: int) -> Attempt:
        """Return a new attempt of a producer, stamped with the present time. The caller adds it to
        `ProducerBook.attempts`."""
        seq = len(producer.attempts)
        transaction = producer.transaction
        return Attempt(producer.number, seq, content, partition, self.now(), transaction=transaction)

    def with_identity(self, attempt: Attempt, headers: Headers) -> list[tuple[str, HeaderValue]]:
        """Return the headers to send with an attempt's record: the given headers, and `ackproof` with its identity."""
        identity = (attempt.producer, attempt.seq, attempt.content.topic, attempt.partition)
        own = encode(self.run_id, *identity, attempt.content.key, attempt.content.value)
        return [*others(headers), (HEADER, own)]

    def not_taken_by_library(self, producer: ProducerBook, attempt: Attempt, error: str) -> None:
        """Note that the client library had no room or no metadata for a record: the call is no attempt."""
        attempt.taken, attempt.error = False, error
        producer.not_taken.append(attempt)
        self.changes += 1

    def attempts(self) -> list[Attempt]:
        """Return every attempt of all producers, also those that a client library refused with an error. Calls in
        `not_taken` are left out."""
        return [attempt for producer in self.producers for attempt in producer.attempts]

    def find_attempt(self, producer: int, seq: int) -> Attempt | None:
        """Return the attempt with this identity; None if no producer of the book made it."""
        if not 0 <= producer < len(self.producers):
            return None
        attempts = self.producers[producer].attempts
        return attempts[seq] if 0 <= seq < len(attempts) else None

    @property
    def empty(self) -> bool:
        return not (self.attempts() or self.not_taken() or any(self.readers))

    def not_taken(self) -> list[Attempt]:
        """Return every produce call for which a client library had no room or no metadata."""
        return [attempt for producer in self.producers for attempt in producer.not_taken]

    def refused(self, attempt: Attempt, code: int, error: str) -> None:
        self._settle(attempt, REFUSED, code, error)

    def report(
        self,
        attempt: Attempt,
        code: int,
        error: str,
        *,
        partition: int,
        offset: int | None,
        resend_after_s: float,
    ) -> None:
        """Record a delivery report. `code`: error code, 0 for none. `error`: text of the error. `partition`: -1 if the
        report has none. `offset`: None if the report has none. `resend_after_s`: age of the record in seconds from
        which the library may have sent it twice. Below this age, an error that a broker returns only before the append
        proves that the record failed. Any other error leaves its outcome indeterminate."""
        may_resend = (self.now() - attempt.sent_ns) / 1e9 >= resend_after_s
        library = self.producers[attempt.producer].library.name
        outcome = classify_report(code, library, may_resend=may_resend)
        if partition >= 0:
            attempt.partition = partition
        if outcome is Outcome.ACKED:
            attempt.offset = -1 if offset is None or offset < 0 else offset
            if attempt.offset < 0:
                self.producers[attempt.producer].offsets_lie = True
        self._settle(attempt, outcome, code, error)

    def _settle(self, attempt: Attempt, outcome: Outcome, code: int, error: str) -> None:
        attempt.done_ns = self.now()
        attempt.outcome, attempt.code, attempt.error, attempt.known = outcome, code, error, True
        self.changes += 1


HEADER: Final = "ackproof"
_MAGIC: Final = b"AKH1"
_FRONT: Final = struct.Struct(">4s8siqiH")
_LENGTH: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")

HeaderValue: TypeAlias = str | bytes | None
Headers: TypeAlias = "Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]] | None"


def encode(
    run_id: str, producer: int, seq: int, topic: str, partition: int, key: bytes | None, value: bytes | None
) -> bytes:
    """Return the value of the header `ackproof` for one record: its identity, and a checksum. The identity is
    (producer, seq, topic, partition); the checksum also covers `key` and `value`."""
    name = topic.encode()
    front = _FRONT.pack(_MAGIC, run_bytes(run_id), producer, seq, partition, len(name)) + name
    return front + _CRC.pack(_checksum(front, key, value))


def decode(run_id: str, header: bytes, key: bytes | None, value: bytes | None) -> Identity:
    """Return the identity in the value of a record's header `ackproof`, whose checksum also covers `key` and `value`.

    If the checksum is wrong, `intact` is False. Returns `FOREIGN` for an intact header of another run, and `NOBODY` for
    a damaged one or a header that cannot be decoded.
    """
    if len(header) < _FRONT.size + _CRC.size:
        return NOBODY
    magic, run, producer, seq, partition, length = _FRONT.unpack_from(header)
    end = _FRONT.size + length
    if magic != _MAGIC or len(header) != end + _CRC.size:
        return NOBODY
    intact = _CRC.unpack_from(header, end)[0] == _checksum(header[:end], key, value)
    if run != run_bytes(run_id):
        return FOREIGN if intact else NOBODY
    try:
        topic = header[_FRONT.size : end].decode()
    except UnicodeDecodeError:
        return NOBODY
    if producer < 0 or seq < 0:
        return NOBODY
    return Identity(producer, seq, topic, partition, intact)


def identity_of(
    run_id: str, headers: Iterable[tuple[str, HeaderValue]] | None, key: bytes | None, value: bytes | None
) -> Identity:
    """Return the identity of a record by its headers (`decode` of the header `ackproof`); `FOREIGN` if it has no such
    header, `NOBODY` if that header's value is not of type bytes."""
    for name, header in headers or ():
        if name == HEADER:
            return decode(run_id, header, key, value) if isinstance(header, bytes) else NOBODY
    return FOREIGN


def others(headers: Headers) -> list[tuple[str, HeaderValue]]:
    """Return the headers without `ackproof`: a record that is produced again gets a new identity."""
    if headers is None:
        return []
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, value) for name, value in pairs if name != HEADER]


def _checksum(front: bytes, key: bytes | None, value: bytes | None) -> int:
    crc = zlib.crc32(front)
    for part in (key, value):
        crc = zlib.crc32(_LENGTH.pack(-1 if part is None else len(part)), crc)
        crc = zlib.crc32(part or b"", crc)
    return crc
