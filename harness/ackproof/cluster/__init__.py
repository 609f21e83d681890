"""Clusters under test: real Kafka nodes, operations on them, and questions to them through Kafka's protocol.

Belongs here: the `Cluster` and `Node` protocols, the backends, metadata modes, disks of nodes, rendering of
server.properties, requests to brokers. Does not belong here: addresses and connections (network), when and why a node
is hurt (faults), what is written over time (observe), the jars themselves (provision).
"""

from __future__ import annotations
