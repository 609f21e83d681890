"""What people mistype: each is shown where it is, with what to do. The caret (‸) is where it must be reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ackproof.experiment.problems import Problem
from ackproof.plan import InvalidExperiment, Plan, load
from ackproof.plan.source import parse

Load = Callable[[str], Plan]
Changed = Callable[[str, str], tuple[str, int, int]]

# fmt: off
# text, part of what is wrong, part of what to do
YAML: list[tuple[str, str, str]] = [
    # indentation
    ("a: 1\ntopics: 2\n  ‸orders: {}\n", "deeper than line 2, where 'topics' has a value", "column 1"),
    ("c:\n  b: 3\n    ‸k: 1\n", "deeper than line 2, where 'b' has a value already", "begin it in column 3"),
    ("c:\n    b: 3\n  ‸k: 1\n", "indented by 2, and what it could go on with by 0 or 4", "indent it by 0 or 4"),
    ("f:\n  - kill: x\n  ‸at: 5s\n", "a key among the items of a list", "indent it by 4 to go on with the item above"),
    ("f:\n  - kill: x\n   ‸at: 5s\n", "indented by 3", "indent it by 0 or 4"),
    ("f:\n  - kill: x\n     ‸at: 5s\n", "where 'kill' has a value already", "begin it in column 5"),
    ("f:\n  - kill: x\n    at: 5s\n ‸- kill: y\n", "indented by 1", "indent it by 2"),
    ("f:\n  - kill: x\n    at: 5s\n    ‸- kill: y\n", "an item of a list among the keys", "indent it by 2 as"),
    ("f:\n  - {kill: x}\n    ‸at: 5s\n", "the braces of line 2 close the item", "write 'at: 5s' inside them"),
    ("f:\n  - {kill: x,\n     up: 1s}  # so\n    ‸at: 5s\n", "the braces of line 2", "take the outer braces away"),
    ("c:\n  b: 3\n  ‸- k: 1\n", "an item of a list among the keys", "take the dash away"),
    ("f: ‸- kill: x\n", "does not begin in the line of its key", "on a line of its own"),
    ("  a: 1\n‸b: 2\n", "has ended above this line", "in one column"),
    ("c:\n‸\tb: 3\n", "a tab", "put blanks in its place"),
    ("c:\n  ‸\tb: 3\n", "a tab", "put blanks in its place"),
    ("c:‸\t3\n", "a tab", "put a blank in its place"),
    ("c:\n‸\u00a0\u00a0b: 3\n", "the blank U+00A0", "put an ordinary blank"),
    ("c:\n  b:‸\u00a03\n  k: 1\n", "the blank U+00A0", "put an ordinary blank"),
    # colons, dashes
    ("‸name a\ntopics: 1\n", "no ': '", "write 'name: a'"),
    ("a: 1\n‸topics\n  orders: {}\n", "no ': '", "write 'topics:'"),
    ("c:\n  b: 3\n  ‸controllers 1\n", "no ': '", "write 'controllers: 1'"),
    ("c:\n  b‸:3\n  k: 1\n", "no blank after the colon", "write 'b: 3'"),
    ("c:\n  k: 1\n  b‸:3\nd: 1\n", "no blank after the colon", "write 'b: 3'"),
    ("f:\n  - kill‸:x\n    at: 5s\n", "no blank after the colon", "write 'kill: x'"),
    ("f:\n  ‸-kill x\n  at: 5s\n", "no blank after the dash", "write '- kill x'"),
    ("description: acks‸: all\n", "a second ': ' after the key 'description'", "in quotes"),
    # quotes
    ('a: ‸"x\nb: 1\n', "never closed", 'close it with "'),
    ("a: ‸'x\nb: 1\n", "never closed", "close it with '"),
    ('a: ‸"x\nb: {k: "4.3.1"}\n', "not closed in its line", "close it"),
    ("a: 'it'‸s'\nb: 1\n", "ends the text", "double quotes"),
    ('a: "x" ‸b\n', "'b' stands behind the end of a value", "the whole value in quotes"),
    ('a: "C:‸\\kafka"\n', "an escape that YAML does not know", "double the backslash"),
    # brackets
    ("a: 1\nb: ‸[1, 2\nc: 3\n", "this '[' is not closed", "close it with ']', or put a ',' behind line 2"),
    ("b: ‸{k: 1\nc: 3\n", "this '{' is not closed", "close it with '}'"),
    ("b: ‸{k: 1\n", "this '{' is not closed", "close it with '}'"),
    ("b: {k: 1}‸}\n", "a '}' without its '{'", "take it away"),
    ("b: {k: 1‸]\n", "the '{' of line 1 is closed by ']'", "close it with '}'"),
    ("b: {k: 1 c‸: 1}\n", "expected ',' or '}' here", "put a ','"),
    ("b: ‸{k: 1\n  c: 1}\n", "this '{' is not closed", "or put a ',' behind line 1"),
    ("b: [‸, a]\n", "a value is missing", "write it"),
    ("b: {t: leader‸[o/0]}\n", "a '[' inside a text", "round brackets"),
    # characters with a meaning of their own
    ("e:\n  - lost: ‸> 0\n", "cannot begin with '>'", '"> 0"'),
    ("e:\n  - {lost: ‸> 0}\n", "cannot begin with '>'", '"> 0"'),
    ("e:\n  - lost: ‸!= 1\n", "the tag !=", "in quotes"),
    ("a: ‸@b\n", "cannot begin with '@'", '"@b"'),
    ("a: ‸*\n", "cannot begin with '*'", '"*"'),
    ("a: ‸%b\n", "cannot begin with '%'", '"%b"'),
    ("a: ‸? b\n", "a '?' begins a key", "in quotes"),
    ("a: 1\n‸%b: 2\n", "begins with '%'", "another character"),
    # and the rest
    ("a: 1\n‸a: 2\n", "already given in line 1", "keep one"),
    ("a: 1\n‸<<<<<<< HEAD\nb: 1\n=======\nb: 2\n>>>>>>> other\n", "a conflict", "settle it"),
]
# old text, new text, part of what is wrong, part of what to do
MISTAKES: list[tuple[str, str, str, str]] = [
    ("    acks: all", "    acks: ‸1 or all", "expected 0, 1 or all", "{'workload.producers.acks': [1, all]}"),
    ("    acks: all", "    acks: ‸[1, all]", "not a list", "{'workload.producers.acks': [1, all]}"),
    ("  brokers: 3", "  brokers: ‸[1, 2]", "expected a whole number", "{'cluster.brokers': [1, 2]}"),
    ("  brokers: 3", '  brokers: ‸"3"', "not the text '3'", "take the quotes away"),
    ("  brokers: 3", "  brokers: ‸3#x", "expected a whole number", "a comment needs a blank"),
    ("  brokers: 3", "  brokers: ‸3,", "expected a whole number", "take the comma away"),
    ("  brokers: 3", "  ‸nodes: 3", "unknown field", "'brokers'"),
    ('  kafka: "4.3.1"', '  ‸version: "4.3.1"', "unknown field", "'kafka'"),
    ('  kafka: "4.3.1"', "  kafka: ‸“4.3.1”", "expected a full version", "straight ones"),
    ("    replication_factor: 3", "    ‸replicas: 3", "unknown field", "'replication_factor'"),
    ("idempotence: false", "idempotence: ‸enabled", "expected true or false", "'true'"),
    ("idempotence: false", 'idempotence: ‸"false"', "expected true or false", "take the quotes away"),
    ("seed: 7", "‸duration: 7s", "unknown field", "it belongs under workload"),
    ("  racks: [a, b]", "  racks: ‸a, b", "expected a list", "write [a, b]"),
    ("  racks: [a, b]", "  racks: [a, ‸2]", "expected a text", '"2"'),
    ("name: good-one", "name: ‸2026", "expected a text", 'in quotes: "2026"'),
    ("    live: 1", "    live: 1\n  ‸mode: zk", "unknown field", "it belongs under cluster"),
    ("  controllers: 1", "  mode: ‸zk", "expected 'kraft'", "'zookeeper'"),
    ("  config:\n    broker.session.timeout.ms: 6000", "  config:\n    ‸- timeout: 6000",
     "expected a mapping, not a list", "without dashes"),
    ("    topics: [orders]", "    compression: ‸off", "expected 'none'", "'none'"),
    ("  - pause: {", "  - ‸freeze: {", "unknown fault kind", "'pause'"),
    ("  - pause: {", "  - ‸network_partition: {", "unknown fault kind", "'split'"),
    ("pause: {target: followers(orders/0)}", "‸type: pause", "no field of a fault", "'pause: {…}'"),
    ("  - restart: {target: broker}\n", "  - restart: {target: broker}\n    ‸target: broker\n",
     "'target' stands inside a kind", "write restart: {target: …}"),
    ("  - restart: {target: broker}\n    at: 20s", "  - ‸restart broker at 5s", "expected a fault", "write it as"),
    ("    restart_after: 5s", "    ‸restart: 5s", "one kind", "'restart_after'"),
    ("    for: 2s", "    ‸duration: 2s", "unknown field of a fault", "'for'"),
    ("    at: 20s", "    ‸start: 20s", "unknown field of a fault", "'at'"),
    ("target: broker}", "target: ‸broker-1}", "expected a role", "write broker(1)"),
    ("target: broker}", "target: ‸random}", "unknown role", "'broker'"),
    ("  workload.producers.acks: [0, 1, all]", "  workload:\n    ‸producers:\n      acks: [0, 1]",
     "expected a list of values", "workload.producers.acks: [1, 2]"),
    ("    - 1\n    - 2\n", "    - 1\n  ‸retention.ms: [1, 2]\n", "stand below", "'topics.orders.config[retention.ms]'"),
    ("    - 1\n    - 2\n", "    - 1\n  ‸topics.orders.retention.ms: [1]\n", "it is a setting of a topic",
     "'topics.orders.config[retention.ms]'"),
    ("given: {acks: all}", "given: ‸acks=all", "expected a mapping", "write {acks: all}"),
    ("    lost: 0", "    ‸no_loss: true", "unknown quantity", "'lost'"),
]
# fmt: on


def of_file(problem: Problem) -> tuple[int, int]:
    return problem.line, problem.column


@pytest.mark.parametrize(("text", "fact", "hint"), YAML)
def test_yaml(text: str, fact: str, hint: str) -> None:
    before, after = text.split("‸")
    with pytest.raises(InvalidExperiment) as caught:
        parse((before + after).encode(), "e.yaml")
    (problem,) = caught.value.problems
    assert of_file(problem) == (before.count("\n") + 1, len(before) - before.rfind("\n"))
    assert fact in problem.fact
    assert hint in (problem.hint or "")


@pytest.mark.parametrize(("old", "new", "fact", "hint"), MISTAKES)
def test_values_and_names(
    load_text: Load, changed: Changed, old: str, new: str, fact: str, hint: str
) -> None:
    text, line, column = changed(old, new)
    with pytest.raises(InvalidExperiment) as caught:
        load_text(text)
    here = [problem for problem in caught.value.problems if of_file(problem) == (line, column)]
    assert [(fact in one.fact, hint in (one.hint or "")) for one in here] == [(True, True)], str(caught.value)


def test_the_line_is_shown(load_text: Load, good: str) -> None:
    """Each problem with its line, a caret below its column; tabs and what cannot be shown take one column each."""
    with pytest.raises(InvalidExperiment) as caught:
        load_text(good.replace("  duration: 15s", "  duratoin: 15s #\t\u200e"))
    assert str(caught.value).endswith(
        "e.yaml:33:3: workload.duratoin: unknown field 'duratoin' (did you mean 'duration'?)\n"
        "    33 |   duratoin: 15s #→\ufffd\n"
        "       |   ^"
    )


def test_of_a_long_line_a_part_is_shown(load_text: Load) -> None:
    with pytest.raises(InvalidExperiment) as caught:
        load_text(f"name: n\ntopics: {{t: {{config: {{a: '{'x' * 200}'}}}}, u: 5}}\n")
    *_, shown, caret = str(caught.value).splitlines()
    assert len(shown) < 120
    assert shown[caret.index("^")] == "5"


def test_what_no_line_says_has_no_place(tmp_path: Path, good: str) -> None:
    """A setting of the command line is not shown at some line of the file."""
    (tmp_path / "e.yaml").write_text(good, "utf-8")
    with pytest.raises(InvalidExperiment) as caught:
        load(tmp_path / "e.yaml", ["cluster.brokers=none"])
    assert str(caught.value).endswith("e.yaml: cluster.brokers: expected a whole number, not the text 'none'")
