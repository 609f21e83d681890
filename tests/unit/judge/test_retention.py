"""What retention deletes is not lost; what no setting explains is."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ackproof.experiment.experiment import ExperimentSpec
from ackproof.judge import judge_case
from ackproof.judge.facts import Facts
from ackproof.judge.retention import Retention, retention
from ackproof.observe.replica_logs import LogDir, collect
from ackproof.rundir.documents import FinalReadFile, VerdictFile
from ackproof.rundir.layout import CaseDir
from broker_files import batch

from .conftest import EXPERIMENT, SECOND, WHOLE, attempt, finding

WEEK_MS = 604_800_000
LOG, LESS = (batch(40, [b"x" * size] * 60) for size in (50, 49))
Judged = Callable[..., VerdictFile]


@pytest.fixture
def judged(make_run: Callable[..., CaseDir], tmp_path: Path) -> Judged:
    """Judges a run whose log of 60 records begins at offset `start`, and of which the records at `lost` are gone.

    They were sent at 0 s, one (`late`) at 1 s, and the run ended after some 1.5 s. `short`: broker 2 has fewer bytes.
    """

    def judge(
        config: str, *, start: int = 40, lost: tuple[int, ...] = (3, 39), logs: bool = True, expect: str = "",
        anomaly: str = "lost", short: bool = False, late: int | None = None,
    ) -> VerdictFile:  # fmt: skip
        (one,) = WHOLE.partitions
        keys = ", keys: 5" if "compact" in config else ""
        run = make_run(
            experiment=EXPERIMENT.format(min_insync=2, producers=f"acks: all{keys}", expect=expect).replace(
                "{min.insync.replicas: 2}", "{min.insync.replicas: 2, " + config + "}"
            ),
            final=FinalReadFile(
                complete=True, partitions=(one.model_copy(update={"start": start, "records": -1}),)
            ),
            findings=[{**finding(anomaly), "offset": at, "seq": at} for at in lost],
            attempts=[attempt(seq, 0.1) | {"sent_ns": SECOND * (seq == late)} for seq in range(100)],
            **{anomaly: len(lost)},
        )
        if logs:
            for node in (1, 2, 3):
                folder = tmp_path / str(node) / "orders-0"
                folder.mkdir(parents=True)
                (folder / f"{start:020d}.log").write_bytes(LESS if short and node == 2 else LOG)
            collect([LogDir(node, tmp_path / str(node)) for node in (1, 2, 3)], ["orders"], run, "ab" * 8)
        return judge_case(run)

    return judge


def _lost(said: VerdictFile, anomaly: str = "lost") -> tuple[int, bool | None, str]:
    (one,) = (one for one in said.classes if one.anomaly == anomaly)
    return one.count, one.forbidden, one.why


@pytest.mark.parametrize("anomaly", ["lost", "vanished"])
def test_by_its_size(judged: Judged, anomaly: str) -> None:
    said = judged(f"retention.bytes: {len(LOG)}", anomaly=anomaly)
    assert _lost(said, anomaly) == (
        2,
        False,
        f"2 expired: orders/0 begins at offset 40 and has {len(LOG):,} bytes, at retention.bytes {len(LOG):,}",
    )
    assert not [reason for reason in said.reasons if reason.startswith((anomaly, "expected"))]


def test_by_its_age(judged: Judged) -> None:
    assert _lost(judged("retention.ms: 1000")) == (
        2,
        False,
        "2 expired: orders/0 begins at offset 40, and what was sent before that is older than retention.ms 1,000",
    )


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        pytest.param(f"retention.bytes: {len(LOG) + 1}", {}, id="less is left than it keeps"),
        pytest.param(f"retention.bytes: {len(LOG)}", {"logs": False}, id="no log was seen"),
        pytest.param(f"retention.bytes: {len(LOG)}", {"short": True}, id="less is left on one broker"),
        pytest.param("retention.ms: 1000", {"late": 39}, id="the youngest is not old enough"),
        pytest.param("retention.ms: 100000", {}, id="not old enough"),
        pytest.param("segment.ms: 1000", {}, id="no retention but Kafka's own"),
        pytest.param("cleanup.policy: compact, retention.ms: 1000", {}, id="compacted, not deleted"),
    ],
)
def test_what_no_setting_explains_is_lost(judged: Judged, config: str, changes: dict[str, Any]) -> None:
    count, forbidden, why = _lost(judged(config, **changes))
    assert (count, forbidden, "expired" in why) == (2, True, False)


def test_how_young_the_next_one_is_says_nothing_of_those_before(judged: Judged) -> None:
    assert _lost(judged("retention.ms: 1000", late=40))[:2] == (2, False)


def test_what_the_log_could_still_hold_is_lost(judged: Judged) -> None:
    said = judged("retention.ms: 1000", lost=(39, 40))
    count, forbidden, why = _lost(said)
    assert (count, forbidden) == (2, True)
    assert why.endswith("; 1 expired: orders/0 begins at offset 40, and what was sent before that is older than "
                        "retention.ms 1,000")  # fmt: skip


def test_a_log_that_begins_at_0_has_deleted_nothing(judged: Judged) -> None:
    assert _lost(judged("retention.ms: 1000", start=0))[1] is True


@pytest.mark.parametrize(("lost", "broken"), [((3, 39), False), ((3, 40), True)])
def test_an_expectation_does_not_mean_the_expired(
    judged: Judged, lost: tuple[int, ...], broken: bool
) -> None:
    said = judged("retention.ms: 1000", lost=lost, expect="expect: [{lost: 0}]")
    assert any(reason.startswith("expected lost 0, counted 1") for reason in said.reasons) is broken


def _spec(facts: Facts, topic: dict[str, str], cluster: dict[str, str] | None = None) -> ExperimentSpec:
    spec = facts.case.experiment
    orders = spec.topics["orders"].model_copy(update={"config": topic})
    own = spec.cluster.model_copy(update={"config": cluster or {}})
    return spec.model_copy(update={"topics": {"orders": orders}, "cluster": own})


@pytest.mark.parametrize(
    ("topic", "cluster", "expected"),
    [
        pytest.param({}, {}, (WEEK_MS, math.inf), id="Kafka's own"),
        pytest.param(
            {"retention.ms": "5"}, {"log.retention.ms": "3"}, (5, math.inf), id="the topic's goes first"
        ),
        pytest.param(
            {}, {"log.retention.ms": "3", "log.retention.hours": "1"}, (3, math.inf), id="the finer unit"
        ),
        pytest.param(
            {}, {"log.retention.minutes": "2", "log.retention.hours": "1"}, (120_000, math.inf), id="minutes"
        ),
        pytest.param({}, {"log.retention.hours": "2"}, (7_200_000, math.inf), id="hours"),
        pytest.param({"retention.ms": "-1"}, {}, (math.inf, math.inf), id="for ever"),
        pytest.param({"retention.bytes": "7"}, {"log.retention.bytes": "9"}, (WEEK_MS, 7), id="bytes"),
        pytest.param({}, {"log.retention.bytes": "9"}, (WEEK_MS, 9), id="the broker's bytes"),
        pytest.param({"retention.bytes": "-1"}, {}, (WEEK_MS, math.inf), id="any size"),
        pytest.param(
            {"retention.ms": "1"}, {"log.cleanup.policy": "compact"}, (math.inf, math.inf), id="compact"
        ),
        pytest.param({"cleanup.policy": "compact,delete", "retention.ms": "1"}, {}, (1, math.inf), id="both"),
    ],
)
def test_the_retention_in_force(
    facts: Facts, topic: dict[str, str], cluster: dict[str, str], expected: tuple[float, float]
) -> None:
    found = retention(_spec(facts, topic, cluster), "orders")
    assert found == Retention(*expected)
    assert found.usual is (expected == (WEEK_MS, math.inf))


def test_the_shortest_that_any_broker_has_is_in_force(facts: Facts) -> None:
    spec = _spec(facts, {}, {"log.retention.ms": "9", "log.retention.bytes": "9"})
    brokers = {1: {"log.retention.ms": "3"}, 2: {"log.retention.bytes": "4"}, 3: {"log.retention.ms": "99"}}
    mixed = spec.cluster.model_copy(update={"broker_config": brokers})
    assert retention(spec.model_copy(update={"cluster": mixed}), "orders") == Retention(3, 4)
