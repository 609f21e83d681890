"""Counterexamples of the explorer ("stories"), forced on real brokers: translated to a script, run, compared step by
step.

`story` reads a story, `translate` turns it into steps of a script, `experiment` writes the experiment around them and
reads the outcome of its run.
"""

from __future__ import annotations
