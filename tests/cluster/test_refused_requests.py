"""Tests of requests that a broker must refuse: PASS with Kafka's check, FAIL without it (a planted bug).

The witness is Kafka's error in a broker's log or answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.cli.main import main_code
from ackproof.experiment.kafka import DEFAULT
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.outcome import Verdict

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("experiment", "bug", "refusal", "classes"),
    [
        pytest.param(
            "sequence-gap",
            "sequence-not-checked",
            "OutOfOrderSequenceException",
            {"reordered"},
            marks=pytest.mark.nightly,  # test_committed_offsets.py plants bugs with every push
        ),
        pytest.param(
            "late-produce",
            "epoch-of-marker-forgotten",
            "InvalidProducerEpochException",
            {"aborted-read", "torn-transaction", "hanging-transaction"},
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "deposed-coordinator",
            "coordinator-epoch-not-checked",
            "TransactionCoordinatorFencedException",
            {"early-read", "aborted-read", "torn-transaction"},
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "stale-fetch",
            "leader-epoch-not-checked",
            "copied fetch of broker 2: FENCED_LEADER_EPOCH",
            {"lost"},
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_what_is_refused_would_be_noticed(
    tmp_path: Path, experiment: str, bug: str, refusal: str, classes: set[str]
) -> None:
    rules = ROOT / "tools" / "planted" / "rules" / f"{bug}.btm"
    kafkas = f'["{DEFAULT}", {{version: "{DEFAULT}", patch: "{rules}", name: broken}}]'
    text = (ROOT / "experiments" / f"{experiment}.yaml").read_text(encoding="utf-8")
    file = tmp_path / f"{experiment}.yaml"
    file.write_text(f"{text}matrix:\n  cluster.kafka: {kafkas}\n", encoding="utf-8")
    assert main_code(["run", str(file), "--out", str(tmp_path)]) == 1
    path = (tmp_path / "latest").resolve()
    whole, broken = BatchFile.load(BatchDir(path).batch_json).cases
    run = CaseDir(path / whole.run)
    said = [log.read_text(encoding="utf-8") for log in (run.timeline, *run.nodes.glob("*/server.log"))]
    assert (whole.verdict, broken.verdict) == (Verdict.PASS, Verdict.FAIL)
    assert any(refusal in words for words in said)
    assert any(broken.counts[name] for name in classes)
