"""Findings × expectations × evidence → verdict (DESIGN §1, in its order).

Belongs here: what a configuration forbids, what evidence a verdict needs, how both become one word with reasons.
Does not belong here: counting (audit), facts of a run (rundir), how a verdict looks (reports).
"""

from __future__ import annotations

from ackproof.judge.verdict import judge_case

__all__ = ["judge_case"]
