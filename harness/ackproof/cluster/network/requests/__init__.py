"""The proxy of requests: it understands Kafka's frames, and passes on what no rule speaks of, untouched.

A process of its own (`serve`), laid only on links of which a fault asks for it. It has one loop over all of its
connections (`relay`), each of them two streams of frames (`frames`) to which rules (`rules`) may do something. The
harness speaks to it over a control socket (`proxy`). `questions` are what a witness sends through it: requests of
each API that a node answers and that change nothing.

`frames`, `rules`, `relay` and `serve` import the standard library alone: the process starts in a tenth of a second.
"""

from __future__ import annotations
