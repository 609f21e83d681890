"""server.properties: layers, what is refused, how it is written."""

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


def test_a_broker_listens_for_peers_by_name_and_for_clients_by_literal() -> None:
    values = of(2)
    assert values["process.roles"] == "broker"
    assert values["listeners"] == "INTERNAL://127.7.1.2:29092,EXTERNAL://127.7.2.2:29094"
    assert values["advertised.listeners"] == "INTERNAL://node-2.test:29092,EXTERNAL://127.7.2.2:29094"
    assert values["controller.quorum.voters"] == "101@node-101.test:29093"
    assert values["inter.broker.listener.name"] == "INTERNAL"
    assert values["log.dirs"] == "data"


def test_a_controller_has_one_listener_and_advertises_it() -> None:
    values = of(102, controllers=3)
    assert values["process.roles"] == "controller"
    assert values["listeners"] == "CONTROLLER://127.7.1.102:29093"
    assert values["advertised.listeners"] == "CONTROLLER://node-102.test:29093"
    assert values["controller.quorum.voters"].split(",") == [
        f"{i}@node-{i}.test:29093" for i in (101, 102, 103)
    ]
    assert "inter.broker.listener.name" not in values


def test_a_combined_node_is_both() -> None:
    values = of(1, combined=True)
    assert values["process.roles"] == "broker,controller"
    assert values["controller.quorum.voters"].count("@") == 3
    assert [part.partition("://")[0] for part in values["listeners"].split(",")] == [
        "INTERNAL",
        "EXTERNAL",
        "CONTROLLER",
    ]


def test_a_later_layer_wins() -> None:
    given = {"num.io.threads": "5", "x": "cluster", "offsets.topic.num.partitions": "9"}
    values = of(1, config=given, broker_config={1: {"x": "node"}})
    assert (values["num.io.threads"], values["x"], values["offsets.topic.num.partitions"]) == (
        "5",
        "node",
        "9",
    )
    assert of(2, config=given, broker_config={1: {"x": "node"}})["x"] == "cluster"


def test_timing_is_short_for_chaos_and_absent_for_kafka() -> None:
    assert of(1)["broker.session.timeout.ms"] == "3000"
    kafka = of(1, timing="kafka")
    assert not {"broker.session.timeout.ms", "replica.lag.time.max.ms", "num.io.threads"} & kafka.keys()
    assert kafka["auto.create.topics.enable"] == "false"


def test_small_clusters_can_hold_their_internal_topics() -> None:
    assert of(1, brokers=1)["offsets.topic.replication.factor"] == "1"
    assert of(1, brokers=1)["transaction.state.log.min.isr"] == "1"
    assert of(1, brokers=5)["offsets.topic.replication.factor"] == "3"


def test_settings_of_share_groups_are_for_releases_that_have_them() -> None:
    assert any(key.startswith("share.") for key in of(1))
    assert not any(key.startswith("share.") for key in of(1, kafka="3.9.2"))


def test_racks_are_dealt_to_brokers_in_turn() -> None:
    racks = ("a", "b")
    assert [of(i, racks=racks)["broker.rack"] for i in (1, 2, 3)] == ["a", "b", "a"]
    assert "broker.rack" not in of(101, racks=racks)
    assert "broker.rack" not in of(1, racks=racks, rack_aware=False)


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


def test_with_zookeeper_a_broker_knows_its_servers_and_nothing_of_a_quorum() -> None:
    values = of(2, kafka="3.9.2", mode="zookeeper", controllers=3)
    assert values["broker.id"] == "2"
    assert [each.partition(":")[0] for each in values["zookeeper.connect"].split(",")] == [
        "node-101.test",
        "node-102.test",
        "node-103.test",
    ]
    assert not any(key.startswith(("controller.quorum", "process.")) or key == "node.id" for key in values)
    assert values["zookeeper.session.timeout.ms"] == "3000"


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
