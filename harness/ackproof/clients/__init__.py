"""The load of a run: producers, live readers and the final reader, each a process of its own.

`clients` is the parent's side, `producer` and `reader` are the processes, `outcomes` says what an attempt came to,
`journal` and `salvage` keep what a killed process had sent. README.md beside this file is the map.
"""
