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
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from ackproof.clients.contract import EXIT_CLEAN, EXIT_ORPHAN, MemberSettings
from ackproof.clients.librdkafka.adapter import TRANSACTION_CALL_S
from ackproof.clients.librdkafka.membership import (
    InstanceTaken,
    Lines,
    MemberFailed,
    Membership,
    Place,
    place_of,
)
from ackproof.clients.librdkafka.messages import identities, offsets, show_error
from ackproof.rundir.groups import CommitMetadata
from ackproof.rundir.payload_bulk import BulkDecoder

EXIT_FAILED: Final = 1
EXIT_STUCK: Final = 5
"""Exit status of a member whose library did not close within `_CLOSE_S`."""
_WAIT_S: Final = 0.1
"""Longest time in seconds for which `consume` waits for a full batch."""
_INSIST_S: Final = 60.0
"""Seconds for which a call of the transactional producer is repeated after retriable errors."""
_REPEAT_S: Final = 0.1
"""Seconds of pause before a call is repeated, because some errors are returned at once."""
_CLOSE_S: Final = 10.0
_AGAIN_S: Final = 0.5


@dataclass
class Pace:
    """Time in seconds that a member takes for each record (`record_s`). A fault may change it during the run."""

    record_s: float


class MemberProcess:
    """One group member: it polls, processes records, commits as its settings say, and prints an event for each step.
    Everything runs in one thread; another thread sets `stop`."""

    def __init__(self, settings: MemberSettings, pace: Pace, stop: threading.Event) -> None:
        self.settings = settings
        self.pace = pace
        self.stop = stop
        self.lines = Lines()
        self.decode = BulkDecoder(settings.run_id, tuple(settings.topics))
        self.names = {topic: json.dumps(topic) for topic in settings.topics}
        self.batch = self.number = -1
        self.commit_at = time.monotonic() + settings.commit_s
        self.failure = ""
        """Name of the first error of a copy that was not acknowledged; '' if there was none."""
        self.lines.add("started", client=settings.client)
        self.lines.flush()
        self.producer = self._start_producer() if settings.output else None
        self.group = self._join()

    def run(self) -> int:
        """Work until asked to stop; then leave the group. Return the exit status. Ends the process with
        `EXIT_STUCK` if the library does not close within `_CLOSE_S`. Raises `MemberFailed`, and
        KafkaException for an error after which the library cannot go on."""
        while not self.stop.is_set():
            messages = self.group.client.consume(self.settings.batch, _WAIT_S)
            records = [message for message in messages if message.error() is None]
            try:
                self.group.take_errors(messages)
            except InstanceTaken:  # fatal: the library's consumer cannot go on
                self.group.client.close()
                self.stop.wait(_AGAIN_S)
                self.group = self._join()
            if records:
                self._take(records)
            elif self.settings.commit == "after":
                self._commit_processed()  # what was refused while the group rebalanced
            self.group.resume()  # a reset comes after the records that were delivered before it
            self._commit_in_time()
        self._commit_processed()
        self.lines.add("stopping")
        self.lines.flush()
        # Closing may take librdkafka forever when brokers came and went (its issue 4674).
        bound = threading.Timer(_CLOSE_S, os._exit, (EXIT_STUCK,))
        bound.daemon = True
        bound.start()
        self.group.client.close()
        self.group.tell("closed")
        return EXIT_CLEAN

    def _join(self) -> Membership:
        return Membership(self.settings, self.stop, self.lines, self._on_revoking)

    # -- records ----------------------------------------------------------------------------------------------------

    def _take(self, records: Sequence[Message]) -> None:
        """Print all records of a poll as delivered; then process and commit them as the settings say."""
        self.group.look()
        self.batch += 1
        found = identities(records, self.decode)
        told = f'"g":{self.group.generation},"batch":{self.batch}}}'
        columns = offsets(records).tolist(), found["producer"].tolist(), found["seq"].tolist()
        rows = zip(map(place_of, records), *columns, strict=True)
        t_ns = time.monotonic_ns()
        for (topic, number), offset, producer, seq in rows:
            where = f'"topic":{self.names[topic]},"p":{number},"o":{offset}'
            self.lines.add_text(f'{{"e":"delivered","t":{t_ns},{where},"id":[{producer},{seq}],{told}')
        self.lines.flush()
        begins, ends = _bounds(records)
        self.group.positions.update(
            (place, end) for place, end in ends.items() if place in self.group.positions
        )
        match self.settings.commit:
            case "transaction":
                self._transact(records, begins, ends)
            case "before":
                if self._commit(ends):
                    self._process(records)
                else:
                    self._go_back(begins)
            case "after":
                self._process(records)
                self._commit_processed()
            case _:
                self._process(records)

    def _go_back(self, begins: Mapping[Place, int]) -> None:
        for place, offset in begins.items():
            self.group.seek(place, offset)

    def _process(self, records: Sequence[Message]) -> None:
        """Process records: print each as processed or, with an output, copy it there. A copy is processed once its
        broker has acknowledged it. Raises `MemberFailed` if a copy was not acknowledged."""
        for record in records:
            self._work()
            if self.producer is None:
                self._tell_processed(record)
            else:
                self._copy(self.producer, record, partial(self._on_copied, record))
                self.producer.poll(0)
            if self.pace.record_s > 0:
                self._commit_in_time()
                self.lines.flush()
        if self.producer is not None:
            self.producer.flush()
            if self.failure:
                self.lines.flush()
                raise MemberFailed(f"a copy was not acknowledged: {self.failure}")
        self.lines.flush()

    def _work(self) -> None:
        """Wait as long as a record takes to process, also if the member was asked to stop: it finishes the batch."""
        if self.pace.record_s > 0:
            threading.Event().wait(self.pace.record_s)

    def _tell_processed(self, record: Message) -> None:
        (topic, number), offset = place_of(record), record.offset() or 0
        if self.settings.commit in ("after", "timed") and (topic, number) in self.group.positions:
            self.group.uncommitted[topic, number] = offset + 1
        where = f'"topic":{self.names[topic]},"p":{number},"o":{offset}'
        self.lines.add_text(f'{{"e":"processed","t":{time.monotonic_ns()},{where}}}')

    def _on_copied(self, record: Message, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self._tell_processed(record)
        else:
            self.failure = self.failure or error.name()

    def _copy(
        self, producer: Producer, record: Message, told: Callable[[KafkaError | None, Message], None]
    ) -> None:
        """Copy a record to the same partition of the output topic. `told` is called with the delivery report. Waits
        while the library's queue is full."""
        while True:
            try:
                producer.produce(
                    self.settings.output,
                    record.value(),
                    record.key(),
                    partition=record.partition() or 0,
                    headers=record.headers() or [],
                    on_delivery=told,
                )
                return
            except BufferError:
                producer.poll(_WAIT_S)

    # -- commits ----------------------------------------------------------------------------------------------------

    def _tell_commit(self, number: int, ends: Mapping[Place, int], generation: int) -> list[ClientPartition]:
        """Print the event of a commit with this number, and return its offsets in the library's form. `ends`: partition
        → offset to commit."""
        self.lines.add(
            "commit", n=number, g=generation, os=[[*place, offset] for place, offset in ends.items()]
        )
        self.lines.flush()
        metadata = str(CommitMetadata(self.settings.member, generation, number))
        return [ClientPartition(*place, offset, metadata=metadata) for place, offset in ends.items()]

    def _commit(self, ends: Mapping[Place, int]) -> bool:
        """Commit these offsets (partition → offset), wait for the answer and print it. Return True if all were
        accepted."""
        self.number += 1
        number, group = self.number, self.group
        group.look()
        committed = self._tell_commit(number, ends, group.sent_generation)
        try:
            answers = group.client.commit(offsets=committed, asynchronous=False) or []
            error = next((answer.error.name() for answer in answers if answer.error is not None), "")
        except KafkaException as raised:
            error = raised.args[0].name()
        group.look()
        self.lines.add("committed", n=number, g=group.sent_generation, **({"x": error} if error else {}))
        self.lines.flush()
        return not error

    def _commit_in_time(self) -> None:
        if self.settings.commit == "timed" and time.monotonic() >= self.commit_at:
            self._commit_processed()
            self.commit_at = time.monotonic() + self.settings.commit_s

    def _on_revoking(self, places: Collection[Place]) -> None:
        if self.settings.commit == "timed":
            self._commit_processed(places)

    def _commit_processed(self, places: Collection[Place] | None = None) -> None:
        """Commit what was processed of these partitions (None: of all). What is refused is committed later, as long as
        the partition is assigned."""
        due = self.group.uncommitted
        ends = {place: end for place, end in due.items() if places is None or place in places}
        if ends and self._commit(ends):
            for place in ends:
                due.pop(place, None)

    # -- transactions -----------------------------------------------------------------------------------------------

    def _start_producer(self) -> Producer:
        producer = Producer({**self.settings.output_config, "error_cb": show_error})
        if self.settings.commit == "transaction":
            _insist(lambda: producer.init_transactions(TRANSACTION_CALL_S))
        return producer

    def _transact(
        self, records: Sequence[Message], begins: Mapping[Place, int], ends: Mapping[Place, int]
    ) -> None:
        """Copy records and commit their offsets in one transaction. If that fails, abort it and go back to the
        committed offsets. `begins`, `ends`: first offset, and offset after the last, of each partition."""
        producer, group, named = self.producer, self.group, self.settings.group_metadata
        if producer is None:
            raise MemberFailed("a transaction needs an output")
        self.number += 1
        number = self.number
        self.lines.add("begin", n=number, g=group.generation)
        try:
            producer.begin_transaction()
            for record in records:
                self._work()
                self._copy(producer, record, lambda *_: None)  # its transaction decides whether it counts
                self._tell_processed(record)
                if self.pace.record_s > 0:
                    self.lines.flush()
            group.look()
            member = group.client.consumer_group_metadata() if named else group.nobody()
            committed = self._tell_commit(number, ends, group.sent_generation if named else group.generation)
            _insist(lambda: producer.send_offsets_to_transaction(committed, member, TRANSACTION_CALL_S))
            _insist(lambda: producer.commit_transaction(TRANSACTION_CALL_S))
        except KafkaException as error:
            self._abort(producer, number, error.args[0], begins)
            return
        group.look()
        self.lines.add("ended", n=number, g=group.generation)
        self.lines.flush()

    def _abort(self, producer: Producer, number: int, error: KafkaError, begins: Mapping[Place, int]) -> None:
        """Abort a transaction that failed, and go back to the committed offsets.

        It is aborted after any error that is neither fatal nor retriable, also if the library does not ask for that: a
        transaction that timed out fails with _STATE. After a fatal error, after a retriable one (the library still has
        the call in progress), and if the abort fails, another producer with the transactional id takes over.
        """
        aborted = False
        try:
            if not (error.fatal() or error.retriable()):
                _insist(lambda: producer.abort_transaction(TRANSACTION_CALL_S))
                aborted = True
        except KafkaException as refused:
            show_error(refused.args[0])
        self.group.look()
        self.lines.add("ended", n=number, g=self.group.generation, x=error.name(), aborted=aborted)
        self.lines.flush()
        if not aborted:
            self.producer = self._start_producer()
        committed = self.group.ask_committed(self.group.client.assignment())
        self._go_back({**begins, **{place: end for place, end in committed.items() if end >= 0}})


def _bounds(records: Iterable[Message]) -> tuple[dict[Place, int], dict[Place, int]]:
    """Return the first offset, and the offset after the last, of each partition among these records."""
    begins: dict[Place, int] = {}
    ends: dict[Place, int] = {}
    for record in records:
        place, offset = place_of(record), record.offset() or 0
        begins.setdefault(place, offset)
        ends[place] = offset + 1
    return begins, ends


def _insist(call: Callable[[], None]) -> None:
    """Repeat `call` while it fails with a retriable error. Raises KafkaException for any other error, and for a
    retriable one `_INSIST_S` seconds or more after the start."""
    until = time.monotonic() + _INSIST_S
    while True:
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() >= until:
                raise
            show_error(error.args[0])
            time.sleep(_REPEAT_S)


def _listen(stop: threading.Event, pace: Pace) -> None:
    """Follow the commands on standard input, one a line. The line `stop` sets the event `stop`. `record_time SECONDS`
    changes the pace; `record_time` without a number restores the first one. At the end of input the harness is gone,
    and the process ends with `EXIT_ORPHAN`."""
    usual_s = pace.record_s
    for line in sys.stdin:
        word, _, seconds = line.strip().partition(" ")
        if word == "stop":
            stop.set()
        elif word == "record_time":
            pace.record_s = float(seconds) if seconds else usual_s
    os._exit(EXIT_ORPHAN)


def main(arguments: list[str]) -> int:
    """Run a member; the one argument is its settings file. Return the exit status: `EXIT_FAILED` if the member could
    not go on, with the reason on standard error."""
    settings = MemberSettings.read(Path(arguments[0]))
    stop, pace = threading.Event(), Pace(settings.record_s)
    threading.Thread(target=_listen, args=(stop, pace), daemon=True).start()
    gc.disable()  # messages make no reference cycles
    try:
        return MemberProcess(settings, pace, stop).run()
    except (KafkaException, MemberFailed) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_FAILED


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)
