"""A finished run replayed through the reference core, and the losses that its steps explain.

A function of the run directory alone: it can be repeated on an old run.
"""

from __future__ import annotations

from ackproof.experiment.case import Case
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import ConformanceFile
from ackproof_model.explain.explanation import explain
from ackproof_model.replay.account import Account
from ackproof_model.replay.metadata import replay
from ackproof_model.replay.observed import observe
from ackproof_model.replay.samples import replay_samples


def conform(run: CaseDir, case: Case) -> ConformanceFile:
    """Replay an audited run and say what it explains. Raises `BadInput` for files that are broken."""
    observed = observe(run, case)
    account = Account(list(observed.lacks))
    replay(observed, account)
    replay_samples(observed, account)
    explain(observed, account)
    return account.file()
