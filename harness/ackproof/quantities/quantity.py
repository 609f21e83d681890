"""Types of quantities of a run, measured values, and questions such as `time_to(first ack, fault 1, orders/0)`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from ackproof.base.advice import Advice
from ackproof.base.units import duration_text, parse_duration
from ackproof.rundir.bounds import Bound, Unit, Window
from ackproof.rundir.observed import ZNODES
from ackproof.rundir.partition import TopicPartition

if TYPE_CHECKING:
    from ackproof.quantities.evidence import Evidence
    from ackproof.quantities.over_time import Observations
    from ackproof.rundir.metadata import PartitionChanged
    from ackproof.rundir.observed import Sample


_QUANTILE: Final = re.compile(r"p([1-9][0-9]?(?:\.[0-9]{1,2})?)\Z")
LEAST_GAP_S: Final = 0.01
"""Shortest gap, in seconds, that the ledgers can show."""


class Witness(StrEnum):
    """Evidence that a quantity requires, beyond the files that every run leaves. The value is its name in
    messages.
    """

    READERS = "live readers"
    METADATA_LOG = "the controllers' metadata log"
    QUORUM = "the metadata log of a KRaft quorum of real controllers"
    METRICS = "the nodes' own metrics"
    BROKERS = "each broker, asked by itself"
    SOURCES = "readers that tell from whom they fetch"
    COMMITS = "live readers that commit to a group"
    LOGS = "the replicas' logs on disk"
    GROUPS = "consumer groups"
    RACKS = "the racks of the brokers, in the metadata log or in case.json"


class Argument(StrEnum):
    """Kinds of arguments of a quantity. The value is the form in which docs/quantities.md shows it."""

    SHOWS = "> X"
    """Any comparison. It follows the first argument without a comma."""
    FAULT = "fault N"
    ABOVE = "above D"
    CODE = "code C"
    PLACE = "t/p"
    NODE = "node N"
    VIEWER = "by V"
    GROUP = "G"


@dataclass(frozen=True)
class State:
    """Observation of a state: a number that a partition (or another subject) has at every moment, such as `isr`.

    `of_sample`: returns the number in a sample of one partition; None: the sample does not show it. `of_record`:
    returns the number in a record of the metadata log; None if that log does not have this state. `among`: set if a
    sample of one partition is not enough; it returns all observations by the name of the subject, and raises `Unknown`
    if there are none.
    """

    of_sample: Callable[[Sample], float | None] = lambda _: None
    of_record: Callable[[PartitionChanged], float] | None = None
    among: Callable[[Evidence, Ask], Mapping[str, Observations]] | None = None


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A number that can be measured of a run and expected in an experiment file, such as `longest_gap(produce)`.

    Exactly one of two is set. `measure` returns the value for a run or a window of it, or raises `Unknown`. `state`
    observes a number that changes over time. `windows`: True if the quantity can be measured within a part of a run.
    `needs`: evidence that it requires beyond the files of every run. `mode`: the only metadata mode in which it exists,
    `kraft` or `zookeeper`; '' for both.

    `variant`: its first argument, such as `produce`, or ''. `required`, `optional`: its further arguments. `compared`:
    unit of the number in a comparison (`Argument.SHOWS`). `takes_time`: True if a shortage of processor time can change
    the number; `falls`: True if the shortage lowers the number instead of raising it.

    Texts for docs/quantities.md: `definition`; `source`, the files that it is measured from; `unknown`, when it is
    unknown or has no upper bound; `stands_for`, a placeholder for the variant if there are many alike (`pN`), or ''.
    """

    name: str
    variant: str = ""
    unit: Unit
    definition: str
    source: str
    unknown: str
    stands_for: str = ""
    compared: Unit = Unit.COUNT
    required: tuple[Argument, ...] = ()
    optional: tuple[Argument, ...] = ()
    needs: Witness | None = None
    mode: str = ""
    windows: bool = False
    takes_time: bool = True
    falls: bool = False
    measure: Callable[[Evidence, Ask, Window], Value] | None = None
    state: State | None = None

    @property
    def key(self) -> str:
        """Name and first argument: `time_to(first ack)`."""
        return f"{self.name}({self.variant})" if self.variant else self.name

    @property
    def signature(self) -> str:
        """Notation with all arguments, the optional ones in brackets: `time_to(first ack, fault N[, t/p])`."""
        further = [str(one) for one in self.required if one is not Argument.SHOWS]
        shows = f" {Argument.SHOWS}" if Argument.SHOWS in self.required else ""
        inside = ", ".join(word for word in (f"{self.variant}{shows}", *further) if word)
        if not inside:
            return self.name + (f"[({', '.join(self.optional)})]" if self.optional else "")
        return f"{self.name}({inside}{''.join(f'[, {one}]' for one in self.optional)})"


@dataclass(frozen=True)
class Ask:
    """A question: a quantity with its arguments, such as `gaps(produce, above 1s, orders/0)`. An argument that is not
    given is None.

    Without `place`, the quantity's definition says how partitions are combined. `above_s`: only gaps longer than this
    count. `code`: error code. `shows`: comparison that a metric must meet. `fault`, `node`: numbers from 1.
    """

    quantity: Quantity
    fault: int | None = None
    above_s: float | None = None
    code: int | None = None
    place: TopicPartition | None = None
    node: int | None = None
    shows: Bound | None = None
    viewer: int | None = None
    """Id of the broker that was asked, or `ZNODES` for the znodes of ZooKeeper."""
    group: str | None = None
    """Name of a consumer group, as in `stop_the_world(billing)`."""

    def __str__(self) -> str:
        shows = "" if self.shows is None else f" {self.shows}"
        words = [f"{self.quantity.variant}{shows}"] if self.quantity.variant else []
        if self.group is not None:
            words.append(self.group)
        if self.fault is not None:
            words.append(f"fault {self.fault}")
        if self.above_s is not None:
            words.append(f"above {duration_text(self.above_s)}")
        if self.code is not None:
            words.append(f"code {self.code}")
        if self.place is not None:
            words.append(str(self.place))
        if self.node is not None:
            words.append(f"node {self.node}")
        if self.viewer is not None:
            words.append("by znodes" if self.viewer == ZNODES else f"by node {self.viewer}")
        return f"{self.quantity.name}({', '.join(words)})" if words else self.quantity.name

    def has(self, argument: Argument) -> bool:
        field = "above_s" if argument is Argument.ABOVE else argument.name.lower()
        return getattr(self, field) is not None


def quantile_share(word: str) -> float | None:
    """Return the share 0 … 1 of a quantile such as `p99.9` (0.999); None for a word that is no quantile."""
    match = _QUANTILE.match(word)
    return round(float(match[1]) / 100, 6) if match else None


_WRITTEN: Final = {Unit.COUNT: Unit.NUMBER, Unit.SECONDS: Unit.SECONDS}

_FAULT: Final = re.compile(r"fault\s+([1-9][0-9]{0,2})\Z")
_NODE: Final = re.compile(r"node\s+([1-9][0-9]{0,2})\Z")
_VIEWER: Final = re.compile(r"by\s+(?:znodes|node\s+([1-9][0-9]{0,2}))\Z")
_SHOWS: Final = re.compile(r"(?:>=|<=|==|>|<)\s*[0-9]\S*\Z")
_GROUP: Final = re.compile(r"[A-Za-z0-9._-]{1,200}\Z")
_ABOVE: Final = re.compile(r"above\s+(\S.*)\Z")
_CODE: Final = re.compile(r"code\s+(-?[0-9]{1,5})\Z")


def read_argument(ask: Ask, text: str) -> Ask:
    """Return the question with one more argument, parsed from text such as `fault 1` or `orders/0`.

    Raises ValueError for text that is no argument, that this quantity does not take, or that was given
    before.
    """
    quantity = ask.quantity
    if match := _FAULT.match(text):
        kind, more = Argument.FAULT, replace(ask, fault=int(match[1]))
    elif match := _ABOVE.match(text):
        above = parse_duration(match[1].strip())
        if above < LEAST_GAP_S:
            raise ValueError(f"gaps below {duration_text(LEAST_GAP_S)} are not told apart")
        kind, more = Argument.ABOVE, replace(ask, above_s=above)
    elif match := _CODE.match(text):
        kind, more = Argument.CODE, replace(ask, code=int(match[1]))
    elif match := _NODE.match(text):
        kind, more = Argument.NODE, replace(ask, node=int(match[1]))
    elif match := _VIEWER.match(text):
        kind, more = Argument.VIEWER, replace(ask, viewer=int(match[1] or ZNODES))
    elif _SHOWS.match(text):
        # as a number: `== 1` and not `1`
        shown = replace(Bound.parse(text, quantity.compared), unit=_WRITTEN[quantity.compared])
        kind, more = Argument.SHOWS, replace(ask, shows=shown)
    elif "/" in text:
        kind, more = Argument.PLACE, replace(ask, place=TopicPartition.parse(text))
    elif Argument.GROUP in quantity.required and _GROUP.match(text):
        kind, more = Argument.GROUP, replace(ask, group=text)
    else:
        raise ValueError(Advice(f"'{text[:60]}' means nothing there", f"write {quantity.signature}"))
    if kind not in (*quantity.required, *quantity.optional):
        raise ValueError(
            Advice(f"{quantity.key} is not asked of '{text[:60]}'", f"write {quantity.signature}")
        )
    if ask.has(kind):
        raise ValueError(Advice(f"'{kind}' stands twice", f"write {quantity.signature}"))
    return more


class Unknown(Exception):
    """Raised if a number cannot be known. Its text is the reason."""


@dataclass(frozen=True)
class Value:
    """A number that lies between `low` and `high`, both included. `high` is infinite if there is no upper bound.

    `why`: why the number is not exact, for example because the run ended first. `never`: the number is a time until an
    event, and the event had not happened after `low`. `starved`: measured on a too busy machine.
    """

    low: float
    high: float
    why: str = ""
    never: bool = False
    starved: bool = False

    @classmethod
    def exactly(cls, number: float) -> Value:
        return cls(number, number)

    @classmethod
    def unknown(cls, why: str) -> Value:
        """Return a value without bounds. `why`: reason why the number is unknown."""
        return cls(-math.inf, math.inf, why)

    @classmethod
    def at_least(cls, low: float, why: str) -> Value:
        """Return a value without an upper bound, for the reason `why`. If `why` is empty, return exactly
        `low`.
        """
        return cls(low, math.inf if why else low, why)

    @property
    def is_known(self) -> bool:
        """True if the number has a lower bound."""
        return self.low > -math.inf

    def text(self, unit: Unit) -> str:
        if not self.is_known:
            return "unknown"
        low = number_text(self.low, unit)
        if self.high == math.inf:
            return f"never in {low}" if self.never else f"at least {low}"
        high = number_text(self.high, unit)
        return low if low == high else f"{low} to {high}"


def number_text(number: float, unit: Unit) -> str:
    """Return `number` as text with its unit. `number`: a time in seconds, a share 0 … 1, a rate per second, or a count.

    Times of 1 s or more are rounded to a millisecond. Shorter times (written in ms), shares (written in %) and rates
    below 1000 get four significant digits. All other numbers are rounded to whole numbers.
    """
    if unit in (Unit.COUNT, Unit.NUMBER):
        return f"{number:.0f}"
    if unit is Unit.SECONDS and number >= 1:
        return f"{number:.3f} s"
    if unit is Unit.SECONDS:
        return f"{number * 1e3:.4g} ms"
    if unit is Unit.SHARE:
        return f"{number * 100:.4g} %"
    return f"{number:.4g}/s" if number < 1000 else f"{number:.0f}/s"


@dataclass(frozen=True)
class Answer:
    """Result of comparing an expectation with a run. `holds`: None if unknown; `why` then says what is missing.

    `seen`: the measured value or observation, as text. `broken`: True if an upper bound was exceeded or a state was
    wrong; False if the expectation holds, or was only not demonstrated. `value`: the measured number; None for a state.
    """

    seen: str
    holds: bool | None
    broken: bool = False
    why: str = ""
    value: Value | None = field(default=None, compare=False)


def longest(values: list[Value]) -> Value:
    """Return the greatest of these values (at least one); it is marked `never` if any of them is. Upper bound and `why`
    are those of a value that is marked `never`, else of the value with the greatest upper bound."""
    top = max(values, key=lambda one: (one.never, one.high, one.low))
    return Value(max(one.low for one in values), top.high, top.why, top.never)


def shortest(values: list[Value]) -> Value:
    """Return the smallest of these values (at least one); it is marked `never` only if all of them are. Upper bound and
    `why` are those of the value with the least upper bound among the values that are not marked `never`, if there are
    any."""
    first = min(values, key=lambda one: (one.never, one.high, one.low))
    return Value(min(one.low for one in values), first.high, first.why, first.never)


def total(values: list[Value]) -> Value:
    """Return the sum of these values: its bounds are the sums of their bounds. `why` is the first reason of a value
    that is not exact; `never` is False."""
    why = next((one.why for one in values if one.why), "")
    return Value(sum(one.low for one in values), sum(one.high for one in values), why)
