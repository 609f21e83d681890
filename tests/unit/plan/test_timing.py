"""Time-outs of the brokers: each setting that differs from Kafka's default is listed with both values."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.base.units import rough_duration
from ackproof.experiment.setting_effects import kafka_settings
from ackproof.experiment.settings import Scope
from ackproof.experiment.timing import configured, markdown, timing_of
from ackproof.plan.cases import cases
from ackproof.plan.doubts import estimate, load_s
from ackproof.plan.schedule import describe, describe_timing

from .conftest import Load

DOCS = Path(__file__).parents[3] / "docs" / "timing.md"
TEXT = "name: t\ncluster: {%s}\ntopics: {orders: {replication_factor: 1}}\nworkload: {duration: 1s}\n"


def test_the_table_of_the_page_is_that_of_the_code() -> None:
    assert DOCS.read_text("utf-8").endswith(f"\n\n{markdown()}")


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
@pytest.mark.parametrize("timing", ["chaos", "script", "kafka"])
def test_each_setting_that_is_not_kafkas_is_listed_once_with_both_values(
    load_text: Load, timing: str, mode: str
) -> None:
    release = ', kafka: "3.9.2"' if mode == "zookeeper" else ""
    spec = load_text(TEXT % f"timing: {timing}, mode: {mode}{release}").spec
    found = timing_of(spec)
    assert found.name == ("Kafka's own" if timing == "kafka" else timing)
    config = configured(spec.cluster, 1)
    listed = {one.name: (one.value, one.default) for one in found.changed}
    assert len(listed) == len(found.changed)
    for name, value in config.items():
        default = kafka_settings()[Scope.BROKER, name].default
        assert listed.pop(name, None) == (None if value == default else (value, default))
    assert listed == {}
    told = {one.name for one in found.changed}
    assert (spec.cluster.metadata.session in told) is (timing != "kafka")


def test_what_the_experiment_changes_shows_in_the_name(load_text: Load) -> None:
    assert timing_of(load_text(TEXT % "config: {num.io.threads: 3}").spec).name == "chaos"
    same = load_text(TEXT % "config: {broker.session.timeout.ms: 3000, request.timeout.ms: 30000}")
    assert timing_of(same.spec).name == "chaos"
    own = load_text(TEXT % "timing: kafka, config: {broker.session.timeout.ms: 3000}").spec
    assert timing_of(own).name == "Kafka's own + cluster.config"


def test_settings_of_single_brokers_are_listed_with_them(load_text: Load) -> None:
    spec = load_text(TEXT % "timing: kafka, broker_config: {2: {num.io.threads: 3}}").spec
    (one,) = [one for one in timing_of(spec).changed if one.name == "num.io.threads"]
    assert (one.value, one.default, one.brokers) == ("3", "8", (2,))
    assert str(one) == "num.io.threads=3 on broker 2 (8)"


def test_a_setting_that_the_release_does_not_have(load_text: Load) -> None:
    spec = load_text(TEXT % "config: {num.io.treads: 3}").spec
    (one,) = [one for one in timing_of(spec).changed if one.name == "num.io.treads"]
    assert one.default is None
    assert str(one) == "num.io.treads=3 (not a setting of this release)"


def test_a_plan_says_it_of_each_case_and_lists_the_settings_once(load_text: Load) -> None:
    matrix = "matrix:\n  workload.producers.acks: [1, all]\n"
    found = cases(load_text(TEXT % "" + matrix))
    assert [line for line in describe(found[0]) if line.startswith("  timing: ")] == ["  timing: chaos"]
    first, settings = describe_timing(found)
    assert first == "timing: chaos; every time is measured under it"
    assert "broker.session.timeout.ms=3000 (9000)" in settings
    both = cases(load_text(TEXT % "" + "matrix:\n  cluster.timing: [chaos, kafka]\n"))
    heads = [line for line in describe_timing(both) if line.startswith("timing")]
    assert heads == [
        "timing: chaos; every time is measured under it (timing=chaos)",
        "timing: Kafka's own; every time is measured under it (timing=kafka)",
    ]


def test_a_default_is_that_of_the_release(load_text: Load) -> None:
    """The default of num.recovery.threads.per.data.dir was 1 until 3.9, and is 2 since 4.0 (KIP-1030)."""
    for release, value, listed in (
        ("3.9.2", 1, False),
        ("3.9.2", 2, True),
        ("4.3.1", 1, True),
        ("4.3.1", 2, False),
    ):
        text = TEXT % f'kafka: "{release}", config: {{num.recovery.threads.per.data.dir: {value}}}'
        told = {one.name: one.default for one in timing_of(load_text(text).spec).changed}
        assert told.get("num.recovery.threads.per.data.dir") == (str(3 - value) if listed else None)


WITH_LOAD = """\
name: t
topics: {orders: {}}
workload: {duration: 10s}
"""
FAULTS = """\
faults:
  - {pause: broker, at: 8s, for: 4s}
  - {kill: broker, after: {fault: 1, by: 3s}, restart_after: 9s}
"""


@pytest.mark.parametrize(("text", "seconds"), [(WITH_LOAD, 10), (WITH_LOAD + FAULTS, 20)])
def test_the_load_lasts_until_all_has_healed(load_text: Load, text: str, seconds: float) -> None:
    (case,) = cases(load_text(text))
    assert load_s(case.planned) == seconds


def test_a_storm_lasts_as_long_as_what_it_drew(load_text: Load) -> None:
    storm = "faults:\n  - {storm: {count: 20, gap: 2s..2s, lasting: 1s..1s}, at: 1s}\n"
    (case,) = cases(load_text(WITH_LOAD + storm))
    assert load_s(case.planned) >= 1 + 19 * 2


def test_each_repeat_of_each_cell_counts(load_text: Load) -> None:
    text = WITH_LOAD + "matrix:\n  workload.producers.acks: [1, all]\nrepeat: 30\n"
    (told,) = estimate(cases(load_text(text)))
    assert told == (
        "estimate: about 22 min for 60 run(s): 10 min of load, 12 min of start-up, final read and audit; longer on a "
        "busy machine"
    )
    (one,) = estimate(cases(load_text(WITH_LOAD)))
    assert one.startswith("estimate: about 42 s for 1 run(s): 10 s of load, ")
    assert list(estimate(cases(load_text(WITH_LOAD + "backend: model\n")))) == []


@pytest.mark.parametrize(("seconds", "text"), [(40, "40 s"), (99.4, "99 s"), (180, "3 min"), (9000, "2.5 h")])
def test_a_duration_in_words(seconds: float, text: str) -> None:
    assert rough_duration(seconds) == text
