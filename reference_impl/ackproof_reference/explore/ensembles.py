"""The world of ZooKeeper: sessions that end, brokers that race for the controller's place and decide who leads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ackproof_reference.explore.model import Group, Happening, Model, Move
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


def controllers(rules: ZooKeeperRules, brokers: int = 3, expiries: int = 1, writes: int = 2) -> Model:
    """The world as a model for the search: the ensemble with all brokers, of whom nobody is controller yet.

    `expiries`: how many sessions may end; `writes`: how many decisions may be written.
    """
    everyone = tuple(range(brokers))
    members = tuple(3 + n for n in everyone)
    groups = [
        Group("wrong", (2,), check=_wrong),
        Group("sessions", (0, 1, *members), _expiries, check=_someone_will_be_told),
    ]
    groups += [Group("broker", (0, 1, 2, 3 + n), partial(_broker, rules, n)) for n in everyone]
    names = ("left", "ensemble", "wrong", *(f"broker {n}" for n in everyone))
    first = ((expiries, writes), Ensemble(everyone, everyone), "", *(Member() for _ in everyone))
    return Model(names, first, groups)


def _expiries(left: tuple[int, int], ensemble: Ensemble, *members: Member) -> Iterator[Move]:
    if left[0]:
        for broker in ensemble.sessions:
            gone, told = expire(ensemble, broker)
            after = [m._replace(fired=True) if n in told else m for n, m in enumerate(members)]
            after[broker] = after[broker]._replace(expired=True)
            text = f"ends the session of broker {broker}" + (f" and tells {told}" if told else "")
            yield Happening("ensemble", text, f"broker {broker}"), ((left[0] - 1, left[1]), gone, *after)


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


def _broker(
    rules: ZooKeeperRules, own: int, left: tuple[int, int], ensemble: Ensemble, wrong: str, member: Member
) -> Iterator[Move]:
    name = f"broker {own}"
    connected = own in ensemble.sessions
    if member.expired:
        fresh, anew = reconnect(ensemble, own)
        yield (
            Happening(name, "reaches it again, with a new session", "ensemble"),
            (left, fresh, wrong, anew),
        )
    elif member.fired and connected:
        watched = watch(ensemble, own) if rules.watch_before_reading else ensemble
        raced, after = try_to_become_controller(watched, member, own)
        if after.acts:
            text = f"becomes controller with epoch {after.acts}"
        else:
            text = f"finds broker {after.believes} to be controller"
        yield Happening(name, text, "ensemble"), (left, raced, wrong, after)
    elif not rules.watch_before_reading and connected and own not in ensemble.watches:
        watched = watch(ensemble, own)
        yield Happening(name, "sets its watch", "ensemble"), (left, watched, wrong, member)
    if member.acts and left[1]:
        written, taken = write_state(ensemble, member, own, rules)
        if taken:
            if written.state_epoch < ensemble.state_epoch:
                wrong = (
                    f"controller epoch {member.acts} overwrote what epoch {ensemble.state_epoch} had decided"
                )
            text = f"decides, as controller of epoch {member.acts}, who leads"
            yield Happening(name, text, "ensemble"), ((left[0], left[1] - 1), written, wrong, member)
