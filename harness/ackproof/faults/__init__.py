"""Faults: one file per family, paired with its spec in `ackproof.plan`. Each: inject, confirm, heal, confirm.

Belongs here: how a fault is done on a backend, and the independent witness that it bit and that it is over.
Does not belong here: what a fault is (plan), what it means for a verdict (judge).
"""

from __future__ import annotations
