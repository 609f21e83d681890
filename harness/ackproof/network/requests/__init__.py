"""The request proxy, which parses Kafka's frames. Frames to which no rule applies pass unchanged.

It is a separate process, only on links whose requests a fault can change. One loop serves all connections (`relay`,
`line`). Each connection is two streams of frames (`frames`), on which rules (`rules`) act: they delay, drop, repeat or
replace a frame. The content of a frame is decoded (`contents`) only if a rule needs it. The harness controls the proxy
over a socket (`links`). A witness sends `questions` through it: requests of each API that change nothing on a node.

No module imports a heavy library before its first use: the process starts in a tenth of a second.
"""

from __future__ import annotations
