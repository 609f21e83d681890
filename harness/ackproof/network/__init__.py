"""The mesh: every directed link of a cluster, how it is broken, and how anybody can see that it is.

A link `A -> B` is every connection that A opens to B, with what flows over it in both directions. Cutting it keeps
A from asking B; B may still ask A over connections of its own.

Belongs here: the mesh's protocol, the proxies and packet rules by which links are broken, the proxy of single requests
(`requests`), and the witnesses that know nothing of any of them (probes, the kernel's counters). Does not belong here:
what a fault is (plan), what Kafka makes of it (faults).
"""

from __future__ import annotations
