"""What a machine must have to run Kafka: Java, Kafka's jars by version, and what is made of these once."""

from __future__ import annotations
