"""Flaws for the planted ledgers (planted.py), each as a function in `FLAWS`.

A flaw takes the ledger, its blocks of eight records, and as many helping blocks in other partitions. It changes the
rows of its blocks, and notes with `Ledger.find` what the audit must find.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .planted import BLOCK, LIVE, LOST_END, PARTITIONS, STRANGER, Ledger

Flaw = Callable[[Ledger, np.ndarray, np.ndarray], None]
FLAWS: list[Flaw] = []
NEW = 10**9
"""Sequence numbers from here on belong to records that no producer wrote down."""


def flaw(function: Flaw) -> Flaw:
    FLAWS.append(function)
    return function


def new(at: np.ndarray) -> tuple[int, np.ndarray]:
    return STRANGER, NEW + at


def who(ledger: Ledger, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return ledger.producer[at], ledger.seq[at]


def spot(ledger: Ledger, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return ledger.part[at], ledger.offset[at]


def forget(ledger: Ledger, at: np.ndarray, *, read: bool) -> None:
    """Remove acknowledged records from the final read. `read`: the live readers saw them before."""
    ledger.final["there"][at] = False
    if not read:
        ledger.live["there"][at] = False
    ledger.find("lost", *who(ledger, at))


def change(ledger: Ledger, at: np.ndarray, *, live: bool, **columns: object) -> None:
    for seen in (ledger.final, *((ledger.live,) if live else ())):
        for name, value in columns.items():
            seen[name][at] = value


@flaw
def lost_unread(ledger, block, _):
    """Lose three consecutive offsets, which no reader saw."""
    for position in (2, 3, 4):
        forget(ledger, block * BLOCK + position, read=False)


@flaw
def lost_after_it_was_read(ledger, block, _):
    at = block * BLOCK + 3
    forget(ledger, at, read=True)
    ledger.find("vanished", *spot(ledger, at))
    ledger.final_gaps.append(at)


@flaw
def acks_0_lost(ledger, block, _):
    """Lose a record whose acknowledgement has no offset (acks=0)."""
    at = block * BLOCK + 3
    ledger.acked_at[at] = -1
    forget(ledger, at, read=False)


@flaw
def overwritten_by_a_stranger(ledger, block, _):
    at = block * BLOCK + 5
    ledger.find("lost", *who(ledger, at))
    ledger.find("overwritten", *who(ledger, at))
    ledger.find("phantom", *spot(ledger, at))
    producer, seq = new(at)
    change(ledger, at, live=True, producer=producer, seq=seq)


@flaw
def overwritten_after_it_was_read(ledger, block, _):
    """Put an intact record of another run at the offset of a record that the live readers saw."""
    at = block * BLOCK + 5
    for name in ("lost", "overwritten"):
        ledger.find(name, *who(ledger, at))
    for name in ("phantom", "vanished", "conflict"):
        ledger.find(name, *spot(ledger, at))
    change(ledger, at, live=False, producer=-1, seq=-1, origin=-1)


@flaw
def two_logs(ledger, block, _):
    """Lose three records as in an unclean election: the final read has later records at their offsets."""
    for position in (1, 2, 3):
        at = block * BLOCK + position
        ledger.find("lost", *who(ledger, at))
        ledger.find("overwritten", *who(ledger, at))
        ledger.find("vanished", *spot(ledger, at))
        ledger.find("conflict", *spot(ledger, at))
        heir = at + 3
        ledger.final["producer"][at], ledger.final["seq"][at] = who(ledger, heir)
        # Its own place stays empty for all, and its ack says where it is now.
        ledger.final["there"][heir] = ledger.live["there"][heir] = False
        ledger.acked_at[heir] = ledger.offset[at]


@flaw
def broken_where_it_stands(ledger, block, _):
    at = block * BLOCK
    change(ledger, at, live=True, intact=False)
    ledger.find("lost", *who(ledger, at))
    ledger.find("corrupted", *spot(ledger, at))


@flaw
def broken_beside_a_whole_one(ledger, block, _):
    at = block * BLOCK + 7
    part, offset = ledger.hole(block)
    ledger.put("final", at, part, offset, who(ledger, at), intact=False)
    ledger.put("live", at, part, offset, who(ledger, at), intact=False)
    ledger.find("corrupted", part, offset)


@flaw
def undecodable(ledger, block, _):
    """Replace a record in the final read by bytes that name no record. Each such read counts as a phantom."""
    at = block * BLOCK + 4
    change(ledger, at, live=False, producer=-1, seq=-1, origin=-1, intact=False)
    ledger.find("lost", *who(ledger, at))
    for name in ("phantom", "corrupted", "vanished", "conflict"):
        ledger.find(name, *spot(ledger, at))


@flaw
def foreign(ledger, block, _):
    part, offset = ledger.hole(block)
    for where in ("final", "live"):
        ledger.put(where, block * BLOCK + 7, part, offset, (-1, -1), origin=-1)
    ledger.find("phantom", part, offset)


@flaw
def sent_again(ledger, block, _):
    """Add a second copy behind the block. The acknowledgement has the offset of the first copy."""
    at = block * BLOCK + 2
    part, offset = ledger.hole(block)
    for where in ("final", "live"):
        ledger.put(where, block * BLOCK + 7, part, offset, who(ledger, at))
    ledger.find("duplicate", *who(ledger, at))


@flaw
def sent_again_and_acked_there(ledger, block, _):
    at = block * BLOCK + 2
    sent_again(ledger, block, _)
    ledger.acked_at[at] = ledger.offset[at] + BLOCK - 2


@flaw
def in_two_partitions(ledger, block, helper):
    """Add two copies: one behind the block, one in another partition. The second is misrouted, too."""
    at = block * BLOCK + 1
    sent_again(ledger, block, helper)
    ledger.expected["duplicate"].pop()
    part, offset = ledger.hole(helper)
    moved = block * BLOCK + 2
    for where in ("final", "live"):
        ledger.put(where, helper * BLOCK + 7, part, offset, who(ledger, moved), origin=ledger.part[at])
    for _ in range(2):
        ledger.find("duplicate", *who(ledger, moved))
    ledger.find("misrouted", part, offset)


@flaw
def a_stranger_twice(ledger, block, helper):
    at = block * BLOCK + 7
    for number, there in enumerate((block, helper)):
        part, offset = ledger.hole(there)
        for where in ("final", "live"):
            ledger.put(where, there * BLOCK + 7, part, offset, new(at), origin=-1)
        ledger.find("phantom", part, offset)
        if number:
            ledger.find("duplicate", np.full(len(at), STRANGER), NEW + at)


@flaw
def failed_but_there(ledger, block, _):
    at = block * BLOCK + 6
    ledger.outcome[at], ledger.acked_at[at] = 1, -1
    ledger.find("resurrected", *who(ledger, at))


@flaw
def failed_and_there_twice(ledger, block, _):
    at = block * BLOCK + 2
    sent_again(ledger, block, _)
    ledger.outcome[at], ledger.acked_at[at] = 1, -1
    ledger.find("resurrected", *who(ledger, at))


@flaw
def given_up(ledger, block, _):
    """Leave out a failed and an indeterminate record: no finding. A damaged indeterminate one is only corrupted."""
    for position, outcome in ((0, 1), (1, 2), (5, 2)):
        at = block * BLOCK + position
        ledger.outcome[at], ledger.acked_at[at] = outcome, -1
        if position == 5:
            change(ledger, at, live=True, intact=False)
            ledger.find("corrupted", *spot(ledger, at))
        else:
            ledger.final["there"][at] = ledger.live["there"][at] = False


@flaw
def nobody_knows_and_there(ledger, block, _):
    at = block * BLOCK + 6
    ledger.outcome[at], ledger.acked_at[at] = 2, -1
    ledger.find("surfaced", *who(ledger, at))


@flaw
def never_written_down(ledger, block, _):
    at = block * BLOCK + 6
    ledger.written[at] = False
    ledger.find("phantom", *spot(ledger, at))


@flaw
def of_a_producer_without_end(ledger, block, _):
    part, offset = ledger.hole(block)
    for where in ("final", "live"):
        ledger.put(where, block * BLOCK + 7, part, offset, (LOST_END, NEW + block))
    ledger.unledgered += len(block)


@flaw
def elsewhere(ledger, block, helper):
    """Lose two records of a block, and put one of them in another partition, with or without its origin. That one is
    misrouted, too."""
    for position, knows in ((3, True), (4, False)):
        at = block * BLOCK + position
        forget(ledger, at, read=False)
        half = slice(None, None, 2) if knows else slice(1, None, 2)
        ledger.find("misrouted", *(column[half] for column in ledger.hole(helper)))
        part, offset = (column[half] for column in ledger.hole(helper))
        origin = ledger.part[at][half] if knows else np.full(len(part), -1)
        for where in ("final", "live"):
            identity = tuple(column[half] for column in who(ledger, at))
            ledger.put(where, helper[half] * BLOCK + 7, part, offset, identity, origin=origin)


@flaw
def says_it_is_of_elsewhere(ledger, block, _):
    at = block * BLOCK + 3
    change(ledger, at, live=False, origin=(ledger.part[at] + 1) % PARTITIONS)
    ledger.find("misrouted", *spot(ledger, at))


@flaw
def a_stranger_astray(ledger, block, _):
    part, offset = ledger.hole(block)
    ledger.put("final", block * BLOCK + 7, part, offset, new(block), origin=(part + 1) % PARTITIONS)
    ledger.find("misrouted", part, offset)
    ledger.find("phantom", part, offset)


@flaw
def not_where_the_ack_says(ledger, block, _):
    at = block * BLOCK + 3
    ledger.acked_at[at] = np.where(block % 2, ledger.offset[at] + 1, ledger.hole(block)[1])
    ledger.find("displaced", *who(ledger, at))


@flaw
def first_behind_the_others(ledger, block, _):
    """Move a producer's first record behind its three later ones. Only the first is reordered."""
    at, (part, offset) = block * BLOCK, ledger.hole(block)
    ledger.final["there"][at] = ledger.live["there"][at] = False
    for where in ("final", "live"):
        ledger.put(where, at + 7, part, offset, who(ledger, at))
    ledger.acked_at[at] = offset
    ledger.find("reordered", *who(ledger, at))


@flaw
def last_before_the_others(ledger, block, _):
    """Swap a producer's first and fourth record. The first three then stand behind the fourth. The second is
    indeterminate, so it is surfaced, too."""
    first, last = block * BLOCK, block * BLOCK + 6
    for seen in (ledger.final, ledger.live):
        one, other = seen["seq"][first].copy(), seen["seq"][last].copy()
        seen["seq"][first], seen["seq"][last] = other, one
    ledger.acked_at[first], ledger.acked_at[last] = ledger.offset[last], ledger.offset[first]
    ledger.outcome[block * BLOCK + 2] = 2
    ledger.find("surfaced", *who(ledger, block * BLOCK + 2))
    for position in (0, 2, 4):
        ledger.find("reordered", *who(ledger, block * BLOCK + position))


@flaw
def read_by_one_and_gone(ledger, block, _):
    """Let one live reader see a record that no producer wrote and the final read lacks."""
    at, (part, offset) = block * BLOCK + 7, ledger.hole(block)
    ledger.put("live 1", at, part, offset, new(at))
    ledger.find("vanished", part, offset)
    ledger.final_gaps.append(at)


@flaw
def two_readers_two_records(ledger, block, _):
    at = block * BLOCK + 4
    ledger.live_by[1][at] = False
    ledger.put("live 1", at, *spot(ledger, at), new(at))
    ledger.find("vanished", *spot(ledger, at))
    ledger.find("conflict", *spot(ledger, at))


@flaw
def two_records_in_the_final_read(ledger, block, _):
    at = block * BLOCK + 4
    ledger.put("final", at, *spot(ledger, at), new(at))
    ledger.find("phantom", *spot(ledger, at))
    ledger.find("conflict", *spot(ledger, at))
    ledger.final_gaps.append(at)


@flaw
def passed_over(ledger, block, _):
    """Let all live readers pass over four records. The damaged one and the unledgered one are not skipped."""
    for position in (2, 3, 4, 5):
        at = block * BLOCK + position
        for reader in LIVE:
            ledger.live_by[reader][at] = False
        if position == 4:
            change(ledger, at, live=False, intact=False)
            ledger.find("lost", *who(ledger, at))
            ledger.find("corrupted", *spot(ledger, at))
        elif position == 5:
            ledger.written[at] = False
            ledger.find("phantom", *spot(ledger, at))
        else:
            ledger.find("skipped", *spot(ledger, at))


@flaw
def written_later_than_read(ledger, block, _):
    """Let reader 1 pass over three records. Only one has a leader epoch above that of the read behind the gap.

    That one is not skipped. An equal and an unknown leader epoch excuse nothing.
    """
    for position, epoch in ((1, 5), (3, 4), (5, -1)):
        at = block * BLOCK + position
        ledger.live_by[1][at] = False
        ledger.final["epoch"][at] = epoch
        if epoch != 5:
            ledger.find("skipped", *spot(ledger, at))


@flaw
def went_back(ledger, block, _):
    """Let reader 1 go back from the seventh record to the third and read on, and then read the eighth twice."""
    last, again = block * BLOCK + 6, block * BLOCK + 2
    for number in range(5):
        late = again + number
        ledger.put("live 1", last, *spot(ledger, late), who(ledger, late))
    ledger.find("rewound", *spot(ledger, again))
    ledger.put("live 1", last + 1, *spot(ledger, last + 1), who(ledger, last + 1))
    ledger.find("rewound", *spot(ledger, last + 1))


def plant_ledger(rows: int, each: int, *, seed: int, base: int = 0) -> Ledger:
    """Return a ledger of about `rows` rows in all, with `each` of every flaw (0: without flaws). `base`: first offset
    of each partition."""
    ledger = Ledger(max(rows // 27, 3 * PARTITIONS), base=base)
    if not each:
        return ledger
    inner = np.arange(PARTITIONS, ledger.blocks - PARTITIONS)
    chosen = np.random.default_rng(seed).permutation(inner)
    homes, helpers = chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]
    assert len(homes) >= each * len(FLAWS), "a larger ledger"
    by_partition = [list(helpers[helpers % PARTITIONS == part]) for part in range(PARTITIONS)]
    for number, plant in enumerate(FLAWS):
        blocks = homes[number * each : (number + 1) * each]
        # In the next partition: never at home.
        helping = [by_partition[(block + 1) % PARTITIONS].pop() for block in blocks]
        plant(ledger, blocks, np.array(helping))
    return ledger
