"""Warnings: where it is certain that an experiment does not do what was meant, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackproof.experiment.problems import Severity
from ackproof.plan import Plan

Load = Callable[[str], Plan]
HEAD = """\
name: n
topics: {{t: {{config: {{min.insync.replicas: {least}}}}}}}
workload: {{producers: {{acks: {acks}}}, duration: 10s}}
"""


def warned(load_text: Load, text: str) -> list[str]:
    warnings = load_text(text).warnings
    assert {one.severity for one in warnings} <= {Severity.WARNING}
    return [f"{one.line}:{one.column} {one.path}: {one.message}" for one in warnings]


def of_faults(load_text: Load, *faults: str, least: int = 2, acks: str = "all", more: str = "") -> list[str]:
    text = HEAD.format(least=least, acks=acks) + more + "faults:\n"
    return warned(load_text, text + "".join(f"  - {fault}\n" for fault in faults))


def test_more_in_sync_than_replicas(load_text: Load) -> None:
    (told,) = warned(load_text, HEAD.format(least=4, acks="all"))
    assert told == (
        "2:44 topics.t.config[min.insync.replicas]: t has 3 replicas, fewer than 4; brokers take 3 in its place"
    )
    assert warned(load_text, HEAD.format(least=3, acks="all")) == []


def test_more_in_sync_than_replicas_in_some_cells(load_text: Load) -> None:
    """It is shown at the value of the matrix that brings it about."""
    text = "name: n\ntopics: {t: {}}\nmatrix:\n  cluster.config[min.insync.replicas]: [1, 3, 5]\n"
    (told,) = warned(load_text, text)
    assert told.startswith("4:47 cluster.config[min.insync.replicas]: t has 3 replicas, fewer than 5")
    text += "  topics.t.replication_factor: [2, 3]\n"
    assert [one.partition(" ")[0] for one in warned(load_text, text)] == ["4:44", "4:47"]


def test_later_than_the_load(load_text: Load) -> None:
    (told,) = of_faults(load_text, "{kill: broker, at: 12s, restart_after: 3s}")
    assert told == (
        "5:24 faults[1].at: beyond the workload's duration of 10s; the load goes on for it, 15s or longer"
    )
    chain = of_faults(
        load_text,
        "{kill: broker, at: 12s, restart_after: 3s}",
        "{pause: broker, after: {fault: 1, by: 4s}, for: 5s}",
    )
    assert "21s or longer" in chain[0]
    assert len(chain) == 1
    assert of_faults(load_text, "{kill: broker, at: 10s, restart_after: 3s}") == []


@pytest.mark.parametrize(
    "fault",
    ["{stop: majority, at: 2s}", "{kill: followers(t/0), at: 2s}", "{pause: brokers, when: acked > 5}"],
)
def test_nothing_can_be_acknowledged_any_more(load_text: Load, fault: str) -> None:
    (told,) = of_faults(load_text, fault)
    assert told.startswith(
        f"5:6 faults[1].{fault[1:].partition(':')[0]}: from then on nothing can be acknowledged"
    )


@pytest.mark.parametrize(
    ("faults", "given"),
    [
        (["{kill: majority, at: 2s, restart_after: 3s}"], {}),
        (["{kill: broker, at: 2s}"], {}),
        (["{kill: minority, at: 2s}"], {}),
        (["{kill: leader(t/0), at: 2s}"], {}),
        (["{kill: majority, at: 10s}"], {}),
        (["{kill: majority, at: 2s}"], {"acks": "1"}),
        (["{kill: majority, at: 2s}"], {"least": 1}),
        (["{kill: controllers, at: 2s}"], {}),
        (["{kill: followers(t/0), at: 2s}"], {"more": "matrix: {topics.t.partitions: [2]}\n"}),
        (["{kill: majority, at: 2s}", "{kill: broker(1), at: 4s, restart_after: 1s}"], {}),
        (["{kill: majority, at: 2s}", "{set: {topic: t, config: {min.insync.replicas: 1}}, at: 4s}"], {}),
        (["{kill: majority, at: 2s}", "{storm: {count: 3}, at: 4s}"], {}),
    ],
    ids=lambda given: str(given)[:60],
)
def test_something_may_be_acknowledged_still(
    load_text: Load, faults: list[str], given: dict[str, str]
) -> None:
    assert of_faults(load_text, *faults, **given) == []  # type: ignore[arg-type]


def test_what_else_goes_on_does_not_bring_it_back(load_text: Load) -> None:
    both = of_faults(load_text, "{kill: majority, at: 2s}", "{isolate: broker(1), at: 4s, for: 1s}")
    assert len(both) == 1


def test_a_setting_of_all_replicas(load_text: Load) -> None:
    """With three in sync of three, one that is gone is one too many."""
    assert len(of_faults(load_text, "{kill: broker, at: 2s}", least=3)) == 1


def test_a_state_that_may_never_come(load_text: Load) -> None:
    (told,) = of_faults(load_text, "{kill: broker, when: isr(t/0) == 2, restart_after: 1s}")
    assert told.startswith("5:26 faults[1].when: this may never come")
    assert of_faults(load_text, "{kill: broker, when: isr(t/0) == 2, at_latest: 5s, restart_after: 1s}") == []
    assert of_faults(load_text, "{kill: broker, when: acked > 2, restart_after: 1s}") == []


@pytest.mark.parametrize(
    ("command", "told"),
    [
        pytest.param('[kafka-topics.sh, --alter, --topic, orders, --partitions, "6"]', True, id="words"),
        pytest.param('[sh, -c, "kafka-topics.sh --alter --topic orders --partitions=6"]', True, id="a shell"),
        pytest.param(
            '[kafka-topics.sh, --create, --topic, other, --partitions, "6"]', False, id="another topic"
        ),
    ],
)
def test_partitions_that_nobody_reads(load_text: Load, command: str, told: bool) -> None:
    fault = f"command: {{inject: {command}, check: [a], heal: [b]}}\n    at: 1s\n    for: 1s"
    found = warned(load_text, HEAD.format(least=2, acks="all") + f"faults:\n  - {fault}\n")
    assert any("nobody reads partitions that it adds" in one for one in found) is told


@pytest.mark.parametrize(
    ("fault", "controllers", "told"),
    [
        ("kill: rack(a)", 1, "rack(a) has 1 of 1 controllers (101), and no majority is left"),
        ("pause: rack(a)", 3, "rack(a) has 2 of 3 controllers (101, 103), and no majority is left"),
        ("detach: [rack(b), broker(1)]", 3, ""),
        ("kill: rack(leader(t/0))", 1, ""),
        ("throttle: {link: rack(a) -> rack(b), rate: 9KB/s}", 1, ""),
    ],
)
def test_a_rack_with_the_quorum(load_text: Load, fault: str, controllers: int, told: str) -> None:
    more = f"cluster: {{brokers: 4, racks: [a, b], controllers: {controllers}}}\n"
    hold = "restart_after" if fault.startswith("kill") else "for"
    warnings = of_faults(load_text, f"{fault}\n    at: 2s\n    {hold}: 1s", more=more)
    assert [told in warning for warning in warnings] == ([True] if told else []), warnings


def test_a_rack_that_is_gone_for_good(load_text: Load) -> None:
    """Three of four brokers: of three replicas one is left at most."""
    more = "cluster: {brokers: 4, racks: [a, a, a, b], controller_racks: [b]}\n"
    (told,) = of_faults(load_text, "{kill: rack(a), at: 2s}", more=more)
    assert (
        "from then on nothing can be acknowledged: 1 of 3 replicas are left at most, and it takes 2" in told
    )


@pytest.mark.parametrize(
    ("condition", "rate", "words"),
    [
        (
            "acked >= 9000000",
            "1000/s",
            "acked >= 9000000 never comes: it takes 2.5 h at 1000/s, and in 40 s there are 40000",
        ),
        ("acked(t/0) > 9000000", "1000/s", "acked(t/0) > 9000000 never comes"),
        ("acked == 9000000", "1000/s", "in 10 s there are 10000"),
        ("acked >= 9000000", "full", ""),
        ("acked >= 40000", "1000/s", ""),
        ("acked <= 9000000", "1000/s", "this may never come"),
        ("isr(t/0) >= 3", "1000/s", "this may never come"),
    ],
)
def test_a_count_that_never_comes_in_the_time_given(
    load_text: Load, condition: str, rate: str, words: str
) -> None:
    def told(at_latest: str) -> list[str]:
        text = HEAD.format(least=2, acks="all").replace("acks: all", f"acks: all, rate: {rate}")
        fault = f"  - {{kill: broker, when: {condition}{at_latest}, restart_after: 3s}}\n"
        return warned(load_text, text + "faults:\n" + fault)

    found = told("")
    assert len(found) == (1 if words else 0)
    assert all(words in one and "without fault 1 the case is INCONCLUSIVE" in one for one in found)
    late = told(", at_latest: 8s")
    assert len(late) == (
        1 if condition.startswith("acked") and "<" not in condition and rate != "full" else 0
    )
    assert all("in 8 s there are 8000; ask for less" in one for one in late)


def test_a_count_that_a_longer_fault_leaves_time_for(load_text: Load) -> None:
    faults = ["{pause: broker, at: 5s, for: 55s}", "{kill: broker, when: acked >= 90000, restart_after: 3s}"]
    head = HEAD.format(least=2, acks="all").replace("acks: all", "acks: all, rate: 1000/s")
    text = head + "faults:\n" + "".join(f"  - {fault}\n" for fault in faults)
    assert warned(load_text, text) == []
    (told,) = warned(load_text, text.replace("90000", "190000"))
    assert "in 90 s there are 90000" in told


def test_each_of_several_readers_counts_what_it_reads(load_text: Load) -> None:
    head = HEAD.format(least=2, acks="all").replace(
        "acks: all}", "acks: all, rate: 1000/s}, consumers: {live: 4}"
    )
    fault = "faults:\n  - {kill: broker, when: read >= 250000, restart_after: 3s}\n"
    assert warned(load_text, head + fault) == []
    assert len(warned(load_text, head.replace("live: 4", "live: 3") + fault)) == 1
