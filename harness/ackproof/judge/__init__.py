"""Facts of a run → verdict, in the order of docs/architecture.md.

Belongs here: what a configuration forbids, what evidence a verdict needs, how all opinions become one word with
reasons. Each file of `checks/` looks at one thing and writes nothing. Does not belong here: counting (audit), facts of
a run (rundir), replaying and predicting (reference), how a verdict looks (reports).
"""

from __future__ import annotations

from ackproof.rundir.documents import VerdictFile
from ackproof.rundir.layout import CaseDir

__all__ = ["judge_case"]


def judge_case(run: CaseDir) -> VerdictFile:
    """Judge a run that was audited, replayed and predicted; write `verdict.json`, and return it.

    Raises `BadInput` when one of these facts is missing or cannot be read.
    """
    # Only here: it reads tables, which takes a second to load, and what is asked before a run needs none.
    from ackproof.judge.facts import Facts
    from ackproof.judge.verdict import judge

    verdict = judge(Facts.of(run))
    verdict.save(run.verdict_json)
    return verdict
