"""Base class of ackproof's exceptions, and the exceptions that several packages raise. Others are defined where they
are raised."""

from __future__ import annotations

from pathlib import Path

from ackproof.base.advice import Advice


class AckproofError(Exception):
    """Base class of ackproof's exceptions. `str(error)` is a message for the user, who can act on it."""


class BadInput(AckproofError):
    """The input (usage, YAML, files of a run, machine) cannot be used. Exit code 254. `fact`: what is wrong, or an
    `Advice`. `hint`: what to do about it."""

    def __init__(self, fact: str, hint: str = "") -> None:
        super().__init__(Advice(fact, hint))


class UnreadableFile(BadInput):
    """A file of a run or a batch cannot be read, or has invalid content. `why`: the text without the file's name."""

    def __init__(self, path: Path, why: str) -> None:
        self.why = why
        super().__init__(f"{path}: {why}")


class MissingTool(BadInput):
    """A program must be installed first.

    The text names it (`tool`), its use (`why`), and how to get it (`install`). `lack`: the text without `install`.
    """

    def __init__(self, tool: str, why: str, install: str) -> None:
        self.tool = tool
        self.install = install
        self.lack = f"{tool} is missing ({why})"
        super().__init__(f"{self.lack}. Install it: {install}")


class WaitTimeout(AckproofError):
    """An awaited state did not occur in time. The text says what was awaited and how long. It also has what was seen
    last, and the last log lines, if the caller gave functions for them."""


class NodeDied(AckproofError):
    """A node of the cluster ended although neither the harness nor a fault had ended it. The text has its exit status
    and its last log lines."""


class ClientDied(AckproofError):
    """A producer or reader process ended although neither the harness nor a fault had ended it. The text has its exit
    status and last output."""


class FaultNotConfirmed(AckproofError):
    """No independent observation confirms that a fault or its healing had an effect, or there was nothing to break. The
    run is INCONCLUSIVE."""


class EvidenceMissing(AckproofError):
    """A run cannot be judged (INCONCLUSIVE). The text names the missing evidence."""


class AuditFailed(AckproofError):
    """The audit of a run did not finish. `code` is its exit code: 2 if Spark failed or files could not be
    read or written, 254 for bad input."""

    def __init__(self, message: str, code: int) -> None:
        self.code = code
        super().__init__(message)


class Interrupted(AckproofError):
    """The user asked to stop (Ctrl-C or SIGTERM), or a wait ended because its `stop` was set. Exit code 255."""
