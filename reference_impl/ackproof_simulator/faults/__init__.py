"""Simulates the faults of an experiment in virtual time: their effect on hosts, links and brokers, and their healing.

Belongs here: one file per family, one class per kind or for several kinds. `schedule` decides when faults strike and
heal. `virtual` finds the class of a kind.
"""
