"""Tests that the audits of a soak's windows together find what the plain audit of the whole run finds."""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ackproof.ledgers.lookup import NumberRuns
from ackproof.ledgers.rows import FINAL, LIVE, PRODUCED, Rows
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.windows import WindowFile, WindowTask, window_dir, window_findings, window_state
from ackproof.rundir.windows import WindowRead as ReadRange
from ackproof_lab.soak.rolling import LedgerProgress, NewRows, audit
from ackproof_lab.soak.window import audit_window

from . import reference
from .ledgers import consumed_table, produced_table
from .reference import ACKED, FAILED, INDETERMINATE, Finding, Produced, Read
from .rows import live, read, sent

EXAMPLES = int(os.environ.get("ACKPROOF_EXAMPLES", "60"))
PLACES = (("t", 0), ("t", 1))
PRODUCERS = 2
CHUNK = 8
FLAWS = (
    *("lost", "duplicate", "late duplicate", "resurrected", "surfaced", "absent", "displaced", "swapped"),
    *("misrouted", "phantom", "corrupted", "vanished", "skipped", "again", "unplaced", "held"),
)


@dataclass
class Soak:
    """A run as lists of rows. `logs`: (producer, seq, origin, intact) by offset, for each (topic, partition).

    `unseen`: (place, offset) pairs that the live reader passes over. `other`: by (place, offset), the identity that the
    live reader gets in place of the record's.
    """

    random: random.Random
    produced: list[Produced] = field(default_factory=list)
    logs: dict[tuple[str, int], list[tuple[int, int, tuple[str, int], bool]]] = field(
        default_factory=lambda: {place: [] for place in PLACES}
    )
    unseen: set[tuple[tuple[str, int], int]] = field(default_factory=set)
    other: dict[tuple[tuple[str, int], int], tuple[int, int]] = field(default_factory=dict)

    def append(self, place, producer, seq, *, origin=None, intact=True):
        self.logs[place].append((producer, seq, origin or place, intact))
        return len(self.logs[place]) - 1


def make_soak(seed: int, records: int, share: float, kinds: tuple[str, ...] = FLAWS) -> Soak:
    """Return a run in which each producer sends `records` records. `share` of them have a flaw out of `kinds`."""
    soak = Soak(random.Random(seed))
    draw = soak.random
    later: dict[int, list] = defaultdict(list)
    for seq in range(records):
        for act in later.pop(seq, ()):
            act()
        for producer in range(PRODUCERS):
            place = PLACES[(seq + producer) % len(PLACES)]
            flaw = draw.choice(kinds) if draw.random() < share else ""
            outcome, offset = ACKED, -1

            def again(place=place, producer=producer, seq=seq, **how):
                return soak.append(place, producer, seq, **how)

            soon, far = seq + draw.randint(1, 3), seq + draw.randint(1, records)
            if flaw == "lost":
                offset = len(soak.logs[place]) + 10_000 if draw.random() < 0.5 else -1
                if offset >= 0:
                    offset = soak.append(place, -1, -1, origin=("", -1))
                    soak.logs[place][-1] = (-2, -2, place, True)  # a hole: nobody reads it
            elif flaw == "absent":
                outcome = draw.choice((FAILED, INDETERMINATE))
            elif flaw in ("resurrected", "surfaced"):
                outcome = FAILED if flaw == "resurrected" else INDETERMINATE
                later[draw.choice((soon, far))].append(again)
            elif flaw == "swapped":
                outcome = draw.choice((ACKED, INDETERMINATE))
                later[soon].append(again)  # acknowledged without an offset
            elif flaw == "misrouted":
                elsewhere = draw.choice([other for other in PLACES if other != place])
                offset = again()
                later[draw.choice((soon, far))].append(
                    lambda e=elsewhere, p=place, a=again: a(place=e, origin=p)
                )
            elif flaw == "corrupted":
                offset = again(intact=False)
            else:
                offset = again()
                if flaw == "displaced":
                    offset += draw.choice((20_000, 30_000)) + seq
                if flaw in ("duplicate", "late duplicate"):
                    later[soon if flaw == "duplicate" else far].append(again)
                if flaw == "again":
                    later[soon].append(again)
                    later[far].append(again)
                if flaw == "phantom":
                    soak.append(place, draw.choice((77, producer)), records + 1000 + seq)
                if flaw == "vanished":
                    soak.other[place, offset] = (producer, seq + 5000)
                if flaw == "skipped":
                    soak.unseen.add((place, offset))
                if flaw == "unplaced":
                    offset = -1
            soak.produced.append(Produced(producer, seq, *place, outcome, offset if outcome == ACKED else -1))
    for seq in sorted(later):
        for act in later[seq]:
            act()
    return soak


def read_of(soak: Soak, phase: int) -> dict[tuple[str, int], list[Read]]:
    found = {}
    for place, log in soak.logs.items():
        rows = []
        for offset, (producer, seq, origin, intact) in enumerate(log):
            if producer == -2 or (phase == 0 and (place, offset) in soak.unseen):
                continue
            if phase == 0 and (place, offset) in soak.other:
                producer, seq = soak.other[place, offset]
            rows.append(
                Read(5 if phase else 1, phase, 0, offset, *place, offset, 3, producer, seq, *origin, intact)
            )
        found[place] = rows
    return found


def columns(rows: list, schema, place) -> Rows:
    def column(name):
        if name == "astray":
            return [(row.origin_topic, row.origin_partition) != place for row in rows]
        if name in ("at_ns", "latency_ns"):
            return [0] * len(rows)
        return [getattr(row, name) for row in rows]

    return Rows({name: np.array(column(name), dtype=type_) for name, type_ in schema.items()}, len(rows))


def windows_of(soak: Soak, records: int, cuts: int, path: Path, lags: float = 0.0) -> Counter[Finding]:
    """Cut a run at random into `cuts` windows and audit each. Return all findings, with their counts.

    `lags`: the probability that the live reader is behind the end of a window.
    """
    draw, final, live = soak.random, read_of(soak, 1), read_of(soak, 0)
    ends = {
        place: [*sorted(draw.randint(0, len(log)) for _ in range(cuts - 1)), len(log)]
        for place, log in soak.logs.items()
    }
    chunks = sorted({(row.producer, row.seq // CHUNK) for row in soak.produced})
    # a chunk is told by the time at which its records are read, or some windows later
    told_in = {}
    for producer, chunk in chunks:
        mine = [row for row in soak.produced if (row.producer, row.seq // CHUNK) == (producer, chunk)]
        offsets = [(row.topic, row.partition, row.offset) for row in mine if 0 <= row.offset < 10_000]
        first = max(
            (sum(end <= offset for end in ends[topic, part]) for topic, part, offset in offsets), default=0
        )
        told_in[producer, chunk] = min(cuts - 1, first + draw.choice((0, 0, 0, 1)))
    seen = dict.fromkeys(PLACES, 0)
    carried, runs, found = {}, {producer: NumberRuns() for producer in range(PRODUCERS)}, Counter()
    starts = dict.fromkeys(PLACES, 0)
    for number in range(cuts):
        for (producer, chunk), window in told_in.items():
            if window == number:
                runs[producer] = runs[producer].union(np.array([chunk]))
        given = {}
        for place in PLACES:
            end = max(starts[place], ends[place][number])
            produced = [
                row
                for row in soak.produced
                if (row.topic, row.partition) == place and told_in[row.producer, row.seq // CHUNK] == number
            ]
            if number < cuts - 1 and draw.random() < lags:
                upto = max(seen[place], draw.randint(max(0, end - 12), end))
            else:
                upto = max(seen[place], draw.randint(end, max(end, min(len(soak.logs[place]), end + 6))))
                beyond = [
                    row.offset for row in live[place] if row.offset >= end
                ]  # a reader follows further than that
                upto = max([upto, *(offset + 1 for offset in beyond[:1])])
            mine = [row for row in live[place] if seen[place] <= row.offset < upto]
            seen[place] = upto
            read = [row for row in final[place] if starts[place] <= row.offset < end]
            follower = columns(read, FINAL, place)
            follower = Rows(
                {**follower.columns, "assignment": np.full(len(read), number, np.int32)}, len(read)
            )
            given[TopicPartition(*place)] = NewRows(
                starts[place], end, columns(produced, PRODUCED, place), columns(mine, LIVE, place), follower
            )
        sent_by = dict.fromkeys(range(PRODUCERS), records)
        told = LedgerProgress(
            CHUNK, len(PLACES), runs, sent_by, last=number == cuts - 1, readers=frozenset({1} if lags else ())
        )
        outcome = audit(path / f"{number}.parquet", given, carried, told)
        assert outcome.flaws == outcome.late == 0
        carried = outcome.carried
        starts = {place: outcome.ends[TopicPartition(*place)] for place in PLACES}
        if (path / f"{number}.parquet").exists():
            for row in pq.read_table(path / f"{number}.parquet").to_pylist():
                found[
                    Finding(
                        *(row[name] for name in ("class", "topic", "partition", "producer", "offset", "seq"))
                    )
                ] += 1
        late = set(outcome.found_late)
        for one in [one for one in found if one.anomaly == "lost" and (one.producer, one.seq) in late]:
            del found[one]
    return found


def expected(soak: Soak) -> Counter[Finding]:
    reads = [row for phase in (0, 1) for rows in read_of(soak, phase).values() for row in rows]
    return reference.audit(soak.produced, reads).findings


@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(4, EXAMPLES), marks=pytest.mark.nightly)], ids=len
)
@pytest.mark.parametrize("cuts", [1, 2, 5, 9])
@pytest.mark.parametrize("share", [0.02, 0.3])
@pytest.mark.parametrize("lags", [0.0, 0.4], ids=["up with them", "behind"])
def test_all_windows_find_what_one_audit_finds(cuts: int, share: float, lags: float, seeds: range) -> None:
    for seed in seeds:
        soak = make_soak(seed, records=60, share=share)
        with tempfile.TemporaryDirectory() as folder:
            found = windows_of(soak, 60, cuts, Path(folder), lags)
        want = expected(soak)
        assert found == want, (seed, found - want, want - found)


def test_runs_are_a_set() -> None:
    draw = random.Random(3)
    for stride in (1, 3):
        runs, plain = NumberRuns(stride, 2 % stride), set()
        for _ in range(30):
            new = {draw.randint(0, 60) * stride + 2 % stride for _ in range(draw.randint(0, 9))}
            runs, plain = runs.union(np.array(sorted(new), np.int64)), plain | new
            asked = np.arange(70 * stride)
            assert set(asked[runs.has(asked)].tolist()) == plain
        assert all(runs.first[1:] > runs.last[:-1] + 1)


def test_what_a_producer_has_not_counted_yet_is_no_phantom(tmp_path: Path) -> None:
    """The log has two records that the producer's progress does not count yet. The window ends before them."""
    place = TopicPartition("t", 0)
    followed = columns([read(seq) for seq in range(12)], FINAL, tuple(place))
    produced = columns([sent(seq) for seq in range(10)], PRODUCED, tuple(place))
    told = LedgerProgress(10, 1, {0: NumberRuns().union(np.array([0]))}, {0: 10})
    outcome = audit(tmp_path / "a", {place: NewRows(0, 12, produced, read=followed)}, {}, told)
    assert (outcome.counts, outcome.ends[place]) == ({}, 10)


def window(
    run: CaseDir, number: int, state: str = "", *, copies: tuple[int, ...] = (), handed: int = 10, **asked
) -> WindowFile:
    """Audit a window of ten records. `copies`: seqs that the log has a second time.

    `handed`: how many of the ten records the live reader got. `state`: file that the audit of the window before left.
    `asked`: further fields of the window's task.
    """
    start, end = number * 10, number * 10 + 10 + len(copies)
    folder = window_dir(run, number).path
    folder.mkdir(parents=True, exist_ok=True)
    seqs = range(number * 10, number * 10 + 10)
    again = [read(seq, seqs[-1] + 1 + at) for at, seq in enumerate(copies)]
    files = {
        f"part-{number:06d}.parquet": produced_table([sent(seq) for seq in seqs]),
        "live.parquet": consumed_table([live(seq) for seq in seqs[:handed]]),
        "followed.parquet": consumed_table([read(seq) for seq in seqs] + again),
    }
    for name, table in files.items():
        pq.write_table(table, folder / name)
    order = WindowTask(
        number=number, from_ns=0, to_ns=1, read=(ReadRange(topic="t", partition=0, start=start, end=end),),
        chunk_rows=10, stride=1, produced={"p0": (str(folder / f"part-{number:06d}.parquet"),)}, producers={"p0": 0},
        sent={"p0": seqs[-1] + 1}, consumed=(str(folder / "live.parquet"),),
        followed=(str(folder / "followed.parquet"),), state=state, **asked,
    )  # fmt: skip
    return audit_window(order, folder)


def test_an_audit_that_was_cut_short_can_be_done_again(tmp_path: Path) -> None:
    """The state that an audit leaves counts only when the task of the next window names it."""
    run = CaseDir(tmp_path)
    first = window(run, 0)
    again = window(run, 0)
    assert first == again
    assert (again.counts, again.acked, again.followed, again.live) == ({}, 10, 10, 10)
    later = window(run, 1, str(window_state(run, 0)), copies=(3,))
    assert later.counts == {"duplicate": 1}, (
        "of a record of the window before, which is known from what that left"
    )
    assert pq.read_table(window_findings(run, 1))["seq"].to_pylist() == [3]
    forgetful = window(run, 1, copies=(3,))
    assert (forgetful.counts, forgetful.read[0].end) == ({}, 20), "it would wait for the ledger to tell of it"


@pytest.mark.parametrize(
    ("handed", "readers", "end"), [(6, (1,), 6), (0, (1,), 0), (10, (1,), 10), (10, (1, 2), 0), (6, (), 10)]
)
def test_a_window_ends_where_the_last_of_the_live_readers_that_run_has_come(
    tmp_path: Path, handed: int, readers: tuple[int, ...], end: int
) -> None:
    file = window(CaseDir(tmp_path), 0, handed=handed, readers=readers)
    assert (file.read[0].end, file.followed, file.counts) == (end, end, {})
    behind = f"t/0: a live reader has read up to {end} of 10"
    assert file.left == ((behind,) if end < 10 else ())
