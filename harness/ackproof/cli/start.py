"""Where the command begins: Ctrl-C before it can say what it stopped ends it in silence, as a signal does (130)."""

from __future__ import annotations

import signal


def entry() -> None:
    """Entry point of the command. Nothing is started before `main_code` hears Ctrl-C again."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ackproof.cli import main

    main.entry()
