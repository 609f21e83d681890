"""Which acknowledged records the observed epochs explain as gone.

Belongs here: epochs, truncations, deleted topics and intervals held against the ledgers' rows and the audit's findings.
Does not belong here: whether the epochs were allowed (`reference.replay`). Its face: `explanation.explain`.
"""
