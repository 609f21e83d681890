"""Observation of a running cluster, mostly through Kafka's own protocol, independently of the clients under test.

This package samples leaders, in-sync replicas, high watermarks and log ends, the answers of each broker, node metrics,
the load of the machine, and the replicas' logs on disk. It does not interpret them (see `audit`, `judge`) or act on
them (see `faults`).
"""

from __future__ import annotations
