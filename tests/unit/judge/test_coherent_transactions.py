"""The transactions table, beside itself and the rows of the produced ledgers."""

from __future__ import annotations

import pytest

from ackproof.judge.coherence.rows import check_transactions
from ackproof.judge.facts import Facts
from ackproof.rundir.ledger import TxnRow, write_transactions

from .conftest import SECOND, MakeRun, attempt

BEGUN, COMMIT, ENDED = 0, SECOND, 2 * SECOND
WHOLE = TxnRow(0, 0, 0, 0, BEGUN, COMMIT, ENDED)


def _said(make_run: MakeRun, *transactions: TxnRow, sent_ns: int = 5) -> list[str]:
    """What is said of a run with these transactions; number 0 has seq 0 and 1."""
    rows = [{**attempt(seq, 0.5), "sent_ns": sent_ns, "txn": 0} for seq in (0, 1)]
    facts = Facts.read(make_run(producers="acks: all, idempotence: true, transaction_size: 2", attempts=rows))
    write_transactions(facts.run.transactions / "client=p0", list(transactions))
    return [opinion.text for opinion in check_transactions(facts)]


@pytest.mark.parametrize(
    ("one", "sent_ns", "words"),
    [
        (WHOLE, 5, None),
        (WHOLE._replace(begun_ns=-5), 5, "begin before the run"),
        (WHOLE._replace(commit_ns=-1), 5, "are committed and were never asked to be, or never ended"),
        (WHOLE._replace(ended_ns=-1), 5, "are committed and were never asked to be, or never ended"),
        (
            WHOLE._replace(ended_ns=SECOND - 1),
            5,
            "end or are to be committed before they begin, or end before that",
        ),
        (WHOLE._replace(begun_ns=7), 5, "have records from before they begin"),
        (WHOLE, SECOND + 1, "have records from after their commit was asked for"),
        (WHOLE._replace(first_seq=1), 5, "begin with another seq than their first record has"),
    ],
    ids=str,
)
def test_the_course_of_a_transaction(make_run: MakeRun, one: TxnRow, sent_ns: int, words: str | None) -> None:
    found = _said(make_run, one, sent_ns=sent_ns)
    assert found == ([] if words is None else [f"transactions that {words}: 1, such as 0 of producer 0"])


def test_a_transaction_without_records_has_no_first(make_run: MakeRun) -> None:
    assert _said(make_run, WHOLE, TxnRow(0, 1, 1, 2, BEGUN, -1, ENDED)) == []


@pytest.mark.parametrize(("unknown", "good"), [(1, True), (2, False)])
def test_half_of_the_transactions_may_be_unknown(make_run: MakeRun, unknown: int, good: bool) -> None:
    more = [TxnRow(0, 1 + number, 2, 2, BEGUN, COMMIT, -1) for number in range(unknown)]
    words = f"of {1 + unknown} transactions {unknown} are unknown, more than the 50% that may be"
    assert _said(make_run, WHOLE, *more) == ([] if good else [words])
