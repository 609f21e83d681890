"""The world of ZooKeeper: sessions that end, brokers that race for the controller's place and decide who leads."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from ackproof_reference.explore.model import Group, Happening, Move
from ackproof_reference.zookeeper import (
    NOBODY,
    Ensemble,
    Member,
    ZooKeeperRules,
    expire,
    reconnect,
    try_to_become_controller,
    watch,
    write_state,
)


@dataclass(frozen=True)
class Controllers:
    """The world as a model for the search: the ensemble with all brokers, and how many sessions may still end."""

    rules: ZooKeeperRules
    brokers: int = 3
    expiries: int = 1
    writes: int = 2

    @property
    def names(self) -> Sequence[str]:
        """A name for each cell."""
        return ("left", "ensemble", "wrong", *(f"broker {n}" for n in range(self.brokers)))

    @property
    def initial(self) -> tuple[Hashable, ...]:
        """Every broker has a session, nobody is controller."""
        everyone = tuple(range(self.brokers))
        return ((self.expiries, self.writes), Ensemble(everyone, everyone), "", *(Member() for _ in everyone))

    @property
    def groups(self) -> Sequence[Group]:
        """All steps and invariants."""
        members = tuple(3 + n for n in range(self.brokers))
        made = [
            Group("wrong", (2,), check=_wrong),
            Group("sessions", (0, 1, *members), self._expiries, check=_someone_will_be_told),
        ]
        made += [Group("broker", (0, 1, 2, 3 + n), _Broker(self.rules, n)) for n in range(self.brokers)]
        return made

    def _expiries(self, left: tuple[int, int], ensemble: Ensemble, *members: Member) -> Iterator[Move]:
        if left[0]:
            for broker in ensemble.sessions:
                gone, told = expire(ensemble, broker)
                after = [m._replace(fired=True) if n in told else m for n, m in enumerate(members)]
                after[broker] = after[broker]._replace(expired=True)
                text = f"ends the session of broker {broker}" + (f" and tells {told}" if told else "")
                yield Happening("ensemble", f"broker {broker}", text), ((left[0] - 1, left[1]), gone, *after)


def _wrong(wrong: str) -> Iterator[tuple[str, str]]:
    if wrong:
        yield "overwritten", wrong


def _someone_will_be_told(
    left: tuple[int, int], ensemble: Ensemble, *members: Member
) -> Iterator[tuple[str, str]]:
    """When nobody is controller, a broker with a live session knows, or will be told. Dead ones may never return."""
    del left
    told = [members[broker].fired for broker in ensemble.sessions]
    if ensemble.controller == NOBODY and told and not any(told):
        yield "nobody", "there is no controller and nobody alive will be told"


@dataclass(frozen=True)
class _Broker:
    rules: ZooKeeperRules
    number: int

    def __call__(
        self, left: tuple[int, int], ensemble: Ensemble, wrong: str, member: Member
    ) -> Iterator[Move]:
        name = f"broker {self.number}"
        connected = self.number in ensemble.sessions
        if member.expired:
            fresh, anew = reconnect(ensemble, self.number)
            yield (
                Happening(name, "ensemble", "reaches it again, with a new session"),
                (left, fresh, wrong, anew),
            )
        elif member.fired and connected:
            watched = watch(ensemble, self.number) if self.rules.watch_before_reading else ensemble
            raced, after = try_to_become_controller(watched, member, self.number)
            if after.acts:
                text = f"becomes controller with epoch {after.acts}"
            else:
                text = f"finds broker {after.believes} to be controller"
            yield Happening(name, "ensemble", text), (left, raced, wrong, after)
        elif not self.rules.watch_before_reading and connected and self.number not in ensemble.watches:
            watched = watch(ensemble, self.number)
            yield Happening(name, "ensemble", "sets its watch"), (left, watched, wrong, member)
        if member.acts and left[1]:
            written, taken = write_state(ensemble, member, self.number, self.rules)
            if taken:
                if written.state_epoch < ensemble.state_epoch:
                    wrong = f"controller epoch {member.acts} overwrote what epoch {ensemble.state_epoch} had decided"
                text = f"decides, as controller of epoch {member.acts}, who leads"
                yield Happening(name, "ensemble", text), ((left[0], left[1] - 1), written, wrong, member)
