"""Elections as an operator asks for them. Another broker than the asked one shows the new leader, in a newer epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster import admin
from ackproof.cluster.admin import Election
from ackproof.cluster.protocol import PartitionState
from ackproof.experiment.exposure import Draw, Exposure, Incidents
from ackproof.experiment.problems import Data
from ackproof.experiment.spec import SystemUnderTest
from ackproof.faults.injection import injects
from ackproof.faults.planned.of_partition import UNCLEAN, OfPartition, PlannedT, _OfPartition
from ackproof.faults.planned.views import ask_for_one, views

_ELECTION_NOT_NEEDED: Final = 84


class ElectPreferred(OfPartition):
    """A preferred election: the first of the assigned replicas is made leader again (KIP-460)."""

    KIND = "elect_preferred"
    SUMMARY = "Make the first assigned replica of a partition its leader; another must lead before."

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Of any partition."""
        return {"partition": draw.other_place()}

    def planned(self, exposure: Exposure) -> Incidents:
        return Incidents(preferred=1, hand_overs=1)


class ElectUnclean(OfPartition):
    """An unclean election by an operator: a live replica is made leader though nobody in sync is left.

    It takes place whatever unclean.leader.election.enable says, and what only the old leader had is gone.
    """

    KIND = "elect_unclean"
    SUMMARY = "Make any live replica of a leaderless partition its leader, in sync or not."

    def may_set(self, spec: SystemUnderTest, topic: str) -> Mapping[str, str]:
        """As if the topic allowed it."""
        return {UNCLEAN: "true"} if topic == self.partition.topic else {}

    def planned(self, exposure: Exposure) -> Incidents:
        return Incidents(unclean=1)


class _Elected(_OfPartition[PlannedT]):
    """What both elections have in common."""

    ELECTION = Election.PREFERRED

    def inject(self) -> str:
        """Ask for the election."""
        self._look()
        self._must_change_something()
        asked = ask_for_one(
            self.context, lambda link: admin.elect(link, self.place, self.ELECTION), _ELECTION_NOT_NEEDED
        )
        return f"asked broker {asked} for a {self.ELECTION.name.lower()} election of {self.place}"

    def _must_change_something(self) -> None:
        raise NotImplementedError

    def _is_elected(self, state: PartitionState) -> bool:
        raise NotImplementedError

    def confirm(self) -> str:
        """Another broker shows another leader, in a newer epoch."""
        before = self.before
        after = self.seen(
            lambda: (
                (
                    (state := self._witness())
                    and state.leader_epoch > before.leader_epoch
                    and self._is_elected(state)
                    and state
                )
                or None
            ),
            f"another broker to show a new leader of {self.place}",
            state=lambda: str(self._witness()),
        )
        return (
            f"metadata of {views(self.context).name}: leader of {self.place} {before.leader} → {after.leader}, "
            f"epoch {before.leader_epoch} → {after.leader_epoch}, ISR before {list(before.isr)}"
        )

    def confirm_healed(self) -> str:
        """The leader answers."""
        return self._await_leader()


@injects(ElectPreferred)
class PreferredElection(_Elected[ElectPreferred]):
    """The first assigned replica is made leader."""

    def _must_change_something(self) -> None:
        before = self.before
        preferred = before.replicas[0]
        if before.leader == preferred:
            raise FaultNotConfirmed(
                f"broker {preferred}, the preferred leader, leads {self.place} already: nothing to elect"
            )
        if preferred not in before.isr:
            raise FaultNotConfirmed(
                f"broker {preferred}, the preferred leader of {self.place}, is not in sync {list(before.isr)}"
            )

    def _is_elected(self, state: PartitionState) -> bool:
        return state.leader == self.before.replicas[0]


@injects(ElectUnclean)
class UncleanElection(_Elected[ElectUnclean]):
    """Any live replica is made leader of a partition that has none."""

    ELECTION = Election.UNCLEAN

    def _must_change_something(self) -> None:
        if self.before.leader >= 0:
            raise FaultNotConfirmed(
                f"broker {self.before.leader} leads {self.place}: an unclean election takes a leaderless partition"
            )

    def _is_elected(self, state: PartitionState) -> bool:
        if state.leader in self.before.isr:
            raise FaultNotConfirmed(
                f"broker {state.leader} came to lead {self.place} and was in sync {list(self.before.isr)}: "
                "that election was clean"
            )
        return state.leader >= 0
