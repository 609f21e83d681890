from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.testing.plugin import is_experiment

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "text",
    [
        "name: a\ntopics: {orders: {}}\nworkload: {duration: 1s}\n",
        "topics: {orders: {}}\nworkload: {durtion: 1s}\n",
        "topics:\n  orders: {}\nfaults: []\n",
        "name: a\ncluster: {brokers: 1}\ntopics:\n  orders:\n",
        '"topics": {orders: {}}\r\n"cluster": {}\r\n"name": a\r\n',
        "# yaml-language-server: $schema=./experiment.schema.json\nnothing: else\n",
        "name: a\ntopics: {orders: {}}\nworkload: {\n  broken\n",
    ],
)
def test_experiments(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text, newline="")
    assert is_experiment(file)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "services: {web: {image: x}}\n",
        "topics: [a, b]\n",
        "cluster: prod\ntopics: [a, b]\n",
        "cluster: prod\ntopics: [a, b]\nlogging: {}\nport: 1\n",
        "kafka:\n  topics: {}\n  cluster: {}\n  workload: {}\n",
        "# topics: x\n# workload: y\nname: a\n",
        "apiVersion: v1\nkind: x\nmetadata: {}\nspec: {}\ntopics: {}\nworkload: {}\n",
    ],
)
def test_other_peoples_yaml(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    assert not is_experiment(file)


def test_no_text_at_all(tmp_path: Path) -> None:
    binary = tmp_path / "x.yaml"
    binary.write_bytes(bytes(range(256)) * 10)
    assert not is_experiment(binary)
    assert not is_experiment(tmp_path / "nowhere.yaml")
    assert not is_experiment(tmp_path)


def test_the_catalogue_is_experiments() -> None:
    files = [*ROOT.glob("experiments/*.yaml"), *ROOT.glob("experiments/*/*.yaml")]
    assert files
    assert all(map(is_experiment, files))
