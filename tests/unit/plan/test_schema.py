"""The JSON schema of experiment files: up to date, right about valid and wrong files, with texts for editors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ackproof.experiment.problems import plain
from ackproof.plan.schema import schema_text
from ackproof.plan.source import parse

from .conftest import EXPERIMENTS, SCHEMA


def valid(text: str) -> bool:
    return SCHEMA.is_valid(plain(parse(text.encode(), "e.yaml")))


def test_it_is_a_schema() -> None:
    SCHEMA.check_schema(SCHEMA.schema)


def test_the_committed_one_is_up_to_date() -> None:
    committed = (EXPERIMENTS / "experiment.schema.json").read_text("utf-8")
    assert committed == schema_text(), "run: ackproof schema > experiments/experiment.schema.json"


def test_good_files(good_files: dict[str, str]) -> None:
    for text in good_files.values():
        SCHEMA.validate(plain(parse(text.encode(), "e.yaml")))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  duration: 15s", "  duratoin: 15s"),
        ("value_size", "valuesize"),
        ("  brokers: 3", "  brokers: three"),
        ("  brokers: 3", "  brokers: 51"),
        ("  controllers: 1", "  controllers: 2"),
        ('kafka: "4.3.1"', "kafka: 4.10"),
        ("  duration: 15s", "  duration: 15"),
        ("rate: 5000/s", "rate: 5000"),
        ("acks: all\n    ide", "acks: most\n    ide"),
        ("- pause:", "- freeze:"),
        ("- pause: {target", "- pause: {victim"),
        ("followers(orders/0)", "followers"),
        ("when: acked >= 2000", "when: acked => 2000"),
        ("    when: acked >= 2000\n", ""),
        ("    at: 20s", "    at: 20s\n    at_latest: 21s"),
        ("    at: 20s", "    at: 20s\n    when: acked > 1"),
        ("    at: 20s", "    at: 20s\n    for: 1s"),
        ("    for: 2s", "    restart_after: 2s"),
        ("    for: 2s", "    for: 2s\n    kill: {target: broker}"),
        ("{fault: 1, by: 1s}", "{by: 1s}"),
        ("    lost: 0", "    lots: 0"),
        ("    lost: 0", "    lost: few"),
        ("    lost: 0", "    phantom: 1"),
        ("    lost: 0", '    skipped: "> 0"'),
        ("[0, 1, all]", "all"),
        ("[0, 1, all]", "[]"),
        ("name: good-one\n", ""),
    ],
)
def test_bad_files(good: str, old: str, new: str) -> None:
    assert old in good
    assert valid(good)
    assert not valid(good.replace(old, new))


@pytest.mark.parametrize(
    ("matrix", "right"),
    [
        ("workload.producers: [{name: a, acks: 1}, {acks: all, idempotence: true}]", True),
        ("workload.producers.acks: [0, 1]\n  exclude: [{acks: 0}]\n  include: [{name: b, acks: all}]", True),
        ("workload.producers: [{name: 1, acks: 1}]", False),
        ("workload.producers: [{acks: [1]}]", False),
        ("workload.producers: [1, {acks: 1}]", False),
        ("workload.producers.acks: [0, 1]\n  exclude: [acks]", False),
    ],
)
def test_settings_that_go_together(matrix: str, right: bool) -> None:
    assert valid(f"name: n\ntopics: {{t: {{}}}}\nmatrix:\n  {matrix}\n") is right


def test_editors_find_words_for_every_field() -> None:
    """Each field without a reference has a title and a description."""
    schema = SCHEMA.schema
    for group in (schema, *schema["$defs"].values()):
        for name, field in group.get("properties", {}).items():
            if "$ref" not in field:
                assert {"title", "description"} <= field.keys(), name
    assert {"kill", "stop", "pause", "restart"} <= schema["$defs"]["FaultSpec"]["properties"].keys()
    assert schema["$defs"]["ProducerSpec"]["properties"]["linger"]["default"] == "5ms"


def test_check_jsonschema(tmp_path: Path, good: str) -> None:
    """The program check-jsonschema, which editors and CI use, accepts a right file and refuses a wrong one."""

    def check(*files: Path) -> int:
        program = Path(sys.executable).with_name("check-jsonschema")
        schema = EXPERIMENTS / "experiment.schema.json"
        return subprocess.run(
            [program, "--schemafile", schema, *files], check=False, capture_output=True
        ).returncode

    bad = tmp_path / "bad.yaml"
    bad.write_text(good.replace("value_size", "valuesize"), encoding="utf-8")
    assert check(EXPERIMENTS / "acks-matrix.yaml") == 0
    assert check(bad) == 1


FRAME = """\
name: x
cluster: {{brokers: 5}}
topics: {{t: {{}}}}
faults:
  - at: 1s
    {fault}
"""

LINK = "followers(t/0) -> leader(t/0)"


@pytest.mark.parametrize(
    "fault",
    [
        "isolate: {target: leader(t/0)}\n    from: clients",
        "isolate: leader(t/0)\n    from: friends",
        "isolate: leader(t/0)\n    share: 0.1",
        f"throttle: {LINK}",
        "bridge: [[1, 2], [3]]",
        "lose_quorum: kill",
    ],
)
def test_the_schema_refuses_them_too(fault: str) -> None:
    assert not SCHEMA.is_valid(plain(parse(FRAME.format(fault=fault).encode(), "e.yaml")))
