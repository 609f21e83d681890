"""Share groups in a file: refused settings, and the settings of brokers and members that follow."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from ackproof.cli.main import main_code
from ackproof.clients.java.adapter import objection, share_config
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.group import ShareGroupSpec
from ackproof.experiment.timing import configured

TEXT = """\
name: shares
cluster: {{kafka: "{kafka}"}}
topics:
  orders: {{partitions: 1}}
workload:
  share_groups:
    jobs: {{{fields}}}
{more}"""


@pytest.mark.parametrize(
    ("kafka", "fields", "more", "why"),
    [
        ("4.4.0", "lock: 5s", "", ""),
        ("4.4.0", "dead_letters: dead", "", ""),
        ("4.1.2", "lock: 5s", "", "they came with 4.2"),
        ("4.4.0", 'client: {java: "4.1.2"}', "", "too old"),
        ("4.3.1", "dead_letters: dead", "", "came with Kafka 4.4"),
        ("4.4.0", "dead_letters: orders", "", "leave it out"),
        ("4.4.0", "topics: [order]", "", "order"),
        ("4.4.0", "lock: 5s}\n    more: {lock: 6s", "", "give them the same"),
        ("4.4.0", "client: librdkafka", "", "need the Java client"),
        ("4.4.0", "lock: 5s", "backend: model\n", "the model runs no share groups"),
        ("4.4.0", "lok: 5s", "", "did you mean 'lock'"),
        ("4.4.0", "lock: 5s", "matrix: {workload.share_groups.jobs.members: [1, 2]}\n", ""),
        (
            "4.4.0",
            "lock: 5s",
            "matrix: {workload.share_groups.job.members: [1, 2]}\n",
            "share group 'job' does not",
        ),
    ],
)
def test_a_file_with_a_share_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kafka: str, fields: str, more: str, why: str
) -> None:
    file = tmp_path / "shares.yaml"
    file.write_text(TEXT.format(kafka=kafka, fields=fields, more=more), encoding="utf-8")
    status = main_code(["validate", str(file)])
    told = "".join(capsys.readouterr())
    assert (status == 0) == (not why), told
    assert why in told


def test_a_share_group_is_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "shares.yaml"
    file.write_text(TEXT.format(kafka="4.4.0", fields="members: 3", more=""), encoding="utf-8")
    assert main_code(["plan", str(file)]) == 0
    assert "  share group jobs: 3 × java, from orders\n" in capsys.readouterr().out


def test_a_fetch_ends_before_the_lock_does() -> None:
    """A record's lock begins while its fetch is in progress. The ledger derives the earliest time from the time-out of
    requests, which must be shorter than the lock."""
    for lock in (1.0, 5.0, 60.0):
        config = share_config(ShareGroupSpec(lock=lock), "h:1", "h0", "jobs")
        assert int(config["request.timeout.ms"]) <= min(5000, lock * 500)
        assert objection("consumer", config) is None


def test_brokers_get_lock_and_limit_within_their_bounds() -> None:
    settings = ShareGroupSpec(lock=2.0, delivery_limit=3).broker_settings
    assert settings["group.share.record.lock.duration.ms"] == "2000"
    assert settings["group.share.min.record.lock.duration.ms"] == "2000"
    assert settings["group.share.delivery.count.limit"] == "3"
    with pytest.raises(ValidationError):
        ShareGroupSpec(delivery_limit=1)


def test_the_clusters_own_settings_come_first() -> None:
    spec = ExperimentSpec.model_validate(
        {
            "name": "shares",
            "cluster": {"config": {"group.share.delivery.count.limit": "9"}},
            "topics": {"orders": {"partitions": 1}},
            "workload": {"share_groups": {"jobs": {"lock": "2s", "delivery_limit": 3}}},
        }
    )
    config = configured(spec.cluster, 1)
    assert config["group.share.delivery.count.limit"] == "9"
    assert config["group.share.record.lock.duration.ms"] == "2000"
