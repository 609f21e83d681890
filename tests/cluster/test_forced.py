"""Tests of counterexamples forced on real brokers: some that Kafka follows, and some that a protection prevents."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.cli.main import main_code

# Their shorter kin is test_scripts.py.
pytestmark = [pytest.mark.cluster, pytest.mark.nightly]
LAGGING = "brokers=2,kills=1,shrinks=1"
UNBOUNDED = "brokers=2,records=2,shrinks=1"
TWICE = "brokers=2,idempotent=true,kills=1,retries=1"


@pytest.mark.parametrize(
    ("scope", "more", "code", "said"),
    [
        ("brokers=2,acks=1,kills=1", [], 0, "HAPPENED: 1 lost, each step was seen on the brokers"),
        ("brokers=2,acks=1,hand_overs=1", ["--rules", "3.9", "--kafka", "3.9.2"], 0, "HAPPENED: 1 lost"),
        (LAGGING, ["--without", "maximal ISR"], 1, "DIVERGED at step 2: client: sends record 0"),
        (
            UNBOUNDED,
            ["--without", "bounded high watermark", "--find", "diverged"],
            1,
            "it was to come to high watermark of broker 2 2, not 1",
        ),
        (
            TWICE,
            ["--without", "sequence numbers", "--find", "duplicate"],
            1,
            "DIVERGED at step 2: client: sends once more",
        ),
    ],
)
def test_a_story_happens_or_diverges_where_a_protection_forbids_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scope: str, more: list[str], code: int, said: str
) -> None:
    asked = ["explore", "--scope", scope, *more, "--force", "--out", str(tmp_path)]
    assert main_code(asked) == code
    assert said in capsys.readouterr().out
