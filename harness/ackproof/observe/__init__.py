"""Observation of a cluster while it runs, through Kafka's own protocol and apart from the clients under test.

Here: sampling of leaders, in-sync replicas, high watermarks and log ends; what each broker answers; node
metrics; load of the machine; the replicas' logs on disk. Not here: what the observations mean (audit, judge),
what is done about them (faults).
"""

from __future__ import annotations
