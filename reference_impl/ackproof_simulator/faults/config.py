"""Simulates changes of the configuration: dynamic settings, topics that are deleted and created again, quorum
voters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from ackproof.base.errors import FaultNotConfirmed
from ackproof.experiment.timing import configured
from ackproof.faults.planned.topics import Recreate, SetConfig
from ackproof.faults.quorum import RemoveController
from ackproof_reference.controller import clear_eligible, elect
from ackproof_reference.election import Election
from ackproof_reference.metadata import NO_LEADER
from ackproof_simulator.clock import MS, seconds
from ackproof_simulator.faults.virtual import Aim, Virtual, does
from ackproof_simulator.partition import PartitionRun
from ackproof_simulator.world import World

MIN_INSYNC: Final = "min.insync.replicas"
_INTERVAL: Final = "unclean.leader.election.interval.ms"


@does(SetConfig)
class _SetRun(Virtual[SetConfig]):
    """Change settings of a topic, of all brokers or of one broker dynamically. The controller applies them at once
    (except those of one broker), brokers when they learn of the change. Healing puts the old values back.
    """

    def __init__(self, fault: SetConfig, aim: Aim, world: World) -> None:
        super().__init__(fault, aim, world)
        self.owner = fault.topic if fault.topic is not None else "" if fault.broker is None else fault.broker
        self.left = 0

    def inject(self) -> str:
        self._must_be_heard()
        settings = self.world.settings.setdefault(self.owner, {})
        before = {name: settings.get(name) for name in self.fault.config}
        if all(before[name] == value for name, value in self.fault.config.items()):
            raise FaultNotConfirmed(f"{self.fault} is in force already")
        self.before = before
        self._put(self.fault.config)
        return f"asked for {self.fault}"

    def _must_be_heard(self) -> None:
        self.must_be_heard()
        if isinstance(self.owner, int) and not self.host(self.owner).running:
            raise FaultNotConfirmed(
                f"broker {self.owner} does not run, and it alone takes changes of its settings"
            )

    def _put(self, config: Mapping[str, str | None]) -> None:
        settings = self.world.settings.setdefault(self.owner, {})
        for name, value in config.items():
            if value is None:
                settings.pop(name, None)
            else:
                settings[name] = value
            if not isinstance(self.owner, int):
                self.world.journal.configured(self.owner, name, value)
        for partition in self.world.partitions:
            if self.owner in ("", partition.topic) or isinstance(self.owner, int):
                self._hand_out(partition, config)

    def _hand_out(self, partition: PartitionRun, config: Mapping[str, str | None]) -> None:
        control, timing, old = self.world.control, self.world.timing, partition.rules
        brokers = [self.owner] if isinstance(self.owner, int) else list(control.brokers)
        for broker in brokers:
            # Until it has heard of it, it goes by what was.
            partition.own.setdefault(broker, old)
            self.left += 1
            delay = timing.metadata + int(self.world.random.random() * timing.metadata_jitter)
            self.world.clock.call_after(delay, self._heard, partition, broker)
        if isinstance(self.owner, int):
            return
        partition.rules = self.world.settled(old, partition.topic, None)
        partition.flush_every = self.world.flush_every(partition.topic)
        if MIN_INSYNC in config and old.elr:
            control.apply(partition, clear_eligible(partition.image))
        if partition.rules.unclean_election and not old.unclean_election:
            self._elect_later(partition)

    def _heard(self, partition: PartitionRun, broker: int) -> None:
        self.left -= 1
        known = partition.own.get(broker, partition.rules)
        partition.own[broker] = self.world.settled(known, partition.topic, broker)
        self.host(broker).do(partition.renew, broker)

    def _elect_later(self, partition: PartitionRun) -> None:
        """Schedule unclean elections for a partition, now that its settings allow them (KAFKA-12670). An election takes
        place only if the partition has no leader then.

        With ZooKeeper there is one election, at once. With KRaft there is one at each check of the controller, until
        the settings forbid it again. Checks follow each other after unclean.leader.election.interval.ms; the first
        comes after a random part of that time."""
        cluster = self.world.case.experiment.cluster
        every = 0
        if not cluster.metadata.broker_controls:
            every = int(configured(cluster, cluster.broker_ids[0]).get(_INTERVAL, "300000")) * MS
        self.world.clock.call_after(int(self.world.random.random() * every), self._elect, partition, every)

    def _elect(self, partition: PartitionRun, every: int) -> None:
        if not partition.rules.unclean_election:
            return
        image = partition.image
        if image.partition.leader == NO_LEADER and self.world.control.active >= 0:
            self.world.control.apply(
                partition, elect(image, Election.UNCLEAN, self.world.control.rules(partition))
            )
        if every:
            self.world.clock.call_after(every, self._elect, partition, every)

    def is_in_effect(self) -> bool:
        """Return True if every broker that the settings are for has learned of the change."""
        return not self.left

    def heal(self) -> str:
        self._must_be_heard()
        self._put(self.before)
        return "put it back"

    def healed(self) -> bool:
        return not self.left


@does(Recreate)
class _RecreateRun(Virtual[Recreate]):
    """Delete a topic; healing creates it again, with new logs under the same name."""

    @property
    def places(self) -> list[int]:
        return [
            at for at, partition in enumerate(self.world.partitions) if partition.topic == self.fault.topic
        ]

    def inject(self) -> str:
        self.must_be_heard()
        self.world.journal.dropped(self.fault.topic)
        for at in self.places:
            partition = self.world.partitions[at]
            old = partition.image.partition
            nobody = old._replace(
                replicas=(), isr=(), elr=(), leader=NO_LEADER, adding=(), removing=(), epoch=old.epoch + 1
            )
            partition.image = partition.image._replace(partition=nobody)
            self.world.control.publish(partition)
        return f"deleted {self.fault.topic}"

    def is_in_effect(self) -> bool:
        """Return True if no running broker knows the topic."""
        return all(
            broker.process.role is None
            for at in self.places
            for node, broker in self.world.partitions[at].brokers.items()
            if self.host(node).running
        )

    def heal(self) -> str:
        self.world.make_anew(self.fault.topic)
        return f"created {self.fault.topic} again"

    def healed(self) -> bool:
        """Return True if the new topic's leaders answer and all its replicas are in sync."""
        return all(
            partition.leads(now.leader) and set(now.isr) == set(now.replicas)
            for partition, now in (
                (partition, partition.image.partition)
                for partition in (self.world.partitions[at] for at in self.places)
            )
        )


AGAIN_S = 0.05
COMMITTED_S = 0.03
"""Seconds from a request to change the voters until a majority of voters has written the change, as measured on
real quorums."""
DYNAMIC_S = 0.35
"""Further seconds for the first request to change the voters: the quorum must become dynamic before (kraft.version
1)."""


@does(RemoveController)
class _VotersRun(Virtual[RemoveController]):
    """Remove a controller from the quorum (RemoveRaftVoter); healing adds it again (AddRaftVoter). A request is
    repeated until it is accepted, for at most `WITHIN_S` seconds."""

    WITHIN_S: ClassVar[float] = 40.0

    def inject(self) -> str:
        self.must_be_heard()
        quorum = self.world.control.quorum
        (self.node,) = self.nodes
        if self.node not in quorum.voters:
            raise FaultNotConfirmed(f"controller {self.node} is no voter: nothing to remove")
        self._ask(0.0 if quorum.dynamic else DYNAMIC_S, joins=False)
        quorum.dynamic = True
        return f"asked a broker to remove controller {self.node} from the quorum"

    def _ask(self, after_s: float, *, joins: bool) -> None:
        """Add the node to the voters (`joins`) or remove it, as soon as the quorum can commit that. The first attempt
        is `after_s` + `COMMITTED_S` seconds from now, the last one at most `WITHIN_S` seconds from now."""
        until = self.world.clock.now + seconds(self.WITHIN_S - AGAIN_S)
        quorum = self.world.control.quorum

        def look() -> None:
            left = [voter for voter in quorum.voters if voter != self.node]
            voters = [*quorum.voters, self.node] if joins else left
            if quorum.may_become(voters) and (not joins or quorum.may_join(self.node)):
                if not joins or self.node not in quorum.voters:
                    quorum.voters = voters
                self.world.control.look()
            elif self.world.clock.now < until:
                self.later(AGAIN_S, look)

        self.later(after_s + COMMITTED_S, look)

    def _listed(self) -> bool:
        """Return True if a running broker can list the voters of the quorum, for which there must be an active
        controller. Then also set `witness` to a sentence with the list, which confirms the effect or the healing."""
        control = self.world.control
        asked = [node for node in control.brokers if control.ready(node) and control.reaches(node)]
        if not asked:
            return False
        voters = ", ".join(map(str, sorted(control.quorum.voters)))
        self.witness = f"broker {asked[-1]}: controller {control.active} leads, voters {voters}"
        return True

    def is_in_effect(self) -> bool:
        return self._listed() and self.node not in self.world.control.quorum.voters

    def heal(self) -> str:
        self._ask(0.0, joins=True)
        return f"asked for controller {self.node} to be taken in again"

    def healed(self) -> bool:
        return self._listed() and self.node in self.world.control.quorum.voters
