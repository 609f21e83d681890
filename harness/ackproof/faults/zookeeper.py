"""The fault `expire_session`: the end of a broker's ZooKeeper session.

ZooKeeper's servers are hit by `kill`, `stop` and `pause` (role `zookeeper`), and the links to them by link faults
(`cut: {link: broker(2) -> zookeeper}`).

The session is closed over one connection. The witness reads the znodes over another connection, in its own session: the
broker's registration is missing, or belongs to another session.
"""

from __future__ import annotations

import contextlib
from types import MappingProxyType
from typing import TYPE_CHECKING

from pydantic import field_validator

from ackproof.base.errors import FaultNotConfirmed
from ackproof.base.units import wrong
from ackproof.cluster.protocol import LocalNode, local
from ackproof.experiment.backends import Ability
from ackproof.experiment.exposure import Exposure, Incidents
from ackproof.experiment.fault import NodeFault
from ackproof.experiment.roles import Role, RoleKind
from ackproof.faults.context import FaultContext
from ackproof.faults.injection import Aim, Injection, injects
from ackproof.network.wire import WireError

if TYPE_CHECKING:  # kazoo is imported only when a session is read or ended
    from ackproof.cluster.metadata.zookeeper import Registration, ZooKeeper

GONE_WITHIN_S = 5.0
BACK_WITHIN_S = 60.0


class ExpireSession(NodeFault):
    """A broker's ZooKeeper session ends while the broker runs: its registration vanishes, and it is no longer the
    controller if it was. The broker registers again by itself, with a new session."""

    KIND = "expire_session"
    DONE = "robbed of the session"
    SUMMARY = "End a broker's ZooKeeper session from outside; it registers again by itself."
    NOT_IN = MappingProxyType({"kraft": "there is no ZooKeeper, nor a session with it"})
    ASKS = frozenset({Ability.ZOOKEEPER})

    @field_validator("target")
    @classmethod
    def _of_brokers(cls, value: Role) -> Role:
        if any(role.kind in (RoleKind.ZOOKEEPER, RoleKind.RACK) for role in value.roles):
            raise wrong("a ZooKeeper server holds no session of its own: aim at brokers")
        return value

    def planned(self, exposure: Exposure) -> Incidents:
        return Incidents(cuts=exposure.aimed_at(self.targets))


def zookeeper_of(context: FaultContext) -> ZooKeeper:
    """Return the client of this cluster's ZooKeeper servers. Raises `FaultNotConfirmed` if it has none that ackproof
    started."""
    from ackproof.cluster.metadata.zookeeper import ZooKeeper
    from ackproof.cluster.own import OwnCluster

    cluster = context.cluster
    quorum = cluster.quorum if isinstance(cluster, OwnCluster) else None
    if not isinstance(quorum, ZooKeeper):
        raise FaultNotConfirmed("this cluster has no ZooKeeper")
    return quorum


@injects(ExpireSession)
class _ExpireSessionInjection(Injection[ExpireSession]):
    """Close the ZooKeeper sessions of brokers. Confirmed when each broker's registration is gone, or belongs to another
    session. Raises `FaultNotConfirmed` if a broker has no session. The healing is confirmed when each
    broker has registered again by itself and answers."""

    def __init__(self, fault: ExpireSession, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.nodes: tuple[LocalNode, ...] = local(aim.nodes)
        self.zookeeper = zookeeper_of(context)
        self._before: dict[int, Registration] = {}
        self._lost: set[int] = set()

    def inject(self) -> str:
        from ackproof.cluster.metadata.zookeeper import end_session

        self._before = {node.id: self._find_session(node) for node in self.nodes}
        for held in self._before.values():
            try:
                end_session(self.zookeeper.addresses, held.session)
            except WireError as error:
                raise self.not_confirmed(error) from error
        return "closed session " + ", ".join(
            f"{_hex(held)} of broker {broker}" for broker, held in self._before.items()
        )

    def confirm(self) -> str:
        seen = [self._await_loss(node) for node in self.nodes]
        return "znodes: " + ", ".join(seen)

    def heal(self) -> str:
        """Do nothing, and return that in words: a broker opens a new session as soon as it learns that the old one has
        ended."""
        return "left to the brokers"

    def confirm_healed(self) -> str:
        seen = [self._await_return(node) for node in self.nodes if node.id in self._before]
        return "znodes: " + ", ".join(seen)

    def _await_loss(self, node: LocalNode) -> str:
        before = self._before[node.id]
        now: list[Registration | None] = [before]

        def lost() -> bool:
            with contextlib.suppress(WireError):  # no ZooKeeper server answered
                now[0] = self.zookeeper.registration(node.id)
            return now[0] is None or now[0].session != before.session

        self.wait_for(
            lost,
            f"the registration of broker {node.id} to end with its session",
            GONE_WITHIN_S,
            state=lambda: f"still held by session {_hex(before)}",
        )
        self._lost.add(node.id)
        how = "is gone" if now[0] is None else "is held by a new session already"
        return f"the registration of broker {node.id} {how}"

    def _await_return(self, node: LocalNode) -> str:
        before = self._before[node.id] if node.id in self._lost else None

        def back() -> Registration | None:
            now = None
            with contextlib.suppress(WireError):
                now = self.zookeeper.registration(node.id)
            return now if now is not None and (before is None or now.made_by != before.made_by) else None

        now = self.wait_for(
            back, f"broker {node.id} to register again", BACK_WITHIN_S, logs=node.log_tail, to_the_end=True
        )
        self.await_ready(node)
        return f"broker {node.id} is registered by session {_hex(now)} and answers"

    def _find_session(self, node: LocalNode) -> Registration:
        """Wait until a broker has a ZooKeeper session, and return its registration, which names the session. A broker
        that has just started, or has just lost its session, opens a new one soon. Raises `FaultNotConfirmed` if it has
        none in time."""
        said = ""

        def find_session() -> Registration | None:
            nonlocal said
            try:
                found = self.zookeeper.registration(node.id)
            except WireError as error:
                said = str(error)
                return None
            said = "it holds no session: nothing to break"
            return found

        return self.wait_for(
            find_session,
            f"broker {node.id} to hold a session with ZooKeeper",
            GONE_WITHIN_S,
            state=lambda: said,
        )


def _hex(registration: Registration) -> str:
    """Return the session id as ZooKeeper logs it: unsigned, hexadecimal, with `0x`."""
    return f"0x{registration.session & (1 << 64) - 1:x}"
