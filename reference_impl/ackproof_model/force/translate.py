"""Translates a story to the steps of a script: the requests to let through or the action to take, and the state to
expect.

Some steps of the model need no step of the script:

* A follower of Kafka fetches again as soon as it has taken an answer: its request waits at the gate.
* A leader proposes an ISR change by itself.
* A broker registers, catches up and is unfenced in one start. So it is started where the model unfences it.
* A follower that asks where an epoch ends (before KIP-595) learns it from the answer to a fetch. If nothing has to be
  truncated, that answer brings records at once.
* If a story begins with a smaller ISR, the brokers outside of it are shut down and started first; their fetches wait.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Final

from ackproof.base.errors import AckproofError
from ackproof.experiment.problems import Data
from ackproof_model.force.story import State, Story
from ackproof_reference.broker import Broker, Follower, Leader, Process
from ackproof_reference.explore.model import Action, ActionKind, StoryLine
from ackproof_reference.explore.scope import Client
from ackproof_reference.log import Log
from ackproof_reference.messages import Altered, AlterPartition, AskEpochEnd, EpochEnd, Fetch, Fetched
from ackproof_reference.metadata import Metadata, Partition
from ackproof_reference.node import step

Entry = dict[str, Data]
"""A step of a script, as in an experiment file: field name → value."""


class NotForceable(AckproofError):
    """Raised for a step of a counterexample that no script can carry out. `number`: the step, from 1.

    `why`: a sentence.
    """

    def __init__(self, number: int, line: StoryLine, why: str) -> None:
        self.number = number
        action = line.action
        super().__init__(f"step {number} ({action.actor}: {action.text}): {why}")


@dataclass(frozen=True)
class Forced:
    """A step of a script that forces a counterexample on brokers.

    `number`: the step of the counterexample that it carries out, from 1; 0 for steps that prepare its first state.
    """

    entry: Entry
    number: int


_OF_BROKERS: Final = ("fetch", "proposal", "learn", "kill", "power_loss", "end_session", "unfence")
_WITHIN: Final = "15s"
"""Time within which Kafka must reach the model's state; else it diverged."""
_OF_FOLLOWERS: Final = "diverged"
"""Class of findings that depends on the high watermarks of followers. For other classes only those of leaders are
compared, because Kafka's followers may be ahead of the model's. A fetch without new records waits at the leader, and
its answer has the high watermark from the end of the wait (DelayedFetch.onComplete)."""
_DEATHS: Final = (ActionKind.KILL, ActionKind.LOSE_POWER)
_NOT_SCRIPTED: Final = {
    ActionKind.LOSE_ANSWER: "no gate loses an answer and lets the next request through",
    ActionKind.TIME_OUT: "how long a producer waits is a time-out of its own",
    ActionKind.REASSIGN: "no step of a script begins a reassignment",
}
_WITHOUT_SCRIPT: Final = "no step of a script does it"


def translated(story: Story) -> list[Forced]:
    """Return the steps of a script that carries out a counterexample. Raises `NotForceable` for the first step that no
    script can carry out."""
    return list(_Translation(story).steps())


class _Translation:
    def __init__(self, story: Story) -> None:
        self._story = story
        self._states = story.states()
        self._starting: set[int] = set()
        """Brokers that the model has started and not unfenced yet. On the real cluster they are still down."""
        self._ahead: set[int] = set()
        """Brokers that learned at their start what the model lets them learn in a later step."""
        self._counted: dict[int, NotForceable] = {}
        """Starts of brokers in `_starting` that changed the partition: an error unless the broker is unfenced later."""
        self._agree: set[int] = set()
        """Followers that ask where an epoch ends and have nothing to truncate: no release supported here asks that."""
        self._first_epoch = 0
        """Number of leader epochs that the script begins before the story does (`_beforehand`). The brokers' epochs are
        higher than those of the model by this number."""

    def steps(self) -> Iterator[Forced]:
        """Yield the steps of the script in order. A script step for several steps of the model is yielded with the last
        of them. Raises `NotForceable` at a step that no script can carry out."""
        yield from self._beforehand()
        for number, line in enumerate(self._story.way, 1):
            before, after = self._states[number - 1], self._states[number]
            entries = list(self._entries(number, line, before, after))
            if any(entry.get(act) in self._starting for entry in entries for act in _OF_BROKERS):
                raise NotForceable(number, line, "a broker that starts cannot be met between its steps")
            for place, entry in enumerate(entries):
                last = place == len(entries) - 1
                then = self._expected(after) if last else {}
                note = f"{number}. {line.action.actor}: {line.action.text}"
                seen: Entry = {"then": then, "within": _WITHIN} if then else {}
                yield Forced({**entry, **seen, "note": note}, number)
        for never in self._counted.values():
            raise never

    def _partition(self, number: int) -> Partition:
        metadata = self._states[number]["controller"]
        assert isinstance(metadata, Metadata)
        return metadata.partition

    def _beforehand(self) -> Iterator[Forced]:
        """Yield the steps that bring the cluster to the ISR with which the counterexample begins. They have
        number 0.
        """
        scope = self._story.scope
        replicas = scope.assigned or scope.ids
        out = [broker for broker in replicas if scope.started_isr and broker not in scope.started_isr]
        if not out:
            return
        self._first_epoch = int(replicas[0] in out)
        # A broker is let go only when all others have learnt that it goes.
        entries: list[Entry] = [{"open": "metadata"}]
        for broker in out:
            entries += [{"stop": broker}, {"start": broker}]
        entries.append({"shut": "metadata", "then": self._expected(self._states[0])})
        for entry in entries:
            yield Forced({**entry, "note": f"the story begins with ISR {list(scope.started_isr)}"}, 0)

    def _entries(self, number: int, line: StoryLine, before: State, after: State) -> Iterator[Entry]:
        action = line.action
        if action.kind in _NOT_SCRIPTED:
            raise NotForceable(number, line, _NOT_SCRIPTED[action.kind])
        changed = {name: (was, now) for name, was, now in line.changed}
        match action.kind:
            case ActionKind.SEND | ActionKind.RESEND:
                yield self._send_entry(number, line, before)
            case ActionKind.ANSWER_FETCH:
                yield from self._answer_entries(action.broker, before, after)
            case ActionKind.ABANDON_FETCH:
                yield from self._abandon_entries(action, changed, after)
            case ActionKind.FETCH | ActionKind.FIND_LEADER_DOWN:
                return  # its request waits at the gate already
            case ActionKind.TAKE_ANSWER:
                yield from self._take_entries(action, before, after)
            case ActionKind.TAKE_DECISION:
                yield {"proposal": action.broker, "side": "response"}
            case ActionKind.PROPOSE_SHRINK:
                return  # it does so by itself, once replica.lag.time.max.ms is over
            case _ if action.actor == "controller":
                yield from self._controller_entries(number, line, changed, after)
            case _:
                yield from self._life_entries(number, line, changed, after)

    def _send_entry(self, number: int, line: StoryLine, before: State) -> Entry:
        client, first = before["client"], self._states[0]["controller"]
        assert isinstance(client, Client) and isinstance(first, Metadata)
        if line.action.kind is ActionKind.RESEND:
            if self._story.scope.records > 1:
                raise NotForceable(number, line, "a producer sends again all that it has not heard of")
            return {"resend": 0}
        known = first.partition.leader
        # It asks for metadata again when its connection is gone, and any broker that is up answers.
        moved = any(
            step.action.broker == known and step.action.kind in _DEATHS
            for step in self._story.way[: number - 1]
        )
        if line.action.broker != known and not moved:
            raise NotForceable(
                number, line, f"a producer sends to the leader that it knows of, broker {known}"
            )
        return {"send": 0 if self._story.scope.idempotent else client.sent, "until": "appended"}

    def _controller_entries(
        self, number: int, line: StoryLine, changed: dict[str, tuple[Hashable, Hashable]], after: State
    ) -> Iterator[Entry]:
        action, metadata = line.action, after["controller"]
        assert isinstance(metadata, Metadata)
        match action.kind:
            case ActionKind.FENCE:
                yield {"end_session": action.broker}
            case ActionKind.MOVE_LEADER:
                yield {"lead": metadata.partition.leader}
            case ActionKind.ELECT_PREFERRED:
                yield {"elect": "preferred"}
            case ActionKind.ELECT_UNCLEAN:
                yield {"elect": "unclean"}
            case ActionKind.DECIDE_PROPOSAL:
                yield {"proposal": action.broker, "side": "request"}
            case _:
                raise NotForceable(number, line, _WITHOUT_SCRIPT)
        yield from self._void_entries(changed, after)

    def _answer_entries(self, follower: int, before: State, after: State) -> Iterator[Entry]:
        """Yield the script entry that lets a follower's request reach its leader. The answer waits at the gate for
        `_take_entries`. A refusal passes with the request, because the follower only sends its request again.

        Yield nothing if the answer says where an epoch ends, and the follower has nothing to truncate (`_agrees`). Only
        the model's follower asks where an epoch ends (before KIP-595). The real one fetches at once."""
        answer = after[f"fetch of broker {follower}"]
        if isinstance(answer, EpochEnd) and self._agrees(before, follower, answer):
            self._agree.add(follower)
            return
        entry: Entry = {"fetch": follower}
        yield {**entry, "side": "request"} if answer is not None else entry

    def _agrees(self, state: State, follower: int, answer: EpochEnd) -> bool:
        """Return True if this answer about an epoch's end leaves the follower's log as it is, so that the follower
        fetches from now on."""
        log = state[f"log of broker {follower}"]
        assert isinstance(log, Log)
        there, _ = step(
            Broker(follower, log, self._process(state, follower)), answer, self._story.scope.rules
        )
        role = there.process.role
        return there.log == log and isinstance(role, Follower) and not role.truncating

    def _abandon_entries(
        self, action: Action, changed: dict[str, tuple[Hashable, Hashable]], after: State
    ) -> Iterator[Entry]:
        """Yield the script entry for a request that its follower gave up while the script held it back. If the follower
        still follows that leader, the entry lets the request pass, and the leader refuses it. Else nothing is yielded,
        because the follower has closed the connection.

        `changed`: cells that the model's step changes: name → (value before, value after)."""
        was, _ = changed[f"fetch of {action.actor}"]
        if isinstance(was, Fetch | AskEpochEnd) and self._follows(after, action.broker) == was.leader:
            yield {"fetch": action.broker}

    def _take_entries(self, action: Action, before: State, after: State) -> Iterator[Entry]:
        if isinstance(before[f"fetch of {action.actor}"], EpochEnd) and action.broker in self._agree:
            self._agree.discard(action.broker)
        elif self._process(after, action.broker).up:
            yield {"fetch": action.broker, "side": "response"}

    def _life_entries(
        self, number: int, line: StoryLine, changed: dict[str, tuple[Hashable, Hashable]], after: State
    ) -> Iterator[Entry]:
        broker = line.action.broker
        match line.action.kind:
            case ActionKind.LEARN:
                self._ahead.discard(broker)
                if broker not in self._starting:
                    yield {"learn": broker}
                    yield from self._void_entries(changed, after)
            case ActionKind.KILL:
                yield {"kill": broker}
            case ActionKind.LOSE_POWER:
                log = after[f"log of broker {broker}"]
                assert isinstance(log, Log)
                yield {"power_loss": broker, "keep": log.end}
            case ActionKind.REGISTER:
                self._starting.add(broker)
                if self._partition(number) != self._partition(number - 1):
                    why = "a broker registers, which changes the partition, and is not unfenced"
                    self._counted[broker] = NotForceable(number, line, why)
            case ActionKind.UNFENCE if broker in self._starting:
                self._starting.discard(broker)
                self._counted.pop(broker, None)
                self._ahead.add(broker)
                yield {"start": broker}
            case ActionKind.UNFENCE:
                yield {"unfence": broker}
            case _:
                raise NotForceable(number, line, _WITHOUT_SCRIPT)

    def _void_entries(self, changed: dict[str, tuple[Hashable, Hashable]], after: State) -> Iterator[Entry]:
        """Yield a script entry for each held message that the model dropped in this step because it has no effect any
        more: answers to fetches, and proposals (AlterPartition) with their answers. The entry lets the message pass.

        Left out are messages of brokers that are down, and answers from a leader that the broker no longer follows.
        `changed`: as in `_abandon_entries`."""
        for broker in self._story.scope.ids:
            fetch, proposal = (
                changed.get(f"{what} of broker {broker}", (None, None)) for what in ("fetch", "proposal")
            )
            if not self._process(after, broker).up:
                continue  # its connections are gone
            answer = fetch[0] if fetch[1] is None else None
            if isinstance(answer, EpochEnd) and broker in self._agree:
                self._agree.discard(broker)
            elif isinstance(answer, Fetched | EpochEnd) and self._follows(after, broker) == answer.leader:
                yield {"fetch": broker, "side": "response"}
            if proposal[1] is None and isinstance(proposal[0], AlterPartition):
                yield {"proposal": broker}
            elif proposal[1] is None and isinstance(proposal[0], Altered):
                yield {"proposal": broker, "side": "response"}

    @staticmethod
    def _follows(state: State, broker: int) -> int | None:
        process = state[f"memory of broker {broker}"]
        role = process.role if isinstance(process, Process) else None
        return role.leader if isinstance(role, Follower) else None

    # -- what is to be seen -------------------------------------------------------------------------------------

    def _expected(self, state: State) -> dict[str, Data]:
        """Return the part of the model's `state` for which a script step waits: what a script can observe on brokers.

        * `acked`: number of acknowledged records.
        * `leader`, `epoch`, `isr`, `elr`, `fenced`, `down`: only while no broker is in `_starting`.
        * `ends`: log end offset by broker.
        * `believed`: by broker, the leader epoch that a running leader or follower knows. Brokers in `_ahead` are left
          out, because they know more than in the model.
        * `high_watermarks`: by broker, of the leaders in `believed` whose high watermark has reached the start of their
          epoch. For the class `diverged`: of all brokers in `believed`.

        Brokers in `_starting` are left out of every field: they run in the model, and are still down on the real
        cluster."""
        metadata, client = state["controller"], state["client"]
        assert isinstance(metadata, Metadata) and isinstance(client, Client)
        partition = metadata.partition
        whole = not self._starting
        ids = [broker for broker in self._story.scope.ids if broker not in self._starting]
        found: dict[str, Data] = {"acked": len(client.acked)}
        if whole:
            found |= {
                "leader": partition.leader,
                "epoch": self._first_epoch + partition.leader_epoch,
                "isr": list(partition.isr),
                "elr": list(partition.elr),
                "fenced": [entry.broker for entry in metadata.brokers if entry.fenced],
                "down": [broker for broker in ids if not self._process(state, broker).up],
            }
        ends: dict[str, Data] = {}
        marks: dict[str, Data] = {}
        believed: dict[str, Data] = {}
        for broker in ids:
            log, process = state[f"log of broker {broker}"], self._process(state, broker)
            assert isinstance(log, Log)
            ends[str(broker)] = log.end
            if process.up and process.role is not None and broker not in self._ahead:
                believed[str(broker)] = self._first_epoch + process.role.epoch
                led = isinstance(process.role, Leader) and log.high_watermark >= process.role.start
                if led or self._story.kind == _OF_FOLLOWERS:
                    marks[str(broker)] = log.high_watermark
        return {**found, "ends": ends, "believed": believed, "high_watermarks": marks}

    @staticmethod
    def _process(state: State, broker: int) -> Process:
        process = state[f"memory of broker {broker}"]
        assert isinstance(process, Process)
        return process
