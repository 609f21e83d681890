"""Runs that are judged."""

from __future__ import annotations

from judged_run import facts, make_run, prediction, replay

__all__ = ["facts", "make_run", "prediction", "replay"]
