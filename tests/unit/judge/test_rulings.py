"""Tests of rulings: the classes that each configuration forbids, with their reasons; and topics of one case with
different promises."""

from __future__ import annotations

import pytest

from ackproof.judge import judge_case
from ackproof.rundir.anomalies import REMOVED, TABLE, count_text
from ackproof.rundir.documents import ClassJudgement
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Verdict
from judged_run import EXPERIMENT, MakeRun, finding

STRONG_AND_WEAK = """\
name: t
topics:
  strong: {config: {min.insync.replicas: 2}}
  weak: {config: {min.insync.replicas: 1}}
workload: {duration: 1s}
faults: [{kill: {target: leader(strong/0)}, at: 1s, restart_after: 1s}]
"""
ACKED = {("strong", 0): (0, 30), ("weak", 0): (0, 30)}


def said_of(run: CaseDir, anomaly: str) -> tuple[Verdict, ClassJudgement]:
    verdict = judge_case(run)
    (said,) = [one for one in verdict.classes if one.anomaly == anomaly]
    return verdict.verdict, said


@pytest.mark.parametrize(
    ("producers", "min_insync", "config", "why"),
    [
        ("acks: 0", 2, "", "acks=0 promises one copy at most"),
        ("acks: 1", 1, "", "acks=1 promises one copy at most"),
        ("acks: all", 1, "", "min.insync.replicas = 1"),
        (
            "acks: all",
            2,
            "cluster: {config: {unclean.leader.election.enable: true}}",
            "unclean.leader.election",
        ),
        (
            "acks: all",
            2,
            "cluster: {broker_config: {2: {unclean.leader.election.enable: true}}}",
            "unclean.leader.election",
        ),
    ],
)
def test_why_a_loss_is_not_judged(
    make_run: MakeRun, producers: str, min_insync: int, config: str, why: str
) -> None:
    run = make_run(producers=producers, min_insync=min_insync, expect=config, lost=1)
    verdict, said = said_of(run, "lost")
    assert (verdict, said.forbidden) == (Verdict.PASS, None)
    assert said.why.startswith(why)


@pytest.mark.parametrize(
    ("anomaly", "producers", "why"),
    [
        ("lost", "acks: all", "acks=all on at least 2 in-sync replicas"),
        ("duplicate", "idempotence: true", "an idempotent producer writes no copies"),
        ("duplicate", "retries: 0", "retries = 0"),
        ("displaced", "idempotence: true", "the acknowledged offset holds"),
        ("displaced", "retries: 0", "retries = 0"),
        ("reordered", "idempotence: true", "an idempotent producer keeps its order"),
        ("reordered", "retries: 0", "retries = 0"),
        ("phantom", "acks: 0", "no configuration permits it"),
    ],
)
def test_why_a_class_is_forbidden(make_run: MakeRun, anomaly: str, producers: str, why: str) -> None:
    detail = "both acked" if anomaly == "reordered" else ""
    run = make_run(producers=producers, findings=[finding(anomaly, detail=detail)], **{anomaly: 1})
    verdict, said = said_of(run, anomaly)
    assert (verdict, said.forbidden) == (Verdict.FAIL, True)
    assert said.why.startswith(why)
    name = f"{anomaly}: {count_text(1, anomaly)}"
    assert any(reason.startswith(f"{name}. Forbidden: {why}") for reason in judge_case(run).reasons)


@pytest.mark.parametrize(
    ("anomaly", "producers", "why"),
    [
        ("duplicate", "acks: all", "a retry is possible"),
        ("displaced", "acks: all", "a retry is possible"),
        ("reordered", "acks: all, in_flight: 1", "retries without idempotence"),
        ("reordered", "acks: 0, in_flight: 1", "acks=0"),
        ("surfaced", "idempotence: true", "an indeterminate attempt may be present"),
    ],
)
def test_why_a_class_is_allowed(make_run: MakeRun, anomaly: str, producers: str, why: str) -> None:
    verdict, said = said_of(make_run(producers=producers, **{anomaly: 1}), anomaly)
    assert (verdict, said.forbidden) == (Verdict.PASS, False)
    assert said.why.startswith(why)


@pytest.mark.parametrize(
    ("broker", "topic", "expected"),
    [
        ("{1: {min.insync.replicas: 1}}", "", Verdict.PASS),
        ("{1: {min.insync.replicas: 3}}", "", Verdict.FAIL),
        ("{1: {min.insync.replicas: 1}}", "min.insync.replicas: 2", Verdict.FAIL),
    ],
)
def test_settings_of_single_brokers_below_the_topic_and_over_the_cluster(
    make_run: MakeRun, broker: str, topic: str, expected: Verdict
) -> None:
    experiment = f"""\
name: t
cluster: {{config: {{min.insync.replicas: 2}}, broker_config: {broker}}}
topics: {{orders: {{config: {{{topic}}}}}}}
workload: {{duration: 1s}}
faults: [{{kill: {{target: leader(orders/0)}}, at: 1s, restart_after: 1s}}]
"""
    assert judge_case(make_run(experiment=experiment, lost=1)).verdict is expected


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("set: {topic: orders, config: {min.insync.replicas: 1}}", Verdict.PASS),
        ("set: {topic: orders, config: {min.insync.replicas: 3}}", Verdict.FAIL),
        ("set: {topic: orders, config: {unclean.leader.election.enable: true}}", Verdict.PASS),
        ("set: {topic: other, config: {min.insync.replicas: 1}}", Verdict.FAIL),
        ("set: {config: {unclean.leader.election.enable: true}}", Verdict.PASS),
        ("set: {config: {min.insync.replicas: 1}}", Verdict.FAIL),  # the topic has its own
        ("elect_unclean: {partition: orders/0}", Verdict.PASS),
        ("elect_preferred: {partition: orders/0}", Verdict.FAIL),
        ("recreate: {topic: orders}", Verdict.FAIL),  # what went with it is not lost
        ("reassign: {partition: orders/0, to: [1]}", Verdict.PASS),
        ("reassign: {partition: orders/0, to: [1, 2]}", Verdict.FAIL),
    ],
)
def test_what_is_changed_on_the_way_counts_by_its_weakest(
    make_run: MakeRun, fault: str, expected: Verdict
) -> None:
    experiment = f"""\
name: t
topics: {{orders: {{config: {{min.insync.replicas: 2}}}}, other: {{config: {{min.insync.replicas: 2}}}}}}
workload: {{duration: 1s, producers: {{topics: [orders]}}}}
faults: [{{{fault}, at: 1s}}]
"""
    run = make_run(experiment=experiment, lost=1, findings=[finding("lost", "orders")])
    assert judge_case(run).verdict is expected


def test_audits_of_older_versions_count_as_lost_what_went_with_a_topic(make_run: MakeRun) -> None:
    counts = {name: int(name == "lost") for name in TABLE.keys() - set(REMOVED)}
    text = EXPERIMENT.format(producers="acks: all", min_insync=2, expect="")
    text = text[: text.index("faults:")] + "faults: [{recreate: {topic: orders}, at: 1s}]\n"
    run = make_run(experiment=text, audit={"counts": counts}, findings=[finding("lost", "orders")])
    assert judge_case(run).verdict is Verdict.PASS


def test_more_replicas_than_there_are_cannot_be_in_sync(make_run: MakeRun) -> None:
    """Kafka requires min(min.insync.replicas, replication factor) in-sync replicas."""
    experiment = STRONG_AND_WEAK.replace("strong: {", "strong: {replication_factor: 1, ")
    run = make_run(experiment=experiment, acked_bins=ACKED, lost=1, findings=[finding("lost", "strong")])
    assert judge_case(run).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("topics", "expected", "words"),
    [
        (["weak", "weak"], Verdict.PASS, "(0 of 2 stand against that)"),
        (["weak", "strong"], Verdict.FAIL, "(1 of 2 stand against that)"),
        (["strong", "strong"], Verdict.FAIL, "unclean election off"),
        (["weak", ""], Verdict.FAIL, "(1 of 2 stand against that)"),
        (["weak", "stranger"], Verdict.FAIL, "(1 of 2 stand against that)"),
    ],
)
def test_only_findings_on_topics_that_permit_them_are_let_pass(
    make_run: MakeRun, topics: list[str], expected: Verdict, words: str
) -> None:
    findings = [*(finding("lost", topic) for topic in topics), finding("displaced", "strong")]
    run = make_run(
        experiment=STRONG_AND_WEAK, acked_bins=ACKED, findings=findings, lost=len(topics), displaced=1
    )
    verdict, said = said_of(run, "lost")
    assert verdict is expected
    assert said.why.endswith(words)


def test_a_class_that_was_not_seen_is_shown_as_the_strictest_topic_has_it(make_run: MakeRun) -> None:
    run = make_run(experiment=STRONG_AND_WEAK, acked_bins=ACKED)
    verdict, said = said_of(run, "lost")
    assert (verdict, said.forbidden, said.count) == (Verdict.PASS, True, 0)
    assert said_of(run, "duplicate")[1].forbidden is False


def test_an_expectation_decides_about_losses(make_run: MakeRun) -> None:
    run = make_run(expect='expect:\n  - {lost: "> 0"}', lost=2)
    verdict, said = said_of(run, "lost")
    assert (verdict, said.forbidden) == (Verdict.PASS, None)
    assert "expectation decides" in said.why


def test_an_expectation_of_none_decides_where_nothing_is_promised(make_run: MakeRun) -> None:
    _, said = said_of(make_run(producers="acks: 1", expect="expect:\n  - {lost: 0}"), "lost")
    assert said.forbidden is None
    assert "expectation decides" in said.why


@pytest.mark.parametrize("bound", ["0", '"<= 5"'])
def test_an_expectation_leaves_forbidden_what_the_settings_forbid(make_run: MakeRun, bound: str) -> None:
    verdict, said = said_of(make_run(expect=f"expect:\n  - {{lost: {bound}}}", lost=2), "lost")
    assert (verdict, said.forbidden) == (Verdict.FAIL, True)


def test_an_expectation_of_one_loss_says_nothing_of_the_others(make_run: MakeRun) -> None:
    run = make_run(expect='expect:\n  - {lost: "> 0"}', lost=2, vanished=1)
    assert judge_case(run).verdict is Verdict.FAIL


def test_an_expectation_allows_no_forbidden_class_that_is_not_a_loss(make_run: MakeRun) -> None:
    run = make_run(producers="idempotence: true", expect='expect:\n  - {duplicate: "> 0"}', duplicate=2)
    assert judge_case(run).verdict is Verdict.FAIL


def test_only_inversions_of_acked_records_count_without_idempotence(make_run: MakeRun) -> None:
    findings = [finding("reordered", detail="both acked"), finding("reordered", detail="one is not")]
    run = make_run(producers="retries: 0", findings=findings, reordered=2)
    verdict, said = said_of(run, "reordered")
    assert verdict is Verdict.FAIL
    assert said.why.endswith("(1 of 2 stand against that)")
