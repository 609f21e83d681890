"""Tests of committed offsets: accepted commits that are missing, offsets that no client committed, and all that Kafka
allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ackproof.experiment.backends import Ability
from ackproof.experiment.client import COMMAND, JAVA, ClientChoice
from ackproof.judge.checks.committed import check_committed_offsets, check_committed_starts
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion
from ackproof.quantities.metadata_log import MetadataLog
from ackproof.rundir.committed import CommittedFile, GroupOffsets, OffsetsLog
from ackproof.rundir.documents import Client
from ackproof.rundir.guarantees import LIBRDKAFKA
from ackproof.rundir.metadata import LogEnded, PartitionChanged
from ackproof.rundir.observed import CommittedStart, OffsetCommit
from ackproof.rundir.outcome import ReadPhase, Says
from run_directory import write_run

MS = 1_000_000
GROUP = "ackproof-r0"


def _commit(
    offset: int, begun_ms: int, took_ms: int | None = 5, error: str = "", group: str = GROUP
) -> OffsetCommit:
    done = -1 if took_ms is None else (begun_ms + took_ms) * MS
    offsets = (("orders", 0, offset),)
    return OffsetCommit(begun_ns=begun_ms * MS, offsets=offsets, done_ns=done, error=error, group=group)


COMMITS = (_commit(100, 1000), _commit(200, 2000), _commit(300, 3000))


def _state(at: int, leader: int, epoch: int, *isr: int) -> PartitionChanged:
    return PartitionChanged(
        offset=at, epoch=1, timestamp_ms=at, topic="__consumer_offsets", partition=0, leader=leader,
        leader_epoch=epoch, partition_epoch=at, replicas=(1, 2, 3), isr=isr,
    )  # fmt: skip


QUIET = (_state(0, 1, 0, 1, 2, 3),)
FAILED_OVER = (*QUIET, _state(1, -1, 1, 2, 3), _state(2, 2, 2, 2, 3))
UNCLEAN = (_state(0, 1, 0, 1), _state(1, 2, 1, 2))


def _log(
    node: int, offset: int | None, *, group: str = GROUP, log_end: int = 9, reason: str = ""
) -> OffsetsLog:
    rows = () if offset is None else ((group, "orders", 0, offset),)
    return OffsetsLog(node=node, partition=0, log_end=log_end, offsets=rows, reason=reason)


def _file(
    served: int | None, logged: int | None = -1, *, logs: tuple[OffsetsLog, ...] | None = None, **changes: Any
) -> CommittedFile:
    """Return a `committed.json`. `served`: the offset that the coordinator (node 1) answers for orders/0; None: none.
    `logged`: the offset in the logs of all three nodes; -1: as `served`. `logs` replaces these logs. `changes`: fields
    of the coordinator's answer."""
    logged = served if logged == -1 else logged
    offsets = () if served is None else (("orders", 0, served),)
    answer = GroupOffsets(group=GROUP, partition=0, coordinator=1, isr=(1, 2, 3), offsets=offsets)
    answer = answer.model_copy(update=changes)
    found = tuple(_log(node, logged) for node in (1, 2, 3)) if logs is None else logs
    return CommittedFile(t_ns=30_000 * MS, groups=(answer,), logs=found)


class _Fault(SimpleNamespace):
    """Stand-in for a fault, with the attributes that the checks of committed offsets read."""

    def drops(self, topic: str) -> bool:
        return topic in self.dropped


def _fault(*asks: Ability, shift: float = 0.0, unpredictable: str = "", dropped: str = "") -> Any:
    return _Fault(
        number=1,
        kind="fault",
        ASKS=frozenset(asks),
        clock_shift=shift,
        UNPREDICTABLE=unpredictable,
        dropped=[dropped],
    )


def _opinions(
    facts: Facts,
    file: CommittedFile | None,
    *,
    commits: tuple[OffsetCommit, ...] = COMMITS,
    faults: tuple[Any, ...] = (),
    settings: dict[str, str] | None = None,
    consumer: dict[str, str] | None = None,
    states: tuple[PartitionChanged, ...] = QUIET,
    zookeeper: bool = False,
    starts: Mapping[str, CommittedStart] | None = None,
    library: str = LIBRDKAFKA,
    check: Any = check_committed_offsets,
) -> list[Opinion]:
    spec = facts.case.experiment
    cluster = spec.cluster.model_copy(update={"config": settings or {}})
    reading = {"config": consumer or {}, "client": ClientChoice(library)}
    consumers = spec.workload.consumers.model_copy(update=reading)
    workload = spec.workload.model_copy(update={"consumers": consumers})
    spec = spec.model_copy(update={"cluster": cluster, "workload": workload})
    case = SimpleNamespace(experiment=spec, faults=faults)
    mine = replace(facts, case=case, zookeeper=zookeeper)  # type: ignore[arg-type]
    ends = LogEnded(offset=len(states), epoch=1, timestamp_ms=9, records=len(states))
    log = MetadataLog.from_records([*states, ends], simulated=False, kraft=True)
    by_reader = {
        f"r{number}": tuple(one for one in commits if one.group == f"ackproof-r{number}") for number in (0, 1)
    }
    vars(mine).update(
        committed=file, commits=by_reader, removed=frozenset(), metadata_log=log, starts=starts or {}
    )
    return list(check(mine))


def test_what_was_granted_last_is_a_witness(facts: Facts) -> None:
    (opinion,) = _opinions(facts, _file(300))
    assert opinion.kind is Says.AGREES
    assert opinion.text == "OffsetFetch and the logs of __consumer_offsets have what was granted: 1 offsets"


def test_a_run_without_commits_says_nothing(facts: Facts) -> None:
    assert _opinions(facts, None, commits=()) == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        pytest.param(
            _file(None),
            "group ackproof-r0, orders/0: offset 300 was committed, granted at 3.005 s, and when the run was over "
            "OffsetFetch answered none; the logs of __consumer_offsets/0 have none",
            id="forgotten",
        ),
        pytest.param(
            _file(None, 300),
            "group ackproof-r0, orders/0: offset 300 was committed, granted at 3.005 s, and when the run was over "
            "OffsetFetch answered none; the logs of __consumer_offsets/0 have 300",
            id="forgotten by the coordinator, and in the logs",
        ),
        pytest.param(
            _file(350),
            "group ackproof-r0, orders/0: offset 300 was committed, granted at 3.005 s, and when the run was over "
            "OffsetFetch answered 350, which no client asked for; the logs of __consumer_offsets/0 have 350",
            id="50 too many",
        ),
        pytest.param(
            _file(200),
            "group ackproof-r0, orders/0: offset 300 was committed, granted at 3.005 s, and when the run was over "
            "OffsetFetch answered 200; the logs of __consumer_offsets/0 have 200",
            id="an older one",
        ),
        pytest.param(
            _file(300, logs=(_log(1, 300), _log(2, 200))),
            "group ackproof-r0, orders/0: OffsetFetch answered 300, and the log of __consumer_offsets/0 on node 2, "
            "which is in the ISR, has 200",
            id="a replica has another",
        ),
    ],
)  # fmt: skip
def test_a_wrong_committed_offset_is_a_break(facts: Facts, file: CommittedFile, text: str) -> None:
    (opinion,) = _opinions(facts, file)
    assert (opinion.kind, opinion.text, opinion.subject) == (Says.BREAKS, text, GROUP)


LATE = _commit(200, 2000, took_ms=90)
"""Commit whose answer took longer than librdkafka waits before it sends a commit again."""


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        pytest.param(_file(400), {"commits": (*COMMITS, _commit(400, 4000, None))}, id="a later one without an answer"),
        pytest.param(_file(300), {"commits": (*COMMITS, _commit(400, 4000, None))}, id="which was not applied"),
        pytest.param(
            _file(200),
            {"commits": (_commit(100, 1000), _commit(200, 2000, None), _commit(300, 9000))},
            id="an older one without an answer is applied late",
        ),
        pytest.param(
            _file(400),
            {"commits": (*COMMITS, _commit(400, 4000, error="REQUEST_TIMED_OUT"))},
            id="a refusal after an append",
        ),
        pytest.param(_file(200), {"commits": (_commit(100, 1000), LATE, _commit(300, 3000))}, id="sent twice"),
        pytest.param(_file(200), {"faults": (_fault(Ability.REQUESTS),)}, id="a fault repeats requests"),
        pytest.param(_file(200), {"consumer": {"retry.backoff.ms": "1"}}, id="sent again at once"),
        pytest.param(_file(200), {"consumer": {"retry.backoff.max.ms": "1"}}, id="at once, by the greatest wait"),
        pytest.param(_file(200), {"library": COMMAND}, id="it is not known what a program sends again"),
        pytest.param(_file(50), {"commits": (*COMMITS, _commit(50, 4000))}, id="the reader went back"),
        pytest.param(_file(None), {"commits": (_commit(100, 1000, None),)}, id="none was granted"),
        pytest.param(_file(None), {"faults": (_fault(dropped="orders"),)}, id="the topic was deleted"),
        pytest.param(
            _file(300, 400),
            {"commits": (*COMMITS, _commit(400, 4000, error="REQUEST_TIMED_OUT"))},
            id="appended, and timed out at the coordinator",
        ),
        pytest.param(_file(300, logs=(_log(1, 300), _log(2, 200, log_end=8))), {}, id="a follower lags"),
        pytest.param(
            _file(300, isr=(1, 2), logs=(_log(1, 300), _log(2, 300), _log(3, None))), {}, id="out of the ISR"
        ),
        pytest.param(_file(300, logs=(_log(1, None, reason="compressed"),)), {}, id="a log cannot be read"),
        pytest.param(_file(300), {"states": FAILED_OVER}, id="the coordinator moved"),
        pytest.param(
            _file(300), {"commits": (*COMMITS, _commit(999, 3000, group="ackproof-r1"))}, id="another group"
        ),
        pytest.param(
            _file(290),
            {"commits": (*COMMITS, _commit(310, 3002), _commit(290, 3004))},
            id="two at once",
        ),
    ],
)  # fmt: skip
def test_what_kafka_allows_is_no_break(facts: Facts, file: CommittedFile, changes: dict[str, Any]) -> None:
    assert [one for one in _opinions(facts, file, **changes) if one.kind is not Says.AGREES] == []


@pytest.mark.parametrize("consumer", [{}, {"retry.backoff.max.ms": "1"}], ids=["default", "back-off"])
def test_the_java_client_never_sends_a_commit_of_a_reader_twice(
    facts: Facts, consumer: dict[str, str]
) -> None:
    commits = (_commit(100, 1000), LATE, _commit(300, 3000))
    (opinion,) = _opinions(facts, _file(200), commits=commits, library=JAVA, consumer=consumer)
    assert opinion.kind is Says.BREAKS and "OffsetFetch answered 200" in opinion.text


@pytest.mark.parametrize(
    ("served", "changes", "why"),
    [
        (None, {"faults": (_fault(Ability.DISKS),)}, "may have touched the log"),
        (350, {"faults": (_fault(Ability.DISKS),)}, "may have touched the log"),
        (None, {"faults": (_fault(shift=900_000.0),)}, "offsets expire by clocks"),
        (None, {"faults": (_fault(unpredictable="a command"),)}, "a command"),
        (None, {"settings": {"offsets.retention.minutes": "0"}}, "offsets.retention.minutes is 0"),
        (None, {"settings": {"offsets.commit.required.acks": "1"}}, "does not wait for the ISR"),
        (200, {"states": UNCLEAN}, "was elected that was not in the ISR"),
        (None, {"states": ()}, "the metadata log says nothing of __consumer_offsets/0"),
        (None, {"zookeeper": True, "faults": (_fault(Ability.PROCESSES),)}, "ZooKeeper"),
    ],
)
def test_a_loss_that_settings_and_faults_explain_is_not_judged(
    facts: Facts, served: int | None, changes: dict[str, Any], why: str
) -> None:
    (opinion,) = _opinions(facts, _file(served), **changes)
    assert opinion.kind is Says.NOT_JUDGED and why in opinion.text


def test_a_lost_tail_explains_no_offset_that_nobody_asked_for(facts: Facts) -> None:
    (opinion,) = _opinions(facts, _file(350), states=UNCLEAN)
    assert opinion.kind is Says.BREAKS and "350, which no client asked for" in opinion.text


def test_retention_that_outlasts_the_run_explains_nothing(facts: Facts) -> None:
    (opinion,) = _opinions(facts, _file(None), settings={"offsets.retention.minutes": "1"})
    assert opinion.kind is Says.BREAKS


@pytest.mark.parametrize(("running", "says"), [((1, 2, 3), Says.LACKS), ((2, 3), Says.NOT_JUDGED)])
def test_a_coordinator_that_does_not_answer(facts: Facts, running: tuple[int, ...], says: Says) -> None:
    from ackproof.rundir.observed import RecoveryFile

    watched = replace(facts, recovery=RecoveryFile(bounds={}, waited_s=0, running=running))
    (opinion,) = _opinions(watched, _file(None, reason="no answer in time"))
    assert opinion.kind is says and "no answer in time" in opinion.text


# -- readers that start at committed offsets ------------------------------------------------------------------------

RETURNED = CommittedStart(t_ns=5_000 * MS, group=GROUP, offsets=(("orders", 0, 300),))
FIRST = CommittedStart(t_ns=1, group=GROUP, offsets=(("orders", 0, -1),))


def _rows(reader: int, phase: ReadPhase, offsets: range) -> list[dict[str, Any]]:
    return [
        {
            "reader": reader, "phase": int(phase), "assignment": 0, "read_seq": offset, "topic": "orders",
            "partition": 0, "offset": offset, "leader_epoch": 0, "producer": 0, "seq": offset,
            "origin_topic": "orders", "origin_partition": 0, "intact": True, "read_ns": 1, "timestamp_ms": 1,
        }
        for offset in offsets
    ]  # fmt: skip


def _restart(
    facts: Facts, offset: int, *, handed: int = 320, log: range = range(1000), **changes: Any
) -> list[Opinion]:
    """Return the opinions on a run with two readers of one group. r0 got the records below offset `handed`; r1 started
    at the committed offset `offset`. `log`: offsets that the final read has. `changes`: arguments of `_opinions`."""
    rows = _rows(0, ReadPhase.LIVE, range(handed)) + _rows(0, ReadPhase.FINAL, log)
    write_run(facts.run.path, consumed={"r0": rows})
    readers = [Client(id=f"r{number}", kind="reader", reader=number) for number in (0, 1)]
    mine = replace(facts, clients=(*facts.clients, *readers))
    start = RETURNED.model_copy(update={"offsets": (("orders", 0, offset),)})
    return _opinions(
        mine, _file(300), starts={"r0": FIRST, "r1": start}, check=check_committed_starts, **changes
    )


def test_a_reader_that_returns_to_the_granted_offset_is_no_finding(facts: Facts) -> None:
    assert _restart(facts, 300) == []


def test_a_start_beyond_what_was_handed_out_is_told_twice(facts: Facts) -> None:
    wrong, unhanded = _restart(facts, 350)
    assert wrong.kind is unhanded.kind is Says.BREAKS
    assert wrong.text == (
        "group ackproof-r0, orders/0: offset 300 was committed, granted at 3.005 s, and when r1 started at 5.000 s "
        "OffsetFetch answered 350, which no client asked for"
    )
    assert unhanded.text == (
        "group ackproof-r0, orders/0: r1 started at the committed offset 350, and no reader of the group was handed "
        "the 30 records from 320 on"
    )


def test_a_forgotten_commit_is_seen_when_the_reader_returns(facts: Facts) -> None:
    (opinion,) = _restart(facts, -1)
    assert "when r1 started at 5.000 s OffsetFetch answered none" in opinion.text


@pytest.mark.parametrize(
    ("offset", "changes"),
    [
        pytest.param(200, {"states": FAILED_OVER}, id="a former coordinator answers"),
        pytest.param(-1, {"states": FAILED_OVER}, id="which never saw a commit"),
        pytest.param(
            400,
            {"commits": (*COMMITS, _commit(400, 4000, None)), "handed": 400},
            id="a commit of the killed one without an answer",
        ),
        pytest.param(300, {"commits": (*COMMITS, _commit(500, 9000))}, id="later commits do not count"),
        pytest.param(350, {"faults": (_fault(Ability.DISKS),)}, id="a fault of disks"),
        pytest.param(300, {"handed": 290, "log": range(310, 1000)}, id="what nobody was handed is gone"),
    ],
)
def test_starts_that_kafka_allows(facts: Facts, offset: int, changes: dict[str, Any]) -> None:
    assert _restart(facts, offset, **changes) == []
