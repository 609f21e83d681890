"""Decommissioned brokers: their replicas move to other brokers, before or after the brokers have ended.

One witness is another broker. It shows that the decommissioned brokers hold no partition, and that every ISR is full
without them. The other is the operating system: it shows that the processes have ended.
"""

from __future__ import annotations

import contextlib
from typing import Final

from pydantic import Field, field_validator

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster import admin, queries
from ackproof.cluster.protocol import NodeState
from ackproof.cluster.queries import PartitionState
from ackproof.experiment.base import Flag
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import AS_KRAFT, Exposure, Incidents
from ackproof.experiment.fault import Complaints
from ackproof.experiment.roles import Role, refuse_controllers
from ackproof.faults.context import FaultContext
from ackproof.faults.injection import Aim, injects
from ackproof.faults.planned.views import all_topics, ask
from ackproof.faults.processes import ProcessFault, ProcessInjection
from ackproof.network.wire import WireError
from ackproof.rundir.partition import TopicPartition

MOVED_WITHIN_S: Final = 90.0


class Decommission(ProcessFault):
    """Brokers leave the cluster, and all their replicas are reassigned to other brokers. With `drain` the replicas move
    first, and a controlled shutdown follows; without it the brokers are killed, and then the replicas move. Healing
    starts the brokers again; they then have no partitions."""

    KIND = "decommission"
    DONE = "decommissioned"
    SUMMARY = "Remove brokers and move their replicas to others, before or after they go."
    HEALING = "start again"
    HOLD_KEY = "restart_after"

    drain: Flag = Field(
        True, description="Move the replicas away first, then shut down; false: SIGKILL first, then replace."
    )

    @field_validator("target")
    @classmethod
    def _brokers_only(cls, value: Role) -> Role:
        return refuse_controllers(value, "holds no partitions")

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        if not say.sound(("target",), cluster=True):
            return
        leave = max(1, self.target.reach(spec.cluster.members)[1])
        for name, topic in spec.topics.items():
            if topic.replication_factor > spec.cluster.brokers - leave:
                say.report(
                    ("target",),
                    f"no broker could take its replicas of {name}: {spec.cluster.brokers} brokers"
                    f"{f' of which {leave} leave' if leave > 1 else ''}, "
                    f"replication factor {topic.replication_factor}",
                )
                return

    def observed(self, nodes: int) -> Incidents:
        return Incidents(clean_stops=nodes) if self.drain else Incidents(kills=nodes)

    def planned(self, exposure: Exposure) -> Incidents:
        return self.observed(exposure.aimed_at(self.targets))

    def not_simulated(self, spec: ExperimentSpec) -> tuple[str, str] | None:
        return ("", AS_KRAFT) if spec.cluster.mode == "zookeeper" else None


@injects(Decommission)
class _DecommissionInjection(ProcessInjection[Decommission]):
    """Move the brokers' replicas away and shut them down, or kill them and then move their replicas (`drain`). Healing
    starts the brokers again.

    Confirmed when their processes are gone, and another broker shows full ISRs and no replica on them. Raises
    `FaultNotConfirmed` if the remaining brokers are too few for the replicas."""

    def __init__(self, fault: Decommission, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.leaving = frozenset(node.id for node in aim.nodes)
        self._moved = 0

    def inject(self) -> str:
        self._require_breakable()
        if self.fault.drain:
            self._move_all()
            did = self._strike(self._terminate, "SIGTERM")
        else:
            did = self._strike(lambda node: node.kill(), "SIGKILL")
            self._await_state(NodeState.GONE, 10.0)
            self._move_all()
        return f"{did}; {self._moved} replicas went to other brokers"

    def confirm(self) -> str:
        gone = self._await_state(NodeState.GONE, 30.0)
        return f"{gone}; {self._await_moved()}"

    def _move_all(self) -> None:
        others = sorted(set(self.context.cluster.running_links()) - self.leaving)
        if not others:
            raise FaultNotConfirmed("no other broker runs that could take replicas")
        states = self._states()
        held = dict.fromkeys(others, 0)
        for state in states.values():
            for broker in state.replicas:
                if broker in held:
                    held[broker] += 1
        moves: dict[TopicPartition, tuple[int, ...]] = {}
        for place, state in states.items():
            replicas = list(state.replicas)
            for index, broker in enumerate(state.replicas):
                if broker not in self.leaving:
                    continue
                free = [other for other in others if other not in replicas]
                if not free:
                    raise FaultNotConfirmed(
                        f"no broker could take the replica of {place} that broker {broker} holds"
                    )
                taker = min(free, key=lambda other: (held[other], other))
                held[taker] += 1
                replicas[index] = taker
                self._moved += 1
            if tuple(replicas) != state.replicas:
                moves[place] = tuple(replicas)
        if not moves:
            return  # the broker holds no replica
        ask(self.context, lambda link: admin.reassign(link, moves))
        self._await_moved()

    def _await_moved(self) -> str:
        """Wait until a remaining broker shows no replica on the leaving brokers, and every ISR full; return what was
        seen, in words. Raises `FaultNotConfirmed` if that is not seen within `MOVED_WITHIN_S` seconds."""

        def find_unmoved() -> list[str]:
            return [
                f"{place}: replicas {list(state.replicas)}, ISR {list(state.isr)}"
                for place, state in self._states().items()
                if self.leaving & set(state.replicas) or set(state.isr) != set(state.replicas)
            ]

        self.wait_for(
            lambda: not find_unmoved(),
            f"all replicas of broker {', '.join(map(str, sorted(self.leaving)))} to be elsewhere, in sync",
            state=lambda: "; ".join(find_unmoved()[:5]),
            within_s=MOVED_WITHIN_S,
        )
        return f"metadata of another broker: no replica on {sorted(self.leaving)}, all ISRs full"

    def _states(self) -> dict[TopicPartition, PartitionState]:
        """Return the state of all partitions (of the topics in `all_topics`), as shown by the remaining broker with the
        highest id that answers. Raises `FaultNotConfirmed` if none does in time."""

        def look() -> dict[TopicPartition, PartitionState] | None:
            links = self.context.cluster.running_links()
            for broker in sorted(set(links) - self.leaving, reverse=True):
                with contextlib.suppress(WireError):
                    return queries.partitions(links[broker], all_topics(self.context))
            return None

        return self.wait_for(look, "a broker that stays to describe all partitions")
