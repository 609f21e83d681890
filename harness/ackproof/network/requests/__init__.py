"""The proxy of requests: it understands Kafka's frames, and passes on what no rule speaks of, untouched.

A process of its own (`relay`), laid only on links of which a fault asks for it. It has one loop over all of its
connections (`relay`), each of them two streams of frames (`frames`) to which rules (`rules`) may do something; what
stands in a frame is read (`contents`) only where a rule asks. The harness speaks to it over a control socket
(`proxy`). `questions` are what a witness sends through it: requests of each API that a node answers and that change
nothing.

None of it imports a heavy library before its first use: the process starts in a tenth of a second.
"""

from __future__ import annotations
