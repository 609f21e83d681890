"""Stories of the explorer forced on real brokers: translated into a script, run, and compared step by step.

`story` is where a story comes from, `translate` makes steps of a script of it, `experiment` the experiment around them,
`outcome` says what the run came to.
"""

from __future__ import annotations
