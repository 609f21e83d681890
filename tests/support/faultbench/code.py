"""Faults at points of the code, as in a file, with the event that makes a thread pass there; and duds.

The fault `HALT` runs with every push, the others at night."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from ackproof.base.wait import wait_until
from ackproof.faults.code.points import POINTS
from faultbench.bench import Bench
from faultbench.dud import Dud
from faultbench.spoilt import that_never_fires, without_its_act

ARMED_WITHIN_S: Final = 30.0
CLUSTER: Final[Mapping[str, Any]] = {
    "topics": {"t": {"config": {"min.insync.replicas": 1, "segment.ms": 2000}}},
    "controllers": 1,
    "log_dirs": 2,
}
"""Settings of a bench on which a thread passes each point: segments roll by themselves, and replicas can move to
another log dir."""


def transaction(bench: Bench) -> None:
    """Commit a transaction in t/0. Its marker may have to wait for a node that halts."""
    producer = Producer(
        {"bootstrap.servers": bench.cluster.bootstrap, "transactional.id": "at-a-point", "log_level": 0}
    )
    producer.init_transactions(60.0)
    producer.begin_transaction()
    producer.produce("t", b"x" * 100, partition=0)
    producer.commit_transaction(60.0)


def another(fault: str) -> Callable[[Bench], None]:
    """Return a function that injects this fault on a bench and asserts that it is confirmed."""

    def done(bench: Bench) -> None:
        bite = bench.bite(fault, record=False, settled=False)
        assert bite.bit, bite

    return done


@dataclass(frozen=True)
class PointBite:
    """A fault at a point of the code. `occasion`: makes a thread pass there; it is called once `nodes` nodes have the
    rule. None: the load does."""

    fault: str
    occasion: Callable[[Bench], None] | None = None
    nodes: int = 1

    def meanwhile(self, bench: Bench) -> Callable[[], None] | None:
        occasion = self.occasion
        if occasion is None:
            return None

        def armed() -> bool:
            lists = [bench.cluster.code_agent(node).list() for node in bench.cluster.nodes]
            return sum("ackproof-" in listed for listed in lists) >= self.nodes

        def do() -> None:
            wait_until(armed, what="the rule to be loaded", timeout_s=ARMED_WITHIN_S, interval_s=0.1)
            occasion(bench)

        return do


def _at(point: str, does: str, target: str, more: str = "") -> str:
    return f"at_code: {{point: {point}, do: {does}, target: {target}{more}}}"


_LEADER: Final = "leader(t/0)"
_FOLLOWERS: Final = "followers(t/0)"
HALT: Final = _at("leader-appended", "halt", _LEADER, ", pass: 20")
PAUSE: Final = _at("leader-appended", "pause_thread", _LEADER)
_LEADS_NO_MORE: Final = another("restart: {target: leader(t/0)}")

BITES: Final[Mapping[str, PointBite]] = {
    "leader-appended": PointBite(HALT),
    "follower-fetch-read": PointBite(_at("follower-fetch-read", "halt", _LEADER, ", pass: 10")),
    "checkpoint-before-rename": PointBite(_at("checkpoint-before-rename", "halt", "follower(t/0)")),
    "make-leader-half-done": PointBite(
        _at("make-leader-half-done", "pause_thread", _FOLLOWERS, ", partition: t/0"), _LEADS_NO_MORE, 2
    ),
    "follower-before-truncation": PointBite(
        _at("follower-before-truncation", "halt", _FOLLOWERS, ", partition: t/0"), _LEADS_NO_MORE, 2
    ),
    "alter-partition": PointBite(
        _at("alter-partition", "pause_thread", "controller"), another("restart: {target: follower(t/0)}")
    ),
    "marker-written": PointBite(
        _at("marker-written", "halt", _LEADER, ", partition: t/0"),
        transaction,
    ),
    "segment-rolled": PointBite(_at("segment-rolled", "halt", _LEADER)),
    "index-flushed": PointBite(_at("index-flushed", "halt", _LEADER)),
    "future-replica-promoted": PointBite(
        _at("future-replica-promoted", "pause_thread", _FOLLOWERS),
        another(f"move_log_dir: {{partition: t/0, target: {_FOLLOWERS}}}"),
        2,
    ),
    "producer-snapshot-written": PointBite(_at("producer-snapshot-written", "halt", _LEADER)),
    "response-sent": PointBite(_at("response-sent", "halt", _LEADER, ", pass: 5")),
}
"""By name of the point: the fault that its experiment injects there."""

ACTS: Final = {
    "pause_thread": PointBite(_at("response-sent", "pause_thread", _LEADER, ", pass: 5")),
    "pause_thread in the log": PointBite(PAUSE),
    "delay": PointBite(_at("leader-appended", "delay", _LEADER, ", by: 500ms")),
    "throw": PointBite(_at("leader-appended", "throw", _LEADER)),
    "a class and method": PointBite(
        _at("{class: kafka.server.ReplicaManager, method: appendRecords}", "halt", _LEADER)
    ),
}
"""Faults with each act, and one at a point without a name."""


def bites(*, nightly: bool = False) -> list[Any]:
    """Return all faults at points for `pytest.mark.parametrize`. `nightly`: True to run `HALT` at night only, too."""
    return [
        pytest.param(bite, id=name, marks=[pytest.mark.nightly] if nightly or bite.fault != HALT else [])
        for name, bite in {**BITES, **ACTS}.items()
    ]


_RULE: Final = "ackproof.faults.code.at_code.rule_text"
CODE_DUDS: Final = {
    **{
        point: Dud(
            BITES[point].fault,
            "to be passed",
            {_RULE: that_never_fires},
            nightly=point != "leader-appended",
        )
        for point in POINTS
    },
    "a halt that does not halt": Dud(
        _at("leader-appended", "halt", _LEADER),
        "acted, and no witness saw it",
        {_RULE: without_its_act},
    ),
    "a thread that is not held": Dud(PAUSE, "acted, and no witness saw it", {_RULE: without_its_act}),
    "an exception that is not thrown": Dud(
        _at("leader-appended", "throw", _LEADER), "acted, and no witness saw it", {_RULE: without_its_act}
    ),
}
"""Duds: at each named point a rule that loads and never fires, and for each witness a rule that only claims to have
acted."""
