"""Clusters under test: real Kafka nodes, operations on them, and questions to them through Kafka's protocol.

Belongs here: the `Cluster` and `Node` protocols, the process backend, addresses and their leases, rendering of
server.properties, the small protocol client. Does not belong here: when and why a node is hurt (faults), what is
written over time (observe), the jars themselves (provision).
"""

from __future__ import annotations
