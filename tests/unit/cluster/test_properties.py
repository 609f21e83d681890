"""Tests of nodes' settings files: which setting overrides which, refused settings, escaping and reading."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackproof.base.errors import BadInput
from ackproof.cluster.properties import check_settings, parse, render, settings
from ackproof.experiment.spec import ClusterSpec
from ackproof.network.addresses import Address, Addresses, Layout

ADDRESSES = Addresses(block=7, base_port=29092)


def of(node: int, **spec: object) -> dict[str, str]:
    return settings(Layout(ClusterSpec(**spec), ADDRESSES), node, "data")


_LAYERS = {
    "config": {"num.io.threads": "5", "x": "cluster", "offsets.topic.num.partitions": "9"},
    "broker_config": {1: {"x": "node"}},
}
_VOTERS = ",".join(f"{i}@node-{i}.test:29093" for i in (101, 102, 103))
SETTINGS: dict[str, tuple[int, dict[str, object], dict[str, str | None]]] = {
    "a broker listens for peers by name and for clients by literal": (
        2,
        {},
        {
            "process.roles": "broker",
            "listeners": "INTERNAL://127.7.1.2:29092,EXTERNAL://127.7.2.2:29094",
            "advertised.listeners": "INTERNAL://node-2.test:29092,EXTERNAL://127.7.2.2:29094",
            "controller.quorum.voters": "101@node-101.test:29093",
            "inter.broker.listener.name": "INTERNAL",
            "log.dirs": "data",
            "broker.session.timeout.ms": "3000",
        },
    ),
    "a controller has one listener and advertises it": (
        102,
        {"controllers": 3},
        {
            "process.roles": "controller",
            "listeners": "CONTROLLER://127.7.1.102:29093",
            "advertised.listeners": "CONTROLLER://node-102.test:29093",
            "controller.quorum.voters": _VOTERS,
            "inter.broker.listener.name": None,
        },
    ),
    "a combined node is both": (
        1,
        {"combined": True},
        {
            "process.roles": "broker,controller",
            "controller.quorum.voters": ",".join(f"{i}@node-{i}.test:29093" for i in (1, 2, 3)),
            "listeners": "INTERNAL://127.7.1.1:29092,EXTERNAL://127.7.2.1:29094,CONTROLLER://127.7.1.1:29093",
        },
    ),
    "a later layer wins": (
        1,
        _LAYERS,
        {"num.io.threads": "5", "x": "node", "offsets.topic.num.partitions": "9"},
    ),
    "a layer of another broker does not count": (2, _LAYERS, {"x": "cluster"}),
    "timing of Kafka": (
        1,
        {"timing": "kafka"},
        {
            **dict.fromkeys(("broker.session.timeout.ms", "replica.lag.time.max.ms", "num.io.threads")),
            "auto.create.topics.enable": "false",
        },
    ),
    "one broker can hold its internal topics": (
        1,
        {"brokers": 1},
        {"offsets.topic.replication.factor": "1", "transaction.state.log.min.isr": "1"},
    ),
    "five brokers": (1, {"brokers": 5}, {"offsets.topic.replication.factor": "3"}),
    "racks are dealt in turn: 1": (1, {"racks": ("a", "b")}, {"broker.rack": "a"}),
    "racks are dealt in turn: 2": (2, {"racks": ("a", "b")}, {"broker.rack": "b"}),
    "racks are dealt in turn: 3": (3, {"racks": ("a", "b")}, {"broker.rack": "a"}),
    "a controller has no rack": (101, {"racks": ("a", "b")}, {"broker.rack": None}),
    "racks that brokers do not know": (1, {"racks": ("a", "b"), "rack_aware": False}, {"broker.rack": None}),
    "with ZooKeeper a broker knows its servers and nothing of a quorum": (
        2,
        {"kafka": "3.9.2", "mode": "zookeeper", "controllers": 3},
        {
            "broker.id": "2",
            "zookeeper.connect": ",".join(f"node-{i}.test:29093" for i in (101, 102, 103)),
            "zookeeper.session.timeout.ms": "3000",
            **dict.fromkeys(("node.id", "process.roles", "controller.quorum.voters")),
        },
    ),
}


@pytest.mark.parametrize(("node", "spec", "wanted"), SETTINGS.values(), ids=SETTINGS)
def test_settings_of_a_node(node: int, spec: dict[str, object], wanted: dict[str, str | None]) -> None:
    values = of(node, **spec)
    assert {key: values.get(key) for key in wanted} == wanted
    quorum = [key for key in values if key.startswith(("controller.quorum", "process."))]
    assert bool(quorum) == ("mode" not in spec)


def test_settings_of_share_groups_are_for_releases_that_have_them() -> None:
    assert any(key.startswith("share.") for key in of(1))
    assert not any(key.startswith("share.") for key in of(1, kafka="3.9.2"))


def test_all_refusals_come_at_once_with_their_places() -> None:
    spec = ClusterSpec(
        config={"node.id": "1", "listeners": "x", "sasl.enabled.mechanisms": "PLAIN"},
        broker_config={2: {"log.dirs": "/"}},
    )
    with pytest.raises(BadInput) as caught:
        check_settings(spec)
    said = str(caught.value)
    places = ("config[node.id]", "config[listeners]", "config[sasl.enabled", "broker_config.2[log.dirs]")
    assert all(place in said for place in places)
    assert "\n" not in said


def test_a_line_break_cannot_smuggle_a_setting_in() -> None:
    smuggler = ClusterSpec().model_copy(update={"config": {"x": "1\nnode.id=9"}})  # past the plan's own check
    with pytest.raises(BadInput, match="a settings file cannot hold"):
        check_settings(smuggler)


def test_rendering_escapes_what_java_would_read_otherwise() -> None:
    text = render({"a b:c=d": r" C:\x", "plain.key": "ä=1,b:2#"})
    assert text == "a\\ b\\:c\\=d=\\ C:\\\\x\nplain.key=\\u00e4=1,b:2#\n"


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_clients_are_sent_to_the_proxy_that_can_be_broken(mode: str) -> None:
    spec = ClusterSpec.model_validate({"kafka": "3.9.2", "mode": mode})
    values = settings(Layout(spec, ADDRESSES, clients_by_proxy=True), 2, "data")
    assert values["listeners"].split(",")[1] == f"EXTERNAL://{ADDRESSES.client(2)}"
    assert values["advertised.listeners"].split(",")[1] == f"EXTERNAL://{ADDRESSES.for_clients(2)}"


@pytest.mark.parametrize("servers", [1, 3])
def test_zookeeper_servers_answer_where_controllers_would(servers: int) -> None:
    spec = ClusterSpec(kafka="3.9.2", mode="zookeeper", controllers=servers)
    layout = Layout(spec, ADDRESSES)
    values = settings(layout, 101, "data")
    assert Address(values["clientPortAddress"], int(values["clientPort"])) == layout.addresses.controller(101)
    named = {key for key in values if key.startswith("server.")}
    assert named == (set() if servers == 1 else {"server.101", "server.102", "server.103"})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1\nb: 2\nc 3\n d\t=\t4 \n", {"a": "1", "b": "2", "c": "3", "d": "4 "}),
        ("# a=1\n  ! b=2\n\n \t\nc=3", {"c": "3"}),
        ("a=1,\\\n   2,\\\r\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a\\\n  b=1", {"ab": "1"}),
        ("a=1\\\n# b=2", {"a": "1# b=2"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("# no comment goes on \\\na=1", {"a": "1"}),
        ("a\\ b\\=c\\:d=1", {"a b=c:d": "1"}),
        ("a=\\t\\n\\r\\f\\q\\u00e9", {"a": "\t\n\r\fqé"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a==b", {"a": "=b"}),
        ("a", {"a": ""}),
        ("a=1\rb=2", {"a": "1", "b": "2"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("", {}),
    ],
)
def test_a_file_is_read_as_java_reads_it(text: str, found: dict[str, str]) -> None:
    assert parse(text) == found


def test_an_escape_that_java_refuses_is_told_with_its_line() -> None:
    with pytest.raises(ValueError, match=r"line 3: \\u stands before four"):
        parse("a=1\n\nb=\\\n  \\u12")


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1),
        st.text(st.characters(exclude_categories=["Cs", "Cc"])),
    )
)
def test_what_is_written_is_read_back(values: dict[str, str]) -> None:
    assert parse(render(values)) == values
