"""Faults in short: each is the same as its long form, and what is wrong is reported where it stands."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from jsonschema import Draft202012Validator

from ackproof.experiment.problems import InvalidExperiment, plain
from ackproof.plan import Plan
from ackproof.plan.schema import experiment_schema
from ackproof.plan.source import parse

Load = Callable[[str], Plan]

FRAME = """\
name: x
cluster: {{brokers: 5}}
topics: {{t: {{}}}}
faults:
  - at: 1s
    {fault}
"""
VALIDATOR = Draft202012Validator(experiment_schema())

LINK = "followers(t/0) -> leader(t/0)"
SHORT = [
    ("isolate: leader(t/0)", "isolate: {target: leader(t/0)}"),
    ("isolate: leader(t/0)\n    from: clients", "isolate: {target: leader(t/0), from: clients}"),
    (
        "isolate: controller\n    from: [peers, brokers]\n    silent: true\n    for: 2s",
        "isolate: {target: controller, from: [peers, brokers], silent: true}\n    for: 2s",
    ),
    ("split: [[1, 2], [3]]", "split: {groups: [[1, 2], [3]]}"),
    ("split: [minority, majority]", "split: {groups: [minority, majority]}"),
    ("bridge: [[1, 2], broker(3), [4, 5]]", "bridge: {groups: [[1, 2], [4, 5]], over: broker(3)}"),
    (f"cut: {LINK}", f"cut: {{link: {LINK}}}"),
    (f"throttle: {LINK}\n    rate: 50KB/s", f"throttle: {{link: {LINK}, rate: 50KB/s}}"),
    ("black_hole: clients -> leader(t/0)", "black_hole: {link: clients -> leader(t/0)}"),
    ("kill: leader(t/0)\n    restart_after: 1s", "kill: {target: leader(t/0)}\n    restart_after: 1s"),
    ("kill: [broker(1), broker(4)]", 'kill: {target: "[broker(1), broker(4)]"}'),
    ('cut: "[broker(1), broker(4)] -> leader(t/0)"', 'cut: {link: "[broker(1), broker(4)] -> leader(t/0)"}'),
    ("starve: leader(t/0)\n    share: 0.2", "starve: {target: leader(t/0), share: 0.2}"),
]


@pytest.mark.parametrize(("short", "whole"), SHORT)
def test_it_is_the_same_as_the_long_form(load_text: Load, short: str, whole: str) -> None:
    assert load_text(FRAME.format(fault=short)) == load_text(FRAME.format(fault=whole))
    VALIDATOR.validate(plain(parse(FRAME.format(fault=short).encode(), "e.yaml")))


@pytest.mark.parametrize(
    ("fault", "path", "line", "said"),
    [
        ("isolate: laeder(t/0)", "isolate.target", 6, "did you mean 'leader'"),
        ("isolate: leader(t/7)", "isolate.target", 6, "t/7 does not exist"),
        ("isolate: leader(t/0)\n    from: friends", "isolate.from[1]", 7, "'peers'"),
        ("isolate: leader(t/0)\n    form: clients", "form", 7, "unknown field of a fault"),
        ("isolate: {target: leader(t/0)}\n    from: clients", "from", 7, "stands inside a kind"),
        ("split: [[1, 2], [2, 3]]", "split", 6, "is in two groups"),
        ("split: [[1, 2], [9]]", "split.groups", 6, "broker(9) does not exist"),
        ("cut: followers(t/0) > leader(t/0)", "cut.link", 6, "expected a link"),
        (f"throttle: {LINK}", "throttle.rate", 6, "missing"),
        (f"throttle: {LINK}\n    rate: 50", "throttle.rate", 7, "lacks a unit"),
        ("isolate:", "isolate", 6, "not nothing"),
        ("bridge: [[1, 2], [3]]", "bridge", 6, "not a list"),
        ("bridge: [[1, 2], broker(1), [3]]", "bridge", 6, "is in a group"),
        ("lose_quorum: kill", "lose_quorum", 6, "expected its fields in braces"),
        ("elect_unclean: t/0", "elect_unclean", 6, "in braces, {partition: …}, not"),
    ],
)
def test_what_is_wrong_is_reported_where_it_stands(
    load_text: Load, fault: str, path: str, line: int, said: str
) -> None:
    with pytest.raises(InvalidExperiment) as refused:
        load_text(FRAME.format(fault=fault))
    problem = refused.value.problems[0]
    assert (problem.path, problem.line) == (f"faults[1].{path}", line)
    assert said in f"{problem}"


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
    assert not VALIDATOR.is_valid(plain(parse(FRAME.format(fault=fault).encode(), "e.yaml")))
