"""Counterexamples to force on real brokers: one for each protection of the reference implementation, and for settings.

`tools/bench/force_table.py` forces them and writes their table. A counterexample is searched under the rules of the
release on which it is forced, with eligible leader replicas if the release has them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace

from ackproof.experiment.kafka import ELR, features_of
from ackproof_model.force.story import Story
from ackproof_reference.broker import Leader, Process
from ackproof_reference.explore.model import Group, Model, Move
from ackproof_reference.explore.scope import Budget, Client, Scope
from ackproof_reference.explore.search import Search
from ackproof_reference.explore.world import world
from ackproof_reference.log import Log
from ackproof_reference.metadata import Metadata
from ackproof_reference.rules import PROTECTIONS, Rules, Truncation, rules_of, without

MOST = 6_000_000
"""Limit of distinct states of a search."""

IDEMPOTENCE_OFF = "enable.idempotence=false"


@dataclass(frozen=True)
class Row:
    """A counterexample to force. `named`: the protection or setting that is switched off. `kind`: class of its finding.

    `scope`: its size and minimum ISR; its other rules are replaced by those of the release."""

    named: str
    scope: Scope
    kind: str = "lost"
    beside: dict[str, object] = field(default_factory=dict)
    """Further fields of `Rules` that differ from the release's."""
    without_skips: bool = False
    """True to exclude steps in which a leader skips an epoch: Kafka does not notice these, which is a row of its
    own."""

    def story(self, release: str) -> Story | str:
        """Return the shortest counterexample under the rules of a release, or the reason why there is none."""
        there = ELR in features_of(release)
        rules = rules_of(release, elr=there)
        taken = (self.named,) if self.named in PROTECTIONS else ()
        if not there and self.named == "unclean shutdown leaves the ELR":
            return "no ELR"
        changed = replace(
            without(replace(rules, min_insync=self.scope.rules.min_insync), *taken),
            **self.beside,  # type: ignore[arg-type]
        )
        scope = replace(self.scope, rules=changed, settled=True)
        model = _forceable(world(scope.in_stories), skips=not self.without_skips)
        search = Search(model, frozenset({self.kind}))
        search.run(max_states=MOST)
        if (found := search.findings.get(self.kind)) is None:
            return "others stand in" if search.exhausted else f"none in {len(search.seen):,} states"
        told = scope if self.named != IDEMPOTENCE_OFF else replace(scope, idempotent=False)
        return Story(self.kind, found.text, told, tuple(search.way_to(found.state)))


def _forceable(model: Model, *, skips: bool) -> Model:
    """Return the model without steps that no script can carry out: fetches of a started broker that is still fenced.

    `skips` False: also without steps in which a leader learns at once that it was deposed and elected again."""

    def kept(group: Group) -> Group:
        own = group.moves
        if own is None:
            return group

        def learnt(client: Client, metadata: Metadata, log: Log, process: Process) -> Iterator[Move]:
            skipped = (
                isinstance(process.role, Leader) and metadata.partition.leader_epoch > process.role.epoch + 1
            )
            if skips or not skipped:
                yield from own(client, metadata, log, process)

        def fetched(log: Log, process: Process, under_way: Hashable) -> Iterator[Move]:
            known, broker = process.metadata, int(group.row.removeprefix("broker "))
            starting = process.epoch > 0 and known is not None and known.registration(broker).fenced
            if under_way is not None or not starting:
                yield from own(log, process, under_way)

        if group.name == "metadata":
            return group._replace(moves=learnt)
        return group._replace(moves=fetched) if group.name == "fetching" else group

    return replace(model, groups=tuple(map(kept, model.groups)))


_ONE = Rules(min_insync=1)
_TWO = Rules(min_insync=2)
_CUT_AND_POWER = Budget(cuts=1, power_losses=1)

ROWS = (
    Row("acks=1", Scope(_ONE, brokers=2, acks=1, budget=Budget(kills=1))),
    Row("acks=1, moved as planned", Scope(_ONE, brokers=2, acks=1, budget=Budget(hand_overs=1))),
    Row("eligible leader replicas", Scope(_TWO, brokers=2, budget=_CUT_AND_POWER)),
    Row("strict minimum ISR", Scope(_TWO, brokers=2, budget=Budget(kills=1, shrinks=1)), "vanished"),
    Row("unclean shutdown leaves the ELR", Scope(_TWO, brokers=2, budget=_CUT_AND_POWER)),
    Row(
        "broker epochs",
        Scope(
            _ONE,
            brokers=2,
            assigned=(2, 1),
            started_isr=(1,),
            victims=(2,),
            budget=Budget(preferred=1, power_losses=1),
        ),
    ),
    Row("maximal ISR", Scope(_ONE, brokers=2, budget=Budget(kills=1, shrinks=1))),
    Row("expansion from the epoch's start", Scope(_ONE, started_isr=(1, 2), budget=Budget(hand_overs=2))),
    Row("truncation by epoch", Scope(_ONE, brokers=2, budget=Budget(hand_overs=3))),
    Row("walking back", Scope(_ONE, brokers=2, records=2, budget=Budget(hand_overs=2)), "diverged"),
    Row(
        "fetch fencing",
        Scope(_ONE, brokers=2, records=2, budget=Budget(hand_overs=3)),
        beside={"truncation": Truncation.WALK_BACK},
    ),
    Row("clean elections only", Scope(_ONE, brokers=2, budget=Budget(kills=2))),
    # Who led last and left the ISR by it is not waited for: of others Kafka's leader waits to see whether they join.
    Row(
        "partition epoch compare and set",
        Scope(
            _ONE,
            assigned=(2, 1, 3),
            started_isr=(1, 3),
            victims=(3,),
            budget=Budget(cuts=1, hand_overs=1),
        ),
    ),
    Row("replicated by the next fetch", Scope(_TWO, brokers=2, budget=Budget(kills=1))),
    Row("bounded high watermark", Scope(_ONE, brokers=2, records=2, budget=Budget(shrinks=1)), "diverged"),
    Row("forgotten followers", Scope(_ONE, budget=Budget(hand_overs=2)), "invalid ISR", without_skips=True),
    Row(
        "matched responses",
        Scope(_ONE, brokers=2, records=2, budget=Budget(hand_overs=3)),
        "invalid ISR",
        beside={"truncation": Truncation.WALK_BACK},
    ),
    Row(
        "sequence numbers",
        Scope(_ONE, brokers=2, idempotent=True, budget=Budget(kills=1, retries=1)),
        "duplicate",
    ),
    Row(
        IDEMPOTENCE_OFF,
        Scope(_ONE, brokers=2, idempotent=True, budget=Budget(kills=1, retries=1)),
        "duplicate",
        beside={"idempotence": False},
    ),
    Row("noticed epochs", Scope(_ONE, budget=Budget(hand_overs=3))),
    Row("assignment order", Scope(_ONE, started_isr=(1, 3, 2), victims=(1,), budget=Budget(cuts=1))),
    Row("unfenced last known leader", Scope(_TWO, brokers=2, budget=Budget(kills=2))),
)
