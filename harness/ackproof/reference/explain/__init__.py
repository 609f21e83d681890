"""Which acknowledged records the observed epochs explain as gone.

Belongs here: epochs, truncations, deleted topics and intervals held against the ledgers' rows and the audit's findings.
Does not belong here: whether the epochs were allowed (`model.conform`). Its face: `explain`, `Explanation`, `LOSSES`,
`EXAMPLES`.
"""

from __future__ import annotations

from ackproof.reference.explain.explanation import EXAMPLES, Explanation, explain
from ackproof.reference.explain.rows import LOSSES

__all__ = ["EXAMPLES", "LOSSES", "Explanation", "explain"]
