"""Faults: every kind, and how it is injected, confirmed, healed and seen to be healed.

A kind is one class in a file of its family: its fields in an experiment, its injection with witnesses, and what a
prediction may count on. A family with several files has `spec` (fields), `injection` (how it is done), and files of
kinds. Further modules: what every injection offers and which nodes it holds (`injection`), its life (`life`), the
driver of all faults and which nodes they hit (`driver`), and how kinds are found (`registry`).

Reading an experiment loads all of it, so no module here imports a heavy library when it is loaded. What a fault means
for a verdict is not here, but in `judge`.
"""
