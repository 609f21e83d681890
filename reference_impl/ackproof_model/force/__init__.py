"""Stories of the explorer forced on real brokers: translated into a script, run, and compared step by step.

`story` reads a story, `translate` makes steps of a script of it, `experiment` writes the experiment around them and
reads the outcome of its run.
"""

from __future__ import annotations
