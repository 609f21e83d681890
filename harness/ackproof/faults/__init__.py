"""Faults. Each kind is one file, or one of its family's: what a file says of it, how it is done, who sees that it bit
and that it is over, how it is healed, and what it comes to for a prediction.

Belongs here too: the life of a fault (`life`), who carries it through (`driver`), whom it hits (`aim`), who holds which
node (`holds`), how kinds are found (`registry`). Reading an experiment loads all of it, so that nothing here imports a
heavy library when it is loaded. Does not belong here: what a fault means for a verdict (judge).
"""
