"""ZooKeeper as Kafka used it: sessions, ephemeral and persistent nodes with versions, watches that fire once.

Only four nodes are modelled: `/controller` (ephemeral; the broker that creates it first is the controller),
`/controller_epoch`, `/brokers/ids/N` (ephemeral) and the partition's state node. Sources: KafkaZkClient and
KafkaController of 3.9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NOBODY = -1


@dataclass(frozen=True)
class ZooKeeperRules:
    """Protections that controller election with ZooKeeper relies on, each of which can be switched off."""

    epoch_check: bool = True
    """Every write of a controller is one operation with a check of `/controller_epoch`'s version (KAFKA-5642, 1.1)."""
    watch_before_reading: bool = True
    """A broker sets its watch on `/controller` in the same read that returns the controller."""


class Ensemble(NamedTuple):
    """The ZooKeeper ensemble. `sessions`: brokers with live sessions. `ids`: brokers with a node in `/brokers/ids`.

    `watches`: brokers that watch `/controller`. `controller`, `leader` (of the partition): NOBODY if there is none.
    `state_epoch`: controller epoch that wrote the partition's state last. `state_version`: version of the state node.
    """

    sessions: tuple[int, ...]
    ids: tuple[int, ...]
    watches: tuple[int, ...] = ()
    controller: int = NOBODY
    controller_epoch: int = 0
    leader: int = NOBODY
    state_epoch: int = 0
    state_version: int = 0


class Member(NamedTuple):
    """A broker as a client of ZooKeeper. `believes`: the controller that the broker knows, or NOBODY.

    `acts`: epoch in which the broker itself is the controller; 0 if it is not. `fired`: it has to look up the
    controller, because its watch has fired or its session has just begun. `expired`: its session has ended.
    """

    believes: int = NOBODY
    acts: int = 0
    fired: bool = True
    expired: bool = False


def try_to_become_controller(ensemble: Ensemble, own: int) -> tuple[Ensemble, Member]:
    """Let broker `own` create `/controller` and raise the controller epoch in one operation
    (KafkaController.elect). Return the ensemble and the broker afterwards.

    The first broker succeeds; the others learn which broker is controller.
    """
    if ensemble.controller != NOBODY:
        return ensemble, Member(ensemble.controller, 0, fired=False)
    epoch = ensemble.controller_epoch + 1
    return ensemble._replace(controller=own, controller_epoch=epoch), Member(own, epoch, fired=False)


def watch(ensemble: Ensemble, own: int) -> Ensemble:
    """Return the ensemble with a watch of broker `own` on `/controller`. It fires once, at the next change."""
    return ensemble._replace(watches=tuple(sorted({*ensemble.watches, own})))


def expire(ensemble: Ensemble, broker: int) -> tuple[Ensemble, tuple[int, ...]]:
    """Return the ensemble after the end of a broker's session, and the brokers that are notified. The broker's
    ephemeral nodes and watches are removed.

    If the broker was the controller, the brokers that watch `/controller` are notified, once; else no broker is. The
    broker itself learns of the end only when it reaches ZooKeeper again.
    """
    gone = ensemble._replace(
        sessions=tuple(s for s in ensemble.sessions if s != broker),
        ids=tuple(i for i in ensemble.ids if i != broker),
        watches=tuple(w for w in ensemble.watches if w != broker),
    )
    if ensemble.controller != broker:
        return gone, ()
    return gone._replace(controller=NOBODY, watches=()), gone.watches


def reconnect(ensemble: Ensemble, own: int) -> tuple[Ensemble, Member]:
    """Begin a new session of broker `own` after its old session has ended: create its node under `/brokers/ids` again.
    Return the ensemble and the broker, which forgets the controller that it knew and looks it up again."""
    sessions = tuple(sorted({*ensemble.sessions, own}))
    return ensemble._replace(sessions=sessions, ids=tuple(sorted({*ensemble.ids, own}))), Member()


def write_state(
    ensemble: Ensemble, member: Member, leader: int, rules: ZooKeeperRules
) -> tuple[Ensemble, bool]:
    """Write `leader` as the partition's leader, as a broker does that believes itself the controller.

    Return the ensemble, and True if the write succeeded. With the rule `epoch_check`, ZooKeeper refuses the write of a
    zombie controller: another controller has been elected after it.
    """
    if rules.epoch_check and member.acts != ensemble.controller_epoch:
        return ensemble, False
    written = ensemble._replace(
        leader=leader, state_epoch=member.acts, state_version=ensemble.state_version + 1
    )
    return written, True
