"""Reassignments, completed or cancelled half way. The replicas are witnessed by a broker that did not get the
request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeVar

from pydantic import Field

from ackproof.base.errors import FaultNotConfirmed
from ackproof.base.units import Size
from ackproof.cluster import admin, queries
from ackproof.cluster.admin import Owner, ResourceType
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import AS_KRAFT, Draw, Exposure, Incidents, places_of
from ackproof.experiment.fault import Complaints
from ackproof.experiment.problems import Data
from ackproof.faults.context import FaultContext
from ackproof.faults.injection import Aim, injects
from ackproof.faults.planned.partitions import (
    BrokerId,
    PartitionOperation,
    PartitionOperationInjection,
    missing_broker,
)
from ackproof.faults.planned.views import ask, find_views, put_back, views
from ackproof.network.wire import Refused, WireError
from ackproof.rundir.timeline import fault_name

MOVED_WITHIN_S: Final = 90.0
"""Maximum seconds for a reassignment, which copies the partition's data."""
READY_WITHIN_S: Final = 60.0
"""Seconds for a broker to become ready. If another fault killed it, it may wait for the end of its old session."""
_NO_REASSIGNMENT_IN_PROGRESS: Final = 85
THROTTLE_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
THROTTLED: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


class Move(PartitionOperation):
    """Base of faults that reassign the replicas of one partition."""

    to: Annotated[tuple[BrokerId, ...], Field(min_length=1, max_length=50)] = Field(
        description="Brokers of the new replicas, preferred leader first."
    )
    throttle: Size | None = Field(
        None,
        ge=1,
        description="Bytes per second that new replicas may copy; lifted after 90 s.",
    )

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        if not say.sound(("to",), cluster=True):
            return
        for index, broker in enumerate(self.to):
            if broker not in spec.cluster.broker_ids:
                say.report(("to", index), missing_broker(spec, broker))
                return
        if len(set(self.to)) != len(self.to):
            say.report(("to",), "a broker holds one replica of a partition, not two")

    def may_shrink_to(self, topic: str) -> int | None:
        return len(self.to) if topic == self.partition.topic else None

    def __str__(self) -> str:
        return f"{self.kind} {self.partition} to {', '.join(map(str, self.to))}"

    def planned(self, exposure: Exposure) -> Incidents:
        return Incidents(hand_overs=1)

    def not_simulated(self, spec: ExperimentSpec) -> tuple[str, str] | None:
        return ("", AS_KRAFT) if spec.cluster.mode == "zookeeper" else None


class Reassign(Move):
    """Grow, shrink or move a partition: AlterPartitionReassignments, until the new replicas are all in sync."""

    KIND = "reassign"
    SUMMARY = "Give a partition other replicas: more, fewer, or on other brokers."

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Draw the fields of a random fault: `partition`, and `to`, as many random brokers as it has replicas.

        Return None for a cluster of one broker.
        """
        place = draw.other_place()
        brokers = list(draw.experiment.cluster.broker_ids)
        copies = draw.experiment.topics[place.rpartition("/")[0]].replication_factor
        return {"partition": place, "to": [*draw.more.sample(brokers, copies)]} if len(brokers) > 1 else None


class CancelReassign(Move):
    """A reassignment that is cancelled before it completes; `throttle` keeps it from completing too soon."""

    KIND = "cancel_reassign"
    SUMMARY = "Begin a reassignment, and cancel it while it is in progress."
    HEALING = "cancel the reassignment"
    HOLD_KEY = "for"

    throttle: Size | None = Field(
        1 << 10,
        ge=1,
        description="Bytes per second that new replicas may copy, so that it does not complete too soon.",
    )

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        brokers, topics = list(draw.experiment.cluster.broker_ids), draw.experiment.topics
        copies = {
            place: topics[place.rpartition("/")[0]].replication_factor for place in places_of(draw.experiment)
        }
        movable = [place for place, count in copies.items() if count < len(brokers)]
        if not movable:
            return None
        place = draw.more.choice(movable)
        return {"partition": place, "to": [*draw.more.sample(brokers, copies[place])]}


MoveT = TypeVar("MoveT", bound=Move)


class MoveInjection(PartitionOperationInjection[MoveT]):
    """Base of the injections of `Reassign` and `CancelReassign`: requests a reassignment, throttled if `throttle` is
    set. Healing ends it (`_end_move`).

    Confirmed when another broker shows other replicas than before. Raises `FaultNotConfirmed` if the partition already
    has the requested replicas in this order."""

    def __init__(self, fault: MoveT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._throttled = False
        self._asked = False

    def inject(self) -> str:
        self._look()
        if self.state_before.replicas == self.fault.to:
            raise FaultNotConfirmed(
                f"{self.place} has the replicas {list(self.fault.to)} already: nothing to move"
            )
        if self.fault.throttle is not None:
            self._throttled = True
            slow = self._throttle(str(self.fault.throttle), "*")
            ask(self.context, lambda link: admin.alter_config(link, slow))
        asked, _ = ask(self.context, lambda link: admin.reassign(link, {self.place: self.fault.to}))
        self._asked = True
        self.holds.assign(self.place, self.fault.number, self.fault.to)
        return f"asked broker {asked} to give {self.place} the replicas {list(self.fault.to)}"

    def confirm(self) -> str:
        before = self.state_before
        after = self.wait_for(
            lambda: state if (state := self._witness()) and state.replicas != before.replicas else None,
            f"another broker to show other replicas of {self.place} than {list(before.replicas)}",
        )
        return (
            f"metadata of {views(self.context).name}: replicas of {self.place} "
            f"{list(before.replicas)} → {list(after.replicas)}"
        )

    def _throttle(self, rate: str | None, replicas: str | None) -> dict[Owner, dict[str, str | None]]:
        """Return the throttle settings of all brokers (`rate`: bytes per second) and of the topic (`replicas`: `*` for
        all). `rate` and `replicas` None: remove these settings.

        Of the listed replicas Kafka throttles only those that are not in sync.
        """
        return {
            Owner(ResourceType.BROKER, ""): dict.fromkeys(THROTTLE_RATES, rate),
            Owner(ResourceType.TOPIC, self.place.topic): dict.fromkeys(THROTTLED, replicas),
        }

    def _lift_throttle(self) -> str:
        if not self._throttled:
            return ""
        put_back(self.context, lambda link: admin.alter_config(link, self._throttle(None, None)))
        self._throttled = False
        return "throttle lifted"

    def heal(self) -> str:
        """Await or cancel this fault's reassignment, as its kind does, and lift the throttle even if that
        fails. Return what was done, in words."""
        try:
            did = self._end_move() if self._asked else "nothing to undo"
        finally:
            lifted = self._lift_throttle()
        return "; ".join(filter(None, (did, lifted)))

    def _end_move(self) -> str:
        """Await the end of the requested reassignment, or cancel it, as the kind of fault does. Return in words what
        was done. Called only if the reassignment was requested."""
        raise NotImplementedError

    def put_back(self) -> str:
        return self._lift_throttle()

    def _goes_on(self) -> bool:
        """Return True if the reassignment is still in progress: the broker that gets requests lists it. True also if no
        broker answers."""
        look = find_views(self.context)
        try:
            return look is None or self.place in admin.reassignments(look.asked_link)
        except WireError:
            return True

    def _await_replicas(self, *, any_order: bool = False) -> str:
        """Wait until another broker shows exactly the replicas that were requested last, all in sync, and no
        reassignment is in progress. Return that and the replicas' log ends in words. Raises
        `FaultNotConfirmed` if this is not seen in time, or a replica's broker does not answer.

        `any_order`: accept these replicas in any order, because Kafka does not restore it when a reassignment is
        cancelled.
        """

        def there() -> bool:
            state, (_, replicas) = self._witness(), self._last_asked()
            return (
                state is not None
                and (state.replicas == replicas or (any_order and set(state.replicas) == set(replicas)))
                and set(state.isr) == set(replicas)
                and not self._goes_on()
            )

        self.wait_for(
            there,
            f"another broker to show {self.place} on the replicas that were asked for, all in sync",
            state=lambda: f"{list(self._last_asked()[1])} were asked for, and there is {self._witness()}",
            within_s=MOVED_WITHIN_S,
        )
        by, replicas = self._last_asked()
        ends = {broker: self._log_end(broker) for broker in replicas}
        return (
            f"metadata of {views(self.context).name}: replicas and ISR of {self.place} are {list(replicas)}; "
            f"log ends {', '.join(f'{broker}: {end}' for broker, end in ends.items())}"
            + ("" if by == self.fault.number else f"; fault {fault_name(by)} has asked for these since")
        )

    def _last_asked(self) -> tuple[int, tuple[int, ...]]:
        return self.holds.assigned(self.place) or (self.fault.number, self.fault.to)

    def _log_end(self, broker: int) -> int:
        def one_more() -> int | None:
            link = self.context.cluster.running_links().get(broker)
            if link is None:
                return None
            try:
                ends = queries.read_offsets(link.ask(queries.ask_log_ends([self.place])))
            except WireError:
                return None
            return ends.get(self.place, -1) + 1 or None

        self.holds.await_free(broker, self.fault.number, self.context.stop)
        what = f"broker {broker} to say where its log of {self.place} ends"
        return self.wait_for(one_more, what, READY_WITHIN_S) - 1


@injects(Reassign)
class Reassignment(MoveInjection[Reassign]):
    """Reassign the partition. Healing waits until all new replicas are in sync."""

    def _end_move(self) -> str:
        """Wait until the reassignment is through (the new replicas have all data and are in sync); return that in
        words.

        If producers write more than a throttle allows, the reassignment never completes. So with a throttle
        the wait ends after `MOVED_WITHIN_S`, and `confirm_healed` waits for the rest. Without a throttle
        `FaultNotConfirmed` is raised then.
        """
        try:
            self.wait_for(
                lambda: not self._goes_on(),
                f"the reassignment of {self.place} to be through",
                state=lambda: str(self._witness()),
                within_s=MOVED_WITHIN_S,
            )
        except FaultNotConfirmed:
            if not self._throttled:
                raise
            return f"it was not through after {MOVED_WITHIN_S:g} s at {self.fault.throttle} bytes a second"
        return "it is through"

    def confirm_healed(self) -> str:
        return self._await_replicas() if self._asked else "nothing was asked for"


@injects(CancelReassign)
class CancelledReassignment(MoveInjection[CancelReassign]):
    """Start a reassignment, and cancel it before it completes. Healing cancels it, unless another fault has requested
    other replicas since.

    Raises `FaultNotConfirmed` if the reassignment has completed before the confirmation. Healing raises it if the
    reassignment has completed by then, unless a storm drew the fault.
    """

    _cancelled = False

    def confirm(self) -> str:
        witness = super().confirm()
        if not self._goes_on():
            raise self.not_confirmed(
                f"the reassignment of {self.place} was through at once: nothing to cancel"
            )
        return f"{witness}, and it goes on"

    def _end_move(self) -> str:
        if (last := self._last_asked()[0]) != self.fault.number:
            return f"nothing to cancel: fault {fault_name(last)} has asked for others"
        asked = self._cancel() if self._goes_on() else None
        if asked is None:
            return self.fall_short(
                f"the reassignment of {self.place} completed before it was cancelled: use a smaller throttle"
            )
        self.holds.assign(self.place, self.fault.number, self.state_before.replicas)
        return f"asked broker {asked} to cancel it"

    def _cancel(self) -> int | None:
        """Cancel the reassignment. Return the broker that got the request; None if there was no reassignment to cancel
        any more. Raises `Refused` for other errors of Kafka, `FaultNotConfirmed` if no broker answers."""
        try:
            asked, _ = put_back(self.context, lambda link: admin.reassign(link, {self.place: None}))
        except Refused as error:
            if error.code != _NO_REASSIGNMENT_IN_PROGRESS:
                raise
            return None
        self._cancelled = True
        return asked

    def put_back(self) -> str:
        mine = self._asked and not self._cancelled and self._last_asked()[0] == self.fault.number
        asked = self._cancel() if mine and self._goes_on() else None
        did = "" if asked is None else f"asked broker {asked} to cancel the reassignment"
        return "; ".join(filter(None, (did, super().put_back())))

    def confirm_healed(self) -> str:
        return self._await_replicas(any_order=True) if self._asked else "nothing was asked for"
