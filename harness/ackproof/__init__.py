"""ackproof: chaos testing for real Apache Kafka. Is what it acknowledged what it kept?

From Python: `from ackproof import api` (run, plan, audit, judge, report, open_run). Importing this package loads
nothing heavy (no Spark, no Kafka client, no pydantic).
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
