"""Each known setting has a row of effects, and a case reports settings with effects that no verdict judges."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from ackproof.experiment.case import Case
from ackproof.experiment.kafka import KNOWN_FEATURES, LINES, RELEASES
from ackproof.experiment.promises import Promises, rule
from ackproof.experiment.setting_effects import NAMES as LISTED
from ackproof.experiment.setting_effects import Effect, kafka_settings, markdown, row_of, rows, unjudged
from ackproof.experiment.settings import TOPIC_SETTINGS, Scope, refusal
from ackproof.rundir.anomaly_terms import Chance
from run_directory import read_case

DOCS = Path(__file__).parents[3] / "docs" / "settings.md"
NAMES = [*kafka_settings(), *((None, name) for name in KNOWN_FEATURES)]
EXPERIMENT = """\
name: t
cluster: {{config: {{{cluster}}}}}
topics: {{orders: {{config: {{{topic}}}}}}}
workload: {{producers: {{acks: all, idempotence: true}}, duration: 5s}}
{faults}
"""


def case(cluster: str = "", topic: str = "", faults: str = "") -> Case:
    """Return a case with these settings of the cluster and of a topic, and these faults, each as YAML."""
    return read_case(EXPERIMENT.format(cluster=cluster, topic=topic, faults=faults))


def test_the_page_is_that_of_the_table() -> None:
    assert DOCS.read_text() == markdown()


def test_the_settings_are_those_of_all_known_lines() -> None:
    """`python tools/kafka_settings.py` writes the list, whose header names the first and last release line."""
    head, *_ = LISTED.read_text().splitlines()
    assert head.split("\t")[-1] == f"{LINES[0]} to {LINES[-1]}"


def test_each_setting_and_feature_has_a_row_or_is_refused() -> None:
    missing = [
        name
        for scope, name in NAMES
        if row_of(name) is None and (scope is None or refusal(scope, name) is None)
    ]
    assert missing == []


def test_no_pattern_is_of_nothing() -> None:
    plugins = {"config.providers.*", "rsm.config.*", "rlmm.config.*"}
    used = {p for row in rows() for p in row.patterns if any(fnmatchcase(name, p) for _, name in NAMES)}
    assert {p for row in rows() for p in row.patterns} - used == plugins


def test_the_topic_settings_are_those_of_the_releases() -> None:
    assert set(TOPIC_SETTINGS) == {name for scope, name in kafka_settings() if scope is Scope.TOPIC}


UNJUDGED = [
    one for one in kafka_settings().values() if (row := row_of(one.name)) is not None and row.unjudged
    if refusal(one.scope, one.name) is None and one.scope is Scope.BROKER and one.is_in(RELEASES[-1])
]  # fmt: skip


@pytest.mark.parametrize("setting", UNJUDGED, ids=[one.name for one in UNJUDGED])
def test_what_affects_a_promise_and_is_not_judged_is_said(setting) -> None:  # type: ignore[no-untyped-def]
    value = {"": "x", "true": "false", "false": "true"}.get(setting.default, setting.default + "9")
    given = case()
    cluster = given.experiment.cluster.model_copy(update={"config": {setting.name: value}})
    changed = given.__class__(
        **{**vars(given), "experiment": given.experiment.model_copy(update={"cluster": cluster})}
    )
    (said,) = unjudged(changed)
    assert f"{setting.name}={value}" in said
    row = row_of(setting.name)
    assert row is not None
    assert all(effect in said for effect in row.effects if row.effects != (Effect.AVAILABILITY,))


def test_kafkas_own_value_is_not_worth_a_word() -> None:
    assert list(unjudged(case("transaction.state.log.min.isr: 2, num.io.threads: 8"))) == []


def test_a_setting_that_the_release_does_not_have_is_not_judged() -> None:
    (said,) = unjudged(case("min.insink.replicas: 2"))
    assert "has no broker setting 'min.insink.replicas'" in said
    assert "did you mean 'min.insync.replicas'" in said


def test_a_setting_of_a_plugin_is_not_called_unknown() -> None:
    (said,) = unjudged(case("rsm.config.bucket: x"))
    assert "tiered storage" in said


def test_settings_that_change_on_the_way_count() -> None:
    faults = "faults: [{set: {config: {num.io.threads: 1}}, at: 1s}]"
    (said,) = unjudged(case(faults=faults))
    assert "num.io.threads=1" in said


STRONG = "min.insync.replicas: 2"
SETS = "faults: [{{set: {{topic: orders, config: {{{}}}}}, at: 1s}}]"


@pytest.mark.parametrize(
    ("anomaly", "chance", "given"),
    [
        ("lost", Chance.IMPOSSIBLE, {"topic": STRONG}),
        ("lost", Chance.IMPOSSIBLE, {"cluster": STRONG}),
        ("lost", Chance.UNKNOWN, {"cluster": f"{STRONG}, unclean.leader.election.enable: true"}),
        ("lost", Chance.UNKNOWN, {"topic": f"{STRONG}, unclean.leader.election.enable: true"}),
        ("lost", Chance.UNKNOWN, {"topic": STRONG, "faults": SETS.format("min.insync.replicas: 1")}),
        ("duplicate", Chance.IMPOSSIBLE, {"topic": STRONG}),
        ("duplicate", Chance.POSSIBLE, {"cluster": "producer.id.expiration.ms: 1000"}),
        ("duplicate", Chance.IMPOSSIBLE, {"cluster": "producer.id.expiration.ms: 86400000"}),
        ("reordered", Chance.UNKNOWN, {"cluster": "producer.id.expiration.ms: 1000"}),
        (
            "duplicate",
            Chance.POSSIBLE,
            {"faults": "faults: [{clock_jump: {target: broker(1), by: 24h}, at: 1s}]"},
        ),
        (
            "duplicate",
            Chance.IMPOSSIBLE,
            {"faults": "faults: [{clock_jump: {target: broker(1), by: 23h}, at: 1s}]"},
        ),
    ],
)
def test_settings_change_what_is_foreseen(anomaly: str, chance: Chance, given) -> None:  # type: ignore[no-untyped-def]
    promises = Promises.from_experiment(case(**given).experiment, "orders")
    assert rule(anomaly, promises).foreseen is chance
