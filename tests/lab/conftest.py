"""Fixtures that write runs for the judge: `make_run`, and its `prediction` and `replay`."""

from __future__ import annotations

from judged_run import make_run, prediction, replay

__all__ = ["make_run", "prediction", "replay"]
