"""The controller quorum, reduced to its voters and to which of them is the active controller.

With ZooKeeper the voters are its servers. The quorum is in one of three states:

* **active**: `active` is a node that reaches a majority, and a majority can write to disk.
* **stalled**: `standing_still` is the last active node. It still reaches a majority, but frozen disks keep it from
  committing. It is active again if the disks recover before the election time-out; else another node is elected. If
  none could be, the next `look` calls an election without a time-out.
* **leaderless**: both are `NOBODY`. Each `look` calls an election after a whole time-out, in place of a pending one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ackproof_simulator.clock import MS
from ackproof_simulator.network import Scene

NOBODY: Final = -1
IDLE_NS: Final = 500 * MS
"""metadata.max.idle.interval.ms: an idle leader writes this often, so it notices a frozen disk within this time."""


class Quorum:
    """The controller quorum (KRaft), or the ZooKeeper ensemble (`zookeeper` True).

    `active`: the active controller, or NOBODY. `elected` is called after each election that a node won. `voters`: at
    first all controllers; they can change if kraft.version is 1 (KIP-853)."""

    def __init__(
        self,
        scene: Scene,
        controllers: Sequence[int],
        elected: Callable[[], None],
        *,
        zookeeper: bool,
    ) -> None:
        self._clock, self._network, self._disks = scene.clock, scene.network, scene.disks
        self._timing, self._random, self._elected = scene.timing, scene.random, elected
        self._zookeeper = zookeeper
        self.controllers = tuple(controllers)
        self.voters = list(controllers)
        self.active = controllers[0]
        self.standing_still = NOBODY
        """Active controller that cannot commit because disks are frozen; `NOBODY` otherwise."""
        self.votes_already: set[int] = set()
        """Combined nodes that are starting: their controller votes before their broker is registered."""
        self.dynamic = False
        """True if kraft.version is 1, so that voters can change."""
        self._overdue = False
        """True if an election was due and no node could be elected. A stalled quorum then elects the next eligible node
        without a time-out."""
        self._electing = 0

    @property
    def presumed(self) -> int:
        """The controller that other nodes take for active: `active`; in a stalled quorum `standing_still`, which frozen
        disks keep from committing; else NOBODY."""
        return self.active if self.active != NOBODY else self.standing_still

    def _hears_majority(self, node: int, voters: Sequence[int] | None = None) -> bool:
        """Return True if a controller's process runs, and exchanges messages with a majority of `voters` (None: of the
        present voters). A voter counts itself."""
        if not self._takes_part(node):
            return False
        among = self.voters if voters is None else voters
        return 2 * sum(self._hears(node, other) for other in among) > len(among)

    def _hears(self, node: int, other: int) -> bool:
        between = self._network.between
        return other == node or (
            self._takes_part(node)
            and self._takes_part(other)
            and between(node, other).open
            and between(other, node).open
        )

    def _takes_part(self, node: int) -> bool:
        host = self._network.hosts[node]
        return not host.paused and (host.up or node in self.votes_already)

    def writes(self, node: int) -> bool:
        return not self._disks.metadata_still(node)

    def _commits(self, node: int) -> bool:
        """Return True if a majority of the voters can write this node's decisions to disk. While no disk is frozen, the
        answer is True without a count: the caller checks that the node reaches a majority.

        With Raft the node itself must be able to write too; ZooKeeper's leader waits for any majority."""
        if not self._disks.frozen:
            return True
        writing = sum(self._hears(node, other) and self.writes(other) for other in self.voters)
        return 2 * writing > len(self.voters) and (self._zookeeper or self.writes(node))

    def _may_lead(self, node: int) -> bool:
        return node in self.voters and self._hears_majority(node) and self._commits(node)

    def look(self) -> None:
        """Update the active controller; call it after a change of a process, a link, a disk or the voters.

        A controller that may not lead any more is deposed, and an election is called. A stalled controller that can
        commit again becomes active again. If an election was due meanwhile and nobody could be elected, another
        election takes place without a time-out instead. While there is neither an active nor a stalled controller, each
        call schedules an election after a whole time-out, and cancels the election scheduled before."""
        if self.active != NOBODY:
            if not self._may_lead(self.active):
                self._lose()
        elif self.standing_still == NOBODY:
            self._call_election(self._timeout)
        elif self._overdue:
            self._call_election(0)
        elif self._may_lead(self.standing_still):
            self.active, self.standing_still = self.standing_still, NOBODY
            self._electing += 1
        elif not self._hears_majority(self.standing_still):
            self.standing_still = NOBODY
            self._call_election(self._timeout)

    def _lose(self) -> None:
        before, self.active = self.active, NOBODY
        if before not in self.voters:
            self._call_election(self._until_another())
        elif self._hears_majority(before):
            self.standing_still, self._overdue = before, False
            self._call_election(self._timeout + int(self._random.random() * IDLE_NS))
        else:
            self._call_election(self._timeout)

    def resign(self) -> None:
        self.active = self.standing_still = NOBODY
        self._call_election(self._until_another())

    def _until_another(self) -> int:
        # A controller that learns that it resigned asks for votes at once and gets none from those that fetched from
        # it just now (KIP-996): its own time-out ends the epoch, and one of theirs elects another.
        timeout = self._timing.quorum_election
        return 2 * timeout + int(self._random.random() * timeout)

    @property
    def _timeout(self) -> int:
        return self._timing.quorum_timeout if len(self.controllers) > 1 else 20 * MS

    def _call_election(self, delay: int) -> None:
        self._electing += 1
        delay += int(self._random.random() * self._timing.quorum_jitter)
        self._clock.call_after(delay, self._elect, self._electing)

    def _elect(self, number: int) -> None:
        if number != self._electing or self.active != NOBODY:
            return
        able = [node for node in self.controllers if self._may_lead(node)]
        if not able:
            self._overdue = True
            return
        self.active = able[int(self._random.random() * len(able))]
        self.standing_still = NOBODY
        self._elected()

    # -- voters (KIP-853) -----------------------------------------------------------------------------------------

    def may_become(self, voters: Sequence[int]) -> bool:
        return self.active != NOBODY and self._hears_majority(self.active, voters)

    def may_join(self, node: int) -> bool:
        """Return True if controller `node` can become a voter: its process runs, it can write to disk, and it exchanges
        messages with the active controller. False without an active controller."""
        return (
            self.active != NOBODY
            and self._network.hosts[node].running
            and self._hears(self.active, node)
            and self.writes(node)
        )
