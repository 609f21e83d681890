"""A transactional producer in virtual time. It behaves as `ackproof.clients.librdkafka.sending` does on librdkafka.

It runs one transaction after the other, of `transaction_size` records each: begin, fill, flush, then commit or (a share
of them, on purpose) abort. librdkafka speaks the first transaction protocol: the producer epoch changes only after an
error, not with each transaction (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from random import Random
from typing import Final

import numpy as np
import numpy.typing as npt

from ackproof.rundir.ledger import TxnRow
from ackproof.rundir.outcome import Outcome, TxnOutcome
from ackproof_reference.messages import Error, Produce
from ackproof_simulator.clock import MS, SECOND, seconds
from ackproof_simulator.coordinator import NOT_COORDINATOR, Coordinator
from ackproof_simulator.producers import ClientBatch, Line, Producer

_AGAIN_NS: Final = 50 * MS
_FENCED: Final = frozenset({Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_EPOCH})
_NONE: Final = -1


class _Phase(Enum):
    JOINING = auto()
    """The producer waits for its producer epoch (InitProducerId)."""
    IDLE = auto()
    """The producer has no open transaction."""
    OPEN = auto()
    ENDING = auto()
    """The producer sends no more records of the transaction, and waits for acknowledgements and the answer to
    EndTxn."""
    OVER = auto()
    """The producer sends no more: it was fenced, has given up, or was stopped."""


@dataclass
class Txn:
    """One transaction as its producer sees it. `number`: its number, from 0. `first`: seq of its first record.

    `begun`, `commit`, `ended`: times in ns at which it began, its commit was requested, and its end was confirmed; -1:
    not yet, or never."""

    number: int
    first: int
    begun: int
    commit: int = _NONE
    ended: int = _NONE
    outcome: TxnOutcome = TxnOutcome.ABORTED


class TransactionalProducer(Producer):
    """A producer that sends its records in one transaction after the other. It stops for good if it is fenced or gives
    up. Call `join` before `start`. `slot`: number of its transactional id; another producer with the same id fences
    it."""

    def join(
        self,
        slot: int,
        coordinator: Coordinator,
        seed: str,
        ended_by_itself: Callable[[TransactionalProducer], None],
    ) -> None:
        """Set the transactional id of the producer. Call it once, before the start. `slot`: number of the id.

        `seed`: seed of the random choice between commit and abort. `ended_by_itself` is called once, with the producer,
        when it has given up or was fenced; not after the run has closed it, and not if a fault had it fenced."""
        self.ended_by_itself = ended_by_itself
        self.pid, self.slot, self.coordinator = slot, slot, coordinator
        self.draw = Random(seed)
        self.phase = _Phase.JOINING
        self.txns: list[Txn] = []
        self.joined: set[int] = set()
        self.asking: set[int] = set()
        self.epoch = _NONE
        self.must_abort = False
        self.gave_up = ""
        self.fenced_by_another = False
        """True if a fault has started another producer with its transactional id; then it is not replaced
        when it ends.
        """
        self.handed: list[tuple[int, int]] = []
        """Pairs (seq, time in ns), in order: at that time all records below seq had been passed to the library."""
        self.size = self.spec.transaction_size or 1
        self.bound = seconds(self.spec.delivery_timeout) + 10 * SECOND

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Register the transactional id with the coordinator, which fences the id's previous producer; then begin a
        transaction."""
        self.host.do(self._init)

    def _init(self) -> None:
        if not self.closed:
            self.coordinator.init(self.host, self.slot, self._initialised)

    def _initialised(self, error: Error, epoch: int) -> None:
        if self.closed or self.phase is _Phase.OVER:
            return
        if error is not Error.NONE:
            self.clock.call_after(_AGAIN_NS, self.host.do, self._init)
            return
        first = self.epoch == _NONE
        self.epoch, self.must_abort = epoch, False
        for line in self.lines:
            line.epoch, line.next_sequence = epoch, 0
        self.phase = _Phase.IDLE
        if first:
            super().start()
        else:
            self._make()

    def sent_times(self, seq: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if not self.handed:
            return np.zeros(len(seq), np.int64)
        bounds, times = (np.array(column, np.int64) for column in zip(*self.handed, strict=True))
        at = np.minimum(np.searchsorted(bounds, seq, side="right"), len(times) - 1)
        return times[at].astype(np.int64)

    @property
    def idle(self) -> bool:
        return self.phase is _Phase.OVER or (self.stopping and self.phase is _Phase.IDLE and super().idle)

    def rows(self) -> list[TxnRow]:
        return [
            TxnRow(self.number, txn.number, int(txn.outcome), txn.first, txn.begun, txn.commit, txn.ended)
            for txn in self.txns
        ]

    # -- filling ------------------------------------------------------------------------------------------------

    def _make(self) -> None:
        """Put the records that are due into the open transaction, and send them. Begin a transaction if none is open;
        end it if it is full or must be aborted, or if the producer is to stop. Calls itself again later."""
        if self.closed or self.phase in (_Phase.JOINING, _Phase.OVER):
            return
        now = self.clock.now
        if self.phase is _Phase.IDLE and not self.stopping:
            self.txns.append(Txn(len(self.txns), self.made, now))
            self.joined.clear()
            self.phase = _Phase.OPEN
        if self.phase is _Phase.OPEN:
            due = int((now - self.began) / self.gap)
            stop = min(due, self.txns[-1].first + self.size)
            if stop > self.made:
                self._deal(stop)
                self.handed.append((self.made, now))
                self._drain_all()
            if self.stopping or self.must_abort or self.made >= self.txns[-1].first + self.size:
                self._finish()
        if self._next <= now and (not self.stopping or self.phase is not _Phase.IDLE):
            self._next = now + self._least
            self.clock.call_at(self._next, self.host.do, self._make)

    def _put(self, line: Line, place: int, first: int, count: int) -> None:
        super()._put(line, place, first, count)
        batch = line.queue[-1]
        if batch.txn == _NONE:
            batch.txn, batch.made = self.txns[-1].number, self.clock.now

    def sent_ns(self, seq: int) -> int:
        """Return the present time in ns, whatever `seq` is: records are created when they are passed to the library."""
        return self.clock.now

    # -- sending ------------------------------------------------------------------------------------------------

    def _drain(self, line: Line) -> None:
        """Send the queued batches of a partition (`line`). If the partition is not in the transaction yet, first ask
        the coordinator to add it; the batches are sent after the answer. Does nothing after the producer has stopped
        sending (`OVER`)."""
        if not line.queue or self.phase is _Phase.OVER:
            return
        if line.place in self.joined:
            super()._drain(line)
        elif line.place not in self.asking:
            self.asking.add(line.place)
            answer = partial(self._added, line, self.txns[-1].number)
            self.coordinator.add(self.host, self.slot, self.epoch, line.place, answer)

    def _added(self, line: Line, txn: int, error: Error, epoch: int) -> None:
        del epoch
        self.asking.discard(line.place)
        if self.phase is _Phase.OVER or txn != self.txns[-1].number:
            return
        if error is Error.NONE:
            self.joined.add(line.place)
            self._drain(line)
        elif error in _FENCED:
            self._is_fenced()
        else:  # no coordinator, or markers of the transaction before are under way
            self.clock.call_after(_AGAIN_NS, self.host.do, self._drain, line)

    def _request(self, batch: ClientBatch, sequence: int) -> Produce:
        return super()._request(batch, sequence)._replace(transactional=True)

    def answered(self, attempt: ClientBatch, error: Error, offset: int) -> None:
        fenced = error in _FENCED and self.phase is not _Phase.OVER
        super().answered(attempt, error, offset)
        if fenced:
            self._is_fenced()

    def _out_of_order(self, line: Line, batch: ClientBatch) -> None:
        """Handle the answer OUT_OF_ORDER_SEQUENCE_NUMBER to a batch. If an earlier batch of its partition is queued or
        in flight, the batch is sent again later. Otherwise the leader lost one: the batch fails, and the transaction is
        aborted."""
        if any(other.number < batch.number for other in (*line.flying.values(), *line.queue)):
            line.queue.append(batch)
            self._sort(line)
            line.waits_until = self.clock.now + self.timing.retry
            return
        self._fail(line, batch, Error.OUT_OF_ORDER_SEQUENCE_NUMBER.value)

    def _done(self, line: Line, batch: ClientBatch, outcome: Outcome, error: int, offset: int) -> None:
        super()._done(line, batch, outcome, error, offset)
        if outcome is not Outcome.ACKED:
            self.must_abort = True
        if self.phase is _Phase.ENDING and super().idle:
            self._end()

    # -- ending -------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        self.phase = _Phase.ENDING
        self.wanted = self.stopping or self.draw.random() >= self.spec.abort_share
        self.until = self.clock.now + self.bound
        if super().idle:
            self._end()

    def _end(self) -> None:
        txn = self.txns[-1]
        commit = self.wanted and not self.must_abort
        if commit:
            txn.commit, txn.outcome = self.clock.now, TxnOutcome.UNKNOWN
        if not self.joined:  # nothing was sent: the coordinator knows nothing of it
            self._ended(TxnOutcome.COMMITTED if commit else TxnOutcome.ABORTED)
            return
        self._ask_end(commit)

    def _ask_end(self, commit: bool) -> None:
        if self.phase is _Phase.ENDING and not self.closed:
            answer = partial(self._told_end, commit)
            self.coordinator.end(self.host, self.slot, self.epoch, answer, commit=commit)

    def _told_end(self, commit: bool, error: Error, epoch: int) -> None:
        if self.phase is not _Phase.ENDING:
            return
        if error is Error.NONE:
            self._ended(TxnOutcome.COMMITTED if commit else TxnOutcome.ABORTED)
        elif error in _FENCED:
            self._is_fenced()
        elif error is NOT_COORDINATOR and self.clock.now < self.until:
            self.clock.call_after(_AGAIN_NS, self.host.do, self._ask_end, commit)
        else:
            self._over("the coordinator did not end its transaction")

    def _ended(self, outcome: TxnOutcome) -> None:
        txn = self.txns[-1]
        txn.outcome, txn.ended = outcome, self.clock.now
        if self.must_abort:
            # KIP-360: after an error a new producer epoch, whose sequence numbers begin again.
            self.phase = _Phase.JOINING
            self._init()
            return
        self.phase = _Phase.IDLE
        self._make()

    def _is_fenced(self) -> None:
        if self.phase is not _Phase.OVER:
            if self.txns and self.txns[-1].commit != _NONE and self.txns[-1].ended == _NONE:
                self.txns[-1].outcome = TxnOutcome.FENCED
            self._over("fenced")

    def _over(self, why: str) -> None:
        """Stop the producer for good, for the reason `why`; records without an outcome end with the error PURGED. Call
        `ended_by_itself`, unless a fault had it fenced or the run has closed it."""
        self.gave_up, self.phase = why, _Phase.OVER
        super().purge()
        if not self.fenced_by_another and not self.closed:
            self.ended_by_itself(self)

    def purge(self) -> None:
        """Stop the producer at the end of the run; records without an outcome end with the error PURGED."""
        self.phase = _Phase.OVER
        super().purge()
