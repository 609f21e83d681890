"""An experiment as data: its parts, roles, triggers, links, and what every fault of it has in common.

Belongs here: frozen types and the words that they are written in. Does not belong here: reading a file (plan),
the kinds of faults (faults).
"""
