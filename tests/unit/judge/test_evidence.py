"""Tests of the evidence that a verdict requires, at each of its limits, on run directories made by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ackproof.judge import judge_case
from ackproof.rundir.anomalies import GROUP_CLASSES, REMOVED, TABLE, Anomaly
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.documents import FinalReadFile, RecordCounts, VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import PredictedClass, PredictionFile
from ackproof.rundir.observed import RecoveryFile
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.timeline import EventKind
from judged_run import EXPERIMENT, HEALTHY, KILLED_LATE, WHOLE, MakeRun, Predicted, attempt, life

TWO_PARTITIONS = """\
name: t
topics: {orders: {partitions: 2}, other: {partitions: 1}}
workload: {producers: {topics: [orders]}, duration: 1s}
faults: [{kill: {target: TARGET}, at: 1s, restart_after: 1s}]
"""
TWO_FAULTS = """\
name: t
topics: {orders: {}}
workload: {duration: 1s}
faults:
  - kill: {target: leader(orders/0)}
    at: 1s
    restart_after: 1s
  - kill: {target: leader(orders/0)}
    at: 5s
    restart_after: 1s
"""
END = (EventKind.END, None, 9.0)
COUNTED = TABLE.keys() - {*GROUP_CLASSES, Anomaly.STALLED}  # a run without groups counts none of these


def passes(run: CaseDir) -> None:
    verdict = judge_case(run)
    assert (verdict.verdict, verdict.reasons) == (Verdict.PASS, ())


def lacks(run: CaseDir, *said: str) -> VerdictFile:
    """Assert that the verdict is INCONCLUSIVE for reasons with these words, in order. Only forbidden findings that are
    not decided may follow them. Return the verdict."""
    verdict = judge_case(run)
    assert verdict.verdict is Verdict.INCONCLUSIVE
    undecided = [reason.startswith("forbidden, and not decided") for reason in verdict.reasons]
    assert undecided == sorted(undecided)
    assert undecided.count(False) == len(said), verdict.reasons
    for reason, words in zip(verdict.reasons, said, strict=False):
        assert words in reason
    return verdict


# acks before the first fault and after the last healing ------------------------------------------------------------

BEFORE, AFTER = "before the first fault", "after the last fault"
NAMES_PARTITION = {"experiment": TWO_PARTITIONS.replace("TARGET", "leader(orders/1)")}
NAMES_NODE = {"experiment": TWO_PARTITIONS.replace("TARGET", "broker(1)")}
WAIVED = {"expect": "evidence: {ack_after_healing: false}"}
FAULTLESS = "name: t\ntopics: {orders: {}}\nworkload: {duration: 1s}\n"


@pytest.mark.parametrize(
    ("run", "said"),
    [
        pytest.param(
            NAMES_PARTITION | {"acked_bins": {("orders", 1): (0, 30)}}, (), id="on the partition alone"
        ),
        pytest.param(
            NAMES_PARTITION | {"acked_bins": {("orders", 0): (0, 30)}},
            (f"on orders/1 {BEFORE}", f"on orders/1 {AFTER}"),
            id="not on the partition",
        ),
        pytest.param(
            NAMES_NODE | {"acked_bins": {("orders", 0): (0, 30), ("orders", 1): (0,)}},
            (f"on orders/1 {AFTER}",),
            id="not on all that is written to",
        ),
        pytest.param(
            NAMES_NODE | {"acked_bins": {("orders", 0): (0, 30), ("orders", 1): (0, 30)}},
            (),
            id="nobody writes to the other topic",
        ),
        # the fault is asked for at 1.0 s and healed at 1.3 s
        pytest.param({"acked_bins": (9, 13)}, (), id="whole bins up to the fault and from the healing"),
        pytest.param({"acked_bins": (0, 14)}, (), id="whole bins before and after"),
        pytest.param({"acked_in_bin": 0}, (BEFORE, AFTER), id="bins without acks"),
        pytest.param({"acked_in_bin": 1}, (), id="one ack"),
        pytest.param(WAIVED | {"acked_bins": (0,)}, (), id="after the healing, waived"),
        pytest.param(WAIVED | {"acked_bins": (30,)}, (BEFORE,), id="before the fault it cannot be waived"),
        pytest.param(
            {
                "events": [
                    (EventKind.LEADER, None, 0.5),
                    *life(1, 1.0, 2.0),
                    (EventKind.LEADER, None, 8.0),
                    END,
                ],
                "acked_bins": (5, 25),
            },
            (),
            id="other events move no bound",
        ),
        pytest.param(
            {
                "experiment": TWO_FAULTS,
                "events": [*life(1, 1.0, 2.0), *life(2, 5.0, 6.0), END],
                "acked_bins": (20, 30),
            },
            (BEFORE, AFTER),
            id="between two faults",
        ),
        pytest.param(
            {
                "experiment": TWO_FAULTS,
                "events": [*life(1, 1.05, 2.05), *life(2, 5.05, 6.05), END],
                "acked_bins": (),
                "attempts": [attempt(0, 3.0)],
            },
            (BEFORE, AFTER),
            id="between two faults, by the ledger",
        ),
        pytest.param(
            {"acked_bins": (30,), "attempts": [attempt(0, 0.0)]}, (), id="at the start of the clock"
        ),
        pytest.param(
            {"experiment": FAULTLESS, "events": (EventKind.END,), "acked_bins": ()}, (), id="without faults"
        ),
    ],
)
def test_acks_are_owed_before_the_first_fault_and_after_the_last_healing(
    make_run: MakeRun, run: dict[str, Any], said: tuple[str, ...]
) -> None:
    if said:
        lacks(make_run(**run), *said)
    else:
        passes(make_run(**run))


def test_a_fault_that_names_a_coordinator_needs_acks_on_all_that_is_written_to(make_run: MakeRun) -> None:
    """The partition of the coordinator belongs to no topic of the experiment, so all written partitions count."""
    experiment = TWO_PARTITIONS.replace("TARGET", "leader(__transaction_state/0)").replace(
        "{topics: [orders]}", "{topics: [orders], idempotence: true, transaction_size: 10}"
    )
    run = make_run(experiment=experiment, acked_bins={("orders", 0): (0, 30), ("orders", 1): (0,)})
    assert "nothing was acknowledged on orders/1 after the last fault had healed" in judge_case(run).reasons


def test_a_run_without_series(make_run: MakeRun) -> None:
    run = make_run()
    run.series.unlink()
    lacks(run, "before the first fault", "after the last fault")


@pytest.mark.parametrize(
    ("change", "good"),
    [
        ({}, True),
        ({"outcome": 1}, None),
        ({"outcome": 2}, None),
        ({"topic": "other"}, False),
        ({"partition": 1}, False),
    ],
)
def test_in_the_bin_of_the_fault_the_ledger_tells(
    make_run: MakeRun, change: dict[str, Any], good: bool | None
) -> None:
    """Acknowledgements 1 ms before the fault and 1 ms after its healing, in the same bins of 100 ms as these."""
    events = [*life(1, 1.05, 1.35), END]
    run = make_run(
        events=events,
        acked_bins=(10, 13),
        attempts=[attempt(0, 1.049, **change), attempt(1, 1.351, **change)],
    )
    if good:
        passes(run)
    elif good is None:
        lacks(run, "was ever acknowledged", "before the first fault", "after the last fault")
    else:
        lacks(run, "which the case does not have", "before the first fault", "after the last fault")


@pytest.mark.parametrize("done", [(1.05, 1.35), (1.051, 1.349), (1.05, -1)])
def test_an_ack_at_the_very_moment_or_on_the_other_side_proves_nothing(
    make_run: MakeRun, done: tuple[float, float]
) -> None:
    run = make_run(
        events=[*life(1, 1.05, 1.35), END],
        acked_bins=(10, 13),
        attempts=[attempt(seq, at) for seq, at in enumerate(done)],
    )
    lacks(run, "before the first fault", "after the last fault")


def test_a_part_that_cannot_be_read_proves_nothing(make_run: MakeRun) -> None:
    run = make_run(acked_bins=(30,), attempts=[attempt(0, 0.5)])
    (run.produced / "client=p0" / "part-000001.parquet").write_bytes(b"torn")
    lacks(run, "before the first fault")


# faults ------------------------------------------------------------------------------------------------------------


def test_each_fault_has_its_own_events(make_run: MakeRun) -> None:
    run = make_run(experiment=TWO_FAULTS, events=[*life(1, 1.0, 2.0), END])
    lacks(run, "fault 2 (kill leader(orders/0)) was never injected")


STEPS = [kind for kind in HEALTHY if kind is not EventKind.END]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (STEPS[:0], " was never injected"),
        (STEPS[:1], " was not confirmed"),
        ([STEPS[0], *STEPS[2:]], " was not confirmed"),
        (STEPS[:2], " was not confirmed as healed"),
        (STEPS[:3], " was not confirmed as healed"),
    ],
    ids=["none", "asked", "healed unconfirmed", "confirmed", "not seen to be healed"],
)
def test_each_step_of_a_fault_is_asked_for(make_run: MakeRun, told: list[EventKind], reason: str) -> None:
    verdict = judge_case(make_run(events=[*((kind, 1, 1.0) for kind in told), END]))
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert f"fault 1 (kill leader(orders/0)){reason}" in verdict.reasons


_FAILED = "fault 1 (kill leader(orders/0)): because"
_MISSED = "only one that a storm drew may"
_DIED = {"expect": "evidence: {node_deaths: true}"}


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (
            {"events": [(EventKind.FAULT_ASKED, 1, 1.0), (EventKind.FAULT_FAILED, 1, 1.1), END]},
            (_FAILED,),
        ),
        ({"events": [(EventKind.FAULT_MISSED, 1, 1.0), END]}, (_MISSED,)),
        (
            {"events": [(EventKind.FAULT_MISSED, 1, 1.0), (EventKind.FAULT_FAILED, 1, 1.1), END]},
            (_MISSED, _FAILED),
        ),
        (
            _DIED | {"events": (*HEALTHY[:4], EventKind.PROXY_DIED, EventKind.END)},
            ("every connection through it ended",),
        ),
        (_DIED | {"events": (*HEALTHY[:4], EventKind.CLIENT_DIED, EventKind.END)}, ("ended by itself",)),
        (
            {"final": FinalReadFile(complete=False, partitions=WHOLE.partitions)},
            ("the final read is incomplete: no reason recorded",),
        ),
        (
            {"experiment": TWO_PARTITIONS.replace("TARGET", "leader(orders/0)"), "final": WHOLE},
            ("says nothing of orders/1, other/0",),
        ),
        ({"audit": {"complete": False}}, ("the audit is incomplete: no reason recorded",)),
        (KILLED_LATE, ("the audit is incomplete", "producer p0 was asked to end, did not")),
        # every attempt refused: nothing was promised, nothing can be broken, and that is no PASS
        (
            {"audit": {"records": RecordCounts(produced=100, failed=100, consumed_final=0)}},
            ("nothing was acknowledged",),
        ),
        ({"audit": {"records": RecordCounts(produced=1, acked=1, consumed_final=1)}}, ()),
    ],
)
def test_what_is_missing_is_named_once(make_run: MakeRun, run: dict[str, Any], said: tuple[str, ...]) -> None:
    if said:
        lacks(make_run(**run), *said)
    else:
        passes(make_run(**run))


def test_a_fault_that_its_storm_missed_is_the_storms_affair(make_run: MakeRun) -> None:
    storm = EXPERIMENT.format(min_insync=2, producers="acks: all", expect="").replace(
        "  - kill: {target: leader(orders/0)}\n    at: 1s\n    restart_after: 1s\n",
        "  - storm: {menu: {kill: 1}, count: 1, at_least: 0}\n    at: 1s\n",
    )
    missed = [
        (EventKind.FAULT_ASKED, 1, 1.0),
        (EventKind.FAULT_ASKED, 1001, 1.1),
        (EventKind.FAULT_MISSED, 1001, 1.2),
        (EventKind.FAULT_CONFIRMED, 1, 1.3),
        (EventKind.FAULT_HEALED, 1, 2.0),
        (EventKind.FAULT_RECOVERED, 1, 2.0),
    ]
    passes(make_run(experiment=storm, events=[*missed, END]))


def test_a_death_that_the_experiment_allows(make_run: MakeRun) -> None:
    events = (*HEALTHY[:4], EventKind.NODE_DIED, EventKind.END)
    passes(make_run(expect="evidence: {node_deaths: true}", events=events))


# the final read ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("records", "good"), [(100, True), (99, False), (98, False), (-1, True)])
def test_what_the_final_reader_read_is_in_its_ledger(make_run: MakeRun, records: int, good: bool) -> None:
    (one,) = WHOLE.partitions
    read = (one.model_copy(update={"records": records}),)
    run = make_run(final=FinalReadFile(complete=True, partitions=read), lost=1)
    if good:
        assert judge_case(run).verdict is Verdict.FAIL
    else:
        lacks(run, f"read {records} records, and its ledger has 100")


# the audit ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anomaly", sorted(COUNTED - {*REMOVED}))
def test_a_class_that_was_not_counted(make_run: MakeRun, anomaly: str) -> None:
    run = make_run(audit={"counts": dict.fromkeys(COUNTED - {anomaly}, 0)})
    RecoveryFile(bounds={}, waited_s=0, running=(1, 2, 3)).save(run.recovery)
    lacks(run, f"the audit did not look for {anomaly}")


def test_an_expectation_of_a_class_that_was_not_counted(make_run: MakeRun) -> None:
    lacks(
        make_run(audit={"counts": {}}, expect='expect:\n  - {lost: 0, duplicate: "> 0"}'),
        "did not look for lost, overwritten",
    )


def test_a_bound_of_its_own_for_what_is_indeterminate(make_run: MakeRun) -> None:
    records = RecordCounts(produced=100, acked=89, indeterminate=11, consumed_final=100)
    run = make_run(expect="evidence: {max_indeterminate: 0.1}", audit={"records": records})
    lacks(run, "11% of the attempts are indeterminate, more than the 10%")


_TRANSACTIONAL = "acks: all, idempotence: true, transaction_size: 10"


@pytest.mark.parametrize(
    ("producers", "committed", "records", "said"),
    [
        (_TRANSACTIONAL, WHOLE.partitions, -1, ""),
        (_TRANSACTIONAL, WHOLE.partitions, 40, ""),
        (_TRANSACTIONAL, WHOLE.partitions, 41, "the final reader at read_committed read 41 records"),
        (_TRANSACTIONAL, (), -1, "there was no final read at read_committed"),
        ("acks: all", (), -1, ""),
    ],
)
def test_what_was_written_in_transactions_is_read_at_read_committed_too(
    make_run: MakeRun, producers: str, committed: tuple[Any, ...], records: int, said: str
) -> None:
    second = tuple(one.model_copy(update={"records": records}) for one in committed)
    final = WHOLE.model_copy(update={"committed": second})
    verdict = judge_case(make_run(producers=producers, final=final, audit={"consumed_committed": 40}))
    assert (verdict.verdict is Verdict.PASS) is (not said), verdict.reasons
    assert said in " ".join(verdict.reasons)


# what the harness's own clients leave behind ------------------------------------------------------------------------


def _closed_early(run: CaseDir, unread: int) -> CaseDir:
    """Add the note of an acks=0 producer that closed while brokers had not read `unread` bytes. Return the run."""
    lines = run.timeline.read_text("utf-8").splitlines(keepends=True)
    note = json.loads(lines[-1]) | {"kind": "note", "detail": {"unread_bytes": unread, "producer": 0}}
    run.timeline.write_text("".join([*lines[:-1], json.dumps(note) + "\n", lines[-1]]), "utf-8")
    return run


def test_a_loss_that_is_predicted_impossible_is_kafkas(make_run: MakeRun, prediction: Predicted) -> None:
    prediction.says(lost=Chance.IMPOSSIBLE)
    assert judge_case(make_run(lost=3)).verdict is Verdict.FAIL


def test_losses_are_not_kafkas_where_a_producer_closed_early(
    make_run: MakeRun, prediction: Predicted
) -> None:
    prediction.says(lost=Chance.IMPOSSIBLE)
    lacks(_closed_early(make_run(lost=3), 280_969), "brokers had not read 280969 bytes of it")


def test_a_producer_that_closed_early_and_lost_nothing_is_no_lack(make_run: MakeRun) -> None:
    passes(_closed_early(make_run(), 280_969))


@pytest.mark.parametrize(("explored", "verdict"), [(True, Verdict.FAIL), (False, Verdict.INCONCLUSIVE)])
def test_what_nobody_looked_for_is_not_forbidden_by_the_settings_alone(
    make_run: MakeRun, prediction: Predicted, explored: bool, verdict: Verdict
) -> None:
    """If a search found no way to a loss, the settings decide. If a rule left it unknown, the loss stays open."""
    rot = PredictedClass(
        anomaly="lost", chance=Chance.UNKNOWN, why="truncate_segment took", explored=explored
    )
    prediction.file = PredictionFile(classes=(rot,), observed=True)
    assert judge_case(make_run(lost=3)).verdict is verdict
