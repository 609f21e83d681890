"""Container engine, images, networks, and the labels that mark containers of ackproof.

Belongs here: everything that talks to a container engine; the only importer of docker and testcontainers. Only
`presence`, which loads neither, is imported before an engine or an image is needed. Does not belong here: what a node
of Kafka is (cluster), what is done to it (faults), packets (network).
"""

from __future__ import annotations
