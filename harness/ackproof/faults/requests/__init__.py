"""Faults of single requests of one API, by the request proxy, which understands Kafka's frames."""

from __future__ import annotations
