"""An experiment file as a pytest file, each of its cases as a test.

The run takes place in the setup of a test, so that pytest says ERROR where there is no verdict to speak of
(INCONCLUSIVE, a failed harness) and FAILED where there is one and it is FAIL.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from ackproof.base.errors import BadInput
from ackproof.experiment.case import Case
from ackproof.plan.cases import cases
from ackproof.run.batch_state import PlannedCase
from ackproof.run.options import plan_here
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.outcome import Verdict
from ackproof.testing.current import session_of, shown
from ackproof.testing.session import replay_of


class ExperimentFile(pytest.File):
    """An experiment file. What is wrong with it is told with line and column, all at once."""

    def collect(self) -> Iterator[ExperimentItem]:
        """A test per case."""
        file = Path(shown(self.path))
        try:
            plan = plan_here(file)
            found = cases(plan, seed=self.config.getoption("ackproof_seed"))
        except BadInput as error:
            raise self.CollectError(str(error)) from None
        if plan.over_repeats:
            # Each case is a test of its own, maybe in another process: nobody would hold them beside each other.
            raise self.CollectError(
                f"{file}: {plan.over_repeats[0].title}: what is expected over repeats is judged by: ackproof run {file}"
            )
        for case in found:
            yield ExperimentItem.from_parent(self, name=case.id, file=file, case=case)


class ExperimentItem(pytest.Item):
    """One case."""

    def __init__(self, *, file: Path, case: Case, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.file = file
        self.case = case
        self.ran: PlannedCase | None = None
        self.add_marker("ackproof")
        # `-k` knows no '=': -k "acks:1" finds what acks=1 would.
        self.extra_keyword_matches.update((case.experiment.name, case.id.replace("=", ":")))

    def setup(self) -> None:
        """Run, audit, judge. Raises where no verdict comes of it."""
        self.ran = None
        # A repeated test (a plugin that runs failed ones again) says all of it anew.
        self.user_properties = [said for said in self.user_properties if not said[0].startswith("ackproof.")]
        self.user_properties.append(("ackproof.seed", str(self.case.experiment.seed)))
        self.user_properties += [
            (f"ackproof.setting:{path}", str(value)) for path, value in self.case.settings.items()
        ]
        try:
            ran = session_of(self.config).run(self.file, self.case)
        except BadInput as error:
            self._fail(f"{self._title('no verdict')}\n  {error}")
        self.ran = ran
        verdict = _verdict(ran)
        self.user_properties += [
            ("ackproof.verdict", str(verdict or "none")),
            ("ackproof.run", os.fspath(ran.run.path)),
            ("ackproof.replay", replay_of(self.file, self.case)),
        ]
        if verdict is None or verdict is Verdict.INCONCLUSIVE:
            self._fail(self._text(ran))

    def runtest(self) -> None:
        """Say what the verdict is."""
        ran = self.ran
        if ran is None:
            self._fail(self._title("no verdict"))
        if _verdict(ran) is not Verdict.PASS:
            self._fail(self._text(ran))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where it stands, and what it is called."""
        return self.path, None, f"{self.file}::{self.name}"

    def _fail(self, text: str) -> NoReturn:
        pytest.fail(text, pytrace=False)

    def _title(self, word: str) -> str:
        return f"{word}: {self.case.experiment.name}, {self.case.id}"

    def _text(self, ran: PlannedCase) -> str:
        result = ran.result
        lines = [self._title(str(_verdict(ran) or "no verdict"))]
        error = ran.error or (result.error if result else None)
        if error:
            lines += [f"  {line}" for line in error.splitlines()]
        if result is not None and result.verdict is not None:
            lines += [f"  {reason}" for reason in result.verdict.reasons]
        if result is not None and result.audit is not None:
            records = result.audit.audited
            found = ", ".join(f"{name} {count}" for name in Anomaly if (count := result.counts.get(name)))
            lines.append(
                f"counted: {records.acked} acked, {records.failed} failed, {records.indeterminate} "
                f"indeterminate; {found or 'nothing found'}"
            )
        lines += [f"run: {shown(ran.run.path)}", f"again: {replay_of(self.file, self.case)}"]
        return "\n".join(lines)


def _verdict(ran: PlannedCase) -> Verdict | None:
    return ran.result.verdict.verdict if ran.result is not None and ran.result.verdict is not None else None
