"""Loads a batch folder as far as it can be read. Each missing or unreadable file is reported as a sentence."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar

from pydantic import JsonValue

from ackproof.base.errors import BadInput, UnreadableFile
from ackproof.rundir.batch import BatchCase, BatchFile, PairsFile
from ackproof.rundir.document import Document
from ackproof.rundir.documents import AuditFile, CaseFile, FinalReadFile, Scalar, Timing, VerdictFile
from ackproof.rundir.groups import GroupsFile
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.model import ConformanceFile, PredictionFile, SimulationFile
from ackproof.rundir.outcome import ExitCode, Verdict, batch_exit_code
from ackproof.rundir.replicas import ReplicasFile
from ackproof.rundir.timeline import Event, EventKind, read_timeline
from ackproof_reports.wording import scalar, setting_names

D = TypeVar("D", bound=Document)


class State(StrEnum):
    """State of a case or a batch in the report: its verdict, or the reason why it has none."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    HARNESS_FAILED = "HARNESS FAILED"
    NOT_JUDGED = "NOT JUDGED"

    @property
    def slug(self) -> str:
        return self.value.lower().replace(" ", "-")


WORST_FIRST: Final = (State.FAIL, State.HARNESS_FAILED, State.INCONCLUSIVE, State.NOT_JUDGED, State.PASS)


@dataclass(frozen=True)
class CaseView:
    """One case with every file of its run that could be read. A file is None if it is missing or unreadable. If the
    judge judged nothing, `audit`, `prediction`, `simulation` and `conformance` are None, too.

    `index`: position in the batch, from 0. `entry`: its entry in `batch.json`. `judged`: `verdict.json`; `final`:
    `final-read.json`. `absent`: a sentence for each unreadable file, and for each missing file that every judged run
    has.
    """

    index: int
    entry: BatchCase
    run: CaseDir
    case: CaseFile | None
    audit: AuditFile | None
    judged: VerdictFile | None
    final: FinalReadFile | None
    events: tuple[Event, ...]
    absent: tuple[str, ...]
    replicas: ReplicasFile | None = None
    """The replicas' logs on disk; None if the run did not read them, or could not."""
    prediction: PredictionFile | None = None
    """Prediction of the reference implementation; None if the run was judged without one."""
    simulation: SimulationFile | None = None
    conformance: ConformanceFile | None = None
    groups: GroupsFile | None = None
    """Consumer groups at the end of the run, and their members; None if the run had none."""

    @property
    def anchor(self) -> str:
        return f"case-{self.index + 1}"

    @property
    def verdict(self) -> Verdict | None:
        """Verdict in `batch.json`, else in `verdict.json`; None if the case has none, or if the harness failed."""
        if self.entry.verdict is not None or self.entry.error is not None:
            return self.entry.verdict
        return self.judged.verdict if self.judged else None

    @property
    def state(self) -> State:
        verdict = self.verdict
        if verdict is not None:
            return State(verdict.value)
        return State.NOT_JUDGED if self.entry.error is None else State.HARNESS_FAILED

    @property
    def settings(self) -> Mapping[str, Scalar]:
        return self.entry.settings

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of findings by class, as far as the final read proves them; without a readable audit, the counts in
        `batch.json`."""
        return self.audit.counts_to_show(self.final) if self.audit else self.entry.counts

    @property
    def untold(self) -> Mapping[str, int]:
        """Counts by class that the report does not show, because the final read that would prove them is incomplete."""
        counted = self.audit.counts if self.audit else {}
        return {name: count for name, count in counted.items() if count and name not in self.counts}

    @property
    def lost(self) -> int | None:
        """Number of lost records; None if they were not counted, or if an incomplete final read proves no loss."""
        return self.counts.get("lost")

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.entry.reasons or (self.judged.reasons if self.judged else ())

    @property
    def unreduced_command(self) -> str:
        """The command that predicts this run without reductions; to be called in the folder of the batch."""
        return shlex.join(["ackproof", "predict", self.entry.run, "--no-reductions"])

    @property
    def starved(self) -> tuple[str, ...]:
        """Reasons why times of this case say nothing about Kafka, because the machine was too busy; empty if it was
        not."""
        return self.entry.starved or (self.judged.starved if self.judged else ())

    @property
    def timing(self) -> Timing | None:
        """Time-outs and intervals of the brokers' configuration; None if `case.json` is unreadable or of an older
        version."""
        return self.case.timing if self.case else None

    @property
    def seed(self) -> int | None:
        return self.case.seed if self.case else None

    @property
    def end_ns(self) -> int:
        """Time of the last event, in ns since the run's start; 0 without events."""
        return max((event.t_ns for event in self.events), default=0)

    @property
    def finished(self) -> bool:
        return bool(self.events) and self.events[-1].kind is EventKind.END

    def resolved(self, *path: str) -> JsonValue:
        """Return the value at a path in the resolved case (`"experiment", "expect"`); None if there is none."""
        value: JsonValue = self.case.resolved if self.case else None
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value


@dataclass(frozen=True)
class BatchView:
    """A batch with all of its cases, read from its folder.

    `absent`: sentences about what is missing. If `batch.json` is missing or unreadable, they say so. Otherwise there is
    one sentence for each case folder that `batch.json` does not name."""

    directory: BatchDir
    file: BatchFile
    cases: tuple[CaseView, ...]
    absent: tuple[str, ...]

    @property
    def pairs(self) -> PairsFile:
        """Pairs of fault kinds, and whether both faults of a pair were in force together; empty if the batch had no
        storm of pairs. Raises `BadInput` if the file cannot be read."""
        path = self.directory.pairs_json
        return PairsFile.load(path) if path.exists() else PairsFile()

    @property
    def name(self) -> str:
        named = self.file.name or next((c.case.experiment for c in self.cases if c.case), "")
        return named or self.directory.path.name

    @property
    def state(self) -> State:
        if self.file.verdict is not None:
            return State(self.file.verdict.value)
        states = {case.state for case in self.cases}
        if State.HARNESS_FAILED in states or self.file.interrupted:
            return State.HARNESS_FAILED
        return State.NOT_JUDGED

    @property
    def started_ns(self) -> int:
        """Start of the first case, in ns since the Unix epoch; 0 if unknown."""
        starts = [c.case.wall_ns for c in self.cases if c.case and c.case.wall_ns > 0]
        starts += [c.events[0].wall_ns for c in self.cases if c.events]
        return min(starts, default=0)

    @cached_property
    def _repeats(self) -> int:
        return max((case.entry.repeat for case in self.cases), default=1)

    def title(self, case: CaseView) -> str:
        """Return the title of a case: `acks=all, min.insync.replicas=2`, after its experiment if the batch has
        several, and with the repeat if there are several.
        """
        names = setting_names(list(case.settings))
        text = ", ".join(f"{names[path]}={scalar(value)}" for path, value in case.settings.items())
        if case.entry.cell:
            text = case.entry.case.rpartition("#")[0].replace(",", ", ")
        if not text:
            return case.entry.title
        whose = f"{case.entry.experiment}: " if case.entry.experiment else ""
        return whose + (f"{text} (repeat {case.entry.repeat})" if self._repeats > 1 else text)


def load_batch(path: Path) -> BatchView:
    """Return the batch in a folder; without a readable `batch.json`, only what its case folders show. Raises `BadInput`
    if there is no case folder either, OSError if a timeline cannot be read."""
    absent: list[str] = []
    file = _document(BatchFile, BatchDir(path).batch_json, path, absent)
    strays = _unlisted(path, file)
    if file is None:
        if not strays:
            raise BadInput(
                f"{path}: no batch: neither a readable batch.json nor a case folder with case.json"
            )
        absent.append("batch.json gives no verdict: what follows is read from the case folders alone")
        exit_code = int(batch_exit_code([entry.verdict for entry in strays]))
        file = BatchFile(verdict=None, exit_code=exit_code, seed=0, name=path.name, cases=tuple(strays))
    else:
        absent += [
            f"{entry.run}/ is a case folder that batch.json does not name: left out" for entry in strays
        ]
    cases = tuple(_case(path, index, entry) for index, entry in enumerate(file.cases))
    return BatchView(BatchDir(path), file, cases, tuple(absent))


def _unlisted(path: Path, file: BatchFile | None) -> list[BatchCase]:
    """Return an entry for each case folder with a readable `case.json` that `batch.json` does not list.

    `batch.json` lists a case only after that case has ended.
    """
    known = {(path / entry.run).resolve() for entry in file.cases} if file else set()
    found: list[BatchCase] = []
    for case_json in sorted(path.glob("*/case.json")):
        if case_json.parent.resolve() in known:
            continue
        try:
            case = CaseFile.load(case_json)
        except BadInput:
            continue
        found.append(
            BatchCase(
                case=case.case,
                settings=case.settings,
                cell=case.cell,
                repeat=case.repeat,
                run=case_json.parent.name,
            )
        )
    return found


def _case(batch: Path, index: int, entry: BatchCase) -> CaseView:
    run = CaseDir(batch / entry.run)
    if not run.path.resolve().is_relative_to(batch.resolve()):
        # A path that leaves the batch was not written by us: nothing outside is read.
        run = BatchDir(batch).case(entry.case)
    absent: list[str] = []
    if not run.path.is_dir():
        absent.append(f"{entry.run}: no such folder, nothing of this run is kept")
        return CaseView(index, entry, run, None, None, None, None, (), tuple(absent))
    case = _document(CaseFile, run.case_json, run.path, absent)
    audit = _document(AuditFile, run.audit_json, run.path, absent)
    judged = _document(VerdictFile, run.verdict_json, run.path, absent)
    final = _document(FinalReadFile, run.final_read, run.path, absent)
    # A run on somebody else's cluster has no logs to look at: nothing is absent then.
    replicas = _if_there(ReplicasFile, run.replicas, run.path, absent)
    groups = _if_there(GroupsFile, run.groups, run.path, absent)
    events, whole = read_timeline(run.timeline)
    if not events:
        absent.append("timeline.jsonl: missing or empty, so no fault and no phase can be shown")
    elif not whole:
        absent.append("timeline.jsonl: torn, some lines cannot be read; the rest is shown")
    elif events[-1].kind is not EventKind.END:
        absent.append("timeline.jsonl has no end event: the run was cut off")
    known: tuple[PredictionFile | None, SimulationFile | None, ConformanceFile | None] = (None, None, None)
    if judged is not None and not judged.classes:
        # The judge has looked at nothing: the files are not those that the run wrote. What was once worked out of them
        # would pass for what this run showed.
        audit = None
        absent.append("nothing was judged, so neither counts nor findings are shown")
    else:
        known = (
            _if_there(PredictionFile, run.prediction_json, run.path, absent),
            _if_there(SimulationFile, run.simulation_json, run.path, absent),
            _if_there(ConformanceFile, run.conformance_json, run.path, absent),
        )
    return CaseView(
        index, entry, run, case, audit, judged, final, tuple(events), tuple(absent), replicas, *known, groups
    )


def _if_there(kind: type[D], path: Path, root: Path, absent: list[str]) -> D | None:
    return _document(kind, path, root, absent) if path.exists() else None


def _document(kind: type[D], path: Path, root: Path, absent: list[str]) -> D | None:
    if not path.exists():
        absent.append(f"{path.relative_to(root)}: missing")
        return None
    try:
        return kind.load(path)
    except UnreadableFile as error:
        absent.append(f"{path.relative_to(root)}: {error.why}")
        return None


_MEANINGS: Final[Mapping[int, str]] = {
    ExitCode.PASS: "the evidence is complete, and nothing forbidden was seen",
    ExitCode.FAIL: "something forbidden was seen",
    ExitCode.INCONCLUSIVE: "evidence is lacking for a verdict",
    ExitCode.BAD_INPUT: "the input could not be used",
    ExitCode.HARNESS_FAILED: "the harness itself failed or was interrupted",
}


def exit_meaning(code: int) -> str:
    """Return the meaning of an exit code of `ackproof` in words; `unknown` for another number."""
    return _MEANINGS.get(code, "unknown")
