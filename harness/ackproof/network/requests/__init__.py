"""The request proxy: it understands Kafka's frames, and passes frames without a rule on untouched.

It is a process of its own, laid only on links of which a fault asks for it. One loop serves all connections (`relay`,
`line`), each of them two streams of frames (`frames`) to which rules (`rules`) may do something; the content of a frame
is read (`contents`) only if a rule asks. The harness controls it over a socket (`links`). A witness sends `questions`
through it: requests of each API that a node answers and that change nothing.

No module imports a heavy library before its first use: the process starts in a tenth of a second.
"""

from __future__ import annotations
