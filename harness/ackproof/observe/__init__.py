"""What is seen of a cluster while it runs, through Kafka's own protocol and beside the clients under test.

Belongs here: sampling of leaders, in-sync replicas, high watermarks and log ends. Does not belong here: what it
means (audit, judge), what is done about it (faults).
"""

from __future__ import annotations
