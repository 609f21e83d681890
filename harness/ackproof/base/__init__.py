"""What every room stands on: child processes, the one waiting function, interrupts, the tree of exceptions,
units.

Belongs here: what knows nothing of Kafka. Does not belong here: anything with one user.
"""
