"""Faults of single requests: of one API on some links, by the proxy that understands Kafka's frames."""

from __future__ import annotations
