"""Tests of placement and of logs on disk, on planted runs with known numbers, holes and missing evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from ackproof.quantities.answer import answered, measured
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Answer, Value
from ackproof.quantities.vocabulary import parse_ask
from ackproof.rundir.bounds import WHOLE, Bound
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.metadata import BrokerRegistered, MetadataRecord
from ackproof.rundir.replicas import Replica, ReplicasFile

from .conftest import Make, ended, looks

ROWS = [(1, 2), (2, 3), (3, 1)]
EVEN = [sample for number, row in enumerate(ROWS) for sample in looks(0, 10, partition=number, replicas=row)]


def registered(racks: Sequence[str]) -> list[MetadataRecord]:
    return ended(
        [
            BrokerRegistered(
                offset=node - 1, epoch=1, timestamp_ms=0, node=node, broker_epoch=1, incarnation="", fenced=False,
                rack=rack,
            )
            for node, rack in enumerate(racks, start=1)
        ]
    )  # fmt: skip


def state(evidence: Evidence, text: str, bound: str) -> Answer:
    ask = parse_ask(text)
    return answered(evidence, ask, Bound.parse(bound, ask.quantity.unit))


def value(evidence: Evidence, text: str) -> Value:
    return measured(evidence, parse_ask(text), WHOLE)


@pytest.mark.parametrize(
    ("text", "bound", "holds"),
    [
        ("placement(brokers)", "always == 2", True),
        ("placement(brokers)", "always == 3", False),
        ("placement(first replica, orders/1)", "always == 2", True),
        ("placement(first replica)", "always == 2", False),
        ("placement(on a broker)", "always == 2", True),
        ("placement(on a broker, node 3)", "never >= 3", True),
        ("placement(on a broker, node 3)", "eventually == 1 by 5s", False),
        ("placement(partners)", "always == 2", True),
        ("placement(racks, orders/0)", "always == 2", True),
        ("placement(racks)", "always == 2", False),
        ("placement(in a rack)", "always >= 2", True),
        ("placement(in a rack)", "always == 2", False),
        ("placement(on a broker, node 4)", "always == 0", None),
    ],
)
def test_where_replicas_are(make: Make, text: str, bound: str, holds: bool | None) -> None:
    """Brokers 1 and 3 are in rack a, and both have a replica of orders/2."""
    run = make(samples=sorted(EVEN, key=lambda one: one.t_ns), metadata=registered(["a", "b", "a"]))
    assert state(run, text, bound).holds is holds


def test_a_broker_without_replicas_has_none(make: Make) -> None:
    run = make(samples=EVEN, metadata=registered(["", "", "", ""]))
    assert state(run, "placement(on a broker, node 4)", "always == 0").holds is True
    assert state(run, "placement(on a broker)", "always == 2").holds is False


def test_racks_that_nobody_told_are_unknown(make: Make) -> None:
    assert state(make(samples=EVEN), "placement(racks, orders/0)", "always == 2").holds is None
    run = make(samples=EVEN, metadata=registered(["a", "b", ""]))
    assert state(run, "placement(racks, orders/0)", "always == 2").holds is True
    assert state(run, "placement(racks, orders/1)", "always == 2").holds is None
    assert state(run, "placement(in a rack)", "never >= 9").holds is None


def test_one_partition_that_nobody_sees_leaves_the_sum_unknown(make: Make) -> None:
    hidden = [one for one in EVEN if one.partition != 2 or not 4 < one.t_ns / 1e9 < 8]
    run = make(samples=hidden, metadata=registered(["", "", ""]))
    answer = state(run, "placement(on a broker)", "always == 2")
    assert answer.holds is None
    assert "no observation of it from 5." in answer.why
    assert state(run, "placement(brokers, orders/0)", "always == 2").holds is True


def test_a_move_is_seen(make: Make) -> None:
    moved = [one for one in EVEN if one.partition < 2 or one.t_ns < 5e9]
    moved += looks(5, 10, partition=2, replicas=(3, 2))
    run = make(samples=moved, metadata=registered(["", "", ""]))
    assert state(run, "placement(on a broker, node 1)", "always == 2").holds is False
    assert state(run, "placement(on a broker, node 1)", "eventually == 1").holds is True


def test_how_far_a_replica_in_sync_is_behind(make: Make) -> None:
    """A follower that is out of the ISR does not count. An in-sync replica that does not answer makes it unknown."""
    ends = {1: 50, 2: 20, 3: 0}
    run = make(samples=looks(0, 10, isr=(1, 2), log_ends=ends))
    assert state(run, "isr_lag(orders/0)", "always == 30").holds is True
    assert state(run, "isr_lag", "never > 29").holds is False
    for known in ({1: 50, 3: 0}, {2: 20, 3: 0}):
        silent = looks(0, 4, isr=(1, 2), log_ends=ends) + looks(4, 10, isr=(1, 2), log_ends=known)
        answer = state(make(samples=silent), "isr_lag", "always == 30")
        assert (answer.holds, "no observation of it from 3.9" in answer.why) == (None, True)


# -- logs on disk -------------------------------------------------------------------------------------------------


def replica(node: int, partition: int = 0, end: int = 10, folder: str = "d1", **more: Any) -> Replica:
    path = f"/n{node}/{folder}/orders-{partition}"
    return Replica(
        node=node,
        topic="orders",
        partition=partition,
        folder=path,
        log_start=0,
        log_end=end,
        records=end,
        **more,
    )


def batches(node: int, *crcs: int, partition: int = 0) -> list[dict[str, Any]]:
    """Return one batch of five records and 80 bytes for each CRC, on node `node`, one after the other."""
    return [
        {
            "node": node, "topic": "orders", "partition": partition, "first_offset": 5 * at, "last_offset": 5 * at + 4,
            "leader_epoch": 0, "records": 5, "control": False, "transactional": False, "producer_id": -1,
            "producer_epoch": -1, "base_sequence": -1, "max_timestamp_ms": 0, "crc": crc, "sound": True, "content": 0,
            "bytes": 80, "timestamp_type": 0,
        }
        for at, crc in enumerate(crcs)
    ]  # fmt: skip


def two_nodes(**of_second: Any) -> ReplicasFile:
    dirs = {1: ("/n1/d1", "/n1/d2"), 2: ("/n2/d1", "/n2/d2")}
    mine = (replica(1), replica(1, 1), replica(1, 2, folder="d2"), replica(2, **of_second))
    return ReplicasFile(log_dirs=dirs, replicas=mine)


def test_logs_on_disk(make: Make) -> None:
    every = [*batches(1, 7, 8), *batches(1, 9, partition=1), *batches(2, 7, 8)]
    run = make(logs=two_nodes(), batches=every)
    for text, number in (
        ("logs(folders)", 4),
        ("logs(folders, node 1)", 3),
        ("logs(folders, orders/0)", 2),
        ("logs(most in a log dir)", 2),
        ("logs(fewest in a log dir)", 0),
        ("logs(fewest in a log dir, node 1)", 1),
        ("logs(records, orders/0, node 2)", 10),
        ("logs(bytes)", 400),
        ("logs(bytes, orders/0)", 320),
        ("logs(differing)", 0),
    ):
        assert value(run, text) == Value.exactly(number), text


@pytest.mark.parametrize(
    ("one", "other", "end", "count"),
    [((7, 8), (7, 6), 10, 2), ((7, 8), (7,), 5, 0), ((7, 8), (7,), 10, 1), ((7, 8), (6,), 5, 2)],
    ids=["another batch", "a suffix that lacks", "a hole", "another below a suffix that lacks"],
)
def test_what_replicas_differ_in(
    make: Make, one: tuple[int, ...], other: tuple[int, ...], end: int, count: int
) -> None:
    run = make(logs=two_nodes(end=end), batches=[*batches(1, *one), *batches(2, *other)])
    assert value(run, "logs(differing, orders/0)") == Value.exactly(count)


def test_what_could_not_be_read_is_open(make: Make) -> None:
    run = make(logs=two_nodes(reason="torn"), batches=batches(1, 7, 8))
    assert value(run, "logs(folders)") == Value(4, math.inf, "the log of orders/0 on node 2: torn")
    assert value(run, "logs(folders, node 1)") == Value.exactly(3)
    assert value(run, "logs(differing, orders/0)").high == math.inf
    gone = ReplicasFile(log_dirs={1: ("/n1/d1",)}, replicas=(replica(1),), reasons=("node 2: gone",))
    run = make(logs=gone, batches=[])
    assert value(run, "logs(records)") == Value(10, math.inf, "node 2: gone")
    assert not value(run, "logs(most in a log dir)").is_known
    assert not value(run, "logs(differing)").low


def test_logs_that_nobody_looked_at_are_unknown(make: Make) -> None:
    for text in ("logs(folders)", "logs(most in a log dir)", "logs(differing)"):
        assert not value(make(), text).is_known


def test_racks_that_brokers_do_not_tell_are_those_of_the_case(make: Make) -> None:
    run = make(samples=EVEN, metadata=registered(["", "", ""]))
    assert state(run, "placement(racks, orders/0)", "always == 2").holds is None
    file = CaseFile.load(run.run.case_json)
    file.model_copy(update={"racks": {"a": (1, 3), "b": (2,)}}).save(run.run.case_json)
    again = Evidence.of_run(run.run)
    assert state(again, "placement(racks, orders/0)", "always == 2").holds is True
    assert state(again, "placement(racks, orders/2)", "always == 1").holds is True
