"""Runs that are judged."""

from __future__ import annotations

from judged_run import make_run, prediction, replay

__all__ = ["make_run", "prediction", "replay"]
