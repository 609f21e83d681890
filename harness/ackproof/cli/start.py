"""Entry point of the command. While its modules load, Ctrl-C ends it silently, as a signal does (exit status 130)."""

from __future__ import annotations

import signal


def entry() -> None:
    """Run the command. Until its modules are loaded, Ctrl-C ends the process at once and silently."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ackproof.cli import main

    main.entry()
