"""A reader process: ``python -m ackproof.clients.librdkafka.reader SETTINGS.json``.

It assigns itself all partitions of its settings, joins no group, and writes a ledger row for each record. A live reader
starts at the beginning of the log, or at its group's committed offsets, and reads until it is asked to stop. The final
reader reads each partition from the start offset to the end offset of its settings, and writes `result.json`. It gives
up if it makes no progress for `idle_s` seconds.

No reader skips records silently: it runs with auto.offset.reset=error. If the position of a live reader is not in the
log any more (the log was truncated, or retention passed it), the reader writes an event and resumes under a new
assignment number (`resume_offset`).
"""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from ackproof.clients.channel import ClientState, Events, SharedCounters, listen
from ackproof.clients.contract import EXIT_CLEAN, ReaderSettings
from ackproof.clients.librdkafka.messages import (
    PartitionIndex,
    committed_offsets,
    identities,
    leader_epochs,
    log_bounds,
    offsets,
    resume_offset,
    show_error,
    timestamps_ms,
    truncation_offset,
)
from ackproof.clients.parts import Column, PartWriter, RowBuffer
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload_bulk import BulkDecoder

_BATCH: Final = 1000
_WAIT_S: Final = 0.05
"""Longest time in seconds for which `consume` waits for a full batch."""
_QUIET_S: Final = 0.4
"""A reader that was asked to stop closes after this many seconds without a record, if it does not know the log ends."""
_STUCK_S: Final = 1.5
"""Like `_QUIET_S`, for a reader that knows the log ends. It then expects no more records: only control records are
left, or the broker withholds records."""
_DRAIN_S: Final = 5.0
"""Longest time in seconds for which a reader reads on after it was asked to stop."""
_ASK_S: Final = 0.5
_BOUNDS_S: Final = 2.0
"""Time-out in seconds of each of the two requests for the bounds of all logs, once the reader was asked to stop."""
_ANSWER_S: Final = 10.0
"""The reader gives up a commit without an answer after this many seconds, and commits again."""
_TELL_MS: Final = 200

_NOT_IN_THE_LOG: Final = frozenset(
    {KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE}
)


class ReaderProcess:
    """One reader process: it reads its partitions and writes its ledger.

    `positions[i]` is the offset to read next in partition `places[i]`; -1: the beginning of the log.
    """

    def __init__(self, settings: ReaderSettings, folder: Path) -> None:
        run = CaseDir(Path(settings.case_dir))
        self.settings = settings
        self.folder = folder
        self.stop = listen()
        self.events = Events(folder / "events.jsonl", settings.origin_ns)
        self.counters = SharedCounters(folder / "counters", len(settings.places))
        self.ledger = run.consumed / client_folder(settings.client)
        self.ledger.mkdir(parents=True, exist_ok=True)
        self.index = PartitionIndex(settings.places)
        self.number = {place: number for number, place in enumerate(settings.places)}
        self.decode = BulkDecoder(settings.run_id, tuple({place.topic: 0 for place in settings.places}))
        self.parts = PartWriter(self.ledger, settings, self.decode.origins)
        starts = (-1,) * len(settings.places) if settings.ends is None else settings.starts
        self.positions = np.array(starts, np.int64)
        self.reached = np.array(starts, np.int64)
        """Like `positions`, but never lower than before. It includes control records at the end of a partition, which
        librdkafka reports to the final reader only."""
        self.counts = np.frombuffer(self.counters.counts, np.int64)
        self.assignment = settings.share - 1
        self.read_seq = settings.first_read_seq
        self.resets: dict[int, int | None] = {}
        self.problems: dict[int, str] = {}
        self.buffer = self._new_buffer()
        self.flush_at = time.monotonic() + settings.flush_s
        statistics = (
            {"statistics.interval.ms": _TELL_MS, "stats_cb": self._report_sources} if settings.tells else {}
        )
        self.commit_at = math.inf if settings.commit_s is None else time.monotonic() + settings.commit_s
        self.commit: tuple[int, list[tuple[str, int, int]]] | None = None
        """The commit that has no answer yet, None without one: its start in ns since the run's start, and (topic,
        partition, offset) of each partition."""
        self.give_up_at = math.inf
        self.due: tuple[int, list[tuple[str, int, int]]] | None = None
        """The next commit, None if none is due: how many buffers must be in the ledger first, and (topic, partition,
        offset) of each partition."""
        callbacks = {"error_cb": show_error, "on_commit": self._on_commit}
        self.client = Consumer({**settings.config, **statistics, **callbacks})

    def run(self) -> int:
        """Read until asked to stop, write the last ledger part, and return the exit status `EXIT_CLEAN`. A live reader
        that is asked to stop first reads on to the log ends, for at most `_DRAIN_S`. A final reader also ends at its
        end offsets, or without progress for `idle_s`. Raises KafkaException for an error of the library that is fatal
        or concerns none of the partitions, OSError if a file cannot be written."""
        if not self.settings.from_committed or self._start_at_committed():
            self._assign()
        self.counters.stage = ClientState.READY
        if self.settings.ends is None:
            self._read_live()
            self.commit_at, answered_by = math.inf, time.monotonic() + _ASK_S
            while self.commit is not None and time.monotonic() < answered_by:
                self._step()
        else:
            self._read_to_ends(np.array(self.settings.ends, np.int64), self.settings.idle_s)
        self.counters.stage = ClientState.STOPPING
        self._flush()
        self.parts.finish()
        if (
            self.settings.shares == 1
        ):  # with several processes the harness writes `_END` after the last has ended
            from ackproof.rundir.parts import mark_end

            mark_end(self.ledger)
        self.counters.stage = ClientState.CLOSED
        return EXIT_CLEAN

    def _start_at_committed(self) -> bool:
        """Set the positions to the group's committed offsets, and write a line of `rundir.observed.CommittedStart`.

        Return False if the reader was asked to stop before the coordinator answered; it then reads nothing.
        """
        starts = committed_offsets(self.client, self.settings.places, self.stop)
        if starts is None:
            return False
        self.positions[:] = self.reached[:] = starts
        rows = [(*place, start) for place, start in zip(self.settings.places, starts, strict=True)]
        self._write_line("starts", t_ns=self._now_ns(), group=self.settings.config["group.id"], offsets=rows)
        return True

    def _read_live(self) -> None:
        stop = self.stop
        while not stop.is_set():
            self._step()
        bounds = log_bounds(self.client, self.settings.places, _BOUNDS_S)
        patience_s = _QUIET_S if bounds is None else _STUCK_S
        began = quiet_since = time.monotonic()
        while time.monotonic() - began < _DRAIN_S and time.monotonic() - quiet_since < patience_s:
            if bounds is not None and (np.maximum(self.positions, bounds[0]) >= bounds[1]).all():
                break
            if self._step():
                quiet_since = time.monotonic()

    def _read_to_ends(self, ends: npt.NDArray[np.int64], idle_s: float) -> None:
        moved = time.monotonic()
        while not self.stop.is_set() and (self.reached < ends).any() and time.monotonic() - moved < idle_s:
            before = int(self.reached.sum())
            self._step()
            if int(self.reached.sum()) != before:
                moved = time.monotonic()
        result = {
            "positions": self.reached.tolist(),
            "records": self.counts.tolist(),
            "problems": {str(self.settings.places[number]): text for number, text in self.problems.items()},
        }
        temporary = self.folder / ".result.json.tmp"
        temporary.write_text(json.dumps(result), encoding="utf-8")
        temporary.replace(self.folder / "result.json")

    def _step(self) -> int:
        """Consume one batch into the buffer. Then resume, commit and write a ledger part if that is due. Return how
        many records the batch had."""
        messages = self.client.consume(_BATCH, _WAIT_S)
        read_ns = self._now_ns()
        stamps = timestamps_ms(messages)
        # Find errors by their missing timestamp: this takes half the time of calling error() on each message.
        if messages and stamps.min() < 0 and any(map(Message.error, messages)):
            self._take_errors(messages)
            messages = [message for message in messages if message.error() is None]
            stamps = timestamps_ms(messages)
        if messages:
            self._take(messages, stamps, read_ns)
        if self.resets:
            self._resume()
        if time.monotonic() >= self.commit_at:
            self._commit()
        if self.buffer.used and (
            self.buffer.used >= self.buffer.capacity or time.monotonic() >= self.flush_at
        ):
            self._flush()
        return len(messages)

    def _take(self, messages: list[Message], stamps: npt.NDArray[np.int64], read_ns: int) -> None:
        place, offset = self.index.find(messages), offsets(messages)
        if self.buffer.used == 0:
            self.flush_at = time.monotonic() + self.settings.flush_s
        columns: dict[str, Column | int] = {
            "place": place,
            "assignment": self.assignment,
            "offset": offset,
            "leader_epoch": leader_epochs(messages),
            "read_ns": read_ns,
            "timestamp_ms": stamps,
            **identities(messages, self.decode),
        }
        self.buffer.add(len(messages), columns)
        self.read_seq += len(messages)
        # numpy keeps the last of several values for one index: the newest position
        self.positions[place] = offset + 1
        np.maximum(self.reached, self.positions, out=self.reached)
        self.counts += np.bincount(place, minlength=len(self.counts))

    def _commit(self) -> None:
        """Commit the positions whose records are in the ledger. `_on_commit` gets the answer.

        While rows of these records are not in the ledger yet, the call commits nothing, and a later call does. So a
        reader that is killed has committed no record that its ledger lacks. A commit without an answer is repeated
        after `_ANSWER_S`.
        """
        now = time.monotonic()
        if self.commit is not None and now < self.give_up_at:
            return
        if self.due is None:
            self._flush()
            places = zip(self.settings.places, self.positions.tolist(), strict=True)
            self.due = self.parts.queued, [(*place, position) for place, position in places if position >= 0]
        buffers, committed = self.due
        if self.parts.written < buffers:
            return
        self.due = None
        self.commit_at = now + (self.settings.commit_s or 0.0)
        if not committed:
            return
        self.commit, self.give_up_at = (self._now_ns(), committed), now + _ANSWER_S
        self._write_commit(begun_ns=self.commit[0], offsets=committed)
        try:
            # Commit asynchronously: a synchronous call may never return without a coordinator.
            self.client.commit(offsets=[ClientPartition(*offset) for offset in committed], asynchronous=True)
        except KafkaException as error:
            self._on_commit(error.args[0], [])

    def _on_commit(self, error: KafkaError | None, answers: list[ClientPartition]) -> None:
        """Write a line with the result of a commit: its first error, '' if every partition was committed. An answer to
        a commit that was given up is ignored. After an error the next commit is due at once."""
        if self.commit is None:
            return  # this commit was given up
        begun_ns, committed = self.commit
        answered = {(answer.topic, answer.partition, answer.offset) for answer in answers}
        if answers and answered != set(committed):
            return  # an answer to an earlier commit, which was given up
        errors = (error, *(answer.error for answer in answers))
        why = next((reason.name() for reason in errors if reason is not None), "")
        self._write_commit(begun_ns=begun_ns, offsets=committed, done_ns=self._now_ns(), error=why)
        self.commit = None
        if why and self.commit_at < math.inf:
            self.commit_at = time.monotonic()

    def _now_ns(self) -> int:
        return time.monotonic_ns() - self.settings.origin_ns

    def _write_commit(self, **line: object) -> None:
        """Write a line of `rundir.observed.OffsetCommit` with these fields, and the reader's group."""
        self._write_line("commits", group=self.settings.config["group.id"], **line)

    def _write_line(self, file_name: str, **line: object) -> None:
        with (self.folder / f"{file_name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _flush(self) -> None:
        if self.buffer.used:
            self.parts.put(self.buffer)
            self.buffer = self._new_buffer()
        self.flush_at = time.monotonic() + self.settings.flush_s

    def _new_buffer(self) -> RowBuffer:
        buffer = self.parts.empty_buffer() or RowBuffer(self.settings.flush_rows, _BATCH)
        buffer.first_read_seq = self.read_seq
        return buffer

    def _take_errors(self, messages: list[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is None:
                continue
            number = self.number.get(TopicPartition(message.topic() or "", message.partition() or 0))
            if error.fatal() or number is None:
                raise KafkaException(error)
            offset = message.offset()
            if error.code() == KafkaError._PARTITION_EOF:
                self.reached[number] = max(int(self.reached[number]), -1 if offset is None else offset)
            elif error.code() in _NOT_IN_THE_LOG:
                self.problems[number] = error.str()
                if self.settings.ends is None:
                    self.resets[number] = truncation_offset(error.str())
            elif self.problems.get(number) != error.str():
                self.problems[number] = error.str()
                self._event("problem", number, code=error.code(), reason=error.str())

    def _resume(self) -> None:
        """Resume all partitions whose position left the log, and write an event for each. If a leader does not answer,
        a later call resumes them, once every leader has answered."""
        bounds = log_bounds(self.client, [self.settings.places[number] for number in self.resets], _ASK_S)
        if bounds is None:
            return
        for (number, cut), (low, high) in zip(self.resets.items(), bounds.T.tolist(), strict=True):
            position = int(self.positions[number])
            resumes = resume_offset(position, low, high, cut)
            self._event(
                "reset",
                number,
                position=position,
                start=low,
                end=high,
                goes_on=resumes,
                reason=self.problems[number],
            )
            self.positions[number] = resumes
        self.resets.clear()
        self._assign()

    def _assign(self) -> None:
        """Assign all partitions at their positions; the final reader, only those that it has not read to their ends.

        Rows read from now on get the next assignment number: the audit compares offsets only within an assignment.
        """
        self.assignment += 1
        ends = self.settings.ends
        self.client.assign(
            [
                ClientPartition(place.topic, place.partition, OFFSET_BEGINNING if position < 0 else position)
                for number, (place, position) in enumerate(
                    zip(self.settings.places, self.positions.tolist(), strict=True)
                )
                if ends is None or position < ends[number]
            ]
        )

    def _event(self, kind: str, number: int, **detail: str | int | float) -> None:
        place = self.settings.places[number]
        self.events.add(
            kind, topic=place.topic, partition=place.partition, assignment=self.assignment, **detail
        )

    def _report_sources(self, statistics: str) -> None:
        """Write from which broker each partition is fetched, as a line of `rundir.observed.FetchSources`."""
        topics = json.loads(statistics).get("topics", {})
        sources = [
            (place.topic, place.partition, partition["broker"])
            for place in self.settings.places
            if (partition := topics.get(place.topic, {}).get("partitions", {}).get(str(place.partition)))
        ]
        self._write_line("served", t_ns=self._now_ns(), sources=sources)


def main(arguments: list[str]) -> int:
    """Run a reader; the one argument is its settings file. Return the exit status."""
    path = Path(arguments[0])
    # messages make no reference cycles; a search for cycles among so many takes time
    gc.disable()
    return ReaderProcess(ReaderSettings.read(path), path.parent).run()


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Closing a consumer whose brokers came and went can take librdkafka forever (its issue 4674). Everything is in the
    # ledger by now, and the reader is in no group.
    os._exit(status)
