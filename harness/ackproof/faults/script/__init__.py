"""Scripts: step by step, each lets one thing through and waits until it is seen to have happened.

`steps` is the grammar, `script` the kind of fault that a script is, `gates` hold what no step lets through, `looks` see
what has happened, `play` does one step after the other.
"""

from __future__ import annotations
