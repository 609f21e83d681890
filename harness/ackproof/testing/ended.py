"""What an audited client is after its test: nothing. The client itself is let go, or its threads would go on trying to
reach a cluster that is gone, and say so on standard error, for as long as a failed test's traceback holds the proxy.
"""

from __future__ import annotations

import threading
from typing import NoReturn


class EndedClient:
    """Takes the place of a client: threads that the code under test left running find nothing, and no error."""

    def poll(self, timeout: float = -1) -> None:
        """Nothing comes; it takes as long as it may."""
        threading.Event().wait(timeout if timeout >= 0 else None)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[object]:
        """Nothing comes."""
        self.poll(timeout)
        return []

    def flush(self, timeout: float = -1) -> int:
        """Nothing waits."""
        return 0

    def close(self) -> None:
        """It is closed."""

    def produce(self, topic: str, **options: object) -> NoReturn:
        """Raises RuntimeError."""
        raise RuntimeError("the test is over, and its cluster gone")

    def __len__(self) -> int:
        return 0

    def __enter__(self) -> EndedClient:
        return self

    def __exit__(self, *_: object) -> None:
        return
