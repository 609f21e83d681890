"""A member of a consumer group: ``python -m ackproof.clients.librdkafka.member SETTINGS.json``.

It prints the events of docs/clients.md as JSON lines on standard output, which is a file. A line is written before what
it announces: all records of a poll before the first is processed, a commit before its call. So a member that is killed
leaves a ledger of what it did.

It runs with auto.offset.reset=error and looks up its group's committed offsets at each assignment: where nothing is
committed, or a position is not in the log, it decides where to go on, and prints that.
"""

from __future__ import annotations

import gc
import json
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from confluent_kafka import OFFSET_STORED, Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from ackproof.clients.contract import EXIT_CLEAN, EXIT_ORPHAN, MemberSettings
from ackproof.clients.librdkafka.messages import identities
from ackproof.rundir.groups import CommitMetadata
from ackproof.rundir.payload_bulk import BulkDecoder

EXIT_FAILED: Final = 1
EXIT_STUCK: Final = 5
"""The library did not close in time."""
_WAIT_S: Final = 0.1
"""Longest time in seconds for which `consume` waits for a full batch."""
_ASK_S: Final = 1.0
_POSITIONS_S: Final = 30.0
"""Longest time for which a member asks for the committed offsets of an assignment; then the library looks them up."""
_CALL_S: Final = 10.0
"""Time-out of one call of the transactional producer; calls are repeated for `_INSIST_S`."""
_INSIST_S: Final = 60.0
_CLOSE_S: Final = 10.0
_REJOIN_S: Final = 0.5
_METADATA: Final = b"CGMDv2:"
"""Beginning of librdkafka's serialised group metadata; then generation (i32, host order), group, member and instance,
each but the last ending with NUL (rd_kafka_consumer_group_metadata_write)."""
_AT: Final = len(_METADATA)
_NOT_IN_THE_LOG: Final = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError._LOG_TRUNCATION,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._NO_OFFSET,
    }
)
Place: TypeAlias = tuple[str, int]
T = TypeVar("T")


class MemberFailed(Exception):
    """Raised where a member cannot go on; the text says why."""


class Lines:
    """Buffer of the member's lines. One `flush` is one write, so that a killed member leaves whole lines."""

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._lines: list[str] = []

    def add(self, event: str, **fields: object) -> None:
        """Add an event that happens now."""
        self._lines.append(
            json.dumps({"e": event, "t": time.monotonic_ns(), **fields}, separators=(",", ":"))
        )

    def add_text(self, line: str) -> None:
        self._lines.append(line)

    def flush(self) -> None:
        if self._lines:
            data = ("\n".join(self._lines) + "\n").encode()
            self._lines.clear()
            while data:
                data = data[os.write(self._descriptor, data) :]


@dataclass
class Pace:
    """Seconds that a member takes for each record now. `usual_s`: those of its settings; a fault may change it."""

    usual_s: float
    record_s: float

    def change(self, seconds: str) -> None:
        """Take this time from the next record on; '': the usual one."""
        self.record_s = float(seconds) if seconds else self.usual_s


class MemberProcess:
    """One member: polls, processes, commits as its settings say, and prints it all. Everything runs in one thread;
    `stop` is set by another."""

    def __init__(self, settings: MemberSettings, pace: Pace, stop: threading.Event, lines: Lines) -> None:
        self.settings = settings
        self.pace = pace
        self.stop = stop
        self.lines = lines
        self.decode = BulkDecoder(settings.run_id, tuple(settings.topics))
        self.name = {topic: json.dumps(topic) for topic in settings.topics}
        self.member_id = ""
        self.generation = -1
        """Generation or member epoch that it had last; `sent_generation` is -1 as soon as the library lost it."""
        self.sent_generation = -1
        self.batch = self.number = -1
        self.positions: dict[Place, int] = {}
        """Next offset of each assigned partition; -1 unknown."""
        self.processed: dict[Place, int] = {}
        self.committed: dict[Place, int] = {}
        self.resets: dict[Place, str] = {}
        """Assigned partitions whose position is not in the log, with the library's name of the error."""
        self.commit_at = time.monotonic() + settings.commit_s
        self.failure = ""
        self.producer: Producer | None = None
        self.client = self._join()

    def run(self) -> int:
        """Work until asked to stop; then leave the group. Return the exit status. Raises `MemberFailed`, and
        KafkaException for an error after which the library cannot go on."""
        self.lines.add("started", client=self.settings.client)
        self.lines.flush()
        if self.settings.output:
            self.producer = self._start_producer()
        while not self.stop.is_set():
            messages = self.client.consume(self.settings.batch, _WAIT_S)
            records = [message for message in messages if message.error() is None]
            if len(records) < len(messages):
                self._take_errors(message for message in messages if message.error() is not None)
            if self.resets:
                self._resume()
            if records:
                self._take(records)
            self._commit_in_time()
            self.lines.flush()
        if self.settings.commit == "timed":
            self._commit_processed()
        self.lines.add("stopping")
        self.lines.flush()
        bound = threading.Timer(_CLOSE_S, os._exit, (EXIT_STUCK,))
        bound.daemon = True
        bound.start()  # closing may take librdkafka forever when brokers came and went (its issue 4674)
        self.client.close()
        if self.producer is not None:
            self.producer.flush()
        bound.cancel()
        self.lines.add("closed", m=self.member_id, g=self.generation)
        self.lines.flush()
        return EXIT_CLEAN

    # -- group ------------------------------------------------------------------------------------------------------

    def _join(self) -> Consumer:
        client = Consumer({**self.settings.config, "error_cb": _on_error})
        client.subscribe(
            list(self.settings.topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        return client

    def _read_group(self) -> None:
        """Read member id and generation from the library, which has no function for the latter. Member epochs move
        without a callback (KIP-848)."""
        raw = self.client.consumer_group_metadata()
        self.sent_generation = -1
        if raw is not None and raw.startswith(_METADATA):
            self.sent_generation = struct.unpack_from("=i", raw, _AT)[0]
            member = raw[_AT + 4 :].split(b"\0")[1].decode()
            self.member_id = member or self.member_id
        if self.sent_generation > 0:
            self.generation = self.sent_generation

    def _tell_change(self, event: str, parts: Sequence[ClientPartition]) -> None:
        self._read_group()
        places = [[part.topic, part.partition] for part in parts]
        self.lines.add(event, m=self.member_id, g=self.generation, ps=places)
        self.lines.flush()

    def _on_assign(self, client: Consumer, parts: list[ClientPartition]) -> None:
        self.client = client
        self._tell_change("assigned", parts)
        starts = []
        for place, offset in self._committed(parts).items():
            self.positions[place] = self.committed[place] = offset
            if offset < 0:
                self._place(place, "_NO_OFFSET")
            starts.append(place)
        self._assign(starts)

    def _on_revoke(self, client: Consumer, parts: list[ClientPartition]) -> None:
        if self.settings.commit == "timed":
            self._commit_processed({(part.topic, part.partition) for part in parts})
        self._tell_change("revoked", parts)
        self._forget(parts)

    def _on_lost(self, client: Consumer, parts: list[ClientPartition]) -> None:
        self._tell_change("lost", parts)
        self._forget(parts)

    def _forget(self, parts: Iterable[ClientPartition]) -> None:
        for part in parts:
            for known in (self.positions, self.processed, self.committed, self.resets):
                known.pop((part.topic, part.partition), None)

    def _committed(self, parts: Sequence[ClientPartition]) -> dict[Place, int]:
        """Ask the coordinator for the group's committed offsets, and print them; -1: none. All -1001, which leaves it
        to the library, if it does not answer for `_POSITIONS_S`."""
        places = [(part.topic, part.partition) for part in parts]
        until = time.monotonic() + _POSITIONS_S
        while places and time.monotonic() < until and not self.stop.is_set():
            try:
                answers = self.client.committed([ClientPartition(*place) for place in places], _ASK_S)
            except KafkaException as error:
                _on_error(error.args[0])
                continue
            if not any(answer.error for answer in answers):
                found = {(answer.topic, answer.partition): max(-1, answer.offset) for answer in answers}
                self.lines.add(
                    "position",
                    m=self.member_id,
                    g=self.generation,
                    os=[[*place, found[place]] for place in places],
                )
                self.lines.flush()
                return {place: found[place] for place in places}
        return dict.fromkeys(places, OFFSET_STORED)

    def _assign(self, places: Sequence[Place]) -> None:
        """Assign partitions at their positions. Those that could not be placed yet start when the library reports that
        nothing is committed."""
        parts = [
            ClientPartition(*place, position if (position := self.positions[place]) >= 0 else OFFSET_STORED)
            for place in places
        ]
        if self.settings.cooperative:
            self.client.incremental_assign(parts)
        else:
            self.client.assign(parts)

    def _place(self, place: Place, why: str) -> bool:
        """Set the position of a partition that has none in the log, and print it. Return False if its leader does not
        answer. Raises `MemberFailed` if the settings say so."""
        position = self.positions.get(place, -1)
        policy = self.settings.start if position < 0 else self.settings.reset
        if policy in ("committed", "error"):
            raise MemberFailed(f"{place[0]}/{place[1]}: nothing to go on from at {position} ({why})")
        try:
            low, high = self.client.get_watermark_offsets(ClientPartition(*place), timeout=_ASK_S)
        except KafkaException:
            return False
        to = low if policy == "earliest" else high
        fields = {"topic": place[0], "p": place[1], "from": position, "to": to, "why": why}
        self.lines.add("reset", m=self.member_id, g=self.generation, **fields)
        self.lines.flush()
        self.positions[place] = to
        return True

    def _take_errors(self, messages: Iterable[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is None:
                continue
            if error.fatal() or error.code() == KafkaError._FATAL:
                raise KafkaException(error)
            place = message.topic() or "", message.partition() if message.partition() is not None else -1
            if error.code() in _NOT_IN_THE_LOG and place in self.positions:
                self.resets[place] = "_NO_OFFSET" if self.positions[place] < 0 else error.name()
            else:
                _on_error(error)

    def _resume(self) -> None:
        """Place the partitions whose position is not in the log, and assign them again once their leaders answer."""
        placed = [place for place, why in self.resets.items() if self._place(place, why)]
        for place in placed:
            del self.resets[place]
        if placed and self.settings.cooperative:
            self.client.incremental_unassign([ClientPartition(*place) for place in placed])
            self._assign(placed)
        elif placed:
            self._assign(list(self.positions))

    def _seek(self, place: Place, offset: int) -> None:
        try:
            self.client.seek(ClientPartition(*place, offset))
        except KafkaException as error:
            _on_error(error.args[0])  # it is not assigned any more: another member goes on
        else:
            self.positions[place] = offset

    # -- records ----------------------------------------------------------------------------------------------------

    def _take(self, records: Sequence[Message]) -> None:
        """Print all records of a poll, then process and commit them."""
        self._read_group()
        self.batch += 1
        found = identities(records, self.decode)
        told = f'"g":{self.generation},"batch":{self.batch}'
        t_ns = time.monotonic_ns()
        for record, producer, seq in zip(
            records, _numbers(found["producer"]), _numbers(found["seq"]), strict=True
        ):
            place, offset = _place_of(record), record.offset() or 0
            self.positions[place] = offset + 1
            self.lines.add_text(
                f'{{"e":"delivered","t":{t_ns},"topic":{self.name[place[0]]},"p":{place[1]},"o":{offset},'
                f'"id":[{producer},{seq}],{told}}}'
            )
        self.lines.flush()
        ends = {_place_of(record): (record.offset() or 0) + 1 for record in records}
        match self.settings.commit:
            case "before":
                if self._commit(ends):
                    self._process(records)
                else:
                    self._go_back(records)
            case "transaction":
                self._transact(records, ends)
            case "after":
                self._process(records)
                self._commit(ends)
            case _:
                self._process(records)

    def _go_back(self, records: Sequence[Message]) -> None:
        """Poll these records again."""
        for place, offset in _begins(records).items():
            self._seek(place, offset)

    def _process(self, records: Sequence[Message]) -> None:
        """Process records; a copy counts as processed when its broker has acknowledged it."""
        producer = self.producer
        for record in records:
            if self.pace.record_s > 0:
                _work(self.pace.record_s)
            if producer is None:
                self._tell_processed(record)
            else:
                self._copy(producer, record, self._on_copied(record))
                producer.poll(0)
            if self.pace.record_s > 0:
                self._commit_in_time()
                self.lines.flush()
        if producer is not None:
            producer.flush()
            if self.failure:
                raise MemberFailed(f"a copy was not acknowledged: {self.failure}")
        self.lines.flush()

    def _tell_processed(self, record: Message) -> None:
        place, offset = _place_of(record), record.offset() or 0
        self.processed[place] = offset + 1
        self.lines.add_text(
            f'{{"e":"processed","t":{time.monotonic_ns()},"topic":{self.name[place[0]]},"p":{place[1]},"o":{offset}}}'
        )

    def _on_copied(self, record: Message) -> Callable[[KafkaError | None, Message], None]:
        def told(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self._tell_processed(record)
            else:
                self.failure = self.failure or error.name()

        return told

    def _copy(
        self,
        producer: Producer,
        record: Message,
        told: Callable[[KafkaError | None, Message], None] | None = None,
    ) -> None:
        """Copy a record to the same partition of the output."""
        while True:
            try:
                producer.produce(
                    self.settings.output,
                    record.value(),
                    record.key(),
                    partition=record.partition() or 0,
                    headers=record.headers() or [],
                    on_delivery=told or _ignore,
                )
                return
            except BufferError:
                producer.poll(_WAIT_S)

    # -- commits ----------------------------------------------------------------------------------------------------

    def _offsets(self, number: int, ends: Mapping[Place, int], generation: int) -> list[ClientPartition]:
        metadata = str(CommitMetadata(self.settings.member, generation, number))
        return [ClientPartition(*place, offset, metadata=metadata) for place, offset in ends.items()]

    def _tell_commit(self, number: int, ends: Mapping[Place, int], generation: int) -> None:
        self.lines.add(
            "commit", n=number, g=generation, os=[[*place, offset] for place, offset in ends.items()]
        )
        self.lines.flush()

    def _commit(self, ends: Mapping[Place, int]) -> bool:
        """Commit offsets and wait for the answer. Return True if they were accepted."""
        self.number += 1
        number, error = self.number, ""
        self._read_group()
        self._tell_commit(number, ends, self.sent_generation)
        try:
            offsets = self._offsets(number, ends, self.sent_generation)
            answers = self.client.commit(offsets=offsets, asynchronous=False) or []
            error = next((answer.error.name() for answer in answers if answer.error is not None), "")
        except KafkaException as raised:
            error = raised.args[0].name()
        self._read_group()
        self.lines.add("committed", n=number, g=self.sent_generation, **({"x": error} if error else {}))
        self.lines.flush()
        if not error:
            self.committed.update(ends)
        return not error

    def _commit_in_time(self) -> None:
        if self.settings.commit == "timed" and time.monotonic() >= self.commit_at:
            self._commit_processed()
            self.commit_at = time.monotonic() + self.settings.commit_s

    def _commit_processed(self, places: set[Place] | None = None) -> None:
        """Commit what was processed and is not committed, of these partitions; None: of all."""
        ends = {
            place: offset
            for place, offset in self.processed.items()
            if (places is None or place in places) and offset != self.committed.get(place)
        }
        if ends:
            self._commit(ends)

    # -- transactions -----------------------------------------------------------------------------------------------

    def _start_producer(self) -> Producer:
        producer = Producer({**self.settings.output_config, "error_cb": _on_error})
        if self.settings.commit == "transaction":
            _insist(lambda: producer.init_transactions(_CALL_S))
        return producer

    def _transact(self, records: Sequence[Message], ends: Mapping[Place, int]) -> None:
        """Copy records and send their offsets in one transaction. Go back to the committed offsets if that fails."""
        producer, named = self.producer, self.settings.group_metadata
        if producer is None:
            raise MemberFailed("transactions need an output")
        self.number += 1
        number = self.number
        self.lines.add("begin", n=number, g=self.generation)
        try:
            producer.begin_transaction()
            for record in records:
                if self.pace.record_s > 0:
                    _work(self.pace.record_s)
                self._copy(producer, record)
                self._tell_processed(record)
                if self.pace.record_s > 0:
                    self.lines.flush()
            self._read_group()
            group = self.client.consumer_group_metadata() if named else self._nobody()
            generation = self.sent_generation if named else self.generation
            self._tell_commit(number, ends, generation)
            offsets = self._offsets(number, ends, generation)
            _insist(lambda: producer.send_offsets_to_transaction(offsets, group, _CALL_S))
            _insist(lambda: producer.commit_transaction(_CALL_S))
        except KafkaException as error:
            self._abort(producer, number, error.args[0], _begins(records))
            return
        self._read_group()
        self.lines.add("ended", n=number, g=self.generation)
        self.lines.flush()
        self.committed.update(ends)

    def _nobody(self) -> bytes:
        """Return group metadata without member and generation, as producers sent it before KIP-447."""
        return _METADATA + struct.pack("=i", -1) + self.settings.group.encode() + b"\0\0\x01"

    def _abort(self, producer: Producer, number: int, error: KafkaError, begins: Mapping[Place, int]) -> None:
        """Abort a transaction that failed, and poll its records again from the committed offsets on.

        What the error says of itself does not decide: a transaction that timed out fails with _STATE. After a fatal
        error the outcome is unknown, and another producer with the transactional id takes over.
        """
        aborted = False
        try:
            if not error.fatal():
                _insist(lambda: producer.abort_transaction(_CALL_S))
                aborted = True
        except KafkaException as refused:
            _on_error(refused.args[0])
        self.lines.add("ended", n=number, g=self.generation, x=error.name(), aborted=aborted)
        self.lines.flush()
        if not aborted:
            self.producer = self._start_producer()
        parts = self.client.assignment()
        for place, offset in self._committed(parts).items():
            if offset >= 0:
                self._seek(place, offset)
            elif place in begins:
                self._seek(place, begins[place])


def _ignore(error: KafkaError | None, record: Message) -> None:
    """Do nothing: the transaction decides about a copy."""


def _begins(records: Iterable[Message]) -> dict[Place, int]:
    """Return the first offset of each partition among these records."""
    begins: dict[Place, int] = {}
    for record in records:
        begins.setdefault(_place_of(record), record.offset() or 0)
    return begins


def _place_of(record: Message) -> Place:
    return record.topic() or "", record.partition() or 0


def _numbers(column: object) -> list[int]:
    return column.tolist()  # type: ignore[attr-defined, no-any-return]


def _work(seconds: float) -> None:
    """Take the time that a record takes, even if the member was asked to stop: the batch is finished first."""
    threading.Event().wait(seconds)


def _insist(call: Callable[[], T]) -> T:
    """Call until the library does not say that the call can be repeated. Raises KafkaException."""
    until = time.monotonic() + _INSIST_S
    while True:
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() >= until:
                raise


def _on_error(error: KafkaError) -> None:
    sys.stderr.write(f"{error.name()}: {error.str()}\n")
    sys.stderr.flush()


def _listen(stop: threading.Event, pace: Pace) -> None:
    """Follow standard input: `stop` sets `stop`, `record_time SECONDS` changes the pace, `record_time` sets it back.
    The end of input means that the harness is gone."""
    for line in sys.stdin:
        word, _, seconds = line.strip().partition(" ")
        if word == "stop":
            stop.set()
        elif word == "record_time":
            pace.change(seconds)
    os._exit(EXIT_ORPHAN)


def main(arguments: list[str]) -> int:
    """Run a member; the one argument is its settings file."""
    settings = MemberSettings.read(Path(arguments[0]))
    stop, pace = threading.Event(), Pace(settings.record_s, settings.record_s)
    threading.Thread(target=_listen, args=(stop, pace), daemon=True).start()
    gc.disable()
    lines = Lines()
    try:
        return MemberProcess(settings, pace, stop, lines).run()
    except (KafkaException, MemberFailed) as error:
        lines.flush()
        sys.stderr.write(f"{error}\n")
        return EXIT_FAILED


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)
