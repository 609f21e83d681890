"""Sequences of planned work on a bench, on any backend; each returns the result of one fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ackproof.base.wait import wait_until
from ackproof.rundir.partition import TopicPartition
from faultbench.bench import Bench
from faultbench.table import Bite

PLACE = TopicPartition("t", 0)

REASSIGNMENTS = (
    "reassign: {partition: t/0, to: [2, 1, 3]}",  # another order alone
    "elect_preferred: {partition: t/0}",
    "reassign: {partition: t/0, to: [2, 1, 3, 4]}",  # grow
    "reassign: {partition: t/0, to: [2, 3]}",  # shrink
    "reassign: {partition: t/0, to: [4, 1]}",  # move, the leader too
    "cancel_reassign: {partition: t/0, to: [2, 3], throttle: 100B}",
    "reassign: {partition: t/0, to: [1, 2, 3], throttle: 1MB}",
)
"""Reassignments and elections of t/0, which starts on brokers 1, 2 and 3 of four; each begins where the one before it
ended."""


@contextmanager
def leaderless(bench: Bench) -> Iterator[list[int]]:
    """While the block lasts, t/0 has no leader: only the two followers run, which had left the ISR. Yields their ids;
    starts all nodes at the end."""
    bench.await_full_isr()
    state = bench.cluster.topic_state(["t"])[PLACE]
    leader = bench.cluster.node(state.leader)
    followers = [bench.cluster.node(node) for node in state.replicas if node != state.leader]
    for node in followers:
        node.kill()
    wait_until(
        lambda: bench.cluster.topic_state(["t"])[PLACE].isr == (leader.id,),
        what="the leader to be alone in the ISR",
        timeout_s=30.0,
    )
    leader.kill()
    try:
        wait_until(
            lambda: bench.cluster.topic_state(["t"]).get(PLACE, state).leader < 0,
            what="nobody to lead",
            timeout_s=30.0,
        )
        for node in followers:
            node.start()
            node.await_ready(30.0)
        yield [node.id for node in followers]
    finally:
        bench.mend()


def elect_unclean(bench: Bench) -> Bite:
    """Elect a leader of a leaderless partition uncleanly. Assert that it is one of the followers that had left the
    ISR."""
    with leaderless(bench) as followers:
        bite = bench.bite("elect_unclean: {partition: t/0}", settled=False, then=bench.mend)
    assert bench.cluster.topic_state(["t"])[PLACE].leader in followers
    return bite


def decommission(bench: Bench, drain: bool) -> Bite:
    """Decommission the leader of t/0 in a cluster of four. Assert that it has no replica of t/0 afterwards. `drain`:
    that setting of the fault."""
    bench.await_full_isr()
    leader = bench.cluster.topic_state(["t"])[PLACE].leader
    bite = bench.bite(f"decommission: {{target: leader(t/0), drain: {str(drain).lower()}}}")
    assert f"no replica on [{leader}]" in bite.witness, bite
    assert leader not in bench.cluster.topic_state(["t"])[PLACE].replicas
    return bite


def freeze_by_command(bench: Bench, broker: int) -> Bite:
    """Pause a broker by a user's own commands: SIGSTOP, a check of /proc, SIGCONT."""
    pid = bench.cluster.node(broker).pid
    assert pid is not None
    words = {
        "inject": f"[kill, '-STOP', '{pid}']",
        "check": f"[grep, -q, '^State:.T', /proc/{pid}/status]",
        "heal": f"[kill, '-CONT', '{pid}']",
    }
    said = ", ".join(f"{key}: {value}" for key, value in words.items())
    return bench.bite(f"command: {{target: broker({broker}), {said}}}", name="command kill -STOP, kill -CONT")


def storm(bench: Bench) -> Bite:
    """Inject a storm of four faults drawn from a menu, of which at least three must be confirmed."""
    drawn = (
        "count: 4, menu: {pause: 2, kill: 1}, roles: [leader(t/0), broker], gap: 2s..3s, lasting: 0.5s..1s"
    )
    return bench.bite(f"storm: {{{drawn}, at_least: 3}}", name="storm of 4: pause, kill")
