"""Tests of duplicates by idempotent producers: within one producer epoch the broker is to blame, across epochs the
client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ackproof.judge import judge_case
from ackproof.judge.excuses import count_new_producer_epochs
from ackproof.quantities.evidence import Evidence
from ackproof.rundir.documents import RecordCounts, VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Says, Verdict
from judged_run import SECOND, attempt, batch_row, finding, read_row
from run_directory import write_run

MakeRun = Callable[..., CaseDir]


@pytest.fixture
def judged(make_run: MakeRun) -> Callable[..., tuple[int, VerdictFile]]:
    """Return a function that judges a run of an idempotent producer, and returns (number of excused copies, verdict).

    By default seq 3 has copies at offsets 3 and 13. `batches`: those on disk; None: no logs. `outcome`, `gave_up_s`: of
    seq 5. `copied`: the produced row of seq 3. `also`, `read`: further findings, further rows of the final read.
    """

    def judge(
        batches: Sequence[dict[str, Any]] | None,
        *,
        outcome: int = 2,
        copies: int = 1,
        offsets: Sequence[int] = (3, 13),
        expect: str = "",
        also: Sequence[dict[str, Any]] = (),
        read: Sequence[dict[str, Any]] = (),
        producers: str = "acks: all, idempotence: true",
        copied: dict[str, Any] | None = None,
        gave_up_s: float = 0.5,
        **counts: int,
    ) -> tuple[int, VerdictFile]:
        run = make_run(
            producers=producers,
            attempts=[copied or attempt(3, 0.5), attempt(4, 0.5), attempt(5, gave_up_s, outcome=outcome)],
            findings=[finding("duplicate")] * copies + [{**finding("duplicate"), **one} for one in also],
            duplicate=copies + len(also),
            expect=expect,
            **counts,
        )
        rows = [read_row(offset, 3) for offset in offsets] + [read_row(4, 4), *read]
        write_run(run.path, consumed={"f0": rows}, replica_batches=batches)
        return count_new_producer_epochs(Evidence.of_run(run)), judge_case(run)

    return judge


Judged = Callable[..., tuple[int, VerdictFile]]
TWO_EPOCHS = [batch_row(0, 9, 7, 0), batch_row(10, 19, 7, 1)]


def _why(said: VerdictFile) -> str:
    return next(one.why for one in said.classes if one.anomaly == "duplicate")


def test_a_copy_in_a_new_epoch_after_the_client_gave_up_is_not_forbidden(judged: Judged) -> None:
    again, said = judged(TWO_EPOCHS)
    assert again == 1
    assert said.verdict is Verdict.PASS, said.reasons
    assert "1 were sent again by the client in a new producer epoch" in _why(said)


def test_a_copy_within_one_epoch_fails(judged: Judged) -> None:
    again, said = judged([batch_row(0, 9, 7, 0), batch_row(10, 19, 7, 0)])
    assert again == 0
    assert said.verdict is Verdict.FAIL
    assert "an idempotent producer writes no copies" in said.reasons[0]


NEW_ID = [batch_row(0, 9, 7, 0), batch_row(10, 19, 8, 0)]
ELSEWHERE = [batch_row(0, 9, 7, 0, node=2), batch_row(10, 99, 7, 1, node=2)]


@pytest.mark.parametrize(
    ("batches", "changes", "again"),
    [
        pytest.param(NEW_ID, {}, 1, id="a new producer id is a new session, too"),
        # as librdkafka does when a batch is refused as out of sequence (its issue 4953)
        pytest.param(TWO_EPOCHS, {"outcome": 0}, 1, id="a new epoch of a client that gave up on nothing"),
        pytest.param(
            [batch_row(0, 9, 7, 0), batch_row(10, 19, 8, 1)],
            {"outcome": 0},
            0,
            id="a new id of a client that gave up on nothing",
        ),
        pytest.param(
            [batch_row(0, 19, 7, 0), *({**one, "partition": 1} for one in ELSEWHERE)],
            {},
            0,
            id="the log of another partition",
        ),
        pytest.param(
            [batch_row(0, 19, 7, 0), *({**one, "topic": "payments"} for one in ELSEWHERE)],
            {},
            0,
            id="the log of another topic",
        ),
        pytest.param([{**batch_row(0, 19, 7, 0), "partition": 1}], {}, 0, id="no log of the partition"),
        pytest.param(None, {}, 0, id="no logs on disk"),
        pytest.param(
            [batch_row(0, 9, 7, 0), batch_row(10, 19, -1, -1)], {}, 0, id="a batch without a producer id"
        ),
        pytest.param(
            [batch_row(0, 9, 7, 0, node=2), batch_row(0, 9, 7, 0), batch_row(14, 19, 7, 1)],
            {},
            0,
            id="a gap between two batches",
        ),
        pytest.param(
            [batch_row(5, 9, 7, 0), batch_row(10, 19, 7, 1)], {"offsets": (3, 6)}, 0, id="before all batches"
        ),
        pytest.param(
            [batch_row(0, 4, 7, 0), batch_row(5, 6, 7, 1)], {"offsets": (3, 8)}, 0, id="behind all batches"
        ),
        pytest.param([batch_row(0, 3, 7, 0), batch_row(13, 19, 7, 1)], {}, 1, id="at the ends of batches"),
    ],
)
def test_the_longest_log_shows_in_which_sessions_the_copies_are(
    judged: Judged, batches: list[dict[str, Any]] | None, changes: dict[str, Any], again: int
) -> None:
    found, said = judged(batches, **changes)
    assert (found, said.verdict) == (again, Verdict.PASS if again else Verdict.FAIL)


@pytest.mark.parametrize(
    ("batches", "changes"),
    [
        pytest.param([batch_row(0, 9, 7, 0, node=2), *TWO_EPOCHS], {}, id="a short log of another replica"),
        pytest.param(
            TWO_EPOCHS,
            {"also": [{"seq": 4, "partition": 1}], "read": [read_row(14, 4)]},
            id="copies in another partition",
        ),
        pytest.param(
            TWO_EPOCHS,
            {"also": [{"class": "lost", "seq": 4}], "read": [read_row(14, 4)]},
            id="findings of another class",
        ),
        pytest.param(
            NEW_ID,
            {
                "also": [{"producer": 1, "seq": 8}],
                "read": [read_row(offset, 8, producer=1) for offset in (5, 15)],
            },
            id="a producer that gave up on nothing",
        ),
        pytest.param(TWO_EPOCHS, {"also": [{"seq": 5}]}, id="a copy that the final read does not show"),
    ],
)
def test_what_stands_elsewhere_adds_and_takes_nothing(
    judged: Judged, batches: list[dict[str, Any]], changes: dict[str, Any]
) -> None:
    assert judged(batches, **changes)[0] == 1


@pytest.mark.parametrize(
    ("elsewhere", "verdict"),
    [
        ({"phase": 0}, Verdict.INCONCLUSIVE),  # a live row in a final reader's ledger
        ({"partition": 1}, Verdict.FAIL),
        ({"topic": "payments"}, Verdict.FAIL),
    ],
)
def test_only_the_final_read_of_the_partition_shows_in_which_epochs_the_copies_are(
    judged: Judged, elsewhere: dict[str, Any], verdict: Verdict
) -> None:
    """A copy that only a live reader got may have been truncated since."""
    again, said = judged(TWO_EPOCHS, offsets=(3, 5), read=[{**read_row(13, 3), **elsewhere}])
    assert (again, said.verdict) == (0, verdict)


@pytest.mark.parametrize(
    ("sent_s", "done_s", "again"),
    [(0, 1.1, 1), (0, 0.9, 0), (1.9, 3, 1), (2.1, 3, 0), (1, -1, 1), (2.1, -1, 0)],
)
def test_another_producer_id_is_of_what_was_on_its_way_when_the_client_gave_up(
    judged: Judged, sent_s: float, done_s: float, again: int
) -> None:
    """The producer reported at 2 s that it gave up on seq 5, which it did at most a second earlier."""
    copied = {**attempt(3, done_s), "sent_ns": round(sent_s * SECOND)}
    assert judged(NEW_ID, copied=copied, gave_up_s=2.0)[0] == again


def test_two_copies_in_the_new_epoch_are_one_too_many(judged: Judged) -> None:
    again, said = judged(TWO_EPOCHS, copies=2, offsets=(3, 13, 14))
    assert (again, said.verdict) == (1, Verdict.FAIL)
    assert said.reasons[0].endswith("(1 of 2 stand against that)")


def test_a_run_that_left_no_ledger_has_no_copies_to_excuse(make_run: MakeRun) -> None:
    run = make_run(producers="acks: all, idempotence: true", audit={"records": RecordCounts()})
    write_run(run.path, replica_batches=())
    assert "nothing was produced" in judge_case(run).reasons


def test_who_is_not_idempotent_is_excused_nothing(judged: Judged) -> None:
    said = judged(TWO_EPOCHS, producers="acks: all, idempotence: false, retries: 0")[1]
    assert said.verdict is Verdict.FAIL
    assert said.reasons == (
        "duplicate: 1 duplicate copy. Forbidden: retries = 0: within one leader epoch nothing is sent twice",
    )


def test_what_was_sent_again_excuses_no_loss(judged: Judged) -> None:
    said = judged(TWO_EPOCHS, lost=1)[1]
    assert said.verdict is Verdict.FAIL
    assert [reason.partition(":")[0] for reason in said.reasons] == ["lost"]


def test_an_expectation_that_the_client_broke_is_not_held_against_kafka(judged: Judged) -> None:
    said = judged(TWO_EPOCHS, expect="expect: [{duplicate: 0}]")[1]
    assert said.verdict is Verdict.INCONCLUSIVE
    assert len(said.reasons) == 1
    assert said.reasons[0].startswith(
        "expected duplicate 0, counted 1: 1 were sent again by the client in a new producer epoch"
    )


def test_copies_of_the_client_excuse_no_expectation_of_another_class(judged: Judged) -> None:
    said = judged(TWO_EPOCHS, expect="expect: [{duplicate: 0, lost: 0}]", lost=1)[1]
    assert [one.kind for one in said.opinions if one.text.startswith("expected lost 0")] == [Says.BREAKS]


def test_an_expectation_that_kafka_broke_too_fails(judged: Judged) -> None:
    said = judged(TWO_EPOCHS, copies=2, offsets=(3, 13, 14), expect="expect: [{duplicate: 0}]")[1]
    assert said.verdict is Verdict.FAIL
    assert "expected duplicate 0, counted 1" in said.reasons
