"""Fixtures that write runs for the judge: `make_run`, its `prediction` and `replay`, and the `facts` of a run that
passes."""

from __future__ import annotations

from judged_run import facts, make_run, prediction, replay

__all__ = ["facts", "make_run", "prediction", "replay"]
