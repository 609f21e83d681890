"""Hypothesis strategies for runs (`Facts`) with gaps, equal times, holes, a wall clock that jumps, and windows that are
empty or never came."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any, TypeVar

from hypothesis import strategies as st

from ackproof.rundir.bounds import WHOLE, Bound, Mode, Span, Unit, Window
from ackproof.rundir.metadata import (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    EligibleCleared,
    MetadataRecord,
    OtherEntry,
    PartitionChanged,
    TopicRemoved,
)
from ackproof.rundir.observed import FetchSources, Sample

from .facts import MS, SECOND, TOPIC, Attempt, Facts, Fault, Read, Try
from .written import WALL_NS

T = TypeVar("T")
ENDS = 10 * SECOND
nodes = st.integers(1, 3)
some_nodes = st.sampled_from([(1, 2, 3), (1, 2), (2, 3), (3, 1), (1,), (2,), (3,)])
# Mostly round, and some again and again, so that there are ties; now and then a nanosecond or as much as gaps must last
# beside them.
moments = st.builds(
    lambda eighth, more: eighth * 125 * MS + more,
    st.one_of(st.integers(0, 96), st.sampled_from([0, 16, 20, 32, 33, 80])),
    st.sampled_from([0, 0, 0, 1, 5 * MS, 10 * MS, 10 * MS + 1]),
)
steps = st.sampled_from([100, 100, 100, 200, 400, 900, 1000, 1001, 2500])
"""Times between two samples, in ms; more than a second is a hole."""
maybe = st.one_of(st.none(), st.integers(0, 40))


def _fault(asked: int, confirmed: int | None, healed: int | None, over: int | None, kind: str) -> Fault:
    """Return a fault that is requested at `asked` ns. The other times are in eighths of a second after the time before;
    None: the event did not occur."""
    times: list[int | None] = []
    at = asked
    for delta in (confirmed, healed, over):
        at += (delta or 0) * 125 * MS
        times.append(None if delta is None else at)
    return Fault(asked, times[0], times[1] if confirmed is not None else None, times[2], kind)


def faults(
    kinds: Iterable[str] = ("kill",), seen: Iterable[int] = ()
) -> st.SearchStrategy[tuple[Fault, ...]]:
    """Draw up to two faults of these kinds. `seen`: times of observations, in ns; most faults begin near one, so that
    there are observations before and after them."""
    about = st.builds(
        lambda at, later: at + later,
        st.sampled_from(sorted({*seen, 0})),
        st.sampled_from([0, 1, MS, 50 * MS, 50 * MS, 50 * MS, 999 * MS, SECOND, SECOND + 1]),
    )
    asked = st.one_of(moments, about, about) if seen else moments
    some = st.builds(
        _fault,
        asked,
        st.one_of(st.just(0), st.integers(0, 8), maybe),
        maybe,
        maybe,
        st.sampled_from([*kinds]),
    )
    return st.one_of(st.lists(some, max_size=2), st.lists(some, min_size=1, max_size=2)).map(tuple)


windows = st.sampled_from(
    [
        Window(Span.DURING, 1), Window(Span.AFTER, 1), Window(Span.DURING, 2), Window(Span.AFTER, 2),
        Window(Span.DURING_FAULTS), Window(Span.OUTSIDE),
    ]
)  # fmt: skip


def bounds(greatest: int) -> st.SearchStrategy[Bound]:
    """Draw a bound on a state, with a number from 0 to `greatest`."""

    def bound(op: str, number: int, mode: Mode, window: Window, by_s: float | None) -> Bound:
        if mode is Mode.SETTLES and window.span is not Span.AFTER:
            window = WHOLE
        by = (
            by_s
            if mode in (Mode.EVENTUALLY, Mode.SETTLES) and window.span in (Span.WHOLE, Span.AFTER)
            else None
        )
        return Bound(op, number, Unit.NUMBER, mode, window, by)

    return st.builds(
        bound,
        st.sampled_from([">=", "<=", "==", ">", "<"]),
        st.integers(0, greatest),
        st.sampled_from(Mode),
        st.one_of(st.just(WHOLE), windows),
        st.sampled_from([None, 0.5, 2.0, 30.0]),
    )


# -- requests ----------------------------------------------------------------------------------------------------------


def _attempt(
    partition: int, sent: int, took: int | None, outcome: int, error: int, offset: int, txn: int
) -> Attempt:
    told = took is not None or outcome < 2
    done = sent + (took or 0) * 5 * MS if told else -1
    return Attempt(
        partition, sent, done, outcome, error if outcome else 0, offset if outcome == 0 else -1, txn
    )


def _tries(each: list[tuple[int, int | None, bool, tuple[int, ...]]]) -> list[Try]:
    """Return successive attempts to commit. An attempt without an answer (None) is the last."""
    found, at = [], 0
    for wait, takes, good, partitions in each:
        at += wait * 125 * MS
        if takes is None:
            return [*found, Try(at, -1, "", partitions)]
        found.append(Try(at, at + takes * 50 * MS, "" if good else "_TIMED_OUT", partitions))
        at += takes * 50 * MS
    return found


def _fetching(each: list[tuple[int, int]]) -> list[FetchSources]:
    times = accumulate(wait * 250 * MS for wait, _ in each)
    return [
        FetchSources(t_ns=at, sources=((TOPIC, 0, broker),))
        for at, (_, broker) in zip(times, each, strict=True)
    ]


takes = st.one_of(st.none(), st.integers(0, 200))
attempts = st.builds(
    _attempt,
    st.sampled_from([0, 0, 1]), moments, takes, st.sampled_from([0, 0, 0, 0, 1, 2]),
    st.sampled_from([0, 7, 19, -151, -152]), st.integers(0, 6), st.sampled_from([-1, -1, -1, 0, 1]),
)  # fmt: skip
reads = st.builds(
    Read,
    st.sampled_from(["r0", "r1"]), st.sampled_from([0, 0, 1]), moments, st.integers(0, 6),
    st.sampled_from([0, 0, 0, 1, 2, 3]),
)  # fmt: skip
tries = st.lists(
    st.tuples(
        st.integers(1, 60), st.one_of(st.integers(1, 60), st.integers(1, 60), st.none()), st.booleans(),
        st.sampled_from([(0,), (0, 1), (1,)]),
    ),
    max_size=5,
).map(_tries)  # fmt: skip
fetched = st.lists(st.tuples(st.integers(1, 5), st.sampled_from([-1, 1, 1, 1, 2])), max_size=12).map(
    _fetching
)


@st.composite
def requests(draw: st.DrawFn) -> Facts:
    """Draw a run with attempts, reads, commits and fetch sources. In some, acknowledgements have no offsets, and no
    high watermark was sampled."""
    sent = draw(st.lists(attempts, max_size=9))
    if draw(st.sampled_from([False, False, True])):
        sent = [one._replace(offset=-1) for one in sent]
    marks = draw(st.lists(st.tuples(st.sampled_from([0, 1]), st.sampled_from([-1, 0, 1, 4, 7])), max_size=2))
    readers = draw(st.sampled_from([("r0", "r1"), ("r0", "r1"), ("r0",), ()]))
    handed = draw(st.lists(reads, max_size=9)) if readers else []
    return Facts(
        ends=ENDS,
        faults=draw(faults()),
        attempts=sent,
        committed=frozenset({0}),
        reads=[one for one in handed if one.reader in readers],
        readers=readers,
        tries={"r0": draw(tries)} if readers else {},
        fetching={"r0": draw(fetched)} if readers else {},
        samples=[_sample(9 * SECOND, partition, 1, 0, (1,), (1,), mark, {}) for partition, mark in marks],
    )


# -- looks -------------------------------------------------------------------------------------------------------------


def _sample(
    at: int, partition: int, leader: int, epoch: int, replicas: tuple[int, ...], isr: tuple[int, ...], mark: int,
    ends: dict[int, int], stable: int = -1,
) -> Sample:  # fmt: skip
    return Sample(
        t_ns=at, topic=TOPIC, partition=partition, leader=leader, leader_epoch=epoch, replicas=replicas, isr=isr,
        high_watermark=mark, last_stable=stable, log_ends=ends,
    )  # fmt: skip


@st.composite
def looks(draw: st.DrawFn) -> Facts:
    """Draw a run with samples of two partitions, or of one at a time, and with a metadata log that may differ from
    them."""
    at, epoch = draw(st.sampled_from([0, 0, 3 * SECOND, 6 * SECOND])), 0
    replicas: tuple[int, ...] = (1, 2, 3)
    found = []
    state = st.tuples(
        steps, st.sampled_from([0, 0, 0, 1]), st.sampled_from([1, 1, 2, 0, -1]), some_nodes, st.integers(-1, 3),
        st.dictionaries(nodes, st.integers(0, 5), max_size=3), st.sampled_from([(0, 1), (0, 1), (0,), (1,)]),
        st.sampled_from([replicas, replicas, (2, 3), (1, 4), ()]), st.integers(1, 6),
    )  # fmt: skip
    for step, bump, leader, isr, mark, ends, seen, where, times in draw(
        st.one_of(st.lists(state, max_size=9), st.lists(state, min_size=3, max_size=9))
    ):
        epoch += bump
        for _ in range(times):
            at += step * MS
            found += [
                _sample(at, partition, leader, epoch, where, isr, mark, ends, stable=mark - 1)
                for partition in seen
            ]
    log = draw(st.sampled_from(["none", "whole", "cut"]))
    racks = draw(st.sampled_from([("a", "b", "a"), ("a", "b", "c"), ("a", "", "b"), ("a", "b", "a", "b")]))
    records: list[MetadataRecord] = [
        BrokerRegistered(
            offset=node - 1, epoch=1, timestamp_ms=0, node=node, broker_epoch=1, incarnation="", fenced=False,
            rack=rack,
        )
        for node, rack in enumerate(racks, start=1)
    ]  # fmt: skip
    for partition in (0, 1):
        records.append(_decided(len(records), partition, 0, 1, 0, draw(some_nodes), ()))
    return Facts(
        ends=ENDS,
        faults=draw(faults(seen=[one.t_ns for one in found])),
        samples=found,
        records=[] if log == "none" else records,
        ended=log == "whole",
    )


# -- the metadata log --------------------------------------------------------------------------------------------------


def _decided(
    offset: int,
    partition: int,
    number: int,
    leader: int,
    epoch: int,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
) -> PartitionChanged:
    return PartitionChanged(
        offset=offset, epoch=1, timestamp_ms=0, topic=TOPIC, partition=partition, leader=leader, leader_epoch=epoch,
        partition_epoch=number, replicas=(1, 2, 3), isr=isr, elr=elr,
    )  # fmt: skip


@st.composite
def decisions(draw: st.DrawFn) -> Facts:
    """Draw a run with a metadata log as controllers write it, from which some records may be missing."""
    kinds = st.sampled_from(
        ["partition"] * 12 + ["clear", "remove", "register", "fence", "unfence", "gone", "other"]
    )
    found: list[MetadataRecord] = []
    now: dict[int, PartitionChanged] = {}
    cleared: set[int] = set()
    controller, at_ms = 1, 0
    for kind, wait, later, partition, leader, isr, elr in draw(
        st.lists(
            st.tuples(
                kinds, st.sampled_from([0, 125, 500, 1000, 3000]), st.sampled_from([0, 0, 0, 1]),
                st.sampled_from([0, 0, 1]), st.sampled_from([-1, 0, 1, 2, 3, None]), some_nodes,
                st.sampled_from([(), (), (3,), (2,)]),
            ),
            max_size=10,
        )
    ):  # fmt: skip
        controller, at_ms, offset = controller + later, at_ms + wait, len(found)
        common: dict[str, Any] = {
            "offset": offset, "epoch": controller, "timestamp_ms": WALL_NS // MS + at_ms,
        }  # fmt: skip
        broker = common | {"node": partition + 1, "broker_epoch": 1}
        if kind == "partition":
            last = now.get(partition)
            epoch = 0 if last is None else last.leader_epoch + (leader is not None)
            led = leader if leader is not None else 1 if last is None else last.leader
            skip = partition in cleared and bool(wait)
            number = 0 if last is None else last.partition_epoch + 1 + skip
            cleared.discard(partition)
            one = _decided(offset, partition, number, led, epoch, isr, elr).model_copy(update=common)
            now[partition] = one
            found.append(one)
        elif kind == "clear":
            cleared |= now.keys()
            found.append(EligibleCleared(topic="", **common))
        elif kind == "remove":
            now.clear()
            found.append(TopicRemoved(topic=TOPIC, topic_id="", **common))
        elif kind == "register":
            found.append(BrokerRegistered(incarnation="", fenced=True, **broker))
        elif kind in ("fence", "unfence"):
            found.append(BrokerChanged(fenced=kind == "fence", **broker))
        elif kind == "gone":
            found.append(BrokerUnregistered(**broker))
        else:
            found.append(OtherEntry(api_key=7, **common))
    lost = draw(st.sampled_from([(), (), (), (), (1,), (2,), (3, 4), (0,)]))
    return Facts(
        ends=ENDS,
        faults=draw(
            faults(("kill", "kill", "kill", "clock_jump"), [one.timestamp_ms * MS - WALL_NS for one in found])
        ),
        records=[one for one in found if one.offset not in lost],
        ended=draw(st.sampled_from([True, True, True, False])),
        zookeeper=draw(st.sampled_from([False, False, False, True])),
        steps=draw(
            st.lists(
                st.tuples(moments, st.sampled_from([0, MS, -3 * MS, 20 * MS, 21 * MS, -SECOND])), max_size=1
            )
        ),
    )
