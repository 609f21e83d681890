"""What all faults of disks have in common: they heal by a start, after which each replica is in sync again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from ackproof.base.errors import FaultNotConfirmed, WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.cluster.protocol import LocalNode, NodeState, PartitionState
from ackproof.experiment.backends import Ability
from ackproof.experiment.fault import WHERE_IT_LIVES, Complaints, Grip, NodeFault
from ackproof.experiment.spec import SystemUnderTest
from ackproof.faults.injection import FaultContext, SpecT
from ackproof.faults.processes import GONE_WITHIN_S, ProcessInjection
from ackproof.rundir.partition import TopicPartition, internal

_START: Final = "start again"
BACK_WITHIN_S: Final = 60.0


class DiskFault(NodeFault):
    """What all of them have in common."""

    ASKS = frozenset({Ability.DISKS})
    GRIP: ClassVar[Grip | None] = Grip.DOWN
    OVER = WHERE_IT_LIVES
    IN_FORCE_S = 5.0

    def misfits(self, experiment: SystemUnderTest) -> Iterable[tuple[str, str]]:
        """What does not fit together with the rest of the experiment: one of its fields, and a sentence, each."""
        return ()

    def check(self, spec: SystemUnderTest, say: Complaints) -> None:
        """Say what does not fit."""
        for name, message in self.misfits(spec):
            if say.sound((name,), cluster=True):
                say.report((name,), message)


class DiskInjection(ProcessInjection[SpecT]):
    """What all of them have in common: they heal by a start, after which each replica is in sync again."""

    def heal(self) -> str:
        if self.refused:
            return "nothing to undo"
        running = [node for node in self.nodes if node.state() is not NodeState.GONE]
        for node in running:
            node.kill()
        self._until(NodeState.GONE, GONE_WITHIN_S)
        words = []
        for node in self.nodes:
            with self.holds.acting_on(node.id):  # nobody else is to be at its disk
                words.append(self._mend(node))
        mended = "; ".join(filter(None, words))
        started = self._start_the_dead()
        return f"{mended}; {started}" if mended else started

    def _mend(self, node: LocalNode) -> str:
        """What the disk of one node needs before the node may start, in words."""
        return ""

    def confirm_healed(self) -> str:
        """The nodes are registered, and every replica of theirs is in its ISR."""
        if self.refused:
            return self._until_ready()
        return f"{self._until_ready()}; {in_sync_again(self.context, self.nodes)}"


def in_sync_again(context: FaultContext, nodes: tuple[LocalNode, ...]) -> str:
    """Wait until these nodes are in the ISR of all their partitions. Raises `FaultNotConfirmed`."""
    topics = list(context.case.experiment.topics) if context.case is not None else _topics_on(nodes)
    brokers = {node.id for node in nodes if node.is_broker}
    if not topics or not brokers:
        return "no replicas to wait for"
    seen: dict[TopicPartition, PartitionState] = {}

    def behind() -> list[str]:
        return [
            f"{place} has {list(state.isr)} of {list(state.replicas)} in sync, leader {state.leader}"
            for place, state in seen.items()
            if state.leader < 0 or not brokers & set(state.replicas) <= set(state.isr)
        ]

    def all_in() -> bool:
        seen.clear()
        seen.update(context.cluster.topic_state(topics))
        return bool(seen) and not behind()

    try:
        wait_until(
            all_in,
            what=f"the replicas of {', '.join(map(str, sorted(brokers)))} to be in sync",
            timeout_s=BACK_WITHIN_S,
            state=lambda: "; ".join(behind()[:3]) or "no broker tells",
            stop=context.stop,
        )
    except WaitTimeout as error:
        raise FaultNotConfirmed(f"healing: {error}") from error
    mine = [place for place, state in seen.items() if brokers & set(state.replicas)]
    return f"metadata: in the ISR of all its {len(mine)} partition(s)"


def _topics_on(nodes: tuple[LocalNode, ...]) -> list[str]:
    return sorted({topic for node in nodes for topic, _ in node.disk.partitions() if not internal(topic)})
