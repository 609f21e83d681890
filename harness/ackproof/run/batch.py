"""The cases of one call: their order, the audit at the end, `batch.json`, the reports.

Spark audits all cases at once, after the last has healed: it must not take the cores from a cluster under test.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ackproof import audit
from ackproof.base.errors import AckproofError, BadInput
from ackproof.cluster.backends.attach.cluster import Attachment
from ackproof.cluster.backends.choice import prepare, resolve
from ackproof.cluster.install import Installation, install, with_features
from ackproof.experiment.case import Case
from ackproof.faults.command.injection import require
from ackproof.judge import judge_case
from ackproof.plan import load
from ackproof.plan.cases import cases
from ackproof.plan.on_model import MODEL
from ackproof.provision.progress import Progress
from ackproof.run.case import CaseRun, Orders
from ackproof.run.prepared import Ahead, HeldBack
from ackproof.rundir.documents import AuditFile, BatchCase, BatchFile, VerdictFile
from ackproof.rundir.layout import BatchDir, CaseDir, safe_name
from ackproof.rundir.outcome import ExitCode, Verdict, batch_exit_code
from ackproof.rundir.timeline import Event
from ackproof_reports import render_batch

RUNS = Path("runs")


class BatchWatcher(Protocol):
    """Who follows a batch (the console's view)."""

    def case_begins(self, case: str) -> None:
        """A case starts."""

    def case_ends(self, case: str, error: str | None) -> None:
        """A case is through; `error` when it could not be brought through."""

    def step(self, text: str) -> None:
        """Something that takes long begins."""

    def event(self, event: Event) -> None:
        """An event of the running case."""

    def live(self, acked: int, read: int, isr: str) -> None:
        """The running case at this moment."""


@dataclass(frozen=True)
class BatchOrders:
    """What one call of `ackproof run` asks for. `seed`, `repeat`, `backend` override the files'."""

    files: tuple[Path, ...]
    backend: str | None = None
    seed: int | None = None
    repeat: int | None = None
    only: tuple[str, ...] = ()
    out: Path = RUNS
    keep_data: bool = False
    attachment: Attachment | None = None
    """Where the cluster is that someone else runs, and what lets us in."""
    settings: tuple[str, ...] = ()
    """`PATH=VALUE`, over what the files say."""
    simulate: bool = True
    """Whether simulated runs are made beside each case, for the report."""


@dataclass
class Planned:
    """A case on its way: where it goes, and what came of it so far."""

    case: Case
    file: Path
    run: CaseDir
    error: str | None = None
    verdict: VerdictFile | None = None
    audit: AuditFile | None = None


@dataclass
class Batch:
    """A batch while it is being run. `directory` exists from the first moment on."""

    name: str
    seed: int
    directory: BatchDir
    planned: list[Planned]
    command: str
    interrupted: bool = False

    def document(self) -> BatchFile:
        """What `batch.json` says now."""
        verdicts = [planned.verdict.verdict if planned.verdict else None for planned in self.planned]
        code = ExitCode.HARNESS_FAILED if self.interrupted else batch_exit_code(verdicts)
        by_code = {verdict.exit_code: verdict for verdict in Verdict}
        return BatchFile(
            name=self.name,
            verdict=by_code.get(code),
            exit_code=int(code),
            seed=self.seed,
            command=self.command,
            interrupted=self.interrupted,
            cases=tuple(self._case(planned) for planned in self.planned),
        )

    def _case(self, planned: Planned) -> BatchCase:
        return BatchCase(
            case=planned.case.id,
            settings=planned.case.settings,
            repeat=planned.case.repeat,
            verdict=planned.verdict.verdict if planned.verdict else None,
            error=planned.error,
            reasons=planned.verdict.reasons if planned.verdict else (),
            counts=_counts(planned.audit) if planned.audit else {},
            run=str(planned.run.path.relative_to(self.directory.path)),
        )

    def save(self) -> None:
        """Rewrite `batch.json`."""
        self.directory.batch_json.parent.mkdir(parents=True, exist_ok=True)
        self.document().save(self.directory.batch_json)


def plan_cases(orders: BatchOrders) -> list[tuple[Path, Case]]:
    """All cases of all files, in order. Raises `BadInput` before anything is started."""
    found: list[tuple[Path, Case]] = []
    if orders.attachment is not None:
        orders.attachment.check()
    for file in orders.files:
        plan = load(file, orders.settings, backend=orders.backend)
        if (backend := resolve(plan.spec.backend)) != plan.spec.backend:
            plan = load(file, orders.settings, backend=backend)
        found += [(file, case) for case in cases(plan, seed=orders.seed, repeat=orders.repeat)]
    if orders.only:
        found = [
            (file, case) for file, case in found if {case.id, case.id.rpartition("#")[0]} & set(orders.only)
        ]
        if not found:
            raise BadInput(f"no case is called {' or '.join(orders.only)}; ackproof plan lists them")
    return found


def run_batch(orders: BatchOrders, watcher: BatchWatcher, planned: Sequence[tuple[Path, Case]]) -> Batch:
    """Run, audit, judge and report. A KeyboardInterrupt is written into `batch.json` and raised again.

    Raises `BadInput` (a missing tool, an unknown version) before anything is left on disk.
    """
    if orders.attachment is None and any(case.experiment.ground.foreign for _, case in planned):
        raise BadInput("backend: attach needs to know where the cluster is: --bootstrap host:port")
    ready = _provision([case for _, case in planned], watcher)
    batch = _lay_out(orders, planned)
    batch.save()
    try:
        _run_all(batch, orders, ready, watcher)
        if orders.simulate:
            from ackproof_simulator.beside import simulate_all

            simulate_all([(one.case, one.run) for one in batch.planned if one.error is None], watcher.step)
        conclude(batch, watcher.step)
    except KeyboardInterrupt as interrupt:
        batch.interrupted = True
        batch.save()
        interrupt.add_note(f"in {batch.directory.path}")
        raise
    finally:
        point_latest(orders.out, batch.directory.path)
    return batch


def _provision(planned: Sequence[Case], watcher: BatchWatcher) -> dict[str, Installation]:
    """All that any case needs, before the first one: nothing is fetched, and nothing lacks, while a cluster runs."""

    def tell(progress: Progress) -> None:
        watcher.step(progress.message)

    planned = [case for case in planned if case.experiment.backend != MODEL]
    for case in planned:
        prepare(case.experiment.backend, case.needs, case.experiment.cluster, tell)
        require(case.faults)
    clusters = [case.experiment.cluster for case in planned if not case.experiment.ground.foreign]
    others = {version for case in planned for fault in case.faults for version in fault.releases}
    ready = {
        version: install(version, tell) for version in sorted({spec.kafka for spec in clusters} | others)
    }
    for spec in clusters:
        # What Kafka says to these levels must be known before anything is started.
        with_features(ready[spec.kafka], spec.features, tell)
    return ready


def _lay_out(orders: BatchOrders, planned: Sequence[tuple[Path, Case]]) -> Batch:
    several = len({file for file, _ in planned}) > 1
    name = safe_name("+".join(dict.fromkeys(case.experiment.name for _, case in planned)))[:80]
    directory = new_folder(orders.out, f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{name}")
    runs = []
    for number, (file, case) in enumerate(planned, start=1):
        folder = directory.case(case.id)
        if several:
            folder = CaseDir(
                directory.path / safe_name(f"{number:02d}-{case.experiment.name}") / folder.path.name
            )
        runs.append(Planned(case, file, folder))
    seed = orders.seed if orders.seed is not None else planned[0][1].experiment.seed
    return Batch(name, seed, directory, runs, command_of(orders, seed))


def command_of(orders: BatchOrders, seed: int, only: str | None = None, file: Path | None = None) -> str:
    """The one command that repeats this batch, or one case of it."""
    files = [str(file)] if file is not None else [str(path) for path in orders.files]
    words = ["ackproof", "run", *files, "--seed", str(seed)]
    if orders.repeat is not None:
        words += ["--repeat", str(orders.repeat)]
    if orders.attachment is not None:
        # Settings that were given one by one may be secret.
        words += ["--bootstrap", orders.attachment.bootstrap]
        if orders.attachment.file is not None:
            words += ["--client-config", str(orders.attachment.file)]
    elif orders.backend is not None:
        words += ["--backend", orders.backend]
    for setting in orders.settings:
        words += ["--set", setting]
    for case in (only,) if only is not None else orders.only:
        words += ["--case", case]
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    plain = word.replace("/", "").replace(".", "").replace("-", "").replace("_", "").isalnum()
    return word if plain else "'" + word.replace("'", "'\\''") + "'"


def new_folder(out: Path, name: str) -> BatchDir:
    """A folder that nobody else has, even if two batches of one name start in the same second."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for suffix in ("", *(f"-{number}" for number in range(2, 100))):
            path = out / f"{name}{suffix}"
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return BatchDir(path.resolve())
    except OSError as error:
        raise BadInput(f"{out}: a batch cannot be kept there: {error.strerror}") from error
    raise BadInput(f"{out}: there are a hundred batches called {name}")


def point_latest(out: Path, batch: Path) -> None:
    """`latest` → this batch, in one step; a file that somebody put there is left alone."""
    link = out / "latest"
    if link.exists() and not link.is_symlink():
        return
    temporary = out / f".latest.{os.getpid()}.{secrets.token_hex(4)}"
    temporary.symlink_to(batch.name)
    temporary.replace(link)


def _run_all(
    batch: Batch, orders: BatchOrders, ready: dict[str, Installation], watcher: BatchWatcher
) -> None:
    """All cases in order. The cluster of each starts as soon as the case before it has healed."""
    ahead: Ahead | None = None

    def begin(number: int) -> Ahead | None:
        if number >= len(batch.planned) or batch.planned[number].case.experiment.backend == MODEL:
            return None
        one = batch.planned[number]
        held = HeldBack(watcher)
        own = Orders(
            batch=str(batch.directory.path),
            replay=command_of(orders, batch.seed, only=one.case.id, file=one.file),
            keep_data=orders.keep_data,
            installed=ready.get(one.case.experiment.cluster.kafka),
            attachment=orders.attachment,
            healed=lambda: begin_ahead(number + 1),
        )
        return Ahead(CaseRun(one.case, one.run, own, held), held)

    def begin_ahead(number: int) -> None:
        nonlocal ahead
        ahead = begin(number)

    try:
        for number, one in enumerate(batch.planned):
            watcher.case_begins(one.case.id)
            if one.case.experiment.backend == MODEL:
                one.error = _through_the_model(one, orders, batch.seed, watcher)
            else:
                present, ahead = ahead or begin(number), None
                one.error = _bring_through(present)
            batch.save()
            watcher.case_ends(one.case.id, one.error)
    finally:
        if ahead is not None:
            ahead.drop()


def _bring_through(present: Ahead | None) -> str | None:
    """Run a case; the reason why it could not be brought through, None when it was."""
    if present is None:
        return "there is no such case"
    try:
        with present:
            present.go()
    except BadInput:
        raise
    except AckproofError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 — one case that crashes must not take the others' results along
        return f"the harness failed: {type(error).__name__}: {error}"
    return None


def _through_the_model(one: Planned, orders: BatchOrders, seed: int, watcher: BatchWatcher) -> str | None:
    """Run a case in virtual time; the reason why it could not be brought through, None when it was."""
    from ackproof_simulator.backend import run_in_model

    try:
        run_in_model(
            one.case, one.run, command_of(orders, seed, only=one.case.id, file=one.file), watcher.event
        )
    except Exception as error:  # noqa: BLE001 — one case that crashes must not take the others' results along
        return f"the model failed: {type(error).__name__}: {error}"
    return None


def conclude(batch: Batch, step: Callable[[str], None]) -> None:
    """Audit all cases as one job, judge each, write `batch.json` and the reports."""
    assess(batch.planned, step)
    batch.save()
    step("writing the report")
    render_batch(batch.directory.path)


def assess(planned: Sequence[Planned], step: Callable[[str], None]) -> None:
    """Audit these cases as one job, and judge each. A Spark context that this process has is used."""
    audited = [one for one in planned if one.run.ledger.exists()]
    if audited:
        step(f"auditing {len(audited)} {'case' if len(audited) == 1 else 'cases'}")
        results = {result.directory: result for result in audit.run([one.run.path for one in audited])}
        for one in audited:
            result = results[one.run.path]
            if result.file is None:
                one.error = one.error or "audit: " + "; ".join(result.reasons)
            else:
                one.audit = result.file
    for one in planned:
        if one.audit is not None and one.error is None:
            try:
                one.verdict = judge_case(one.run)
            except Exception as error:  # noqa: BLE001 — a case that cannot be judged must not take the others along
                one.error = f"it could not be judged: {type(error).__name__}: {error}"


def reopen(directory: Path, step: Callable[[str], None]) -> BatchFile:
    """Judge and report an old batch anew from what is on disk; what was never audited is audited first."""
    batch_dir = BatchDir(directory)
    old = BatchFile.load(batch_dir.batch_json)
    runs = {case.run: CaseDir(directory / case.run) for case in old.cases}
    unaudited = [run.path for run in runs.values() if run.ledger.exists() and not run.audit_json.exists()]
    if unaudited:
        step(f"auditing {len(unaudited)} {'case' if len(unaudited) == 1 else 'cases'}")
        audit.run(unaudited)
    judged = tuple(_judged_anew(case, runs[case.run]) for case in old.cases)
    code = batch_exit_code([case.verdict for case in judged])
    by_code = {verdict.exit_code: verdict for verdict in Verdict}
    new = old.model_copy(
        update={"cases": judged, "exit_code": int(code), "verdict": by_code.get(code), "interrupted": False}
    )
    new.save(batch_dir.batch_json)
    step("writing the report")
    render_batch(directory)
    return new


def _judged_anew(case: BatchCase, run: CaseDir) -> BatchCase:
    if not run.audit_json.exists():
        return case.model_copy(update={"verdict": None, "error": case.error or "there is nothing to judge"})
    verdict = judge_case(run)
    audited = AuditFile.load(run.audit_json)
    return case.model_copy(
        update={"verdict": verdict.verdict, "reasons": verdict.reasons, "counts": _counts(audited)}
    )


def _counts(audited: AuditFile) -> dict[str, int]:
    return {**audited.counts, **audited.records.model_dump()}
