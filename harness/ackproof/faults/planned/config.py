"""Dynamic changes of settings, witnessed by what brokers say that is in force."""

from __future__ import annotations

from collections.abc import Callable

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster import admin
from ackproof.cluster.admin import Owner, Setting, Whose
from ackproof.cluster.wire import Connection, WireError
from ackproof.faults.injection import Aim, FaultContext, Injection, injects
from ackproof.faults.planned.specification import SetConfig
from ackproof.faults.planned.views import seen, views


@injects(SetConfig)
class ConfigChange(Injection[SetConfig]):
    """Settings are changed while nodes run, and put back."""

    def __init__(self, fault: SetConfig, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.config = dict(fault.config)
        self.topic = fault.topic
        self.broker = fault.broker
        self._before: dict[str, Setting] | None = None

    @property
    def owner(self) -> Owner:
        """Whose settings are changed."""
        if self.topic is not None:
            return Owner(Whose.TOPIC, self.topic)
        return Owner(Whose.BROKER, "" if self.broker is None else str(self.broker))

    def _asked(self) -> tuple[int, Connection]:
        """Whom to ask: a broker takes changes of its own settings itself."""
        if self.broker is None:
            look = views(self.context)
            return look.asked, look.asked_link
        link = self.context.cluster.running_links().get(self.broker)
        if link is None:
            raise FaultNotConfirmed(
                f"broker {self.broker} does not run, and it alone takes changes of its settings"
            )
        return self.broker, link

    def inject(self) -> str:
        """Note what is in force, and ask one broker for the change."""
        asked, link = self._asked()
        before = admin.describe_config(link, self.owner, list(self.config))
        self._before = before
        in_force = self._in_force()
        if in_force and all(said == self.config for said in in_force.values()):
            raise FaultNotConfirmed(f"{self._text(self.config)} of {self.owner} is in force already")
        admin.alter_config(link, {self.owner: dict(self.config)})
        return f"asked broker {asked} for {self._text(self.config)} of {self.owner}"

    def confirm(self) -> str:
        """Every broker that runs says that the new values are in force."""
        return self._await(lambda said: said == self.config, self._text(self.config))

    def heal(self) -> str:
        """Put back what was there."""
        if self._before is None:
            return "nothing to undo"
        own = {
            name: setting.value if (setting := self._before.get(name)) is not None and setting.own else None
            for name in self.config
        }
        asked, link = self._asked()
        admin.alter_config(link, {self.owner: own})
        back = ", ".join(f"{name} {'inherited' if value is None else value}" for name, value in own.items())
        return f"asked broker {asked} to put {self.owner} back: {back}"

    def confirm_healed(self) -> str:
        """No broker says any longer that the change is in force."""
        return self._await(lambda said: said != self.config, "what was in force before")

    def _await(self, fits: Callable[[dict[str, str]], bool], what: str) -> str:
        def look() -> bool:
            said = self._in_force()
            return bool(said) and all(fits(values) for values in said.values())

        seen(
            self.context,
            look,
            f"every broker to say that {what} is in force for {self.owner}",
            state=lambda: "; ".join(
                f"broker {i}: {self._text(said)}" for i, said in self._in_force().items()
            ),
        )
        said = self._in_force()
        return "DescribeConfigs at " + "; ".join(
            f"broker {i}: {self._text(values)}" for i, values in said.items()
        )

    def _in_force(self) -> dict[int, dict[str, str]]:
        """The values in force by broker: each is asked for the topic's, or for its own."""
        found: dict[int, dict[str, str]] = {}
        for broker, link in self.context.cluster.running_links().items():
            if self.broker not in (None, broker):
                continue
            owner = self.owner if self.topic is not None else Owner(Whose.BROKER, str(broker))
            try:
                said = admin.describe_config(link, owner, list(self.config))
            except WireError:
                continue
            found[broker] = {name: setting.value for name, setting in said.items()}
        return found

    @staticmethod
    def _text(values: dict[str, str]) -> str:
        return ", ".join(f"{name}={value}" for name, value in values.items())
