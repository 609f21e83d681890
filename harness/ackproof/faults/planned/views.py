"""Two brokers for planned work: the first gets the request, the second witnesses its effect.

Each broker answers from its own copy of the metadata, which it gets from the controllers. So a change that
the second broker shows was committed, whatever the first one answered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Event as Flag
from typing import Final, TypeVar

from ackproof.base.errors import FaultNotConfirmed, Interrupted, WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.cluster import queries
from ackproof.cluster.queries import ANSWERS_WITHIN_S, PartitionState
from ackproof.experiment.timing import longest_time_out
from ackproof.faults.context import FaultContext
from ackproof.faults.injection import SEEN_WITHIN_S
from ackproof.network.wire import Connection, Refused, Unreachable, WireError
from ackproof.rundir.partition import TopicPartition

T = TypeVar("T")
_ISR_WITHIN_S: Final = 60.0
BACK_WITHIN_S: Final = 60.0
"""Seconds to wait for a broker. Other faults may have ended all of them, and a starting broker may wait for the end
of its old session."""
STOPPED_S: Final = 5.0
"""Seconds for which a stopped run tries to undo a change. Running nodes answer within a second."""
NOBODY: Final = "no broker runs that could be asked"
_NO_CONTROLLER: Final = frozenset({7, 8, 13, 41})
"""Error codes REQUEST_TIMED_OUT, BROKER_NOT_AVAILABLE, NETWORK_EXCEPTION, NOT_CONTROLLER: no controller took the
request yet."""


@dataclass(frozen=True)
class Views:
    """Two brokers for a change of metadata or settings. The broker `asked` gets the request. The broker `witness` then
    shows, from its own copy of the metadata, whether the change was committed. If only one broker runs, it has both
    roles."""

    asked: int
    asked_link: Connection
    witness: int
    witness_link: Connection

    @property
    def name(self) -> str:
        """Return the witness in words, such as `broker 2`. The words say if it is the only broker that runs."""
        alone = " (the only broker that runs)" if self.witness == self.asked else ""
        return f"broker {self.witness}{alone}"


def views(context: FaultContext) -> Views:
    """Return the requested broker and the witness (`find_views`) as soon as both are known.

    Raises `FaultNotConfirmed` after `SEEN_WITHIN_S` seconds, in KRaft mode at once if no broker runs. In ZooKeeper mode
    a broker's session is added to that time, because only then has another broker replaced a lost controller. Use
    `find_views` for a single attempt.
    """
    within_s = SEEN_WITHIN_S
    cluster = context.cluster.spec
    if cluster.metadata.broker_controls:
        within_s += longest_time_out(cluster, cluster.metadata.session) / 1000
    elif not context.cluster.running_links():
        raise FaultNotConfirmed(NOBODY)
    return wait_for(context, lambda: find_views(context), "a broker that takes changes", within_s=within_s)


def find_views(context: FaultContext) -> Views | None:
    """Return the broker that gets requests and the witness: the live brokers with the lowest and the highest id.

    In ZooKeeper mode the controller gets requests, because only it accepts changes; the witness is the highest of the
    others. If a single broker is left, it has both roles. A broker is live if no fault holds it, it answers, and it is
    registered and unfenced in its own view. If none is live, all running brokers count. None if no broker runs, or if
    ZooKeeper's controller is unknown or not among these brokers.
    """
    running = context.cluster.running_links()
    links = {broker: link for broker, link in running.items() if _lives(context, broker, link)} or running
    asked = (
        context.cluster.controller()
        if context.cluster.spec.metadata.broker_controls
        else min(links, default=None)
    )
    if asked is None or asked not in links:
        return None
    witness = max((broker for broker in links if broker != asked), default=asked)
    return Views(asked, links[asked], witness, links[witness])


def _lives(context: FaultContext, broker: int, link: Connection) -> bool:
    if context.holds.others(broker, 0):
        return False
    try:
        return broker in queries.brokers(link, ANSWERS_WITHIN_S)
    except WireError:
        return False


def ask(
    context: FaultContext, do: Callable[[Connection], T], within_s: float = SEEN_WITHIN_S
) -> tuple[int, T]:
    """Send a request to a live broker; if the broker ends meanwhile, use the next one, or wait for one.

    `do` sends the request over the connection that it gets. Return the id of the broker that answered, and the result
    of `do`. Use this function only for requests that may be carried out twice: an interrupted request may have been
    carried out. Raises `FaultNotConfirmed` if no broker answers within `within_s` seconds, `Interrupted` if the run is
    stopped, `Refused` for Kafka's errors. After an error which only says that there is no controller yet, the request
    is repeated.
    """
    broken: list[str] = []

    def ask_once() -> tuple[int, T] | None:
        look = find_views(context)
        try:
            if look is not None:
                return look.asked, do(look.asked_link)
            broken[:] = [NOBODY]
        except Unreachable as error:
            broken[:] = [str(error)]
        except Refused as error:
            if error.code not in _NO_CONTROLLER:
                raise
            broken[:] = [str(error)]
        return None

    return wait_for(
        context, ask_once, "a broker to do what it is asked for", state=lambda: broken[0], within_s=within_s
    )


def ask_for_one(context: FaultContext, do: Callable[[Connection], None], already: int) -> int:
    """Send to a live broker a request that must be carried out only once; return the id of the broker that carried it
    out.

    `do` sends the request over the connection that it gets. If the broker ends meanwhile, `do` is called again for
    another broker. `already`: Kafka's error code that then says that the interrupted request had been carried out.
    Raises `FaultNotConfirmed` if no broker carries it out within `SEEN_WITHIN_S` seconds, `Interrupted` if the run is
    stopped, `Refused` for other errors of Kafka.
    """
    tried = False

    def once(link: Connection) -> None:
        nonlocal tried
        try:
            do(link)
        except Refused as error:
            if not tried or error.code != already:
                raise
        finally:
            tried = True

    return ask(context, once)[0]


def put_back(context: FaultContext, do: Callable[[Connection], T]) -> tuple[int, T]:
    """Send to a live broker a request that undoes a fault; return the id of the broker that answered, and the result of
    `do`.

    `do` sends the request over the connection that it gets. As in `ask`, it may be called for several brokers: use only
    requests that may be carried out twice. Brokers are tried for `BACK_WITHIN_S` seconds; if the run is stopped
    meanwhile, for `STOPPED_S` seconds from then on. Raises `FaultNotConfirmed` if no broker answers by then, `Refused`
    for Kafka's errors.
    """
    try:
        return ask(context, do, BACK_WITHIN_S)
    except Interrupted:
        return ask(replace(context, stop=Flag()), do, STOPPED_S)


def state_at(link: Connection, place: TopicPartition) -> PartitionState | None:
    """Return the partition as this broker shows it; None if it does not answer or does not know it."""
    try:
        return queries.partitions(link, [place.topic]).get(place)
    except WireError:
        return None


def state_of(context: FaultContext, place: TopicPartition) -> PartitionState:
    """Return the partition's state as soon as a broker, or ZooKeeper, shows it. Raises `FaultNotConfirmed` if none does
    within `SEEN_WITHIN_S` seconds."""
    return wait_for(
        context,
        lambda: context.cluster.topic_state([place.topic]).get(place),
        f"a broker to describe {place}",
    )


def wait_for(
    context: FaultContext,
    look: Callable[[], T | None],
    what: str,
    *,
    state: Callable[[], str] | None = None,
    within_s: float = SEEN_WITHIN_S,
) -> T:
    """Wait until `look` returns a true value, and return that value.

    `what` completes "waited for …" in the error's message; `state` returns the last observation for it. Raises
    `FaultNotConfirmed` after `within_s` seconds, `Interrupted` if the run is stopped.
    """
    try:
        return wait_until(look, what=what, timeout_s=within_s, state=state, stop=context.stop)
    except WaitTimeout as error:
        raise FaultNotConfirmed(str(error)) from error


def all_topics(context: FaultContext) -> tuple[str, ...]:
    """Return the topic names for a request about all topics. That is (), which stands for all. Older brokers, without
    DescribeTopicPartitions, need names: for them, return the topics of the case, if there is a case."""
    if context.cluster.access.describes_partitions or context.case is None:
        return ()
    return tuple(context.case.experiment.topics)


def _not_in_sync(link: Connection, topics: tuple[str, ...] = ()) -> list[str]:
    """Return a sentence for each partition that has no leader, or a replica outside of the ISR, as this broker shows
    it. If the broker does not answer, return its error instead. `topics` empty: all topics."""
    try:
        states = queries.partitions(link, topics)
    except WireError as error:
        return [str(error)]
    return [
        f"{place}: leader {state.leader}, ISR {list(state.isr)} of {list(state.replicas)}"
        for place, state in states.items()
        if state.leader < 0 or set(state.isr) != set(state.replicas)
    ]


def await_all_in_sync(context: FaultContext) -> str:
    """Wait until every running broker shows every partition of the topics in `all_topics` with a leader and
    all replicas in sync. Return the observation in words. Raises `FaultNotConfirmed` after 60 s,
    `Interrupted` if the run is stopped."""
    lacking: list[str] = []
    topics = all_topics(context)

    def look() -> bool:
        lacking[:] = []
        for link in context.cluster.running_links().values():
            lacking.extend(_not_in_sync(link, topics))
        return not lacking and bool(context.cluster.running_links())

    wait_for(
        context,
        look,
        "all replicas of all partitions to be in sync",
        state=lambda: "; ".join(dict.fromkeys(lacking)) or "no broker runs",
        within_s=_ISR_WITHIN_S,
    )
    return "all replicas of all partitions in sync, as every broker shows"
