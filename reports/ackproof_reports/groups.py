"""The report's section about a consumer group: counts, and a picture with a lane per member over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ackproof.rundir import storage
from ackproof.rundir.documents import GroupCounts
from ackproof.rundir.groups import CommitResult, GroupEnd, MemberEnd, MembershipEvent
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.ledger import parts
from ackproof.rundir.lifelines import Lifelines
from ackproof.rundir.partition import TopicPartition
from ackproof_reports.course import Course, struck_faults
from ackproof_reports.group_story import Incident, MemberLife
from ackproof_reports.loading import CaseView
from ackproof_reports.picture import LANES_WIDTH, LEFT, Bar, ChartData, Lanes, ShownTime, draw_lanes
from ackproof_reports.wording import joined, number, number_range, one_line, plural

LANE: Final = 34
"""Height of a member's lane, in units of the picture."""
MOST_MEMBERS: Final = 16
"""Greatest number of members of a group that get lanes."""
MOST_INCIDENTS: Final = 60
_BINS: Final = (LANES_WIDTH - LEFT) // 2
"""Number of columns into which marks and work are merged, each two units of the picture wide."""
_LETTER: Final = 4.9
"""Width of a letter of a label, in units of the picture."""

Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sign:
    """A mark in a member's lane at the x coordinate `x`. `kind`: its CSS class and shape. `text`: its meaning."""

    x: float
    kind: str
    text: str


@dataclass(frozen=True)
class MemberLane:
    """A member over time. `alive`: bars while its process ran. `owned`: a bar for each time in which its assignment did
    not change. `paused`: bars of faults that paused or slowed it. `work`, `commits`: SVG paths of its processing and
    its accepted commits. `signs`: marks of its incidents. `said`: its events in words, for screen readers."""

    name: str
    y: int
    alive: tuple[Bar, ...]
    owned: tuple[Bar, ...]
    paused: tuple[Bar, ...]
    work: str
    commits: str
    signs: tuple[Sign, ...]
    said: str


@dataclass(frozen=True)
class ClassRow:
    """An anomaly class of one consumer group, as a row. `count` None: unknown. `forbidden`: True if the settings forbid
    it; None: not judged, for the reason `why`. `predicted`: the model's prediction (`impossible`, `possible` or
    `unknown`); '' without one."""

    anomaly: str
    count: int | None
    forbidden: bool | None = None
    why: str = ""
    predicted: str = ""


@dataclass(frozen=True)
class GroupPage:
    """The report's section about one consumer group. `counts` None: the group was not audited. `end` None: the run has
    no state of the group at its end.

    `frame`: bands of faults and ticks of the picture; None without lanes. `left_out`: number of members without a lane.
    `incidents`: the first incidents of the group's members, in order of time; `incidents_left_out`: number of the
    others."""

    group: str
    counts: GroupCounts | None
    end: GroupEnd | None
    classes: tuple[ClassRow, ...]
    frame: Lanes | None = None
    lanes: tuple[MemberLane, ...] = ()
    left_out: int = 0
    incidents: tuple[Incident, ...] = ()
    incidents_left_out: int = 0

    @property
    def behind(self) -> str:
        """Input partitions that the group had not committed to their end, as text: `orders/0 by 12`, with the number of
        missing offsets. '' if it had committed all, or if its state at the end is unknown."""
        if self.end is None:
            return ""
        return joined([f"{place} by {number(lag)}" for place, lag in self.end.lags.items() if lag > 0])


def group_pages(
    case: CaseView, course: Course, picture: ChartData | None, absent: list[str]
) -> tuple[GroupPage, ...]:
    """Return the section of each group of a case, in the order of the run; empty without groups.

    `picture`: the chart of the case; the lanes have the same time axis. None: no lanes. If a ledger of the members
    cannot be read, there are no lanes either, and `absent` gets a sentence."""
    counted = {one.group: one for one in case.audit.groups} if case.audit else {}
    ended = {one.group: one for one in case.groups.groups} if case.groups else {}
    span = _shown_time(picture)
    members: list[_Member] = []
    try:
        if span is not None and case.groups is not None:
            life = Lifelines.of_events(case.events)
            members = [_Member(case.run, one, life, course.end_ns, span) for one in case.groups.members]
    except (OSError, pa.ArrowException) as error:
        absent.append(f"ledgers of group members: cannot be read: {one_line(str(error), 200)}")
    return tuple(
        _page(
            GroupPage(
                name, counted.get(name), ended.get(name), tuple(_classes(case, name, counted.get(name)))
            ),
            [one for one in members if one.end.group == name],
            course,
            span,
        )
        for name in dict.fromkeys([*ended, *counted])
    )


def _page(page: GroupPage, members: list[_Member], course: Course, span: ShownTime | None) -> GroupPage:
    if span is None or not members:
        return page
    # Members that something happened to come first, if there is no room for all.
    chosen = sorted(members, key=lambda one: (-len(one.incidents), one.end.member))[:MOST_MEMBERS]
    chosen.sort(key=lambda one: one.end.member)
    incidents = sorted((one for member in members for one in member.incidents), key=lambda one: one.t_ns)
    return replace(
        page,
        frame=draw_lanes(span, struck_faults(course.faults), ()),
        lanes=tuple(one.lane(at * LANE) for at, one in enumerate(chosen)),
        left_out=len(members) - len(chosen),
        incidents=tuple(incidents[:MOST_INCIDENTS]),
        incidents_left_out=max(0, len(incidents) - MOST_INCIDENTS),
    )


def _classes(case: CaseView, group: str, counts: GroupCounts | None) -> Iterator[ClassRow]:
    ruled = {(one.group, one.anomaly): one for one in (case.judged.group_classes if case.judged else ())}
    for name, count in counts.counts.items() if counts else ():
        shown = None if name in case.untold else count
        one = ruled.get((group, name))
        yield ClassRow(name, shown, one.forbidden, one.why, one.predicted) if one else ClassRow(name, shown)


def _shown_time(picture: ChartData | None) -> ShownTime | None:
    home = picture.data["home"] if picture else None
    if not isinstance(home, list):
        return None
    begin, end = (float(one) * 1e9 for one in home if isinstance(one, int | float))
    return ShownTime(begin, end) if end > begin else None


def last_activity(case: CaseView, absent: list[str]) -> int:
    """Return the time of the last answer to a commit, or of the last membership event, of any group, in ns since the
    run's start; 0 if there is none. If a ledger cannot be read, `absent` gets a sentence."""
    last = 0
    try:
        for folder, column in ((case.run.commits_ledger, "done_ns"), (case.run.membership, "t_ns")):
            for path in parts(folder):
                times = storage.read_table(path, columns=[column]).column(column)
                last = max(last, pc.max(times).as_py() or 0)
    except (OSError, pa.ArrowException) as error:
        absent.append(f"ledgers of group members: cannot be read: {one_line(str(error), 200)}")
    return last


class _Member(MemberLife):
    """A group member with its processing by column of the picture; `lane` draws it. `end_ns`: time of the run's last
    event. `span`: the shown time. Raises OSError or ArrowException if its ledgers cannot be read."""

    def __init__(self, run: CaseDir, end: MemberEnd, life: Lifelines, end_ns: int, span: ShownTime) -> None:
        super().__init__(run, life, end.client)
        self.end, self.end_ns, self.span = end, end_ns, span
        self.processed = 0
        held = np.zeros(_BINS, np.int64)
        for path in parts(run.deliveries / client_folder(end.client)):
            with storage.open_parquet(path) as file:
                # A member may have any number of rows: they are read piece by piece.
                for batch in file.iter_batches(columns=["delivered_ns", "processed_ns"]):
                    came, done = (np.asarray(column, np.int64) for column in batch.columns)
                    self.processed += int((done >= 0).sum())
                    held += _counts(span, came, np.where(done >= 0, done, came))
        self.work = held > 0
        """By column of the picture: True if the member got a record then, or had one that it processed later."""

    def lane(self, y: int) -> MemberLane:
        accepted = self.commits.filter(pc.equal(self.commits.column("result"), CommitResult.ACCEPTED.value))
        done = np.asarray(accepted.column("done_ns"), np.int64)
        frozen = [(one.confirmed, one.healed, one.title) for one in self.pauses]
        told = [f"processed {plural(self.processed, 'record')}", f"{plural(len(done), 'commit')} accepted"]
        told += [f"{one} at {one.t_ns / 1e9:.1f} s" for one in self.incidents[:8]]
        return MemberLane(
            name=self.end.client,
            y=y,
            alive=tuple(self._bars(self._lives())),
            owned=tuple(self._bars(self._assignments())),
            paused=tuple(self._bars(frozen)),
            work=_boxes(self.work, y + 16, 5),
            commits=_ticks(_counts(self.span, done, done) > 0, y + 24, 7),
            signs=tuple(self._signs()),
            said=joined(told),
        )

    def _bars(self, times: Iterable[tuple[int | None, int | None, str]]) -> Iterator[Bar]:
        """Yield the bar of each interval (begin, end, text), in ns, that is in the picture. A begin of None is the
        start of the run, an end of None its end. A text that does not fit is shortened to its numbers, or left out."""
        for begin, end, text in times:
            if bar := self.span.bar(begin or 0, self.end_ns if end is None else end, "", text):
                fits = int((bar.width - 4) / _LETTER)
                numbers = text.partition("/")[2]
                yield replace(bar, text=next((one for one in (text, numbers) if len(one) <= fits), ""))

    def _lives(self) -> Iterator[tuple[int, int | None, str]]:
        for event in self.own.starts:
            ends = (end.t_ns for end in self.own.ends if end.t_ns >= event.t_ns)
            yield event.t_ns, min(ends, default=None), ""

    def _assignments(self) -> Iterator[tuple[int, int | None, str]]:
        """Yield (begin, end, partitions as text) for each interval, in ns, in which the member owned the same
        partitions. Partitions that were never revoked stay owned until the member's process ends. The last end is None
        if the process did not end."""
        owned: set[TopicPartition] = set()
        begun = 0
        for t_ns, rows in groupby(self.membership, lambda row: row["t_ns"]):
            before = frozenset(owned)
            for row in rows:
                place = TopicPartition(row["topic"], row["partition"])
                if row["event"] == MembershipEvent.ASSIGNED and place.partition >= 0:
                    owned.add(place)
                elif row["event"] in (MembershipEvent.REVOKED, MembershipEvent.LOST):
                    owned.discard(place)
                elif row["event"] == MembershipEvent.CLOSED:
                    owned.clear()
            if owned != before:
                if before:
                    yield begun, t_ns, _name_places(before)
                begun = t_ns
        if owned:
            yield begun, max((end.t_ns for end in self.own.ends), default=None), _name_places(owned)

    def _signs(self) -> Iterator[Sign]:
        places: dict[tuple[float, str], list[Incident]] = {}
        for one in self.incidents:
            drawn = one.kind not in ("paused", "slowed", "over", "fault")
            if drawn and self.span.begin <= one.t_ns <= self.span.end:
                places.setdefault((round(self.span.x(one.t_ns) / 4) * 4, one.kind), []).append(one)
        for (x, kind), found in places.items():
            yield Sign(x, kind, "; ".join(f"{one.t_ns / 1e9:.3f} s {one}" for one in found[:5]))


def _name_places(owned: Iterable[TopicPartition]) -> str:
    """Return partitions as text: `orders/0–2, 5`."""
    named = []
    for topic, places in groupby(sorted(owned), lambda place: place.topic):
        # Consecutive numbers have one distance to their position.
        runs = groupby(enumerate(place.partition for place in places), lambda one: one[1] - one[0])
        named.append(f"{topic}/{', '.join(number_range([at for _, at in run]) for _, run in runs)}")
    return "; ".join(named)


def _counts(span: ShownTime, begin: Array, end: Array) -> Array:
    """Return for each column of the picture how many of the intervals `begin` … `end` (ns, both included) reach into
    it."""
    known = (end >= span.begin) & (begin <= span.end)
    size = (span.end - span.begin) / _BINS
    first, last = (
        np.clip((times[known] - span.begin) // size, 0, _BINS - 1).astype(np.int64) for times in (begin, end)
    )
    steps = np.bincount(first, minlength=_BINS + 1) - np.bincount(last + 1, minlength=_BINS + 1)
    return np.cumsum(steps)[:_BINS]


def _ticks(columns: npt.NDArray[np.bool_], y: int, height: int) -> str:
    """Return an SVG path with a line in each column that is True."""
    return "".join(f"M{LEFT + 2 * at + 1} {y}v{height}" for at in np.flatnonzero(columns).tolist())


def _boxes(columns: npt.NDArray[np.bool_], y: int, height: int) -> str:
    """Return an SVG path with a box over each run of columns that are True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], columns.astype(np.int8), [0])))).tolist()
    return "".join(
        f"M{LEFT + 2 * begin} {y}h{2 * (end - begin)}v{height}h{-2 * (end - begin)}z"
        for begin, end in zip(edges[::2], edges[1::2], strict=True)
    )
