"""Base class of fake nodes: the attributes that a node of this machine (`LocalNode`) must have."""

from __future__ import annotations


class OnThisMachine:
    name = "broker"
    is_broker = True
    is_controller = False
    disk = None
    clock = None
    exit_status = None

    def expect_end(self, status: int | None = None) -> None:
        pass

    def log_tail(self, lines: int = 20) -> str:
        return ""
