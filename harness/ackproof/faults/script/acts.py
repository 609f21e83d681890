"""Actions of a script. A script leads brokers through steps one at a time, while proxies (gates) hold all other
requests of the APIs concerned. Each action does one step and waits for its effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster import admin
from ackproof.cluster.admin import Election, Owner, ResourceType
from ackproof.cluster.disks.log import CLEAN_SHUTDOWN, checkpoint, cut, log_end
from ackproof.cluster.protocol import Cluster, LocalNode, NodeState, local
from ackproof.faults.context import Clients
from ackproof.faults.script.spec import Gate, StepSpec
from ackproof.faults.script.stage import ControllerState, Gates, PartitionObserver
from ackproof.network.requests.rules import FrameSide
from ackproof.network.wire import Connection
from ackproof.rundir.metadata import ConfigChanged


@dataclass(frozen=True)
class ScriptActions:
    """Actions of a script's steps, one method each, and what they use.

    `gates`: the proxies that hold requests until a step lets them through. `looks`: observes the effects of steps."""

    cluster: Cluster
    clients: Clients
    gates: Gates
    looks: PartitionObserver
    until: Callable[[Callable[[], object], str], object]
    """Function that calls its first argument until that returns a true value. Its second argument says, in words, what
    is awaited. Raises `FaultNotConfirmed` with these words if no true value comes in time."""
    acks: str
    """The producers' `acks`: 0, 1 or all."""

    def take(self, step: StepSpec) -> str:
        """Run a step and wait until its effect is observed; return in words what was done, '' for a step that only
        waits. Raises `FaultNotConfirmed` if it is not observed in time, another `AckproofError` if the step fails.
        Raises `NotDecoded` or OSError if the log of the controller or of a broker cannot be read."""
        by_name: dict[str, Callable[[StepSpec], str]] = {
            "send": self._send,
            "resend": self._resend,
            "fetch": self._fetch,
            "proposal": self._proposal,
            "set_aside": self._set_aside,
            "deliver": self._deliver,
            "learn": self._learn,
            "heartbeat": self._heartbeat,
            "end_session": self._end_session,
            "unfence": self._unfence,
            "kill": self._kill,
            "stop": self._stop,
            "power_loss": self._power_loss,
            "start": self._start,
            "pause": self._pause,
            "resume": self._resume,
            "elect": self._elect,
            "lead": self._lead,
            "set": self._set,
            "open": self._open,
            "shut": self._shut,
        }
        return by_name[step.action](step) if step.action else ""

    # -- what goes through the gates ----------------------------------------------------------------------------

    def _fetch(self, step: StepSpec) -> str:
        return self._through(Gate.FETCHES, step, "fetch")

    def _proposal(self, step: StepSpec) -> str:
        return self._through(Gate.PROPOSALS, step, "proposal")

    def _through(self, gate: Gate, step: StepSpec, what: str) -> str:
        """Let a request (`step.side` request), its response, or both through the gate; return what was done. `what`:
        the request in words.

        A request is through when its response waits at the gate. A response is through at once or, for fetches, when
        the broker's next fetch waits. Raises `FaultNotConfirmed` if a frame does not come, or come through, in time.
        """
        broker, gates, until = step.broker or 0, self.gates, self.until
        name = f"the {what} of broker {broker}"
        if step.side in ("request", "both"):
            until(lambda: gates.count_held(gate, broker, FrameSide.REQUEST) == 1, f"{name} to be there")
            gates.release(gate, broker, FrameSide.REQUEST)
            until(lambda: gates.count_held(gate, broker, FrameSide.RESPONSE) == 1, f"{name} to be answered")
        if step.side in ("response", "both"):
            until(
                lambda: gates.count_held(gate, broker, FrameSide.RESPONSE) == 1,
                f"the answer to {name} to be there",
            )
            gates.release(gate, broker, FrameSide.RESPONSE)
            if gate is Gate.FETCHES:
                until(
                    lambda: gates.count_held(gate, broker, FrameSide.REQUEST) == 1,
                    f"broker {broker} to fetch again",
                )
        return f"let through {'' if step.side == 'both' else f'the {step.side} of '}{name}"

    def _set_aside(self, step: StepSpec) -> str:
        broker = step.broker or 0
        self.until(lambda: self.gates.set_aside(broker), f"a fetch of broker {broker} to be there")
        return f"copied the fetch of broker {broker}"

    def _deliver(self, step: StepSpec) -> str:
        errors = self.gates.deliver(step.broker or 0)
        return f"delivered the copied fetch of broker {step.broker}: {', '.join(errors) or 'no error'}"

    def _learn(self, step: StepSpec) -> str:
        broker, gates = step.broker or 0, self.gates
        passed = 0

        def knows() -> bool:
            nonlocal passed
            decided = self.looks.try_decisions()
            if decided is not None and self.looks.knows(broker, decided):
                return True
            passed += gates.release(Gate.METADATA, broker, FrameSide.REQUEST)
            return False

        self.until(knows, f"broker {broker} to learn what the controller has decided")
        return f"let {passed} fetches of the metadata log through to broker {broker}"

    def _heartbeat(self, step: StepSpec) -> str:
        broker, gates, until = step.broker or 0, self.gates, self.until
        until(
            lambda: gates.count_held(Gate.HEARTBEATS, broker, FrameSide.REQUEST) == 1,
            f"a heartbeat of broker {broker}",
        )
        gates.release(Gate.HEARTBEATS, broker, FrameSide.REQUEST)
        until(
            lambda: gates.count_held(Gate.HEARTBEATS, broker, FrameSide.REQUEST) == 1,
            f"broker {broker}'s next heartbeat",
        )
        return f"let one heartbeat of broker {broker} through"

    def _end_session(self, step: StepSpec) -> str:
        broker = step.broker or 0
        if self._node(step).state() is not NodeState.GONE:
            self.gates.shut(Gate.HEARTBEATS, broker, FrameSide.REQUEST)
        self._until_decided(lambda decided: broker in decided.fenced, f"broker {broker} to be fenced")
        return f"waited for the end of broker {broker}'s session"

    def _unfence(self, step: StepSpec) -> str:
        broker = step.broker or 0
        self.gates.open(Gate.HEARTBEATS, broker)
        self._until_decided(lambda decided: broker not in decided.fenced, f"broker {broker} to be unfenced")
        return f"let broker {broker}'s heartbeats through"

    def _open(self, step: StepSpec) -> str:
        whose = step.of or self.cluster.spec.broker_ids
        for gate in step.open or ():
            for broker in whose:
                self.gates.open(gate, broker)
        return f"opened {' and '.join(step.open or ())} of {', '.join(map(str, whose))}"

    def _shut(self, step: StepSpec) -> str:
        whose = step.of or self.cluster.spec.broker_ids
        for gate in step.shut or ():
            for broker in whose:
                for side in gate.sides:
                    self.gates.shut(gate, broker, FrameSide(side))
        return f"shut {' and '.join(step.shut or ())} of {', '.join(map(str, whose))}"

    # -- producers ----------------------------------------------------------------------------------------------

    def _send(self, step: StepSpec) -> str:
        clients, until, name = self.clients, self.until, f"p{step.send}"
        acked, sent, before = clients.acked(), clients.sent(), self._ends()
        far = step.until or ("appended" if self.acks == "all" else "acked")
        clients.ask_for_record(name)
        until(lambda: clients.sent() > sent, f"producer {name} to send")
        if far != "sent":
            until(lambda: self._ends() != before, "a broker to append it")
        if far == "acked":
            until(lambda: clients.acked() > acked, "its acknowledgement")
        grown = [broker for broker, end in self._ends().items() if end != before.get(broker)]
        return f"{name} sent a record, which was appended by {', '.join(map(str, grown)) or 'no broker'}"

    def _resend(self, step: StepSpec) -> str:
        before = self._ends()
        self.until(lambda: self._ends() != before, f"a broker to append what p{step.resend} sends again")
        return f"p{step.resend} sent again what it had not heard of"

    def _ends(self) -> dict[int, int]:
        found = {}
        for node in local(self.cluster.brokers()):
            if (folder := node.disk.partition(*self.looks.place)) is not None:
                found[node.id] = log_end(folder)
        return found

    # -- processes ----------------------------------------------------------------------------------------------

    def _kill(self, step: StepSpec) -> str:
        node = self._node(step)
        node.kill()
        self._until_state(node, NodeState.GONE)
        return f"SIGKILL to {node.name}"

    def _stop(self, step: StepSpec) -> str:
        node = self._node(step)
        node.terminate()
        self._until_state(node, NodeState.GONE)
        self._until_decided(lambda decided: node.id in decided.fenced, f"{node.name} to be fenced")
        return f"{node.name} shut down (controlled)"

    def _power_loss(self, step: StepSpec) -> str:
        node, place = self._node(step), self.looks.place
        node.kill()
        self._until_state(node, NodeState.GONE)
        folder = node.disk.partition(*place)
        if folder is None:
            raise FaultNotConfirmed(f"{node.name} has no log of {place}")
        for log_dir in node.disk.log_dirs:
            (log_dir / CLEAN_SHUTDOWN).unlink(missing_ok=True)
        before, base = log_end(folder), self.looks.base.ends.get(node.id, 0)
        safe = checkpoint(folder.parent).get(place, 0) if step.keep is None else base + step.keep
        after = cut(folder, safe)
        if after == before:
            raise FaultNotConfirmed(f"the log of {node.name} lost nothing: this was a kill")
        return f"SIGKILL to {node.name}, its log cut from {before - base} to {after - base}"

    def _start(self, step: StepSpec) -> str:
        node, gates, looks = self._node(step), self.gates, self.looks
        before = looks.read_decisions().registered.get(node.id, -1)
        were = [gate for gate in (Gate.METADATA, Gate.HEARTBEATS) if gates.is_shut(gate, node.id)]
        for gate in were:
            gates.open(gate, node.id)
        node.start()

        def back() -> bool:
            decided = self.looks.try_decisions()
            return (
                decided is not None
                and decided.registered.get(node.id, -1) > before
                and node.id not in decided.fenced
                and looks.knows(node.id, decided)
            )

        self.until(back, f"{node.name} to register, to learn all, and to be unfenced")
        for gate in were:
            for side in gate.sides:
                gates.shut(gate, node.id, FrameSide(side))
        return f"started {node.name}"

    def _pause(self, step: StepSpec) -> str:
        node = self._node(step)
        node.pause()
        self._until_state(node, NodeState.STOPPED)
        return f"SIGSTOP to {node.name}"

    def _resume(self, step: StepSpec) -> str:
        node = self._node(step)
        node.resume()
        self._until_state(node, NodeState.RUNNING)
        return f"SIGCONT to {node.name}"

    # -- operators ----------------------------------------------------------------------------------------------

    def _elect(self, step: StepSpec) -> str:
        now = self.looks.read_decisions().partition
        epoch = -1 if now is None else now.leader_epoch
        kind = Election.UNCLEAN if step.elect == "unclean" else Election.PREFERRED
        admin.elect(self._admin_link(), self.looks.place, kind)
        self._until_decided(
            lambda decided: decided.partition is not None and decided.partition.leader_epoch > epoch,
            "a new leader",
        )
        return f"asked for {'an unclean' if kind is Election.UNCLEAN else 'a preferred'} election"

    def _lead(self, step: StepSpec) -> str:
        broker, place = step.lead or 0, self.looks.place
        now = self.looks.read_decisions().partition
        replicas = () if now is None else now.replicas
        order = (broker, *(replica for replica in replicas if replica != broker))
        if order != replicas:
            admin.reassign(self._admin_link(), {place: order})
            self._until_decided(
                lambda decided: decided.partition is not None and decided.partition.replicas == order,
                f"the replicas in the order {list(order)}",
            )
        admin.elect(self._admin_link(), place, Election.PREFERRED)
        self._until_decided(
            lambda decided: decided.partition is not None and decided.partition.leader == broker,
            f"broker {broker} to be elected",
        )
        return f"made broker {broker} the first of the assignment, and asked for a preferred election"

    def _set(self, step: StepSpec) -> str:
        topic, wanted = self.looks.place.topic, dict(step.set or {})
        before = len(self.looks.read_decisions().records)
        admin.alter_config(self._admin_link(), {Owner(ResourceType.TOPIC, topic): wanted})

        def written(decided: ControllerState) -> bool:
            new = {
                record.key: record.value
                for record in decided.records[before:]
                if isinstance(record, ConfigChanged)
            }
            return all(new.get(name) == value for name, value in wanted.items())

        self._until_decided(written, "the controller to write the settings")
        return f"set {', '.join(f'{name}={value}' for name, value in wanted.items())}"

    # -- within -------------------------------------------------------------------------------------------------

    def _node(self, step: StepSpec) -> LocalNode:
        (node,) = local([self.cluster.node(step.broker or 0)])
        return node

    def _admin_link(self) -> Connection:
        link = self.cluster.admin_link()
        if link is None:
            raise FaultNotConfirmed("no broker is there to be asked")
        return link

    def _until_state(self, node: LocalNode, state: NodeState) -> None:
        self.until(lambda: node.state() is state, f"{node.name} to be {state.value}")

    def _until_decided(self, look: Callable[[ControllerState], bool], what: str) -> None:
        self.until(lambda: (decided := self.looks.try_decisions()) is not None and look(decided), what)
