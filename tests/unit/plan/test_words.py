"""Texts within the values of a file: roles, conditions, triggers, bounds, durations, sizes, rates and paths."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackproof.base.units import (
    duration_text,
    parse_duration,
    parse_rate,
    parse_size,
    rate_text,
    size_text,
    write_like,
)
from ackproof.experiment.links import LinkEnds
from ackproof.experiment.problems import nearest, path_text
from ackproof.experiment.roles import Members, Role, RoleKind, minority_of
from ackproof.experiment.spec import ClusterSpec
from ackproof.experiment.triggers import Condition
from ackproof.faults.clients.client import ClientSelector
from ackproof.plan.paths import parse_path, short_names
from ackproof.rundir.bounds import Bound, Unit

NOW = Members(
    brokers=(1, 2, 3, 4, 5),
    controllers=(101, 102, 103),
    active_controller=102,
    leader=3,
    replicas=(2, 3, 5),
    isr=(3, 5),
    racks={1: "a", 2: "b", 3: "a", 4: "c", 5: "b", 101: "a", 102: "b", 103: "a"},
)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("leader(t/0)", (3,)),
        ("preferred_leader(t/0)", (2,)),
        ("followers(t/0)", (2, 5)),
        ("follower(t/0)", (5,)),
        ("isr(t/0)", (3, 5)),
        ("controller", (102,)),
        ("controller(103)", (103,)),
        ("controllers", (101, 102, 103)),
        ("broker", (4,)),
        ("broker(2)", (2,)),
        ("brokers", (1, 2, 3, 4, 5)),
        ("minority", (4, 5)),
        ("rack(b)", (2, 5, 102)),
        ("rack(leader(t/0))", (1, 3, 101, 103)),
        ("rack(controller)", (2, 5, 102)),
        ("[broker(1), rack(b)]", (1, 2, 5, 102)),
        ("[leader(t/0), follower(t/0)]", (3, 5)),
    ],
)
def test_roles(text: str, nodes: tuple[int, ...]) -> None:
    role = Role.parse(text)
    assert str(role) == text
    assert role.resolve(NOW, (4, 5, 3, 2, 1)) == nodes


@pytest.mark.parametrize(
    ("text", "nodes", "least"),
    [
        ("rack(b)", {2, 5, 102}, 3),
        ("rack(broker(2))", {2, 5, 102}, 3),
        ("rack(leader(t/0))", {1, 2, 3, 4, 5, 101, 102, 103}, 0),
        ("[broker(1), broker(4)]", {1, 4}, 2),
        ("[rack(b), broker(2)]", {2, 5, 102}, 3),
        ("[leader(t/0), broker(4)]", {1, 2, 3, 4, 5}, 1),
    ],
)
def test_the_nodes_that_a_rack_or_a_list_surely_has(text: str, nodes: set[int], least: int) -> None:
    assert Role.parse(text).reach(NOW) == (nodes, least)


@pytest.mark.parametrize("text", ["leader(t/0)", "controller", "follower(t/0)", "preferred_leader(t/0)"])
def test_a_role_that_nobody_holds(text: str) -> None:
    nobody = Members(brokers=(1, 2, 3))
    assert Role.parse(text).resolve(nobody, (1, 2, 3)) == ()


def test_roles_with_blanks_and_dots() -> None:
    assert Role.parse(" leader( my.topic-1_x/12 ) ") == Role(RoleKind.LEADER, "my.topic-1_x", 12)


def test_minority() -> None:
    assert [minority_of(n) for n in range(1, 8)] == [0, 0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("text", "below", "at", "above"),
    [
        ("acked >= 5", False, True, True),
        ("acked > 5", False, False, True),
        ("read(t/1) <= 5", True, True, False),
        ("isr(t/0) < 5", True, False, False),
        ("isr(t/0) == 5", False, True, False),
        ("lag(t/0) != 5", True, False, True),
        ("metric(under_replicated_partitions) >= 5", False, True, True),
        ("metric(under_replicated_partitions, node 2) < 5", True, False, False),
    ],
)
def test_conditions(text: str, below: bool, at: bool, above: bool) -> None:
    condition = Condition.parse(text)
    assert str(condition) == text
    assert [condition.holds(n) for n in (4, 5, 6)] == [below, at, above]


def test_conditions_without_blanks() -> None:
    assert Condition.parse("isr(orders/0)==1") == Condition.parse(" isr ( orders/0 ) == 1 ")


@pytest.mark.parametrize(
    ("given_", "holds", "lowest", "highest"),
    [
        (0, {0}, 0, 0),
        ("0", {0}, 0, 0),
        ("== 2", {2}, 2, 2),
        ("> 0", {1, 2, 3}, 1, None),
        (">= 2", {2, 3}, 2, None),
        ("<= 1", {0, 1}, 0, 1),
        ("< 2", {0, 1}, 0, 1),
    ],
)
def test_bounds(given_: object, holds: set[int], lowest: int, highest: int | None) -> None:
    bound = Bound.parse(given_)
    assert {n for n in range(4) if bound.holds(n)} == holds
    assert (bound.lowest, bound.highest) == (lowest, highest)
    assert Bound.parse(str(bound)) == bound


@pytest.mark.parametrize("given_", [None, True, -1, 1.5, "", "lots", "> -1", "< 0", ">", "1 > 0", 10**20])
def test_no_bounds(given_: object) -> None:
    with pytest.raises(ValueError, match="count"):
        Bound.parse(given_)


def test_a_bound_of_a_share() -> None:
    bound = Bound.parse("< 12.5%", Unit.SHARE)
    assert (bound.holds(0.12), bound.holds(0.125), str(bound)) == (True, False, "< 12.5%")
    with pytest.raises(ValueError, match='a bound with its unit in quotes such as "< 5%"'):
        Bound.parse("< 101%", Unit.SHARE)


def test_units() -> None:
    assert [parse_duration(t) for t in ("200ms", "5s", "1m", "1min", "2h", "250us", "1.5 s")] == [
        0.2, 5.0, 60.0, 60.0, 7200.0, 0.00025, 1.5
    ]  # fmt: skip
    sizes = ("100B", "16kB", "16KiB", "1MB", "2 GB")
    assert [parse_size(text) for text in sizes] == [100, 16384, 16384, 1 << 20, 2 << 30]
    assert [parse_rate(t) for t in ("5000/s", "60/min", "0.5 / s", "full")] == [5000.0, 1.0, 0.5, None]


@given(st.integers(0, 86_400_000_000))
def test_durations_come_back(microseconds: int) -> None:
    seconds = parse_duration(f"{microseconds}us")
    assert parse_duration(duration_text(seconds)) == seconds


@given(st.integers(0, 1 << 40))
def test_sizes_come_back(size: int) -> None:
    assert parse_size(size_text(size)) == size


@given(st.one_of(st.integers(1, 10**9), st.floats(0.001, 1e9)))
def test_rates_come_back(rate: float) -> None:
    assert parse_rate(rate_text(float(rate))) == rate


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("workload.producers.acks", ("workload", "producers", "acks")),
        ("topics.orders.config[min.insync.replicas]", ("topics", "orders", "config", "min.insync.replicas")),
        ("topics[a.b].partitions", ("topics", "a.b", "partitions")),
        ("cluster.broker_config[2][num.io.threads]", ("cluster", "broker_config", "2", "num.io.threads")),
        ("cluster.broker_config.2[num.io.threads]", ("cluster", "broker_config", "2", "num.io.threads")),
        ("faults[2].kill.target", ("faults", 1, "kill", "target")),
    ],
)
def test_paths(text: str, path: tuple[str | int, ...]) -> None:
    assert parse_path(text) == path
    assert parse_path(path_text(path)) == path


def test_settings_behind_a_dot() -> None:
    assert parse_path("cluster.config.a.b") == ("cluster", "config", "a.b")
    assert parse_path("cluster.broker_config.1.a.b") == ("cluster", "broker_config", "1", "a.b")


def test_short_names() -> None:
    paths = [parse_path(t) for t in ("workload.producers.count", "cluster.brokers", "topics.a.config[x.y]")]
    assert short_names(paths) == ["count", "brokers", "x.y"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("min_insync", None),
        ("Acks", "acks"),
        ("value-size", "value_size"),
        ("xyz", None),
        ("dration", "duration"),
    ],
)
def test_nearest(name: str, meant: str | None) -> None:
    assert nearest(name, ["acks", "value_size", "duration"]) == meant


def test_ids_of_nodes() -> None:
    assert ClusterSpec(brokers=2, controllers=3).controller_ids == (101, 102, 103)
    assert ClusterSpec(brokers=2, combined=True).controller_ids == (1, 2)
    racks = ClusterSpec(brokers=3, controllers=3, racks=("a", "b"))
    assert [racks.rack_of(n) for n in racks.broker_ids] == ["a", "b", "a"]
    assert racks.members.nodes_by_rack == {"a": (1, 3, 101, 103), "b": (2, 102)}
    stretch = racks.model_copy(update={"controller_racks": ("a", "b", "c"), "rack_aware": False})
    assert stretch.members.nodes_by_rack == {"a": (1, 3, 101), "b": (2, 102), "c": (103,)}
    assert [stretch.rack_of(n) for n in stretch.broker_ids] == ["", "", ""]
    combined = racks.model_copy(update={"combined": True})
    assert combined.members.nodes_by_rack == {"a": (1, 3), "b": (2,)}
    assert ClusterSpec().rack_of(1) == ""


def test_whom_they_mean() -> None:
    running = ["r0", "p0", "p1", "r1", "p3"]
    assert ClientSelector.parse("producer(1)").among(running, 0) == ("p1",)
    assert ClientSelector.parse("producer(2)").among(running, 0) == ()
    assert ClientSelector.parse("producers").among(running, 5) == ("p0", "p1", "p3")
    drawn = [ClientSelector.parse("producer").among(running, draw) for draw in (0, 1, 5)]
    assert drawn == [("p0",), ("p1",), ("p3",)]
    assert ClientSelector.parse("readers").among(["p0"], 3) == ()
    for text in ("producer(1)", "producer", "producers", "reader"):
        assert str(ClientSelector.parse(text)) == text


NO_METRICS = (
    *("metric > 1", "metric() > 1", "metric(x) > 1", "metric(under_replicated_partitions, node x) > 1"),
    *("metric(produce_total_time_p99) > 1", "metric(isr_shrinks) > 1", "metric(orders/0) > 1"),
)
REFUSED = (
    (Role.parse, r"which rack\? Write rack\(a\)", "rack", "rack()"),
    (Role.parse, r"rack\(rack\(a\)\) is rack\(a\)", "rack(rack(a))"),
    (Role.parse, "unknown role '(leadr|list|king)'", "rack(leadr(t/0))", "list", "king"),
    (Role.parse, "expected a role", "[]", "", "leader(t/0"),
    (Role.parse, r"broker\(1\) is listed twice", "[broker(1), broker(1)]"),
    (Role.parse, r"write several in brackets: \[broker\(1\), broker\(4\)\]", "broker(1), broker(4)"),
    (
        Role.parse,
        "role|expected",
        "leader",
        "leader()",
        "leader(t)",
        "leader(t/x)",
        "brokers(1)",
        "broker(x)",
    ),
    (Condition.parse, "expected|unknown", "", "acked", "acked >= 1.5", "x > 1"),
    (Condition.parse, "expected|unknown|that of a partition", "acked >= -5", "lag > 3", "isr(t) == 1"),
    (Condition.parse, r"expected|unknown|metric\(", *NO_METRICS),
    (parse_duration, "duration", "5", "s", "-5s", "5 sec", "1e3s", "5s ", "25h", "", "٣s"),
    (parse_size, "size", "5", "B", "1.5kB", "5TB", "9999999GB"),
    (parse_rate, "rate", "5", "0/s", "/s", "5/h", "-1/s", "none", "99999999999/s"),
    (
        parse_path,
        "expected a path",
        "",
        ".",
        ".a",
        "a.",
        "a..b",
        "[a]",
        "a[",
        "a[]",
        "a]b",
        "a b",
        "a.config.",
    ),
    (LinkEnds.parse, "unknown role|expected", "a(t/0) -> b", "-> leader(t/0)", "leader(t/0) ->", "x"),
)


@pytest.mark.parametrize(
    ("parse", "said", "text"), [(parse, said, text) for parse, said, *texts in REFUSED for text in texts]
)
def test_what_is_refused(parse: Callable[[str], object], said: str, text: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse(text)


@pytest.mark.parametrize(
    ("example", "number", "text"),
    [
        ("2s", 0.5, "500ms"),
        ("-3m", 86400, "86400s"),
        ("5B/s", 1024, "1kB/s"),
        ("1 MB", 1 << 26, "64MB"),
        ("0%", 0.01, "1%"),
        ("5", 7, None),
        ("full", 1, None),
    ],
)
def test_a_bound_has_the_unit_of_its_value(example: str, number: float, text: str | None) -> None:
    assert write_like(example, number) == text
