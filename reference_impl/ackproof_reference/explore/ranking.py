"""Epochs by their order: states that differ in how often leaders, partitions and brokers have changed are one.

Leader epochs, partition epochs and brokers' incarnations are compared, and counted up from the newest one, which the
controller has; nothing else is done with them. So each is replaced by its rank among those of its kind that occur
anywhere in the state: in logs, memories, messages, and at the controller. What is possible then is the same, up to the
ranks, and invariants ask of epochs at most whether two are the same. One thing more is looked at: whether the
controller's leader epoch is the very next one after a leader's own (`become_leader`). Where it is not, and none between
them occurs, one is left out between their ranks.

With that, states of different histories are one state. Some of them may still do more than others: a search keeps those
only of which no other one, found as early, may do as much of everything (`Model.frugal`). What is possible with less
left is possible with more, in as many steps.

Which states a search takes up: one of all that are alike, none that can do less than another, none at an end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import product
from typing import NamedTuple

from ackproof_reference.broker import Follower, Leader, Process, Progress
from ackproof_reference.explore.fetching import Late
from ackproof_reference.explore.model import Epochs, Model, Ranks
from ackproof_reference.explore.scope import broker_of
from ackproof_reference.explore.tables import Cells
from ackproof_reference.log import Batch, EpochEntry, Log
from ackproof_reference.messages import Altered, AlterPartition, AskEpochEnd, EpochEnd, Fetch, Fetched
from ackproof_reference.metadata import Metadata, Partition

LEADER, LEADING, PARTITION, BROKER = range(4)
"""Kinds of epochs, each a field of bits: leader epochs, those of them that a broker leads in, and so on. The
incarnations of broker 1 are at `BROKER`, those of broker 2 after them."""
FIELD = 64
_BITS = (1 << FIELD) - 1


class WorldsEpochs:
    """The epochs in the cells of a world, and their ranks."""

    def occurring(self, cell: int, value: Hashable) -> int:
        """Return the epochs that occur in a cell's value, a bit for each."""
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

    def ranks(self, bits: int) -> Ranks | None:
        """The ranks of epochs that occur; None where they are the epochs already."""
        return _ranks(bits)

    def ranked(self, cell: int, value: Hashable, ranks: Ranks) -> Hashable:
        """A cell's value with ranks in the place of epochs."""
        return _Renaming(lambda kind, epoch: ranks[kind][epoch]).cell(cell, value)


def _ranks(bits: int) -> Ranks | None:
    fields = {kind: [*_epochs(bits >> kind * FIELD)] for kind in range(-(-bits.bit_length() // FIELD))}
    gaps = _not_next(fields)
    ranks = {kind: _dense(epochs, gaps if kind == LEADER else frozenset()) for kind, epochs in fields.items()}
    same = all(epoch == rank for kind in ranks if kind != LEADING for epoch, rank in ranks[kind].items())
    return None if same else ranks


def _epochs(field: int) -> Iterator[int]:
    """The bits of the lowest field that are set."""
    return (epoch for epoch in range((field & _BITS).bit_length()) if field >> epoch & 1)


def _not_next(fields: Mapping[int, list[int]]) -> frozenset[int]:
    """Epochs that are led in, of which the newest one is the next that occurs, but not the very next one."""
    epochs = fields.get(LEADER, [])
    last = epochs[-2:]
    led = len(last) == 2 and last[0] in fields.get(LEADING, ())
    return frozenset(last[:1]) if led and last[1] > last[0] + 1 else frozenset()


def _dense(epochs: list[int], gaps: frozenset[int]) -> Mapping[int, int]:
    ranks, at = {}, 0
    for epoch in epochs:
        ranks[epoch] = at
        at += 2 if epoch in gaps else 1
    return ranks


class _Renaming:
    """Walks through a cell's value and replaces each epoch."""

    def __init__(self, new: Callable[[int, int], int]) -> None:
        self._new = new

    def _leader(self, epoch: int) -> int:
        return self._new(LEADER, epoch) if epoch >= 0 else epoch

    def _broker(self, broker: int, epoch: int) -> int:
        return self._new(BROKER + broker - 1, epoch) if epoch >= 0 else epoch

    def cell(self, cell: int, value: Hashable) -> Hashable:
        """A cell's value."""
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
    """Says of packed states what a search is to keep, for one packing of a model's cells."""

    def __init__(self, model: Model, cells: Cells, wanted: frozenset[str]) -> None:
        self._ranks = None if model.epochs is None else _Ranks(model.epochs, cells)
        self._more = Spare(cells) if model.frugal else None
        self._ends = [
            [
                _Condition(cells.mask(one.cells, one.counts), {}, one.cells, one.holds)
                for one in end.conditions
            ]
            for end in model.ends
            if not end.kinds or (wanted and wanted <= end.kinds)
        ]
        self._cells = cells
        self.free = not (self._ranks or self._more or self._ends)
        """Whether every state is kept as it is."""

    def alike(self, state: int) -> int:
        """The one state that stands for all that are alike."""
        return state if self._ranks is None else self._ranks.rank(state)

    def admits(self, state: int, seen: dict[int, int]) -> bool:
        """Return True if the search has to continue from a state that it has not seen."""
        for conditions in self._ends:
            for mask, memo, cells, holds in conditions:
                key = state & mask
                held = memo.get(key)
                if held is None:
                    held = memo[key] = holds(*(self._cells.value_at(key, cell) for cell in cells))
                if not held:
                    break
            else:
                return False
        if self._more is not None:
            for more in self._more[state & self._more.mask]:
                if state + more in seen:
                    return False
        return True


class _Condition(NamedTuple):
    mask: int
    memo: dict[int, bool]
    cells: tuple[int, ...]
    holds: Callable[..., bool]


class Spare(dict[int, tuple[int, ...]]):
    """Differences, by the packed counters that are left, to all states with as much of each and more of some."""

    def __init__(self, cells: Cells) -> None:
        super().__init__()
        self.mask = cells.mask(cells.counters)
        self._fields = [
            (field.shift + cells.shifts[cell], field.mask, most)
            for cell, counters in cells.counters.items()
            for field, most in zip(counters.fields.values(), counters.most, strict=True)
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
    """Epochs that occur in a cell's value, by the value's number."""

    def __init__(self, epochs: Epochs, cells: Cells, cell: int) -> None:
        super().__init__()
        self.cell = cell
        self._epochs, self._values = epochs, cells.values[cell]

    def __missing__(self, number: int) -> int:
        self[number] = bits = self._epochs.occurring(self.cell, self._values[number])
        return bits


class _Differences(dict[int, int]):
    """Differences that ranks add to a packed state, by the number of a cell's value."""

    def __init__(self, epochs: Epochs, cells: Cells, cell: int, ranks: Ranks) -> None:
        super().__init__()
        self._epochs, self._cells, self._cell, self._ranks = epochs, cells, cell, ranks

    def __missing__(self, number: int) -> int:
        cells, cell = self._cells, self._cell
        ranked = cells.number(cell, self._epochs.ranked(cell, cells.values[cell][number], self._ranks))
        self[number] = difference = (ranked - number) << cells.shifts[cell]
        return difference


class _Ranks:
    """Ranks in the place of epochs, cell by cell, for packed states."""

    def __init__(self, epochs: Epochs, cells: Cells) -> None:
        self._epochs, self._cells = epochs, cells
        free = [cell for cell in range(len(cells.widths)) if cell not in cells.counters]
        self._occurring = [
            (cells.shifts[cell], cells.masks[cell], _Occurring(epochs, cells, cell)) for cell in free
        ]
        self._moved: dict[int, list[tuple[int, int, _Differences]] | None] = {}

    def rank(self, state: int) -> int:
        """The state with ranks."""
        bits = 0
        for shift, mask, occurring in self._occurring:
            bits |= occurring[state >> shift & mask]
        try:
            moved = self._moved[bits]
        except KeyError:
            moved = self._moved[bits] = self._work_out(bits)
        if moved is None:
            return state
        ranked = state
        for shift, mask, differences in moved:
            ranked += differences[state >> shift & mask]
        return ranked

    def _work_out(self, bits: int) -> list[tuple[int, int, _Differences]] | None:
        ranks = self._epochs.ranks(bits)
        if ranks is None:
            return None
        return [
            (shift, mask, _Differences(self._epochs, self._cells, occurring.cell, ranks))
            for shift, mask, occurring in self._occurring
        ]
