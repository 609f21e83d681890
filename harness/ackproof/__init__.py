"""ackproof: chaos testing for real Apache Kafka. Is what it acknowledged what it kept?

Importing this package loads nothing heavy (no Spark, no Kafka client, no pydantic).
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
