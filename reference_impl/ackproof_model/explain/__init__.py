"""Explanation: the acknowledged records that the observed epochs explain as gone.

Belongs here: epochs, truncations, deleted topics and intervals, compared with the ledgers' rows and the audit's
findings. Does not belong here: whether the epochs were allowed (`replay`). Entry point: `explanation.explain`.
"""
