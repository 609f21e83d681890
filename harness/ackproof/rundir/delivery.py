"""What became of a produce attempt (docs/architecture.md, Principles), by the table of `rundir.guarantees`.

An attempt is *failed* only if nobody can ever read its record: the client library refused it before any send, or
the broker answered with a code that is thrown only before the append and no send before that one can have been
appended. All else that is no acknowledgement is *indeterminate*: a time-out, a lost connection, a purge, a retried
error, a code that nobody has listed here.

No import of the client library: the salvage of a journal and the documentation need none. A test holds the numbers
against librdkafka's.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ackproof.rundir.guarantees import LIBRARIES, LIBRDKAFKA, ErrorRow
from ackproof.rundir.outcome import Outcome

NO_ERROR: Final = 0


BEFORE_APPEND: Final[tuple[ErrorRow, ...]] = tuple(
    row for row in LIBRARIES[LIBRDKAFKA].errors if row.code > 0 and row.definite
)
"""The only codes of a broker that make an attempt `failed`, and that without retries and idempotence only."""

_DEFINITE: Final = frozenset(entry.code for entry in BEFORE_APPEND)

REFUSED: Final = Outcome.FAILED
"""Outcome of a produce call that raised: the library did not take the record, so it was never sent."""


def reported(code: int, *, may_resend: bool) -> Outcome:
    """The outcome that a delivery report with this Kafka or librdkafka code means; 0 is no error.

    `may_resend` says whether the client may have sent the record more than once: with retries or idempotence
    always, without them once it is old enough (`workload.settings.resend_after_s`), unless its partition kept its
    leader meanwhile (`workload.reports.Epochs`). Then an earlier send may have been appended, whatever the last one
    was told.
    """
    if code == NO_ERROR:
        return Outcome.ACKED
    if code in _DEFINITE and not may_resend:
        return Outcome.FAILED
    return Outcome.INDETERMINATE


class Rule(NamedTuple):
    """One line of the table, for people."""

    what: str
    retries: str
    outcome: Outcome
    why: str


def rules() -> tuple[Rule, ...]:
    """The table, derived from what `reported` does."""
    definite = [
        Rule(
            f"report {entry.name} ({entry.code})",
            "0, idempotence off, sent once",
            reported(entry.code, may_resend=False),
            entry.why,
        )
        for entry in BEFORE_APPEND
    ]
    names = ", ".join(entry.name for entry in BEFORE_APPEND)
    return (
        Rule(
            "report without error", "any", reported(NO_ERROR, may_resend=True), "the offset is -1 with acks=0"
        ),
        Rule("produce call raised (but BufferError)", "any", REFUSED, "refused locally, before any send"),
        *definite,
        Rule(
            f"report {names}",
            "> 0, idempotence, or perhaps sent twice",
            reported(BEFORE_APPEND[0].code, may_resend=True),
            "an earlier send may have been appended",
        ),
        Rule(
            "report with any other code",
            "any",
            reported(20, may_resend=False),
            "an append may have come before it: NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_LEADER_OR_FOLLOWER, "
            "UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, time-outs, purges, what is not known",
        ),
        Rule("no report", "any", Outcome.INDETERMINATE, "the client ended first; done_ns is -1, error 0"),
    )


def markdown() -> str:
    """The table for the README of this room."""
    lines = ["| what came back | retries | outcome | why |", "|---|---|---|---|"]
    lines += [
        f"| {rule.what} | {rule.retries} | {rule.outcome.name.lower()} | {rule.why} |" for rule in rules()
    ]
    return "\n".join(lines)
