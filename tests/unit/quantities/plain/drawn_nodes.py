"""Hypothesis strategies for runs with observations of nodes: logs on disk, brokers' answers, and metrics."""

from __future__ import annotations

from hypothesis import strategies as st

from ackproof.rundir.anomalies import TABLE
from ackproof.rundir.metrics import METRICS
from ackproof.rundir.observed import BrokerRound, PartitionView, ServedReplica, ViewerAnswer
from ackproof.rundir.replicas import Replica, ReplicasFile

from .drawn import faults, nodes
from .facts import MS, SECOND, TOPIC, Facts, Scraped

# -- logs on disk, and what was counted --------------------------------------------------------------------------------


@st.composite
def disks(draw: st.DrawFn) -> Facts:
    if draw(st.integers(0, 9)) == 0:
        return Facts()
    replicas, batches = [], []
    dirs = {node: (f"/n{node}/d1", f"/n{node}/d2") for node in (1, 2, 3)}
    one = st.tuples(
        st.integers(0, 2), st.integers(0, 4), st.sampled_from(["d1", "d1", "d2", "d3"]),
        st.lists(st.sampled_from([7, 7, 7, 8, None]), max_size=5), st.sampled_from(["", "", "", "torn"]),
        st.sampled_from([0, 0, 3]),
    )  # fmt: skip
    each = draw(st.dictionaries(st.tuples(nodes, st.sampled_from([0, 0, 1])), one, max_size=5))
    for (node, partition), (begin, end, folder, crcs, reason, rest) in each.items():
        there = [(at, crc) for at, crc in enumerate(crcs) if begin <= at < begin + end and crc is not None]
        replicas.append(
            Replica(
                node=node, topic=TOPIC, partition=partition, folder=f"/n{node}/{folder}/{TOPIC}-{partition}",
                log_start=5 * begin, log_end=5 * (begin + end), records=5 * len(there), rest=rest, reason=reason,
            )
        )  # fmt: skip
        batches += [
            {
                "node": node, "topic": TOPIC, "partition": partition, "first_offset": 5 * at,
                "last_offset": 5 * at + 4, "leader_epoch": 0, "records": 5, "control": False, "transactional": False,
                "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "max_timestamp_ms": 0, "crc": crc,
                "sound": True, "content": 0, "bytes": 80 + at, "timestamp_type": 0,
            }
            for at, crc in there
        ]  # fmt: skip
    reasons = draw(st.sampled_from([(), (), (), ("node 2: gone",)]))
    known = draw(st.sets(nodes, min_size=1))
    counts = draw(st.dictionaries(st.sampled_from([name.value for name in TABLE]), st.integers(0, 3)))
    return Facts(
        disks=ReplicasFile(
            log_dirs={node: dirs[node] for node in sorted(known)}, replicas=tuple(replicas), reasons=reasons
        ),
        batches=batches,
        counts=counts or None,
    )


# -- each broker -------------------------------------------------------------------------------------------------------


def _told(
    viewer: int, row: tuple[int, int, tuple[int, ...]], members: int, gave: tuple[int, ...]
) -> ViewerAnswer:
    leader, epoch, isr = row
    fetch, records, beyond, mark, end, produce = gave
    partitions = tuple(
        PartitionView(
            topic=TOPIC, partition=partition, leader=leader, leader_epoch=epoch, replicas=(1, 2, 3), isr=isr
        )
        for partition in range(members % 3)
    )
    served = ServedReplica(
        topic=TOPIC, partition=0, log_end=end, fetch=fetch, records=records, beyond=beyond, high_watermark=mark,
        produce=produce,
    )  # fmt: skip
    return ViewerAnswer(
        viewer=viewer,
        brokers=tuple(range(1, members + 1)),
        partitions=partitions,
        served=(served,) if viewer else (),
    )


rows = st.tuples(
    st.sampled_from([1, 1, 2, 0, -1]), st.sampled_from([1, 1, 2]), st.sampled_from([(1, 2, 3), (1, 2)])
)
gave = st.tuples(
    st.sampled_from([0, 0, 0, 6]), st.integers(0, 2), st.sampled_from([0, 0, 0, 2]), st.integers(-1, 4),
    st.integers(-1, 5), st.sampled_from([2, 2, 6]),
)  # fmt: skip


@st.composite
def asked(draw: st.DrawFn) -> Facts:
    """Draw a run with rounds of requests to brokers. Several successive rounds are equal, and some are more than a
    second apart."""
    at, found = draw(st.sampled_from([-SECOND, 0, 0, 2 * SECOND])), []
    answers = st.dictionaries(st.integers(0, 3), st.tuples(rows, st.integers(1, 5), gave), max_size=4)
    some = st.tuples(
        st.sampled_from([200, 200, 200, 1000, 1001, 2500]), st.sampled_from([0, 5, 125, 150]), answers,
        st.sampled_from([(), (), (), (3,)]), st.sampled_from([1, 1, 2, -1, None]), st.integers(1, 5),
    )  # fmt: skip
    for step, takes_ms, told, silent, controller, times in draw(st.lists(some, max_size=6)):
        for _ in range(times):
            found.append(
                BrokerRound(
                    t_ns=at,
                    done_ns=at + takes_ms * MS,
                    controller=controller,
                    told=tuple(_told(viewer, *one) for viewer, one in told.items()),
                    silent=silent,
                )
            )
            at += step * MS
    times = [one.t_ns for one in found]
    return Facts(
        ends=draw(st.sampled_from([4, 6, 10])) * SECOND, faults=draw(faults(seen=times)), rounds=found
    )


# -- metrics -----------------------------------------------------------------------------------------------------------


@st.composite
def scraped(draw: st.DrawFn) -> Facts:
    """Draw a run with one scrape per second of up to three nodes, which may start late, die, not answer, or have only
    some metrics."""
    begin = draw(st.sampled_from([-2, -2, -2, 0, 3]))
    found: list[Scraped] = []
    lives = []
    before = st.sampled_from([500, 500, 0])
    length = draw(st.one_of(st.integers(3, 15), st.integers(9, 15)))
    for node in range(1, draw(st.integers(1, 3)) + 1):
        has = draw(st.sets(st.sampled_from(sorted(METRICS)), max_size=4)) | draw(
            st.sampled_from([set(), set(METRICS), set(METRICS)])
        )
        numbers = draw(st.lists(st.sampled_from([0, 0, 0, 1, 2, 5, None]), min_size=length, max_size=length))
        silent = draw(st.sampled_from([range(0), range(0), range(0), range(2, 9), range(4, 15)]))
        died = draw(st.sampled_from([None, None, (4, 6), (3, None), (5, 12)]))
        born = draw(st.sampled_from([0, 0, 0, 2]))
        for number, value in enumerate(numbers):
            at = (begin + number) * SECOND
            if number < born:
                continue
            if died is not None and died[0] <= number and (died[1] is None or number < died[1]):
                continue
            told = None if value is None or number in silent else dict.fromkeys(has, float(value))
            found.append(Scraped(at, at + draw(st.sampled_from([0, 10, 125, 300])) * MS, node, told))
        if born:
            lives.append(((begin + born) * SECOND - draw(before) * MS, node, True))
        if died is not None:
            lives.append(((begin + died[0]) * SECOND - 100 * MS, node, False))
            if died[1] is not None:
                lives.append(((begin + died[1]) * SECOND - draw(before) * MS, node, True))
    times = [one.at for one in found]
    return Facts(
        ends=draw(st.sampled_from([4, 7, 10])) * SECOND,
        faults=draw(faults(seen=times)),
        scrapes=found,
        lives=sorted(lives),
    )
