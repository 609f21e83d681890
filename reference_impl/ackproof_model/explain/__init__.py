"""Explains which acknowledged records the observed leader epochs must have removed.

Belongs here: epochs, truncations, deleted topics and intervals, compared with the ledgers' rows and the audit's
findings. Does not belong here: whether the epochs were allowed (`replay`). Entry point: `explanation.explain`.
"""
