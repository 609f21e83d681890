"""Links of a cluster: how each link is broken, and how witnesses observe that.

A link `A -> B` is every connection that A opens to B, with its traffic in both directions. Cutting it keeps A from
asking B; B may still ask A over connections of its own.

Belongs here: the mesh's protocol, the proxies and packet rules by which links are broken, the proxy of single requests
(`requests`), witnesses that depend on no proxy and no rule (probes, the kernel's counters), addresses and the wire
protocol. Does not belong here: faults, and their effects on Kafka (`faults`).
"""

from __future__ import annotations
