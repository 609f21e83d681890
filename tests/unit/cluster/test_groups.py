"""Tests of consumer groups as coordinators describe them, and of offset commits by an operator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackproof.cluster.groups import GroupMember, commit_as_operator, describe_group
from ackproof.network.wire import Refused, Unreachable
from ackproof.rundir.partition import TopicPartition

ORDERS = TopicPartition("orders", 0)


class _Broker:
    """Fake connection to a broker that answers ConsumerGroupDescribe and DescribeGroups with these error codes; below
    0: no answer."""

    def __init__(self, consumer: int, classic: int) -> None:
        self.codes = {"ConsumerGroupDescribe": consumer, "DescribeGroups": classic}

    def ask(self, question: Any) -> Any:
        code = self.codes[question.name]
        if code < 0:
            raise Unreachable("gone")
        assigned = b"\0\0\0\0\0\1\0\6orders\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
        topic = SimpleNamespace(topic_name="orders", partitions=[0])
        member = SimpleNamespace(
            client_id="ackproof-g0",
            instance_id=None,
            group_instance_id=None,
            member_type=1,
            assignment=SimpleNamespace(topic_partitions=[topic]),
            member_assignment=assigned,
        )
        return SimpleNamespace(
            groups=[SimpleNamespace(error_code=code, group_state="Stable", members=[member])]
        )


@pytest.mark.parametrize(
    ("consumer", "classic", "protocol"), [(0, 16, "consumer"), (69, 0, "classic"), (35, 0, "classic")]
)
def test_the_one_that_coordinates_a_group_describes_it(consumer: int, classic: int, protocol: str) -> None:
    links = {1: _Broker(16, 16), 2: _Broker(-1, -1), 3: _Broker(consumer, classic)}
    found = describe_group(cast("Any", links), "billing")
    assert found is not None
    assert (found.broker, found.protocol) == (3, protocol)
    assert found.members == (GroupMember("ackproof-g0", "", protocol, frozenset({ORDERS})),)
    assert describe_group(cast("Any", {1: links[1], 2: links[2]}), "billing") is None


def test_a_commit_of_an_operator_goes_to_the_coordinator() -> None:
    class Link:
        def __init__(self, code: int) -> None:
            self.code = code

        def ask(self, question: Any) -> Any:
            assert (question.fields["generation_id_or_member_epoch"], question.fields["member_id"]) == (
                -1,
                "",
            )
            row = SimpleNamespace(partition_index=0, error_code=self.code)
            return SimpleNamespace(topics=[SimpleNamespace(name="orders", partitions=[row])])

    def commit(*codes: int) -> int:
        links = {number: Link(code) for number, code in enumerate(codes, 1)}
        return commit_as_operator(cast("Any", links), "billing", {ORDERS: 5})

    assert commit(16, 16, 0) == 3
    for codes, name in (((16, 25, 0), "UNKNOWN_MEMBER_ID"), ((16, 16), "NOT_COORDINATOR")):
        with pytest.raises(Refused, match=name):
            commit(*codes)
