"""Findings × expectations × evidence → verdict (DESIGN §1, in its order).

Belongs here: what a configuration forbids, what evidence a verdict needs, how both become one word with reasons.
Does not belong here: counting (audit), facts of a run (rundir), how a verdict looks (reports).
"""

from __future__ import annotations

from ackproof.rundir.documents import VerdictFile
from ackproof.rundir.layout import CaseDir

__all__ = ["judge_case"]


def judge_case(run: CaseDir) -> VerdictFile:
    """Judge one audited run, write `verdict.json`, and return it.

    Raises `BadInput` when `case.json` or `audit.json` is missing or cannot be read.
    """
    # Only here: it reads tables, which takes a second to load, and what is asked before a run needs none.
    from ackproof.judge.verdict import judge_case as judged

    return judged(run)
