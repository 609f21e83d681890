"""Tests of coherence of the metadata log, of the faults' targets, and of backend, nodes, release, duration and topic
settings with the case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from ackproof.experiment.kafka import DEFAULT
from ackproof.experiment.links import LinkEnds
from ackproof.experiment.roles import Role
from ackproof.experiment.triggers import TimeTrigger
from ackproof.faults.links.named import CutFault
from ackproof.judge.coherence import faults, run
from ackproof.judge.facts import Facts
from ackproof.judge.verdict import judge
from ackproof.rundir.metadata import (
    BrokerRegistered,
    ConfigChanged,
    FeatureChanged,
    LogEnded,
    MetadataRecord,
    OtherEntry,
    PartitionChanged,
    write_metadata,
)
from ackproof.rundir.outcome import Says, Verdict
from ackproof.rundir.timeline import (
    Event,
    EventKind,
    FaultAsked,
    FaultConfirmed,
    FaultMissed,
    FaultRecovered,
    NodeStarted,
)
from judged_run import SECOND, decided, event, pulse, said, sampled, texts, watched

# -- the metadata log -----------------------------------------------------------------------------------------------


def _other(offset: int, epoch: int = 1) -> OtherEntry:
    return OtherEntry(offset=offset, epoch=epoch, timestamp_ms=0, api_key=20)


def _end(offset: int, records: int) -> LogEnded:
    return LogEnded(offset=offset, epoch=1, timestamp_ms=0, records=records)


def _state(offset: int, epoch: int, leader_epoch: int) -> PartitionChanged:
    return decided(leader_epoch, offset).model_copy(update={"partition_epoch": epoch})


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([_other(0), _other(1), _end(2, 2)], None),
        ([_other(0), _other(1), _end(2, 3)], "has 2 records, and 3 were written"),
        ([_other(0), _other(1), _end(3, 2)], "ended at offset 3, and its last record has 1"),
        ([_other(1), _end(2, 1)], "begins at offset 1"),
        ([_other(0), _other(2), _end(3, 2)], "nothing between the offsets 0 and 2"),
        ([_other(0), _other(2, epoch=2), _end(3, 2)], "nothing between the offsets 0 and 2"),
        ([_other(0), _other(0), _end(1, 2)], "goes from offset 0 to 0"),
        ([_other(0), _other(1), _other(0), _end(1, 3)], "goes from offset 1 to 0"),
        ([_other(1), _other(3, epoch=2)], "the metadata log has no end"),
        ([_state(0, 0, 0), _state(1, 1, 1), _state(2, 2, 1), _end(3, 3)], None),
        ([_state(0, 0, 0), _state(1, 2, 1), _end(2, 2)], "from partition epoch 0 to 2"),
        ([_state(0, 0, 0), _state(1, 0, 0), _end(2, 2)], "from partition epoch 0 to 0"),
        ([_state(0, 0, 0), _state(1, 1, 2), _end(2, 2)], "from leader epoch 0 to 2"),
        ([_state(0, 0, 3), _state(1, 1, 2), _end(2, 2)], "from leader epoch 3 to 2"),
    ],
)
def test_all_of_the_metadata_log_is_there(
    facts: Facts, records: list[MetadataRecord], words: str | None
) -> None:
    write_metadata(facts.run.metadata_log, records)
    found = texts(run.check_metadata_log(facts))
    assert (found == []) if words is None else [words in text for text in found] == [True], found


def test_no_metadata_log_is_a_lack(facts: Facts) -> None:
    (found,) = run.check_metadata_log(facts)
    assert found.kind is Says.LACKS
    assert list(run.check_metadata_log(replace(facts, backend="attach"))) == []


def test_zookeeper_has_offsets_of_its_own_and_what_lies_in_a_snapshot_lacks(facts: Facts) -> None:
    experiment = facts.case.experiment
    cluster = experiment.cluster.model_copy(update={"mode": "zookeeper"})
    facts = replace(
        facts, case=replace(facts.case, experiment=experiment.model_copy(update={"cluster": cluster}))
    )
    write_metadata(facts.run.metadata_log, [_state(65, 0, 0), _state(65, 2, 1), _end(66, 2)])
    (found,) = run.check_metadata_log(facts)
    assert (found.kind, "from partition epoch 0 to 2" in found.text) == (Says.LACKS, True)


def test_the_verdict_asks_of_a_sealed_run(facts: Facts) -> None:
    assert judge(facts).verdict is Verdict.PASS
    facts.run.seal.write_text("{}")
    verdict = judge(facts)
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert any("there is no metadata log" in reason for reason in verdict.reasons)


# -- whom faults were aimed at ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "confirmed", "recovered", "words"),
    [
        ({}, {}, {}, None),
        ({"role": ""}, {}, {}, "was aimed at nobody, as the timeline says"),
        ({"role": "broker(1)"}, {}, {}, "was aimed at broker(1), as the timeline says"),
        ({"trigger": ""}, {}, {}, "the timeline does not say why then"),
        ({"nodes": ()}, {}, {}, "it was aimed at no node"),
        ({"nodes": (2,)}, {}, {}, "was aimed at node 2, and leader(orders/0) may have been 1"),
        ({"nodes": (1, 3)}, {}, {}, "was aimed at node 3, which held none of its roles"),
        ({}, {"witness": ""}, {}, "nobody says what was done and who saw it"),
        ({}, {"did": ""}, {}, "nobody says what was done and who saw it"),
        ({}, {}, {"witness": ""}, "nobody says who saw it"),
    ],
)
def test_a_fault_says_whom_it_hit_and_who_saw_it(
    facts: Facts,
    asked: dict[str, Any],
    confirmed: dict[str, Any],
    recovered: dict[str, Any],
    words: str | None,
) -> None:
    facts = watched(facts, [sampled(1.0)])
    events = (
        event(
            FaultAsked(
                **{"kind": "kill", "role": "leader(orders/0)", "nodes": (1,), "trigger": "1s", **asked}
            ),
            1,
            fault=1,
        ),
        event(FaultConfirmed(**{"did": "it", "witness": "the kernel", **confirmed}), 1.1, fault=1),
        event(FaultRecovered(**{"witness": "the kernel", **recovered}), 1.2, fault=1),
    )
    found = texts(faults.check_targets(replace(facts, events=events)))
    assert (found == []) if words is None else [words in text for text in found] == [True], found


@pytest.mark.parametrize(
    ("role", "nodes", "holds"),
    [
        ("broker(2)", (2,), True),
        ("broker(2)", (1,), False),
        ("brokers", (1, 2, 3), True),
        ("controller", (101,), True),
        ("controller", (1,), False),
        ("followers(orders/0)", (2, 3), True),
        ("followers(orders/0)", (1,), False),
        ("leader(orders/9)", (3,), True),
    ],
)
def test_who_held_a_role(facts: Facts, role: str, nodes: tuple[int, ...], holds: bool) -> None:
    facts = watched(facts, [sampled(1.0)])
    (fault,) = facts.case.faults
    other = fault.model_copy(update={"target": Role.parse(role)})
    experiment = facts.case.experiment.model_copy(update={"faults": (other,)})
    facts = replace(facts, case=replace(facts.case, experiment=experiment))
    asked = FaultAsked(kind="kill", role=role, nodes=nodes, trigger="1s")
    found = texts(faults.check_targets(replace(facts, events=(event(asked, 1.0, fault=1),))))
    assert (found == []) is holds, found


@pytest.mark.parametrize(
    ("bit", "nodes", "agrees"), [(True, (1,), False), (True, (1, 101), True), (False, (1,), True)]
)
def test_an_end_of_a_link_that_was_not_hit_may_have_been_nobodys(
    facts: Facts, bit: bool, nodes: tuple[int, ...], agrees: bool
) -> None:
    cut = CutFault(number=1, trigger=TimeTrigger(1.0), link=LinkEnds.parse("broker(1) -> controller"))
    experiment = facts.case.experiment.model_copy(update={"faults": (cut,)})
    asked = FaultAsked(kind="cut", role="broker(1) -> controller", nodes=nodes, trigger="1s")
    then = FaultConfirmed(did="it", witness="a probe") if bit else FaultMissed(reason="aimed at nothing")
    events = (event(asked, 1.0, fault=1), event(then, 1.1, fault=1))
    found = texts(
        faults.check_targets(replace(facts, case=replace(facts.case, experiment=experiment), events=events))
    )
    assert (found == []) is agrees, found


@pytest.mark.parametrize(
    ("role", "nodes", "says"),
    [
        ("rack(a)", (1, 3, 101), ""),
        ("rack(a)", (1, 101), "and rack(a) is node 3, too"),
        ("rack(a)", (1, 2, 3, 101), "node 2, which held none of its roles"),
        ("[broker(1), broker(2)]", (1, 2), ""),
        ("[broker(1), broker(2)]", (1,), "and [broker(1), broker(2)] is node 2, too"),
        ("rack(leader(orders/0))", (1, 3, 101), ""),
        ("rack(leader(orders/0))", (1, 101), "and rack(leader(orders/0)) is node 3, too"),
    ],
)
def test_each_node_of_a_rack_or_a_list_was_hit(
    facts: Facts, role: str, nodes: tuple[int, ...], says: str
) -> None:
    facts = watched(facts, [sampled(1.0)])
    (fault,) = facts.case.faults
    other = fault.model_copy(update={"target": Role.parse(role)})
    cluster = facts.case.experiment.cluster.model_copy(update={"racks": ("a", "b")})
    experiment = facts.case.experiment.model_copy(update={"faults": (other,), "cluster": cluster})
    events = (
        event(FaultAsked(kind="kill", role=role, nodes=nodes, trigger="1s"), 1.0, fault=1),
        event(FaultConfirmed(did="it", witness="the kernel"), 1.1, fault=1),
    )
    facts = replace(facts, case=replace(facts.case, experiment=experiment), events=events)
    found = texts(faults.check_targets(facts))
    assert [says in text for text in found] == ([True] if says else []), found


# -- the ground -------------------------------------------------------------------------------------------------------


@pytest.fixture
def grounded(facts: Facts) -> Facts:
    """Facts of a run whose timeline starts every node of the case, controller 101 too."""
    one = event(NodeStarted(pid=9), 0.0, node=101)
    return replace(facts, events=(one, *facts.events), environment={"kafka": DEFAULT})


def _registrations(*nodes: int) -> list[MetadataRecord]:
    return [
        BrokerRegistered(
            offset=at, epoch=1, timestamp_ms=0, node=node, broker_epoch=at, incarnation=str(at), fenced=True
        )
        for at, node in enumerate(nodes)
    ]


def _with_log(facts: Facts, records: list[MetadataRecord]) -> Facts:
    write_metadata(facts.run.metadata_log, records)
    return facts


def _logged(facts: Facts, release: str) -> Facts:
    (facts.run.nodes / "1").mkdir(parents=True)
    (facts.run.nodes / "1" / "server.log").write_text(f"x\nINFO Kafka version: {release} (AppInfoParser)\n")
    return facts


def _level(level: int) -> list[MetadataRecord]:
    return [FeatureChanged(offset=0, epoch=1, timestamp_ms=0, feature="metadata.version", level=level)]


def _without_node_3(facts: Facts) -> Facts:
    return replace(facts, events=tuple(one for one in facts.events if one.node != 3))


GROUNDS: dict[str, tuple[Callable[[Facts], Facts], str | None]] = {
    "as it is": (lambda f: f, None),
    "all registered": (lambda f: _with_log(f, _registrations(1, 2, 3)), None),
    "a node less": (_without_node_3, "has the nodes 1, 2, 3, 101, and the timeline starts 1, 2, 101"),
    "a broker more": (
        lambda f: _with_log(f, _registrations(1, 2, 3, 4)),
        "the case has the brokers 1, 2, 3, and the metadata log 1, 2, 3, 4",
    ),
    "a stranger": (
        lambda f: watched(f, [sampled(1.0, replicas=(1, 2, 7))]),
        "brokers 1, 2, 3, and 7 was sampled",
    ),
    "its release": (lambda f: _logged(f, DEFAULT), None),
    "another release": (
        lambda f: _logged(f, "4.2.1"),
        f"Kafka {DEFAULT}, and node 1 logged that it is 4.2.1",
    ),
    "another's jars": (
        lambda f: replace(f, environment={"kafka": "4.2.1"}),
        f"has Kafka {DEFAULT}, and the environment of its run 4.2.1",
    ),
    "its level": (lambda f: _with_log(f, _level(33)), None),
    "a later level": (lambda f: _with_log(f, _level(34)), "metadata.version 34, which these do not know"),
    "other backend": (
        lambda f: replace(f, backend="docker"),
        "the backend is docker, and its resolved case process",
    ),
    "the model": (
        lambda f: replace(f, backend="model"),
        "is model, and the timeline has a process of node 101",
    ),
    "an image": (
        lambda f: replace(f, environment={"kafka": DEFAULT, "image": "x"}),
        "is process, and its environment is that of docker",
    ),
}


@pytest.mark.parametrize(("change", "words"), list(GROUNDS.values()), ids=list(GROUNDS))
def test_the_case_is_the_one_that_was_seen(
    grounded: Facts, change: Callable[[Facts], Facts], words: str | None
) -> None:
    facts = change(_lasting(grounded, 1.0))
    found = texts(run.check_ground(facts))
    assert (found == []) if words is None else any(words in text for text in found), found


def _lasting(facts: Facts, load_s: float) -> Facts:
    def moved() -> Iterator[Event]:
        for one in facts.events:
            late = one.kind is EventKind.PHASE and one.detail["phase"] not in ("start", "load")
            yield one.model_copy(update={"t_ns": round(load_s * SECOND)}) if late else one

    return replace(facts, events=tuple(moved()))


@pytest.mark.parametrize(
    ("load_s", "words"),
    [(1.0, None), (0.99, "the case has load for 1.000 s, and it lasted from 0.000 s to 0.990 s"),
     (71.5, None), (72.5, "and it lasted until 72.500 s")],
)  # fmt: skip
def test_the_load_lasts_as_long_as_the_case_says(grounded: Facts, load_s: float, words: str | None) -> None:
    facts = watched(_lasting(grounded, load_s), [sampled(1.0)], [pulse(0.5)])
    found = texts(run.check_ground(facts))
    assert (found == []) if words is None else [words in text for text in found] == [True], found


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"value": "1"}, "the metadata log has min.insync.replicas=1 for topic orders, and the case 2"),
        ({"value": None}, None),
        ({"name": "others", "value": "1"}, None),
        ({"resource": 4, "value": "1"}, None),
        (
            {"key": "unclean.leader.election.enable", "value": "true"},
            "the metadata log has unclean.leader.election.enable=true for topic orders, and the case does not set it",
        ),
        ({"key": "segment.bytes", "value": "7"}, None),
    ],
    ids=str,
)
def test_a_setting_that_was_in_force_is_that_of_the_case(
    facts: Facts, changes: dict[str, Any], words: str | None
) -> None:
    config = {"resource": 2, "name": "orders", "key": "min.insync.replicas", "value": "2", **changes}
    record = ConfigChanged(offset=1, epoch=1, timestamp_ms=0, **config)
    write_metadata(facts.run.metadata_log, [record, decided(1)])
    assert said(facts) == ([] if words is None else [words])


def test_a_topic_has_as_many_replicas_as_the_case(facts: Facts) -> None:
    created = decided(1).model_copy(update={"partition_epoch": 0, "replicas": (1, 2)})
    grown = decided(1).model_copy(update={"replicas": (1, 2)})
    write_metadata(facts.run.metadata_log, [created, decided(1)])
    assert said(facts) == ["orders/0 was created with 2 replicas, and the case has 3"]
    write_metadata(facts.run.metadata_log, [grown, decided(1)])
    assert said(Facts.read(facts.run)) == []
