"""Tests of a soak on real brokers whose first producer lies three times: each lie is found within two windows.

Windows are 5 s, with one fault of a storm in each; the newest window is kept. The lies are requested once windows were
deleted, and Ctrl-C ends the soak once they are found."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ackproof.clients.librdkafka import adapter
from ackproof.cluster.install import Installation
from ackproof.plan import cases, load
from ackproof.plan.soaking import Soak
from ackproof.run.case import run_case
from ackproof.run.conclude import CaseResult, conclude
from ackproof.run.phases import CaseOptions
from ackproof.rundir.documents import CaseFile, FinalReadFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import deleted_parts
from ackproof.rundir.timeline import Event, EventKind, WindowAudited, read_timeline
from ackproof.rundir.windows import read_windows

from ..audit.local import audited
from .conftest import NEWEST
from .lies.lying_producer import LIES
from .lies.stage import Watching

pytestmark = pytest.mark.cluster

EXPERIMENT = """\
name: soaked
cluster: {brokers: 2, controllers: 1}
topics: {orders: {partitions: 2, replication_factor: 2, config: {min.insync.replicas: 1}}}
workload:
  producers: {count: 2, acks: all, idempotence: true, rate: 100/s}
  consumers: {live: 1}
  duration: 5s
faults:
  - storm: {count: 1, menu: {pause: 1}, roles: [follower(orders/0)], gap: 1s, lasting: 0.5s}
    at: 1s
"""
MOST = 24
"""Number of windows after which the soak is given up: the machine is too slow."""


@dataclass(frozen=True)
class Course:
    """Course of a soak. `deleted`: number of deleted windows after which the lies are requested. `awaited`: lies that
    must be found before the end is requested."""

    deleted: int
    awaited: frozenset[str]


SHORT = Course(1, frozenset({"duplicate", "resurrected"}))
LONG = Course(3, frozenset(LIES))


class _Liar(Watching):
    """Watcher that requests the lies once enough windows were deleted. It requests the end of the soak, by SIGINT, once
    all awaited lies were found, or after window `MOST`."""

    def __init__(self, lies: Path, course: Course) -> None:
        super().__init__()
        self.lies, self.course = lies, course
        self.deleted = 0
        self.found: set[str] = set()

    def event(self, event: Event) -> None:
        super().event(event)
        if "deleted, as it has no findings" in str(event.detail.get("note", "")):
            self.deleted += 1
            if self.deleted == self.course.deleted:
                for lie in LIES:
                    (self.lies / lie).touch()
        if isinstance(event.what, WindowAudited):
            over = self.found >= self.course.awaited
            self.found |= event.what.counts.keys()
            if not over and (self.found >= self.course.awaited or event.what.number == MOST):
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.fixture(
    scope="module",
    params=[pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.nightly)],
)
def course(request: pytest.FixtureRequest) -> Course:
    """The long soak runs at night only, the short one with every push."""
    found: Course = request.param
    return found


@pytest.fixture(scope="module")
def soaked(course: Course, installs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CaseResult]:
    folder = tmp_path_factory.mktemp("soak")
    installed: Installation = installs(NEWEST)
    file = folder / "soaked.yaml"
    file.write_text(EXPERIMENT, encoding="utf-8")
    (case,) = cases(load(file, soak=Soak("10m", keep=1)))
    run = CaseDir(folder / "run")
    lies = folder / "lies"
    lies.mkdir()
    options = CaseOptions(batch=str(folder), replay=f"ackproof run {file} --soak 10m", installed=installed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapter, "PRODUCER_MODULE", "lying_producer")
        patch.setenv("LIES", str(lies))
        path = [str(Path(__file__).parent / "lies"), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(path))
        run_case(case, run, options, _Liar(lies, course))
    # by the passes of the audit without Spark, which has tests of its own
    (found,) = audited([run.path])
    assert found.code == 0, found.reasons
    (result,) = conclude([run], lambda _: None)
    assert result.error is None
    assert result.audit is not None
    assert result.verdict is not None
    yield result


def told(run: CaseDir) -> dict[str, int]:
    """Return the time of each lie, in ns since the run's start."""
    lines = (run.clients / "p0" / "lies.jsonl").read_text(encoding="ascii").splitlines()
    return {one["lie"]: one["t_ns"] for one in map(json.loads, lines)}


def test_each_lie_is_found_within_two_windows_and_nothing_else(soaked: CaseResult) -> None:
    when = told(soaked.run)
    assert when.keys() == set(LIES)
    audited = list(read_windows(soaked.run))
    found = {name: at for at, one in enumerate(audited) for name in one.counts if name != "surfaced"}
    assert found.keys() == set(LIES)
    for lie, t_ns in when.items():
        first = next(at for at, one in enumerate(audited) if one.from_ns <= t_ns < one.to_ns)
        # a window that says that it could not see all of it leaves the rest to the next
        late = sum(bool(one.left) for one in audited[first : found[lie]])
        assert found[lie] - first <= 1 + late, (lie, found)
    assert sum(count for one in audited for name, count in one.counts.items() if name in LIES) == len(LIES)


def test_findings_are_told_while_the_load_goes_on(soaked: CaseResult) -> None:
    events, _ = read_timeline(soaked.run.timeline)
    ended = next(
        event.t_ns for event in events if event.kind is EventKind.PHASE and event.detail == {"phase": "heal"}
    )
    told_at = [event.t_ns for event in events if isinstance(event.what, WindowAudited) and event.what.counts]
    assert told_at
    assert min(told_at) < ended


def test_the_end_agrees_and_the_verdict_is_that_of_the_lies(soaked: CaseResult) -> None:
    verdict = soaked.verdict
    assert verdict is not None
    assert verdict.verdict is Verdict.FAIL, verdict.reasons
    assert {reason.partition(":")[0] for reason in verdict.reasons} >= {"resurrected"}
    assert any("windows, audited while the load went on, found what" in one for one in verdict.witnesses)


def test_windows_in_which_nothing_was_found_are_gone_and_the_evidence_says_so(soaked: CaseResult) -> None:
    run = soaked.run
    deleted = [one for one in read_windows(run) if one.deleted]
    assert deleted
    assert all(not one.counts.keys() - {"surfaced"} for one in deleted)
    said = {one.place: one.end for one in deleted[-1].read}
    starts = {
        TopicPartition(one.topic, one.partition): one.start
        for one in FinalReadFile.load(run.final_read).partitions
    }
    assert all(0 < start <= said[place] for place, start in starts.items())
    verdict = soaked.verdict
    assert verdict is not None
    assert any("were deleted (--keep)" in one for one in verdict.not_judged), verdict.not_judged


def test_what_is_counted_is_what_was_audited(soaked: CaseResult) -> None:
    """Records of deleted windows are counted and not lost, even if parts of their ledgers are still there."""
    audit = soaked.audit
    assert audit is not None
    assert audit.deleted is not None
    assert audit.deleted.windows == sum(one.deleted for one in read_windows(soaked.run))
    assert audit.deleted.spared > 0
    assert {name: count for name, count in soaked.counts.items() if name in LIES} == dict.fromkeys(LIES, 1)
    assert (
        soaked.counts["acked"] == sum(one.acked for one in read_windows(soaked.run)) > audit.records.acked - 1
    )
    sent = json.loads(soaked.run.pulse.read_text(encoding="ascii").splitlines()[-1])["sent"]
    assert soaked.counts["produced"] == sent


def test_parts_of_the_ledgers_go_a_window_later(soaked: CaseResult, course: Course) -> None:
    """Rows of a deleted window that the next window needs stay until that window is deleted."""
    folder = soaked.run.produced / "client=p0"
    gone = deleted_parts(folder)
    assert bool(gone) == (sum(one.deleted for one in read_windows(soaked.run)) > 1)
    assert gone or course is SHORT
    assert not any((folder / one.name).exists() for one in gone)


def test_ctrl_c_ends_it_in_good_order(soaked: CaseResult) -> None:
    events, whole = read_timeline(soaked.run.timeline)
    assert whole
    assert events[-1].kind is EventKind.END
    experiment = CaseFile.load(soaked.run.case_json).resolved["experiment"]  # type: ignore[index, call-overload]
    assert experiment["workload"]["duration"] != "10m"
    asked = {event.fault for event in events if event.kind is EventKind.FAULT_ASKED and event.fault}
    assert {number for number in asked if number < 1000} == set(range(1, len(experiment["faults"]) + 1))
