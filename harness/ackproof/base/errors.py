"""Every exception that ackproof raises on purpose.

::

    AckproofError                the root; its text is one line that a user can act on
    ├── BadInput                 the caller is wrong: usage, YAML, a missing tool (exit 254)
    │   └── MissingTool          a program that must be installed is not there
    ├── WaitTimeout              an awaited state did not come (`ackproof.base.wait`)
    ├── NodeDied                 a node ended by itself
    ├── ClientDied               a producer or reader process ended by itself
    ├── FaultNotConfirmed        a fault or its healing had no observable effect (INCONCLUSIVE)
    ├── EvidenceMissing          a run cannot be judged (INCONCLUSIVE)
    ├── AuditFailed              the audit could not count (exit 2 or 254, see its `code`)
    └── Interrupted              the user asked to stop (exit 255)
"""

from __future__ import annotations


class AckproofError(Exception):
    """Root of the tree. `str(error)` is fit to be shown to a user."""


class BadInput(AckproofError):
    """The input cannot be used, and nothing was started. Exit code 254."""


class MissingTool(BadInput):
    """A program is missing. The text names it and says how to get it."""

    def __init__(self, tool: str, why: str, install: str) -> None:
        self.tool = tool
        self.install = install
        self.lack = f"{tool} is missing ({why})"
        super().__init__(f"{self.lack}. Install it: {install}")


class WaitTimeout(AckproofError):
    """An awaited state did not come within its bound. The text says what, how long, and what was seen last."""


class NodeDied(AckproofError):
    """A node of the cluster ended by itself. The text carries its exit status and its last log lines."""


class ClientDied(AckproofError):
    """A producer or reader process ended by itself. The text carries its exit status and last output."""


class FaultNotConfirmed(AckproofError):
    """A fault (or its healing) was asked for and no independent observation confirms it."""


class EvidenceMissing(AckproofError):
    """A run cannot be judged, and the text says what is lacking."""


class AuditFailed(AckproofError):
    """The audit could not count. `code` is its exit code: 2 incomplete, 254 bad input."""

    def __init__(self, message: str, code: int) -> None:
        self.code = code
        super().__init__(message)


class Interrupted(AckproofError):
    """The user asked to stop (Ctrl-C or SIGTERM)."""
