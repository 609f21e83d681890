"""Tests of a service under test: exact counts of the records that it dropped, doubled or lost to an ignored error, and
what its level leaves open."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.judge.checks.service import check_service
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.committed import GroupOffsets
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.ledger import ConsumedRows, write_consumed
from ackproof.rundir.outcome import ReadPhase, Says
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import ClientLibrary, mark_end
from ackproof.rundir.service import OUTPUT, InstanceEnd, ServiceFile
from run_directory import read_case

EXPERIMENT = """\
name: t
topics: {{orders: {{partitions: 2, config: {{min.insync.replicas: "2", {config}}}}}}}
workload:
  service: {{command: [x], input: orders, output: copies, level: {level}, promise: {promise}}}
faults: [{faults}]
"""
RECORDS = 1000
"""Number of records in each input partition. A record's seq is its offset, and its producer the partition number."""
EVERY = [(place, seq) for place in (0, 1) for seq in range(RECORDS)]
NOW = 1_000_000
OWNERS = "service: whether two instances owned one partition at a time"


class Run:
    """Run directory of a service under test, made by hand. `counts`, `loss`: counts of the audit and predicted loss of
    the input topic, which tests may set."""

    def __init__(
        self,
        path: Path,
        *,
        level: int = 0,
        promise: str = "at-least-once",
        config: str = "",
        faults: str = "",
    ) -> None:
        self.case = read_case(EXPERIMENT.format(level=level, promise=promise, config=config, faults=faults))
        self.run = CaseDir(path / "run")
        self.counts: dict[str, int] = {}
        self.loss: Any = None
        for place in (0, 1):
            self._input(place)

    def _input(self, place: int) -> None:
        offsets = np.arange(RECORDS, dtype=np.int64)
        constant = {
            name: np.full(RECORDS, value, kind)
            for name, value, kind in (
                ("place", place, np.int32),
                ("assignment", 0, np.int32),
                ("leader_epoch", 0, np.int32),
                ("producer", place, np.int32),
                ("origin", 1, np.int32),
                ("origin_partition", place, np.int32),
                ("intact", True, np.bool_),
                ("timestamp_ms", 1, np.int64),
                ("read_ns", 1, np.int64),
            )
        }
        folder = self.run.consumed / client_folder(f"f{place}")
        rows = ConsumedRows(
            reader=place,
            phase=ReadPhase.FINAL,
            places=(TopicPartition("orders", 0), TopicPartition("orders", 1)),
            origins=("", "orders"),
            offset=offsets,
            seq=offsets,
            read_seq=offsets,
            library=ClientLibrary("librdkafka", "1"),
            **constant,
        )
        folder.mkdir(parents=True)
        write_consumed(folder, 0, rows)
        mark_end(folder)

    def judge(
        self,
        output: Iterable[tuple[int, int]],
        *,
        committed: int | None = RECORDS,
        lines: Sequence[dict[str, object]] = (),
        problem: str = "",
        **end: Any,
    ) -> list[Opinion]:
        """Return the opinions on the service. `output`: (producer, seq) of each output record. `committed`: offset in
        both input partitions; None: nothing was committed. `lines`: events of the only instance. `problem`: why the
        output was not read completely, '' if it was. `end`: fields of the instance's `InstanceEnd`."""
        rows = [(producer, seq, 0, offset) for offset, (producer, seq) in enumerate(output)]
        columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(OUTPUT.types)]
        self.run.observed.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_arrays(columns, schema=OUTPUT), self.run.service_output)
        offsets = () if committed is None else tuple(("orders", place, committed) for place in (0, 1))
        ended = {"id": "s0", "pid": 1, "started_ns": NOW, "status": 0, "asked": True, **end}
        ServiceFile(
            instances=(InstanceEnd(**ended),),
            committed=GroupOffsets(group="g", offsets=offsets),
            output_ends=(("copies", 0, len(rows)),),
            problem=problem,
        ).save(self.run.service)
        folder = self.run.clients / "s0"
        folder.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps({**line, "t": NOW + at}) + "\n" for at, line in enumerate(lines))
        (folder / "lines.jsonl").write_text(text)
        facts = SimpleNamespace(
            run=self.run,
            case=self.case,
            audit=SimpleNamespace(counts=self.counts),
            prediction=SimpleNamespace(find_class=lambda *_: self.loss),
        )
        return list(check_service(cast("Facts", facts)))


def texts(opinions: Iterable[Opinion], says: Says) -> list[str]:
    return [one.text for one in opinions if one.kind is says]


def told(
    records: Iterable[tuple[int, int]], *, sent: bool = True, acks: str = "all"
) -> list[dict[str, object]]:
    """Return the events of an instance that processes these (partition, offset) records. `sent`: include its sends,
    whose output offsets count from 0. `acks`: the acks that it reports."""
    own = list(records)
    at = [{"topic": "orders", "p": place, "o": seq} for place, seq in own]
    lines: list[dict[str, object]] = [{"e": "started", "client": "x", "acks": acks}]
    lines += [{"e": "assigned", "ps": [["orders", 0]]}]
    lines += [{"e": "delivered", **one} for one in at]
    for n, (place, seq) in enumerate(own if sent else ()):
        lines.append({"e": "attempt", "n": n, "topic": "copies", "p": 0, "of": ["orders", place, seq]})
    lines += [{"e": "result", "n": n, "o": n} for n in range(len(own) if sent else 0)]
    lines += [{"e": "processed", **one} for one in at]
    lines += [{"e": "commit", "n": 0, "os": [["orders", 0, 1]]}, {"e": "committed", "n": 0}]
    return [*lines, {"e": "closed"}]


def test_a_service_that_copies_all_is_confirmed(tmp_path: Path) -> None:
    opinions = Run(tmp_path).judge(EVERY)
    assert texts(opinions, Says.AGREES) == [
        "service at level 0: 2,000 of 2,000 input records are in its output"
    ]
    assert len(texts(opinions, Says.NOT_JUDGED)) == 4
    assert {one.kind for one in opinions} == {Says.AGREES, Says.NOT_JUDGED}


def test_dropped_records_are_counted_at_level_0(tmp_path: Path) -> None:
    """The output lacks 32 records below the committed offset, as after an exception that the service ignored."""
    kept = [one for n, one in enumerate(EVERY) if n % 60 != 13 or n >= 32 * 60]
    (text,) = texts(Run(tmp_path).judge(kept), Says.BREAKS)
    assert text.startswith(
        "service: 32 of 2,000 input records are not in its output, and group ackproof-service committed past them: "
        "orders/0 at 13, orders/0 at 73, orders/0 at 133, …. Forbidden: it promises at-least-once"
    )


def test_what_was_not_committed_past_is_no_drop(tmp_path: Path) -> None:
    for committed in (500, None):
        opinions = Run(tmp_path / str(committed)).judge(
            [one for one in EVERY if one[1] < 500], committed=committed
        )
        assert not texts(opinions, Says.BREAKS)
        assert "it did not finish: 1,000 input records" in texts(opinions, Says.LACKS)[0]


def test_doubled_records_are_counted_and_judged_by_the_promise(tmp_path: Path) -> None:
    output = [*EVERY, *EVERY[100:140], *EVERY[100:101]]
    opinions = Run(tmp_path).judge(output)
    assert not texts(opinions, Says.BREAKS)
    assert any("40 input records are more than once" in text for text in texts(opinions, Says.NOT_JUDGED))
    once = Run(tmp_path / "once", promise="exactly-once").judge(output)
    (broken,) = [one for one in once if one.kind is Says.BREAKS]
    assert broken.numbers == {"doubled": 40}


def test_an_at_most_once_service_may_drop(tmp_path: Path) -> None:
    assert not texts(Run(tmp_path, promise="at-most-once").judge(EVERY[5:]), Says.BREAKS)


def test_what_kafka_may_have_lost_is_no_drop(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.counts = {"lost": 3}
    assert "the input topic itself shows lost" in texts(run.judge(EVERY[5:]), Says.OPEN)[0]
    run.counts, run.loss = {}, SimpleNamespace(chance=Chance.POSSIBLE)
    assert "Kafka may lose acknowledged records" in texts(run.judge(EVERY[5:]), Says.OPEN)[0]
    unclean = Run(tmp_path / "unclean", config='unclean.leader.election.enable: "true"')
    assert texts(unclean.judge(EVERY[5:]), Says.OPEN)


def test_levels_say_how_records_were_dropped(tmp_path: Path) -> None:
    """At level 3 the events show four sends whose error was ignored, and one record that was never delivered."""
    run = Run(tmp_path, level=3)
    lines = told(EVERY[:-1])
    for line in lines:
        if line["e"] == "result" and cast("int", line["n"]) < 4:
            line |= {"x": "NOT_LEADER", "o": -1}
        elif line["e"] == "result":
            line["o"] = cast("int", line["n"]) - 4
    opinions = run.judge(EVERY[4:-1], lines=lines)
    (text,) = texts(opinions, Says.BREAKS)
    assert "5 of 2,000 input records" in text
    assert (
        "(1 never delivered, 4 told as processed, 1 never sent, 4 sent with an error that was swallowed)"
        in text
    )
    assert texts(opinions, Says.AGREES)[0].startswith("service at level 3")
    assert texts(opinions, Says.NOT_JUDGED) == [OWNERS]


def test_acknowledged_records_that_the_output_lacks_are_counted(tmp_path: Path) -> None:
    """The missing records break a promise if the service reports acks=all. With other acks they stay open."""
    run = Run(tmp_path, level=3)
    opinions = run.judge(EVERY[:-2], lines=told(EVERY))
    assert any("2 records of its output were acknowledged" in text for text in texts(opinions, Says.BREAKS))
    opinions = run.judge(EVERY[:-2], lines=told(EVERY, acks="1"))
    assert any("2 records of its output were acknowledged" in text for text in texts(opinions, Says.OPEN))


def test_a_level_that_is_not_reached_is_said(tmp_path: Path) -> None:
    opinions = Run(tmp_path, level=3).judge(EVERY, lines=told(EVERY, sent=False))
    assert texts(opinions, Says.LACKS) == ["service: it never told attempt, result, and level 3 needs them"]
    assert texts(opinions, Says.NOT_JUDGED) == ["service: its sends: it does not tell them (level 2)", OWNERS]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"asked": False, "status": 1, "last_words": "a\nb"}, "service s0 ended by itself (1): b"),
        (
            {"asked": False, "killed": True, "status": -9},
            "was killed, and no fault of the case kills a service",
        ),
        ({"problem": "not read: copies/0 below 9"}, "its output is not complete: not read"),
    ],
)
def test_missing_evidence_is_said(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    opinions = Run(tmp_path).judge(EVERY[9:] if "problem" in changes else EVERY, **changes)
    assert why in texts(opinions, Says.LACKS)[0] and not texts(opinions, Says.BREAKS)


def test_a_wrong_identity_is_said(tmp_path: Path) -> None:
    opinions = Run(tmp_path).judge([*EVERY, (-1, -1), (7, 1)])
    assert "2 records of its output have no identity of an input record" in texts(opinions, Says.LACKS)[0]


def test_a_granted_commit_that_the_group_does_not_have_stays_open(tmp_path: Path) -> None:
    """A later commit without an answer may have been applied, so it silences the opinion."""
    granted = told(EVERY, sent=False)
    granted[-3]["os"] = [["orders", 0, RECORDS + 5]]
    opinions = Run(tmp_path, level=2).judge(EVERY, lines=granted)
    assert texts(opinions, Says.OPEN) == [
        "service: group ackproof-service has offset 1000 of orders/0, and its newest granted commit was 1005"
    ]
    later: dict[str, object] = {"e": "commit", "n": 1, "os": [["orders", 0, 7]]}
    opinions = Run(tmp_path / "more", level=2).judge(EVERY, lines=[*granted[:-1], later, granted[-1]])
    assert not texts(opinions, Says.OPEN)


def test_records_that_were_delivered_twice_are_counted(tmp_path: Path) -> None:
    lines = told(EVERY, sent=False)
    again = [line for line in lines if line["e"] == "delivered"][:7]
    opinions = Run(tmp_path, level=1).judge(EVERY, lines=[*lines[:-1], *again, lines[-1]])
    assert "; 7 were delivered more than once" in texts(opinions, Says.AGREES)[0]


def test_an_instance_that_a_fault_kills_is_no_gap_in_the_evidence(tmp_path: Path) -> None:
    run = Run(tmp_path, faults="{kill_client: {client: service}, at: 1s}")
    opinions = run.judge(EVERY, asked=False, killed=True, status=-9)
    assert {opinion.kind for opinion in opinions} == {Says.NOT_JUDGED, Says.AGREES}
