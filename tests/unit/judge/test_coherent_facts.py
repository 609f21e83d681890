"""Tests of coherence of the final read, the ledgers' rows and the live readers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackproof.judge.coherence.rows import check_rows
from ackproof.judge.facts import Facts
from ackproof.judge.verdict import judge
from ackproof.rundir.anomalies import LIVE_ONLY, Anomaly
from ackproof.rundir.documents import FinalReadFile
from ackproof.rundir.ledger import TxnRow, parts, write_transactions
from ackproof.rundir.metadata import TopicRemoved, write_metadata
from ackproof.rundir.outcome import Says, TxnOutcome
from ackproof.rundir.schema import PRODUCED
from judged_run import EXPERIMENT, SECOND, WHOLE, MakeRun, attempt, decided, in_sync, said
from run_directory import write_run

# -- the ends of logs -----------------------------------------------------------------------------------------------


def _read(**changes: Any) -> FinalReadFile:
    (one,) = WHOLE.partitions
    return FinalReadFile(complete=True, partitions=(one.model_copy(update={"records": 100, **changes}),))


def _twice(committed: bool, **changes: Any) -> FinalReadFile:
    (one,), (other,) = _read().partitions, _read(**changes).partitions
    partitions = (one,) if committed else (one, other)
    return FinalReadFile(complete=True, partitions=partitions, committed=(other,) * committed)


@pytest.mark.parametrize(
    ("final", "words"),
    [
        (
            _read(complete=False, reason="stuck"),
            "of orders/0 is incomplete (stuck), and the read as a whole calls",
        ),
        (_read(position=99), "calls itself complete, from 0 to 100, and ended at 99"),
        (_read(start=101), "calls itself complete, from 101 to 100"),
        (_read(start=-1), "calls itself complete, from -1 to 100"),
        (_read(reason="late"), "calls itself complete, and says: late"),
        (_read(records=101), "has 101 records between offsets 0 and 100"),
        (_read().model_copy(update={"reasons": ("x",)}), "the final read calls itself complete, and says: x"),
        (_read(epoch_after=0), "was answered in leader epoch 0, and epoch 1 was seen"),
        (
            _read(end=89, position=89, records=89),
            "ends at 89, and the high watermark of the same leader epoch was 100",
        ),
        (_read(), None),
        (_read(position=101), None),
        (_read(epoch=2, epoch_after=2, end=80, position=80, records=80), None),
        (_read(epoch=2), "calls itself complete, and went from leader epoch 2 to 1"),
        (_read(epoch=-1, epoch_after=-1), "calls itself complete, and went from leader epoch -1 to -1"),
        (_read(start=3, records=97), "the final read begins at 3, and no setting deletes records"),
        (_read(end=101, position=101), "ends at 101, and the high watermark was 100 when it was read"),
        (_read(partition=9), "the final read has orders/9, which the case does not have"),
        (_read(topic="zz"), "the final read has zz/0, which the case does not have"),
        (_twice(False), "the final read has orders/0 2 times"),
        (_twice(True), None),
        (_twice(True, end=99, position=99), "goes from 0 to 100, and at read_committed from 0 to 99"),
        (_twice(True, start=1), "goes from 0 to 100, and at read_committed from 1 to 100"),
    ],
)
def test_a_final_read_is_held_against_itself_and_samples(
    facts: Facts, final: FinalReadFile, words: str | None
) -> None:
    last = replace(in_sync("orders", 0), high_watermark=100)
    early = replace(last, high_watermark=50, t_ns=SECOND)
    facts.run.samples.write_text(f"{early.line()}\n{last.line()}\n")
    found = said(replace(facts, final_read=final))
    assert (found == []) if words is None else any(words in text for text in found), found


def test_who_is_in_sync_must_have_been_seen_at_the_end(facts: Facts) -> None:
    early = replace(in_sync("orders", 0), t_ns=SECOND)
    blind = replace(in_sync("orders", 0), isr=())
    facts.run.samples.write_text(f"{early.line()}\n{blind.line()}\n")
    assert "orders/0 was not sampled once the load had ended" in said(replace(facts))[0]
    facts.run.samples.unlink()
    assert "(never)" in said(replace(facts))[0]


@pytest.mark.parametrize(
    ("seen", "mode", "words"),
    [
        ({}, "kraft", None),
        (
            {"leader": 2},
            "kraft",
            "orders/0: leader 2 was seen at 1000000.0 s in leader epoch 1, and the metadata log has 1",
        ),
        ({"leader": -1, "isr": (1, 3)}, "kraft", None),
        ({"isr": (3, 2, 1)}, "kraft", None),
        ({"isr": (1, 3)}, "kraft", "orders/0: the ISR [1, 3] was seen at 1000000.0 s in leader epoch 1"),
        ({"isr": (1, 3)}, "zookeeper", None),
    ],
)
def test_leaders_and_isrs_are_those_that_the_controllers_gave(
    make_run: MakeRun, seen: dict[str, Any], mode: str, words: str | None
) -> None:
    cluster = f"name: t\ncluster: {{kafka: 3.9.2, mode: {mode}}}"
    text = EXPERIMENT.format(producers="acks: all", min_insync=2, expect="").replace("name: t", cluster)
    facts = Facts.read(make_run(experiment=text))
    facts.run.samples.write_text(replace(in_sync("orders", 0), **seen).line() + "\n")
    write_metadata(facts.run.metadata_log, [decided(1)])
    found = said(facts)
    assert (found == []) if words is None else any(text.startswith(words) for text in found), found


def test_the_final_read_was_in_an_epoch_that_was_given(facts: Facts) -> None:
    write_metadata(facts.run.metadata_log, [decided(1)])
    late = _read(epoch=2, epoch_after=2)
    assert said(replace(facts, final_read=late)) == [
        "orders/0: the final read was in leader epoch 2, unknown to the metadata log"
    ]


def test_a_run_of_today_counts_what_its_final_reader_was_handed(facts: Facts) -> None:
    facts.run.seal.write_text("{}")
    found = said(replace(facts, final_read=_read(records=-1)))
    assert "orders/0: nobody counted the records of the final reader" in found


def test_a_log_that_records_are_deleted_from_may_begin_later(make_run: MakeRun) -> None:
    text = EXPERIMENT.format(producers="acks: all", min_insync=2, expect="").replace(
        "config: {", "config: {retention.ms: 1000, "
    )
    facts = Facts.read(make_run(experiment=text))
    assert said(replace(facts, final_read=_read(start=3, records=97))) == []


def test_another_topic_that_was_made_anew_excuses_nothing(facts: Facts) -> None:
    old = replace(in_sync("orders", 0), leader_epoch=5, t_ns=SECOND)
    facts.run.samples.write_text(f"{old.line()}\n{in_sync('orders', 0).line()}\n")
    gone = TopicRemoved(offset=9, epoch=1, timestamp_ms=0, topic="others", topic_id="")
    write_metadata(facts.run.metadata_log, [decided(5), gone, decided(1)])
    assert any("epoch 5 was seen" in text for text in said(replace(facts)))


def test_of_a_topic_that_was_made_anew_only_the_last_counts(facts: Facts) -> None:
    old = replace(in_sync("orders", 0), leader_epoch=5, high_watermark=900, t_ns=SECOND)
    new = replace(in_sync("orders", 0), leader_epoch=1, high_watermark=100)
    facts.run.samples.write_text(f"{old.line()}\n{new.line()}\n")
    assert any("epoch 5 was seen" in text for text in said(replace(facts)))
    gone = TopicRemoved(offset=9, epoch=1, timestamp_ms=0, topic="orders", topic_id="")
    write_metadata(facts.run.metadata_log, [decided(5), gone, decided(1)])
    assert said(replace(facts)) == []


# -- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "producers", "words"),
    [
        ({}, "acks: all", None),
        (
            {"sent_ns": SECOND},
            "acks: all",
            "attempts that were acknowledged before they were sent: 1, such as one on orders/0",
        ),
        ({"done_ns": -1}, "acks: all", "were acknowledged without a report"),
        ({"sent_ns": -1}, "acks: all", "were sent before the run began"),
        ({"done_ns": 10**15}, "acks: all", "were sent or acknowledged after the run had ended"),
        (
            {"sent_ns": 10**15, "done_ns": -1, "outcome": 2, "offset": -1},
            "acks: all",
            "after the run had ended",
        ),
        ({"done_ns": 7 * SECOND}, "acks: all", "were sent or acknowledged after the run had ended"),
        ({"done_ns": 6 * SECOND}, "acks: all", None),
        ({"outcome": 1, "offset": 0}, "acks: all", "were not acknowledged and have an offset"),
        ({"outcome": 1}, "acks: all", "were not acknowledged and have an offset"),
        ({"offset": -1}, "acks: 1, idempotence: false", "were acknowledged without an offset"),
        ({"offset": -1}, "acks: all, idempotence: true", None),
        ({"offset": -1}, "acks: all, client: {command: [node]}", None),
        ({"offset": -1}, "acks: 0, idempotence: false", None),
        ({"offset": 1}, "acks: 0, idempotence: false", "have an offset, and nobody acknowledges"),
        ({"outcome": 2, "offset": -1, "done_ns": -1}, "acks: all", None),
        ({"seq": -1}, "acks: all", "are numbered below 0"),
        ({"offset": -2}, "acks: all", "have an offset below -1"),
        ({"error": 19}, "acks: all", "were acknowledged with an error, or failed without one"),
        ({"outcome": 1, "offset": -1}, "acks: all", "were acknowledged with an error, or failed without one"),
        ({"outcome": 1, "offset": -1, "error": 19}, "acks: all", None),
        ({"txn": 3}, "acks: all", "are of a transaction, and the case has none"),
        ({"txn": 0}, "acks: all, idempotence: true, transaction_size: 10", None),
        ({"txn": -1}, "acks: all, idempotence: true, transaction_size: 10", "are of no transaction"),
        ({"partition": 3}, "acks: all", "attempts are of orders/3, which the case does not have"),
        ({"topic": "others"}, "acks: all", "attempts are of others/0, which the case does not have"),
    ],
)
def test_rows(make_run: MakeRun, change: dict[str, Any], producers: str, words: str | None) -> None:
    usual = {"txn": 0} if "transaction" in producers else {"offset": -1} if "acks: 0" in producers else {}
    rows = [{**attempt(0, 0.5), **usual}, {**attempt(1, 0.6), **change}]
    (one,) = WHOLE.partitions
    final = FinalReadFile(complete=True, partitions=(one,), committed=(one,))
    run = make_run(producers=producers, attempts=rows, final=final)
    found = said(Facts.read(run))
    assert (found == []) if words is None else any(words in text for text in found), found
    (part,) = parts(run.produced)
    whole, by_footer = pq.read_table(part, partitioning=None), [*check_rows(Facts.read(run))]
    for options in ({"row_group_size": 1}, {"write_statistics": False}):
        pq.write_table(whole, part, **options)
        assert [*check_rows(Facts.read(run))] == by_footer


ANSWERED = "answer_request: {link: clients -> leader(orders/0), api: Fetch, error: NOT_LEADER_OR_FOLLOWER}"


@pytest.mark.parametrize(
    ("sealed", "fault", "kind"),
    [
        (True, "", Says.BREAKS),
        (False, "", Says.CONTRADICTS),
        pytest.param(True, ANSWERED, Says.CONTRADICTS, id="the harness may have answered"),
    ],
)
def test_a_broker_that_names_no_offset_breaks_a_promise_if_nobody_changed_the_ledger(
    make_run: MakeRun, sealed: bool, fault: str, kind: Says
) -> None:
    text = EXPERIMENT.format(producers="acks: 1", min_insync=2, expect="")
    if fault:
        text = text.replace("kill: {target: leader(orders/0)}", fault).replace("restart_after", "for")
    facts = Facts.read(make_run(experiment=text, attempts=[{**attempt(0, 0.5), "offset": -1}]))
    if sealed:
        facts.run.seal.write_text("{}")
    (found,) = check_rows(facts)
    assert (found.kind, found.proven) == (kind, False)
    assert found.text.startswith("attempts that were acknowledged without an offset: 1")


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "partition": st.sampled_from([-1, 0, 0, 0, 1, 2, 3]),
            "topic": st.sampled_from(["orders", "orders", "others"]),
            "outcome": st.sampled_from([0, 0, 0, 1, 2]),
            "error": st.sampled_from([0, 0, 19]),
            "offset": st.sampled_from([-2, -1, 0, 5]),
            "sent_ns": st.sampled_from([-1, 0, SECOND, 10**15]),
            "done_ns": st.sampled_from([-1, 0, 2 * SECOND]),
            "txn": st.sampled_from([-1, -1, 0]),
        }
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize(
    "producers",
    [
        pytest.param("acks: 0, idempotence: false", marks=pytest.mark.nightly),
        "acks: 1, idempotence: false",
        pytest.param("acks: all", marks=pytest.mark.nightly),
    ],
)
def test_footers_spare_reading_and_nothing_else(make_run: MakeRun, producers: str) -> None:
    four = EXPERIMENT.format(producers=producers, min_insync=1, expect="").replace(
        "partitions: 1", "partitions: 4"
    )
    facts = Facts.read(make_run(experiment=four, attempts=[attempt(0, 0.5)]))
    (part,) = parts(facts.run.produced)

    @given(ROWS)
    def same(rows: list[dict[str, Any]]) -> None:
        table = pa.Table.from_pylist([{**attempt(0, 0.5), **row} for row in rows], schema=PRODUCED)
        found = []
        for options in ({}, {"row_group_size": 2}, {"row_group_size": 1}, {"write_statistics": False}):
            pq.write_table(table, part, **options)
            found.append([opinion.text.partition(", such as")[0] for opinion in check_rows(facts)])
        assert found == found[:1] * 4

    same()


def test_a_partition_that_acknowledged_nothing(make_run: MakeRun) -> None:
    rows = [attempt(0, 0.5), attempt(1, 0.6, outcome=2, partition=3)]
    four = EXPERIMENT.format(producers="acks: all", min_insync=2, expect="").replace(
        "partitions: 1", "partitions: 4"
    )
    found = said(Facts.read(make_run(experiment=four, attempts=rows)))
    assert found == ["nothing was ever acknowledged on orders/3"]


# -- who was to watch -----------------------------------------------------------------------------------------------


def _watched(make_run: MakeRun, live: int, handed: int, reads: dict[int, int]) -> str:
    """Return the `not judged` texts on classes that live readers show. `live`: number of live readers; `handed`: their
    reads in the audit; `reads`: number of reads by tenth of a second."""
    run = make_run(
        audit={"records": {"produced": 100, "acked": 100, "consumed_live": handed, "consumed_final": 100}}
    )
    case = run.case_json.read_text()
    run.case_json.write_text(case.replace('"live": 0', f'"live": {live}'))
    if live:
        assert f'"live": {live}' in run.case_json.read_text()
    rows = [
        {"topic": "orders", "start_ns": at * SECOND // 10, "acked": 5, "read": reads.get(at, 0), "p50_ms": 1.0,
         "p99_ms": 1.0, "max_ms": 1.0, "longest_gap_ms": 1.0}
        for at in sorted({0, 30, 200, *reads})
    ]  # fmt: skip
    write_run(run.path, series=rows)
    verdict = judge(Facts.read(run))
    return " | ".join(text for text in verdict.not_judged if "not looked for" in text)


@pytest.mark.parametrize(
    ("live", "handed", "reads", "words"),
    [
        (0, 0, {}, "vanished, skipped, rewound: not looked for: the experiment has no live reader"),
        (1, 0, {}, "not looked for: the live readers read nothing"),
        (1, 50, {0: 20, 30: 30}, "not looked for: the live readers stood still on orders/0"),
        (1, 99, {0: 20, 30: 30, 200: 49}, ""),
        (1, 51, {0: 20, 30: 30, 200: 1}, ""),
        (1, 20, {0: 20}, "not looked for: the live readers stood still on orders/0"),
        (1, 20, {100: 20}, ""),
    ],
)
def test_who_stood_still_did_not_look(
    make_run: MakeRun, live: int, handed: int, reads: dict[int, int], words: str
) -> None:
    found = _watched(make_run, live, handed, reads)
    assert found == words if not words else words in found


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ([], "producers were to write in transactions, and there is none"),
        ([TxnOutcome.ABORTED, TxnOutcome.UNKNOWN], "of 2 transactions none is known to be committed"),
        ([TxnOutcome.ABORTED, TxnOutcome.COMMITTED], None),
    ],
)
def test_transactions_that_are_none(make_run: MakeRun, outcomes: list[TxnOutcome], words: str | None) -> None:
    (one,) = WHOLE.partitions
    final = FinalReadFile(complete=True, partitions=(one,), committed=(one,))
    facts = Facts.read(make_run(producers="acks: all, idempotence: true, transaction_size: 10", final=final))
    (part,) = facts.run.transactions.glob("*/*.parquet")
    part.unlink()
    if outcomes:
        write_transactions(
            part.parent, [TxnRow(0, n, int(one), 0, 0, 1, 2) for n, one in enumerate(outcomes)]
        )
    assert said(facts) == ([] if words is None else [words])


def test_every_class_that_needs_readers_is_one() -> None:
    assert set(LIVE_ONLY) <= set(Anomaly)
