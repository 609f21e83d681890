"""Transactions of a producer: begun, filled, and committed or aborted, each of these written down before it is done.

A line of `transactions.log` is `begin <txn> <first seq> <ns>`, `commit <txn> <ns>` (asked for) or
`end <txn> <outcome> <ns>`. What a killed producer left there tells what its last transaction can have come to: without
a `commit` line nobody can ever commit it; with one and no `end` it is unknown.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from ackproof.clients.settings import ProducerSettings, delivery_timeout_s
from ackproof.rundir.outcome import TxnOutcome

_ASK_S: Final = 2.0
_FENCED: Final = frozenset({KafkaError._FENCED, 47, 90})
"""librdkafka's own code, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED."""


class Transactions:
    """The transactions of one producer process, one after the other, of `settings.transaction_size` records each.

    `starts[k]` is the first seq of transaction k. `gave_up` is set once one could not be brought to an end: the
    client must not be used any more.
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

    def join(self) -> bool:
        """Register with the coordinator, which fences whoever had the id before. False when it is to end first."""
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
        """How many records, from `seq` on, belong to the present transaction; begins and ends them. 0: no more."""
        if self._open and seq - self.starts[-1] >= self._size:
            self.finish(commit=self._draw.random() >= self._settings.abort_share)
        if self.gave_up:
            return 0
        if not self._open:
            try:
                self._client.begin_transaction()
            except KafkaException as error:  # fenced meanwhile, say
                self._fatal(error.args[0])
                self.gave_up = error.args[0].str()
                return 0
            self.starts.append(seq)
            self._write(f"begin {len(self.starts) - 1} {seq}")
            self._open = True
        return self.starts[-1] + self._size - seq

    def finish(self, *, commit: bool) -> None:
        """Bring the open transaction, if there is one, to its end."""
        if not self._open:
            return
        self._open = False
        self._flush()
        outcome = TxnOutcome.ABORTED
        if commit:
            self._write(f"commit {len(self.starts) - 1}")
            outcome = self._try(self._client.commit_transaction, TxnOutcome.COMMITTED)
        if not commit or outcome is TxnOutcome.ABORTED:
            outcome = self._try(self._client.abort_transaction, TxnOutcome.ABORTED)
            if outcome is TxnOutcome.UNKNOWN and not commit:
                outcome = TxnOutcome.ABORTED  # nobody asked for its commit, and nobody will
        self._write(f"end {len(self.starts) - 1} {int(outcome)}")

    def _try(self, call: Callable[[float], None], good: TxnOutcome) -> TxnOutcome:
        """Ask until there is an answer. ABORTED for a commit: it must be aborted instead."""
        deadline = time.monotonic() + delivery_timeout_s(self._settings.config)
        while True:
            try:
                call(_ASK_S)
            except KafkaException as failed:
                error = failed.args[0]
                if error.txn_requires_abort() and good is TxnOutcome.COMMITTED:
                    return TxnOutcome.ABORTED
                self._fatal(error)
                if error.code() in _FENCED:
                    self.gave_up = error.str()
                    return TxnOutcome.FENCED
                if error.fatal() or not error.retriable() or time.monotonic() > deadline:
                    self.gave_up = error.str()
                    return TxnOutcome.UNKNOWN
            else:
                return good

    def _write(self, line: str) -> None:
        with self._log.open("a", encoding="ascii") as file:
            file.write(f"{line} {time.monotonic_ns() - self._settings.origin_ns}\n")
