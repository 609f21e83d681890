"""Tests of the load on real brokers: ledger and log agree after a leader's death, a truncation, and a client's kill."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ackproof.base.processes import RunTag
from ackproof.base.wait import wait_until
from ackproof.clients.final_read import ends_of, final_read
from ackproof.clients.final_readers import FinalReadOrder
from ackproof.clients.workload import Workload
from ackproof.cluster.backends.process import ProcessCluster
from ackproof.experiment.kafka import DEFAULT
from ackproof.experiment.spec import ConsumerSpec, ProducerSpec, TopicSpec, WorkloadSpec
from ackproof.rundir.clock import RunClock
from ackproof.rundir.documents import FinalReadFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import parts, read_parts
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.parts import ClientLibrary
from ackproof.rundir.schema import CONSUMED, PRODUCED
from ackproof.rundir.timeline import Event, Timeline, read_timeline

from .conftest import Clusters
from .helpers import await_full_isr, await_leader, partition_of

pytestmark = pytest.mark.cluster


@dataclass
class Run:
    """A load on a real cluster, with its run directory and timeline."""

    cluster: ProcessCluster
    workload: Workload
    run: CaseDir
    timeline: Timeline
    tag: RunTag

    def until_acked(self, count: int, partition: int | None = None, timeout_s: float = 30) -> None:
        before = self.workload.acked("orders", partition)

        def look() -> bool:
            self.workload.check()
            return self.workload.acked("orders", partition) >= before + count

        wait_until(look, what=f"{count} more acks", timeout_s=timeout_s)

    def until_read(self, count: int) -> None:
        """Wait for `count` more reads of the live readers. A reader that stands still when it is asked to stop misses
        the rest."""
        before = self.workload.read()
        wait_until(lambda: self.workload.read() >= before + count, what=f"{count} more reads", timeout_s=30)

    def finish(self) -> FinalReadFile:
        self.workload.stop()
        order = FinalReadOrder(
            places=self.workload.places,
            isr_sizes={"orders": 3},
            reader=9,
            bootstrap=self.cluster.bootstrap,
        )
        return final_read(order, ends_of(self.cluster), self.timeline.clock, self.tag)

    def produced(self) -> dict[tuple[int, int], dict]:
        rows = read_parts(self.run.produced, PRODUCED).to_pylist()
        found = {(row["producer"], row["seq"]): row for row in rows}
        assert len(found) == len(rows)
        for producer in {identity[0] for identity in found}:
            seqs = sorted(seq for number, seq in found if number == producer)
            assert seqs == list(range(len(seqs)))
        return found

    def consumed(self, client: str) -> list[dict]:
        table = read_parts(self.run.consumed / f"client={client}", CONSUMED)
        return table.sort_by("read_seq").to_pylist()

    def events(self, kind: str) -> list[Event]:
        return [event for event in read_timeline(self.run.timeline)[0] if event.kind == kind]


@dataclass
class Runs:
    """Factory of loads on clusters, with producers and live readers of one client library."""

    clusters: Clusters
    folder: Path
    stack: ExitStack
    client: str = "librdkafka"

    def __call__(
        self, *, partitions: int = 2, live: int = 1, topic: dict[str, str] | None = None, **producer: object
    ) -> Run:
        cluster = self.clusters.start(brokers=3, controllers=1)
        topics = {"orders": TopicSpec(partitions=partitions, config=topic or {"min.insync.replicas": "2"})}
        cluster.create_topics(topics)
        run = CaseDir(self.folder / "case")
        run.path.mkdir()
        tag = RunTag(secrets.token_hex(8), self.folder, run.path)
        timeline = self.stack.enter_context(Timeline(run.timeline, RunClock.start()))
        spec = WorkloadSpec(
            producers=ProducerSpec.model_validate({"client": self.client, **producer}),
            consumers=ConsumerSpec.model_validate({"client": self.client, "live": live}),
        )
        workload = Workload(spec, topics, cluster.bootstrap, timeline, tag)
        self.stack.callback(workload.abort)
        workload.start()
        return Run(cluster, workload, run, timeline, tag)


@pytest.fixture(params=["librdkafka", pytest.param("java", marks=pytest.mark.nightly)])
def load(clusters: Clusters, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Runs]:
    """Factory of loads: ``load(partitions=…, live=…, topic=config, **fields of ProducerSpec)`` starts a cluster with a
    load.

    Producers and live readers are of one library; tests run with each."""
    with ExitStack() as stack:
        yield Runs(clusters, tmp_path, stack, request.param)


def identities(rows: list[dict]) -> set[tuple[int, int]]:
    return {(row["producer"], row["seq"]) for row in rows}


@pytest.mark.nightly  # the next one asks the same of a run with a killed leader
def test_healthy(load: Runs) -> None:
    run = load(count=2, rate="2000/s", live=2)
    run.until_acked(3000)
    final = run.finish()
    assert final.complete, final.reasons
    produced = run.produced()
    assert {row["outcome"] for row in produced.values()} == {Outcome.ACKED}
    all_as_sent(run, produced, readers=("r0", "r1"))


def all_as_sent(run: Run, produced: dict[tuple[int, int], dict], *, readers: tuple[str, ...]) -> None:
    """Assert that the final read has every produced record once, intact and at its acknowledged offset, and that each
    of `readers` got every record at least once, and no other."""
    last = run.consumed("f0")
    assert len(last) == len(produced)
    assert identities(last) == produced.keys()
    for row in last:
        source = produced[row["producer"], row["seq"]]
        assert (row["topic"], row["partition"], row["offset"]) == (
            source["topic"],
            source["partition"],
            source["offset"],
        )
        assert row["intact"]
        assert row["leader_epoch"] >= 0
    for reader in readers:
        assert identities(run.consumed(reader)) == produced.keys()


@pytest.mark.nightly  # test_runs.py kills a leader with every push
@pytest.mark.parametrize("idempotence", [False, True])
def test_a_leader_is_killed_under_acks_all(load: Runs, idempotence: bool) -> None:
    lose_leader_under_acks_all(load, idempotence)


def test_java_clients_lose_their_leader(clusters: Clusters, tmp_path: Path) -> None:
    """The only test with Java clients that runs with every push."""
    with ExitStack() as stack:
        run = lose_leader_under_acks_all(Runs(clusters, tmp_path, stack, "java"), idempotence=True)
    every = [path for ledger in (run.run.produced, run.run.consumed) for path in parts(ledger)]
    own = [path for path in every if "client=f" not in str(path)]
    library = {ClientLibrary.read(pq.read_metadata(path)) for path in own}
    assert library == {ClientLibrary("java", DEFAULT)}


def lose_leader_under_acks_all(load: Runs, idempotence: bool) -> Run:
    run = load(rate="2000/s", idempotence=idempotence)
    run.until_acked(1000)
    leader = partition_of(run.cluster, "orders").leader
    run.cluster.node(leader).kill()
    await_leader(run.cluster, "orders", other_than=leader)
    run.until_acked(500, partition=0)
    run.cluster.node(leader).start()
    await_full_isr(run.cluster, "orders")
    final = run.finish()
    assert final.complete, final.reasons
    produced = run.produced()
    last = run.consumed("f0")
    acked = {identity for identity, row in produced.items() if row["outcome"] == Outcome.ACKED}
    assert not acked - identities(last), "nothing acknowledged is lost"
    assert not identities(last) - produced.keys(), "nothing is there that was not sent"
    if idempotence:
        assert all(row["outcome"] == Outcome.ACKED for row in produced.values())
        all_as_sent(run, produced, readers=("r0",))
    return run


@pytest.mark.nightly
def test_a_live_reader_meets_a_truncation(load: Runs) -> None:
    """With acks=1, paused followers and a killed leader, acknowledged records are truncated. They were above the high
    watermark: the live reader saw none of them, and reads on."""
    run = load(partitions=1, rate="3000/s", acks=1, topic={"min.insync.replicas": "1"})
    run.until_acked(2000)
    state = partition_of(run.cluster, "orders")
    followers = [node for node in state.replicas if node != state.leader]
    for node in followers:
        run.cluster.node(node).pause()
    run.until_acked(1500)
    run.cluster.node(state.leader).kill()
    for node in followers:
        run.cluster.node(node).resume()
    await_leader(run.cluster, "orders", other_than=state.leader)
    run.until_acked(1000)
    run.cluster.node(state.leader).start()
    await_full_isr(run.cluster, "orders")
    run.until_read(1000)
    final = run.finish()
    assert final.complete, final.reasons
    produced = run.produced()
    last = run.consumed("f0")
    lost = {identity for identity, row in produced.items() if row["outcome"] == Outcome.ACKED} - identities(
        last
    )
    assert len(lost) >= 1000, "the unreplicated tail is gone"
    assert not identities(last) - produced.keys()
    # a consumer is shown nothing above the high watermark: the reader saw no record that was lost, and went on
    live = run.consumed("r0")
    at = {(row["partition"], row["offset"]): (row["producer"], row["seq"]) for row in last}
    assert all(at.get((row["partition"], row["offset"])) == (row["producer"], row["seq"]) for row in live)
    assert identities(last) - identities(live) == set()


@pytest.mark.nightly
@pytest.mark.parametrize("late", [False, True])
def test_a_live_reader_meets_an_unclean_election(load: Runs, late: bool) -> None:
    """Records that the reader has read are truncated: it reports that, continues under a new assignment number, and
    gets other records there.

    `late`: it learns of the truncation only when the log has grown beyond its position again."""
    run = load(
        partitions=1,
        rate="2000/s",
        acks=1,
        topic={"min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
    )
    run.until_acked(1000)
    state = partition_of(run.cluster, "orders")
    followers = [node for node in state.replicas if node != state.leader]
    for node in followers:
        run.cluster.node(node).kill()
    before = run.workload.read()
    wait_until(lambda: run.workload.read() >= before + 4000, what="reads of the lonely leader", timeout_s=30)
    if late:
        run.workload.signal("r0", signal.SIGSTOP)
    run.cluster.node(state.leader).kill()
    for node in followers:
        run.cluster.node(node).start()
    await_leader(run.cluster, "orders", other_than=state.leader, timeout_s=30)
    if late:
        run.until_acked(12_000)
        run.workload.signal("r0", signal.SIGCONT)
    wait_until(lambda: run.events("client-reset"), what="a reset of the reader", timeout_s=30)
    run.until_read(1000)
    run.cluster.node(state.leader).start()
    await_full_isr(run.cluster, "orders")
    run.until_read(1000)
    final = run.finish()
    assert final.complete, final.reasons
    reset = run.events("client-reset")[0]
    assert reset.client == "r0"
    live, last = run.consumed("r0"), run.consumed("f0")
    first_epoch = min(row["leader_epoch"] for row in live)
    cut_at = min(row["offset"] for row in last if row["leader_epoch"] > first_epoch)
    assert reset.detail["goes_on"] == cut_at < reset.detail["position"], reset.detail
    assert (reset.detail["end"] > reset.detail["position"]) or not late
    at = {row["offset"]: (row["producer"], row["seq"]) for row in last}
    conflicts = {
        row["offset"] for row in live if at.get(row["offset"]) not in (None, (row["producer"], row["seq"]))
    }
    assert conflicts, "offsets that gave one record before and another after"
    for assignment in {row["assignment"] for row in live}:
        offsets = [row["offset"] for row in live if row["assignment"] == assignment]
        assert offsets == sorted(set(offsets))
    assert identities(last) - identities(live) == set(), "nothing that stayed was passed over"
    assert max(row["leader_epoch"] for row in live) > min(row["leader_epoch"] for row in live)


@pytest.mark.nightly
def test_no_in_sync_replicas_are_failed_attempts_without_retries(load: Runs) -> None:
    run = load(partitions=1, rate="1000/s", retries=0, live=0, request_timeout="2s")
    run.until_acked(300)
    state = partition_of(run.cluster, "orders")
    followers = [node for node in state.replicas if node != state.leader]
    for node in followers:
        run.cluster.node(node).kill()
    wait_until(lambda: run.workload.counters("p0").failed >= 300, what="failed attempts", timeout_s=30)
    for node in followers:
        run.cluster.node(node).start()
    await_full_isr(run.cluster, "orders")
    run.until_acked(100)
    final = run.finish()
    assert final.complete, final.reasons
    produced = run.produced()
    failed = {identity for identity, row in produced.items() if row["outcome"] == Outcome.FAILED}
    assert len(failed) >= 300
    assert {produced[identity]["error"] for identity in failed} == {19}
    assert not failed & identities(run.consumed("f0")), "what failed is not there"


@pytest.mark.nightly  # test_planted_lies.py has one killed between send and outcome
def test_a_killed_producer_leaves_what_it_had(load: Runs) -> None:
    run = load(rate=None, count=2)
    run.until_acked(20_000)
    run.workload.kill("p0")
    run.until_acked(5_000)
    final = run.finish()
    assert final.complete, final.reasons
    produced = run.produced()
    last = identities(run.consumed("f0"))
    assert not last - produced.keys()
    killed = [row for row in produced.values() if row["producer"] == 0]
    assert any(row["done_ns"] == -1 for row in killed)
    assert (
        not {(row["producer"], row["seq"]) for row in produced.values() if row["outcome"] == Outcome.ACKED}
        - last
    )
    assert not (run.run.produced / "client=p0" / "_END").exists()
    assert (run.run.produced / "client=p1" / "_END").exists()


@pytest.mark.nightly  # tests/unit/clients/test_final_read.py has it with every push
def test_the_final_read_waits_for_the_isr_and_says_when_it_does_not_come(load: Runs) -> None:
    run = load(rate="500/s", live=0)
    run.until_acked(200)
    state = partition_of(run.cluster, "orders", 1)
    follower = next(node for node in state.replicas if node != state.leader)
    run.cluster.node(follower).kill()
    run.until_acked(500, partition=1)
    run.workload.stop()
    order = FinalReadOrder(
        places=run.workload.places,
        isr_sizes={"orders": 3},
        reader=9,
        bootstrap=run.cluster.bootstrap,
        settle_s=4.0,
    )
    final = final_read(order, ends_of(run.cluster), run.timeline.clock, run.tag)
    assert not final.complete
    assert [reason for reason in final.reasons if "3 replicas are awaited" in reason]
    assert len(run.consumed("f0")) == run.workload.acked(), "what is there is read all the same"
