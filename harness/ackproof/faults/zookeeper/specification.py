"""Faults of ZooKeeper mode. Its servers are also reached by `kill`, `stop` and `pause` (role `zookeeper`), and the
links to them by the faults of links (`cut: {link: broker(2) -> zookeeper}`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from pydantic import field_validator

from ackproof.experiment.backends import Ability
from ackproof.experiment.fault import NodeFault
from ackproof.experiment.incidents import Incidents
from ackproof.experiment.quantities import wrong
from ackproof.experiment.roles import Role, RoleKind

if TYPE_CHECKING:
    from ackproof.experiment.incidents import Exposure


class ExpireSession(NodeFault):
    """A broker's ZooKeeper session ends while the broker lives: its registration vanishes, and if it was the
    controller, it no longer is. It registers anew, with a new session, by itself."""

    KIND: ClassVar[str] = "expire_session"
    UNPREDICTABLE: ClassVar[str] = ""
    SUMMARY: ClassVar[str] = "End a broker's ZooKeeper session from outside; it registers anew by itself."
    NOT_IN: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"kraft": "there is no ZooKeeper, nor a session with it"}
    )
    ASKS: ClassVar[frozenset[Ability]] = frozenset({Ability.ZOOKEEPER})

    @field_validator("target")
    @classmethod
    def _of_brokers(cls, value: Role) -> Role:
        if value.kind is RoleKind.ZOOKEEPER:
            raise wrong("a ZooKeeper server holds no session of its own: aim at brokers")
        return value

    def planned(self, exposure: Exposure) -> Incidents:
        return Incidents(cuts=exposure.aimed_at(self))
