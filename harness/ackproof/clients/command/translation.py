"""Translates what a user's program printed into a client's journal and counters, which other clients write themselves.

The harness calls `follow` while the program runs, and `end` once it has ended. The journal has all that a program
printed before it broke the contract.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ackproof.clients.channel import ClientState, SharedCounters
from ackproof.clients.command.events import (
    LINES,
    Breach,
    BreachKind,
    EventName,
    ProgramEvent,
    ProgramLines,
)
from ackproof.clients.contract import ProducerSettings, ReaderSettings
from ackproof.clients.journal import DONE, OFFSET, RESULT, SENT, WORDS, Journal, ReadJournal, pack_result
from ackproof.rundir.guarantees import NO_ERROR
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import decode

_UNKNOWN_ERROR: Final = -1
"""UNKNOWN_SERVER_ERROR: stands for an error that a program named; its name is in its lines."""


class Translation:
    """Translator of a program's lines into the journal of a producer or a reader, and its `counters`.

    `folder`: the client's folder, with the program's output. `since_ns`: start of the program on CLOCK_MONOTONIC.
    `breach`: the first breach of the contract, None before; lines after it are not used.
    """

    def __init__(
        self,
        settings: ProducerSettings | ReaderSettings,
        counters: SharedCounters,
        folder: Path,
        since_ns: int,
    ) -> None:
        self.breach: Breach | None = None
        self._lines = ProgramLines(folder / LINES, since_ns)
        self._counters = counters
        self._index = {place: number for number, place in enumerate(settings.places)}
        journal = CaseDir(Path(settings.case_dir)).journal / settings.client
        self._take: Callable[[ProgramEvent], Iterator[Breach]]
        if isinstance(settings, ProducerSettings):
            self._acks = str(settings.config["acks"])
            self._journal = Journal(journal, settings.chunk_rows)
            self._journal.extend()
            self._take = self._take_from_producer
        else:
            self._run_id = settings.run_id
            self._reads = ReadJournal(journal, settings.flush_rows)
            self._origins = list(dict.fromkeys(place.topic for place in settings.places))
            self._assignment = -1
            self._take = self._take_from_reader

    def follow(self) -> None:
        """Translate the complete lines since the last call: write the journal and the counters. Sets `breach` at the
        first breach of the contract, and does nothing after it. Raises OSError if a file cannot be read or written."""
        if self.breach is not None:
            return
        events = self._lines.take()
        broken = self._lines.breaches[0] if self._lines.breaches else None
        for event in events:
            if broken is not None and event.line > broken.line:
                break
            found = next(self._take(event), None)
            if found is not None:
                broken = found
                break
        self.breach = broken

    def end(self, status: int) -> None:
        """Translate the last lines, and check that the output is complete. Sets `breach` if this shows the first one.

        `status`: exit status of the program. If it is negative (a signal killed the program), the output may end
        anywhere.
        """
        self.follow()
        if self.breach is None and status >= 0:
            self._lines.end(status)
            self.breach = self._lines.breaches[0] if self._lines.breaches else None
        if self._lines.closed:
            self._counters.stage = ClientState.CLOSED

    def _stage(self, event: ProgramEvent) -> None:
        if event.name is EventName.STARTED:
            self._counters.stage = ClientState.READY
        elif event.name is EventName.STOPPING:
            self._counters.stage = ClientState.STOPPING

    def _number_of(self, place: TopicPartition | None) -> int:
        return -1 if place is None else self._index.get(place, -1)

    def _take_from_producer(self, event: ProgramEvent) -> Iterator[Breach]:
        self._stage(event)
        if event.name is EventName.STARTED and event.acks != self._acks:
            said = f"{event.acks!r}" if event.acks else "nothing"
            text = f"started says {said} as acks, and the experiment asks for {self._acks!r}"
            yield Breach(BreachKind.FIELD, event.line, text)
        elif event.name is EventName.ATTEMPT:
            yield from self._attempt(event)
        elif event.name is EventName.RESULT:
            self._result(event)

    def _attempt(self, event: ProgramEvent) -> Iterator[Breach]:
        number = self._number_of(event.place)
        if number < 0:
            text = f"attempt {event.number} is for {event.place}, which is not among its partitions"
            yield Breach(BreachKind.FIELD, event.line, text)
            return
        journal = self._journal
        index, row = divmod(event.number, journal.rows)
        while index not in journal.chunks:
            journal.extend()
            for old in [chunk for chunk in journal.chunks.values() if not chunk.path.exists()]:
                del journal.chunks[old.index]  # its part of the ledger was written
        words, at = journal.chunks[index].words, row * WORDS
        words[at + RESULT] = pack_result(number, NO_ERROR, 0)
        words[at + SENT] = event.t_ns
        self._counters.sent += 1

    def _result(self, event: ProgramEvent) -> None:
        index, row = divmod(event.number, self._journal.rows)
        words, at = self._journal.chunks[index].words, row * WORDS
        number = words[at + RESULT] & 0xFFFFFFFF
        if event.error:
            words[at + RESULT] = pack_result(number, _UNKNOWN_ERROR, Outcome.INDETERMINATE)
            self._counters.indeterminate += 1
        else:
            words[at + RESULT] = pack_result(number, NO_ERROR, Outcome.ACKED)
            words[at + OFFSET] = event.offset
            self._counters.counts[number] += 1
        words[at + DONE] = event.t_ns

    def _take_from_reader(self, event: ProgramEvent) -> Iterator[Breach]:
        self._stage(event)
        if event.name is EventName.ASSIGNED:
            self._assignment += 1
        elif event.name is EventName.DELIVERED:
            yield from self._delivered(event)

    def _delivered(self, event: ProgramEvent) -> Iterator[Breach]:
        number = self._number_of(event.place)
        if number < 0 or event.timestamp_ms < 0 or not event.value:
            what = f"a record of {event.place}, which is not among its partitions"
            text = "delivered has no ts, or no v" if number >= 0 else f"delivered is {what}"
            yield Breach(BreachKind.FIELD, event.line, text)
            return
        try:
            value = base64.b64decode(event.value, validate=True)
        except (binascii.Error, ValueError):
            yield Breach(BreachKind.FIELD, event.line, "v of delivered is no base64")
            return
        identity = decode(self._run_id, value)
        origin = identity.origin_topic
        self._reads.add(
            read_ns=event.t_ns,
            place=number,
            assignment=max(0, self._assignment),
            offset=event.offset,
            leader_epoch=event.epoch,
            producer=identity.producer,
            seq=identity.seq,
            origin=self._origins.index(origin) + 1 if origin in self._origins else 0,
            origin_partition=identity.origin_partition,
            timestamp_ms=event.timestamp_ms,
            intact=identity.intact,
        )
        self._counters.counts[number] += 1
