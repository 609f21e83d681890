"""Planned work on partitions: elections and reassignments. Asked for at one broker, witnessed at another."""

from __future__ import annotations

from typing import Final, TypeVar

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster import admin, queries
from ackproof.cluster.admin import Election, Owner, Whose
from ackproof.cluster.protocol import PartitionState
from ackproof.cluster.wire import WireError
from ackproof.faults.injection import Aim, FaultContext, Injection, injects
from ackproof.faults.planned.specification import (
    CancelReassign,
    ElectPreferred,
    ElectUnclean,
    Move,
    OfPartition,
    Reassign,
)
from ackproof.faults.planned.views import Views, seen, state_at, state_of, views
from ackproof.rundir.partition import TopicPartition

MOVED_WITHIN_S: Final = 90.0
"""A reassignment copies the partition's data."""
_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_THROTTLED: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


PlannedT = TypeVar("PlannedT", bound=OfPartition)
MoveT = TypeVar("MoveT", bound=Move)


class _OfPartition(Injection[PlannedT]):
    """What planned work on one partition has in common."""

    def __init__(self, fault: PlannedT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.place = TopicPartition(*fault.partition)
        self.views: Views | None = None
        self._before: PartitionState | None = None

    @property
    def before(self) -> PartitionState:
        """The partition as it was when the work began."""
        if self._before is None:
            raise FaultNotConfirmed(f"{self.fault.kind} was not begun")
        return self._before

    def _look(self) -> Views:
        """Note what there is, and who is asked and who witnesses."""
        self._before = state_of(self.context, self.place)
        self.views = views(self.context)
        return self.views

    def _witness(self) -> PartitionState | None:
        """The partition as another broker than the asked one shows it. One that was restarted is looked up anew."""
        return state_at(views(self.context).witness_link, self.place)

    def _await_leader(self) -> str:
        """Wait until the leader answers for its partition."""
        ends = seen(
            self.context,
            lambda: self.context.cluster.partition_ends([self.place.topic]).get(self.place),
            f"the leader of {self.place} to answer for it",
        )
        return (
            f"protocol: broker {ends.leader} answers as leader of {self.place} in epoch {ends.leader_epoch}"
        )


class _Elected(_OfPartition[PlannedT]):
    """What both elections have in common."""

    ELECTION = Election.PREFERRED

    def inject(self) -> str:
        """Ask for the election."""
        look = self._look()
        self._must_change_something()
        admin.elect(look.asked_link, self.place, self.ELECTION)
        return f"asked broker {look.asked} for a {self.ELECTION.name.lower()} election of {self.place}"

    def _must_change_something(self) -> None:
        raise NotImplementedError

    def _is_elected(self, state: PartitionState) -> bool:
        raise NotImplementedError

    def confirm(self) -> str:
        """Another broker shows another leader, in a newer epoch."""
        before = self.before
        after = seen(
            self.context,
            lambda: (
                (
                    (state := self._witness())
                    and state.leader_epoch > before.leader_epoch
                    and self._is_elected(state)
                    and state
                )
                or None
            ),
            f"another broker to show a new leader of {self.place}",
            state=lambda: str(self._witness()),
        )
        return (
            f"metadata of {views(self.context).name}: leader of {self.place} {before.leader} → {after.leader}, "
            f"epoch {before.leader_epoch} → {after.leader_epoch}, ISR before {list(before.isr)}"
        )

    def confirm_healed(self) -> str:
        """The leader answers."""
        return self._await_leader()


@injects(ElectPreferred)
class PreferredElection(_Elected[ElectPreferred]):
    """The first assigned replica is made leader."""

    def _must_change_something(self) -> None:
        before = self.before
        preferred = before.replicas[0]
        if before.leader == preferred:
            raise FaultNotConfirmed(
                f"broker {preferred}, the preferred leader, leads {self.place} already: nothing to elect"
            )
        if preferred not in before.isr:
            raise FaultNotConfirmed(
                f"broker {preferred}, the preferred leader of {self.place}, is not in sync {list(before.isr)}"
            )

    def _is_elected(self, state: PartitionState) -> bool:
        return state.leader == self.before.replicas[0]


@injects(ElectUnclean)
class UncleanElection(_Elected[ElectUnclean]):
    """Any live replica is made leader of a partition that has none."""

    ELECTION = Election.UNCLEAN

    def _must_change_something(self) -> None:
        if self.before.leader >= 0:
            raise FaultNotConfirmed(
                f"broker {self.before.leader} leads {self.place}: an unclean election takes a leaderless partition"
            )

    def _is_elected(self, state: PartitionState) -> bool:
        if state.leader in self.before.isr:
            raise FaultNotConfirmed(
                f"broker {state.leader} came to lead {self.place} and was in sync {list(self.before.isr)}: "
                "that election was clean"
            )
        return state.leader >= 0


class _Moved(_OfPartition[MoveT]):
    """What both reassignments have in common."""

    def __init__(self, fault: MoveT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.to = fault.to
        self.throttle = fault.throttle
        self._throttled = False

    def inject(self) -> str:
        """Ask for the reassignment, slowed down if that is wanted."""
        look = self._look()
        if self.before.replicas == self.to:
            raise FaultNotConfirmed(f"{self.place} has the replicas {list(self.to)} already: nothing to move")
        if self.throttle is not None:
            self._throttled = True
            self._set_throttle(str(self.throttle), "*")
        admin.reassign(look.asked_link, {self.place: self.to})
        return f"asked broker {look.asked} to give {self.place} the replicas {list(self.to)}"

    def _set_throttle(self, rate: str | None, replicas: str | None) -> None:
        """At all brokers; Kafka throttles those of the named replicas that are not in sync."""
        changes = {Owner(Whose.BROKER, ""): dict.fromkeys(_RATES, rate)}
        changes[Owner(Whose.TOPIC, self.place.topic)] = dict.fromkeys(_THROTTLED, replicas)
        admin.alter_config(views(self.context).asked_link, changes)

    def _lift_throttle(self) -> str:
        if not self._throttled:
            return ""
        self._set_throttle(None, None)
        self._throttled = False
        return "; throttle lifted"

    def _goes_on(self) -> bool:
        """Whether the active controller lists it. Asked anew at each look: the asked broker may be gone by then."""
        try:
            return self.place in admin.reassignments(views(self.context).asked_link)
        except WireError:
            return True

    def _await_replicas(self, replicas: tuple[int, ...], within_s: float, *, any_order: bool = False) -> str:
        """Wait until another broker shows exactly these replicas, all in sync, and nothing more to do.

        `any_order`: Kafka does not put replicas back in their order when a reassignment is cancelled.
        """

        def there() -> bool:
            state = self._witness()
            return (
                state is not None
                and (state.replicas == replicas or (any_order and set(state.replicas) == set(replicas)))
                and set(state.isr) == set(replicas)
                and not self._goes_on()
            )

        seen(
            self.context,
            there,
            f"another broker to show {self.place} on {list(replicas)}, all in sync",
            state=lambda: str(self._witness()),
            within_s=within_s,
        )
        ends = {broker: self._log_end(broker) for broker in replicas}
        silent = [broker for broker, end in ends.items() if end is None]
        if silent:
            raise FaultNotConfirmed(
                f"broker {silent[0]} is to hold {self.place}, and answers for no such log"
            )
        return (
            f"metadata of {views(self.context).name}: replicas and ISR of {self.place} are {list(replicas)}; "
            f"log ends {', '.join(f'{broker}: {end}' for broker, end in ends.items())}"
        )

    def _log_end(self, broker: int) -> int | None:
        """The end of the broker's own log of the partition; None when it has none. One that starts is awaited."""

        def one_more() -> int | None:
            link = self.context.cluster.running_links().get(broker)
            if link is None:
                return None
            try:
                ends = queries.read_offsets(link.ask(queries.ask_log_ends([self.place])))
            except WireError:
                return None
            return ends.get(self.place, -1) + 1 or None

        if broker not in self.context.cluster.running_links():
            return None
        return seen(self.context, one_more, f"broker {broker} to say where its log of {self.place} ends") - 1


@injects(Reassign)
class Reassignment(_Moved[Reassign]):
    """A partition gets other replicas."""

    def confirm(self) -> str:
        """Another broker shows that the replicas change."""
        before = self.before
        after = seen(
            self.context,
            lambda: state if (state := self._witness()) and state.replicas != before.replicas else None,
            f"another broker to show other replicas of {self.place} than {list(before.replicas)}",
        )
        return (
            f"metadata of {views(self.context).name}: replicas of {self.place} "
            f"{list(before.replicas)} → {list(after.replicas)}"
        )

    def heal(self) -> str:
        """It ends by itself: when the new replicas have all data and are in sync."""
        if self._before is None:
            return "nothing to undo"
        seen(
            self.context,
            lambda: not self._goes_on(),
            f"the reassignment of {self.place} to be through",
            state=lambda: str(self._witness()),
            within_s=MOVED_WITHIN_S,
        )
        return f"it is through{self._lift_throttle()}"

    def confirm_healed(self) -> str:
        """Another broker shows the new replicas in sync, and each of them has a log."""
        return self._await_replicas(self.to, MOVED_WITHIN_S)


@injects(CancelReassign)
class CancelledReassignment(_Moved[CancelReassign]):
    """A reassignment that is cancelled half way."""

    def confirm(self) -> str:
        """Another broker shows replicas being added, and the controller lists the reassignment."""
        before = self.before
        after = seen(
            self.context,
            lambda: state if (state := self._witness()) and state.replicas != before.replicas else None,
            f"another broker to show other replicas of {self.place} than {list(before.replicas)}",
        )
        if not self._goes_on():
            raise FaultNotConfirmed(
                f"the reassignment of {self.place} was through at once: nothing to cancel"
            )
        return (
            f"metadata of {views(self.context).name}: replicas of {self.place} "
            f"{list(before.replicas)} → {list(after.replicas)}, and it goes on"
        )

    def heal(self) -> str:
        """Cancel it."""
        if self._before is None:
            return "nothing to undo"
        lifted = ""
        try:
            if not self._goes_on():
                raise FaultNotConfirmed(
                    f"the reassignment of {self.place} was through before it was cancelled; "
                    "a smaller throttle makes it last"
                )
            look = views(self.context)
            admin.reassign(look.asked_link, {self.place: None})
        finally:
            lifted = self._lift_throttle()
        return f"asked broker {look.asked} to cancel it{lifted}"

    def confirm_healed(self) -> str:
        """Another broker shows the replicas that there were."""
        return self._await_replicas(self.before.replicas, MOVED_WITHIN_S, any_order=True)
