"""Faults of an experiment as virtual ones: what each does to hosts, links and brokers, and when it counts as healed.

Belongs here: one file for each family, a class for each kind or for several. When they strike and heal is `schedule`'s.
`virtual` finds what plays which kind.
"""
