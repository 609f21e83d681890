"""The history of nights (`make nightly`): the results that are kept of each night, and the page that compares them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from night import history
from night.history import WATCHED, keep
from repeated import repeated

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders of three nights of one watched experiment. In the last, the session time-out is three times as long."""
    go = repeated(tmp_path, monkeypatch)
    found = []
    for number, timeout in enumerate((3000, 3000, 9000)):
        made = go("{lost: 0}", repeat=3, seed=number, timeout=timeout).directory.path
        runs = tmp_path / f"night-{number}" / "shard-1" / WATCHED[0] / "runs"
        runs.mkdir(parents=True)
        made.rename(runs / f"2026112{number}T010000Z-recovery")
        found.append(tmp_path / f"night-{number}")
    return found


def test_one_night_stands_beside_the_others(nights: list[Path], tmp_path: Path) -> None:
    old = tmp_path / "nights"
    for number, night in enumerate(nights, start=1):
        assert keep(night, old)
        page = (old / "trend.html").read_text("utf-8")
        assert page.count("<circle") == 4 * number, (
            "two cases with a picture of recovery and one of throughput"
        )
    assert "[broker.session.timeout.ms]: 3000 → 9000" in page
    assert not list(old.rglob("nodes"))
    assert not list(old.rglob("observed"))


def test_what_is_older_is_forgotten(
    nights: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "NIGHTS", 2)
    old = tmp_path / "nights"
    assert all(keep(night, old) for night in nights)
    assert sorted(path.name[:8] for path in old.iterdir() if path.is_dir()) == ["20261121", "20261122"]


def test_a_night_without_a_batch_writes_no_page(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    assert not keep(tmp_path / "shards", tmp_path / "nights")


def test_the_workflow_uploads_the_ledgers_of_what_is_watched_and_keeps_the_page() -> None:
    document = YAML(typ="safe").load((ROOT / ".github/workflows/nightly.yml").read_text("utf-8"))
    steps = [step for job in document["jobs"].values() for step in job["steps"]]
    paths = "".join(str(step.get("with", {}).get("path", "")) for step in steps)
    for job in WATCHED:
        assert f"night/{re.sub('on-.*-process', 'on-*-process', job)}/runs/**/ledger/produced/**" in paths
    (collect,) = (step["run"] for step in steps if "--collect" in str(step.get("run")))
    assert collect.endswith("--collect shards --history nights")
    assert "nights/trend.html" in paths
    assert any(str(step.get("with", {}).get("path")) == "nights" for step in steps), "nights are cached"
