"""Epochs by rank: states that differ only in the number of past elections, ISR changes and restarts are one state.

Leader epochs, partition epochs and incarnations are only compared, and the controller increments the newest one. So
each is replaced by its rank among the epochs of its kind that occur anywhere in the state: in logs, memories, messages,
and at the controller. The same steps are possible then, up to the ranks, and invariants at most compare two epochs for
equality. One more fact is read: whether the controller's leader epoch directly follows a leader's own
(`become_leader`). If it does not, and no epoch between them occurs, one rank between them is left free.

So states of different histories become one state. Some of them have more budget left than others. A search keeps a
state only if no other one, found as early, has as much of every budget (`Model.frugal`): whatever is possible with less
budget is possible with more, in as many steps.

So the search continues from one of all equal states; not from a state that another one equals with as much or more of
every budget; and not from a state that fulfils an end (`Model.ends`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from itertools import product

from ackproof_reference.broker import Follower, Leader, Process, Progress
from ackproof_reference.explore.fetching import Late
from ackproof_reference.explore.model import Condition, Model
from ackproof_reference.explore.scope import broker_of
from ackproof_reference.explore.tables import Cells
from ackproof_reference.log import Batch, EpochEntry, Log
from ackproof_reference.messages import Altered, AlterPartition, AskEpochEnd, EpochEnd, Fetch, Fetched
from ackproof_reference.metadata import Metadata, Partition

LEADER, LEADING, PARTITION, BROKER = range(4)
"""Kinds of epochs: leader epochs, leader epochs in which a broker believes that it leads, partition epochs,
incarnations of broker 1. Incarnations of broker n have the kind `BROKER + n - 1`.
"""
FIELD = 64
"""Number of bits for each kind in a bit set of epochs (`occurring_epochs`)."""
_BITS = (1 << FIELD) - 1


Ranks = Mapping[int, Mapping[int, int]]
"""By kind of epoch: the rank that replaces each epoch. Ranks keep the order of epochs."""


def occurring_epochs(cell: int, value: Hashable) -> int:
    """Return the epochs in a value of the cell with index `cell` as a bit set: epoch e of kind k is bit k * FIELD + e.

    The kinds are LEADER, LEADING, PARTITION and, for broker n, BROKER + n - 1. Raises ValueError for an epoch of FIELD
    or above."""
    bits = 0

    def noted(kind: int, epoch: int) -> int:
        nonlocal bits
        if epoch >= FIELD:
            raise ValueError(f"more than {FIELD} epochs")
        bits |= 1 << kind * FIELD + epoch
        return epoch

    _Renaming(noted).cell(cell, value)
    if isinstance(value, Process) and isinstance(value.role, Leader):
        noted(LEADING, value.role.epoch)
    return bits


def rank_epochs(bits: int) -> Ranks | None:
    """Return the ranks that replace a state's epochs, by kind; the epochs are given as a bit set (`occurring_epochs`).
    One rank is left free below the newest leader epoch under two conditions: a leader leads in the second newest, and
    the newest does not directly follow it.

    None if every epoch equals its rank.
    """
    fields: dict[int, list[int]] = {}
    for kind in range(-(-bits.bit_length() // FIELD)):
        field = bits >> kind * FIELD & _BITS
        fields[kind] = [epoch for epoch in range(field.bit_length()) if field >> epoch & 1]
    ranks = {kind: {epoch: rank for rank, epoch in enumerate(epochs)} for kind, epochs in fields.items()}
    last, newest = [-1, -1, *fields.get(LEADER, [])][-2:]
    if last in fields.get(LEADING, ()) and newest > last + 1:
        ranks[LEADER][newest] += 1  # the newest epoch is not the very next one of that leader
    same = all(epoch == rank for kind in ranks if kind != LEADING for epoch, rank in ranks[kind].items())
    return None if same else ranks


def replace_epochs(cell: int, value: Hashable, ranks: Ranks) -> Hashable:
    """Return the value of the cell with index `cell`, with ranks in place of epochs. Raises KeyError for an epoch
    without a rank."""
    return _Renaming(lambda kind, epoch: ranks[kind][epoch]).cell(cell, value)


class _Renaming:
    """Replaces every epoch in a cell's value by `new(kind, epoch)`. Leader epochs and incarnations that are UNKNOWN
    stay."""

    def __init__(self, new: Callable[[int, int], int]) -> None:
        self._new = new

    def _leader(self, epoch: int) -> int:
        return self._new(LEADER, epoch) if epoch >= 0 else epoch

    def _broker(self, broker: int, epoch: int) -> int:
        return self._new(BROKER + broker - 1, epoch) if epoch >= 0 else epoch

    def cell(self, cell: int, value: Hashable) -> Hashable:
        if isinstance(value, Log):
            return self._log(value)
        if isinstance(value, Process):
            return self._process(value, cell)
        if isinstance(value, Metadata):
            return self._image(value)
        return self._message(value)

    def _batch(self, batch: Batch) -> Batch:
        return batch._replace(epoch=self._leader(batch.epoch))

    def _entry(self, entry: EpochEntry) -> EpochEntry:
        return EpochEntry(self._leader(entry.epoch), entry.start)

    def _log(self, log: Log) -> Log:
        return log._replace(
            batches=tuple(map(self._batch, log.batches)), epochs=tuple(map(self._entry, log.epochs))
        )

    def _partition(self, partition: Partition) -> Partition:
        if not partition.replicas:  # A follower has forgotten it (`remembered`): what is left is no epoch.
            return partition
        epoch = self._new(PARTITION, partition.epoch)
        return partition._replace(leader_epoch=self._leader(partition.leader_epoch), epoch=epoch)

    def _image(self, image: Metadata) -> Metadata:
        brokers = (one._replace(epoch=self._broker(one.broker, one.epoch)) for one in image.brokers)
        return Metadata(self._partition(image.partition), tuple(brokers))

    def _progress(self, progress: tuple[Progress, ...]) -> tuple[Progress, ...]:
        return tuple(
            one._replace(broker_epoch=self._broker(one.replica, one.broker_epoch)) for one in progress
        )

    def _role(self, role: Leader | Follower) -> Leader | Follower:
        epoch = self._leader(role.epoch)
        if isinstance(role, Leader):
            return role._replace(epoch=epoch, progress=self._progress(role.progress))
        return role._replace(epoch=epoch, remembered=self._progress(role.remembered))

    def _process(self, process: Process, cell: int) -> Process:
        return process._replace(
            epoch=self._broker(broker_of(cell), process.epoch),
            metadata=process.metadata and self._image(process.metadata),
            role=process.role and self._role(process.role),
        )

    def _message(self, message: Hashable) -> Hashable:
        leader = self._leader
        match message:
            case Late():
                return Late(self._message(message.request))  # type: ignore[arg-type]
            case Fetch():
                return message._replace(
                    broker_epoch=self._broker(message.follower, message.broker_epoch),
                    leader_epoch=leader(message.leader_epoch),
                    last_epoch=leader(message.last_epoch),
                )
            case Fetched():
                return message._replace(
                    leader_epoch=leader(message.leader_epoch),
                    batches=tuple(map(self._batch, message.batches)),
                    diverging=message.diverging and self._entry(message.diverging),
                )
            case AskEpochEnd():
                return message._replace(
                    leader_epoch=leader(message.leader_epoch), epoch=leader(message.epoch)
                )
            case EpochEnd():
                return message._replace(
                    leader_epoch=leader(message.leader_epoch),
                    asked=leader(message.asked),
                    end=self._entry(message.end),
                )
            case AlterPartition():
                members = zip(message.isr, message.isr_epochs, strict=True)
                return message._replace(
                    broker_epoch=self._broker(message.leader, message.broker_epoch),
                    leader_epoch=leader(message.leader_epoch),
                    partition_epoch=self._new(PARTITION, message.partition_epoch),
                    isr_epochs=tuple(self._broker(one, epoch) for one, epoch in members),
                )
            case Altered():
                decided = message.partition and self._partition(message.partition)
                return message._replace(leader_epoch=leader(message.leader_epoch), partition=decided)
        return message


class Admission:
    """Decides which states of `model` a search for the classes `wanted` (empty: any class) keeps.

    It works on states packed by `cells`; create a new object when the packing changes.
    """

    def __init__(self, model: Model, cells: Cells, wanted: frozenset[str]) -> None:
        self._ranks = _Ranks(cells) if model.ranked else None
        self._more = Spare(cells) if model.frugal else None
        self._ends: list[list[tuple[int, dict[int, bool], Condition]]] = [
            [(cells.mask(one.cells, one.counts), {}, one) for one in end.conditions]
            for end in model.ends
            if not end.kinds or (wanted and wanted <= end.kinds)
        ]
        self._cells = cells
        self.free = not (self._ranks or self._more or self._ends)
        """True if no reduction is on: every state is kept, unchanged."""

    def alike(self, state: int) -> int:
        """Return a packed state with ranks in place of epochs. The result is the same for all states that differ only
        in the values of epochs, not in their order. Without the reduction `ranking` it is `state` itself."""
        return state if self._ranks is None else self._ranks.rank(state)

    def admits(self, state: int, seen: dict[int, int]) -> bool:
        """Return True if the search must keep a packed state that is not in `seen` (the caller checks that). False if
        it fulfils an end of the search (`Model.ends`), or if `seen` has the same state with more budget left.

        `seen`: states found, each with its parent."""
        for conditions in self._ends:
            for mask, memo, one in conditions:
                key = state & mask
                held = memo.get(key)
                if held is None:
                    values = (self._cells.value_at(key, cell) for cell in one.cells)
                    held = memo[key] = one.holds(*values)
                if not held:
                    break
            else:
                return False
        if self._more is not None:
            for more in self._more[state & self._more.mask]:
                if state + more in seen:
                    return False
        return True


class Spare(dict[int, tuple[int, ...]]):
    """Cache for the question whether a state with more budget was found. Key: the budget counters of a packed state
    (`state & mask`). Value: the numbers to add to the state to get each state that differs only in having more budget
    left."""

    def __init__(self, cells: Cells) -> None:
        super().__init__()
        self.mask = cells.mask(cells.counters)
        self._fields = [
            (shift + cells.shifts[cell], mask, most)
            for cell, counters in cells.counters.items()
            for (shift, mask), most in zip(counters.fields.values(), counters.most, strict=True)
            if most
        ]

    def __missing__(self, left: int) -> tuple[int, ...]:
        choices = [
            [more << shift for more in range(most - (left >> shift & mask) + 1)]
            for shift, mask, most in self._fields
        ]
        self[left] = made = tuple(sum(chosen) for chosen in product(*choices) if any(chosen))
        return made


class _Occurring(dict[int, int]):
    """Cache: number of a cell's value → the epochs in this value as a bit set (`occurring_epochs`)."""

    def __init__(self, cells: Cells, cell: int) -> None:
        super().__init__()
        self.cell, self._values = cell, cells.values[cell]

    def __missing__(self, number: int) -> int:
        self[number] = bits = occurring_epochs(self.cell, self._values[number])
        return bits


class _Differences(dict[int, int]):
    """Cache: number of a cell's value → number to add to a packed state so that ranks replace the value's epochs."""

    def __init__(self, cells: Cells, cell: int, ranks: Ranks) -> None:
        super().__init__()
        self._cells, self._cell, self._ranks = cells, cell, ranks

    def __missing__(self, number: int) -> int:
        cells, cell = self._cells, self._cell
        ranked = cells.number(cell, replace_epochs(cell, cells.values[cell][number], self._ranks))
        self[number] = difference = (ranked - number) << cells.shifts[cell]
        return difference


class _Ranks:
    """Replaces epochs by ranks in packed states, cell by cell."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        free = [cell for cell in range(len(cells.widths)) if cell not in cells.counters]
        self._occurring = [(cells.shifts[cell], cells.masks[cell], _Occurring(cells, cell)) for cell in free]
        self._moved: dict[int, list[tuple[int, int, _Differences]] | None] = {}

    def rank(self, state: int) -> int:
        bits = 0
        for shift, mask, occurring in self._occurring:
            bits |= occurring[state >> shift & mask]
        try:
            moved = self._moved[bits]
        except KeyError:
            ranks = rank_epochs(bits)
            moved = self._moved[bits] = (
                None
                if ranks is None
                else [
                    (shift, mask, _Differences(self._cells, occurring.cell, ranks))
                    for shift, mask, occurring in self._occurring
                ]
            )
        if moved is None:
            return state
        ranked = state
        for shift, mask, differences in moved:
            ranked += differences[state >> shift & mask]
        return ranked
