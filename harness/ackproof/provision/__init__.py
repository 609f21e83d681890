"""Provides what a machine needs to run Kafka: Java, Kafka's jars by version, and files that are made from these once.

`jars` gives the jars of a release (`releases`, `maven`), of a user's build (`builds`) or of a patch. From them,
`checkpoint` and `jvm` make files that speed up the start of a node. All of them are entries of a shared cache folder
(`cache`).
"""

from __future__ import annotations
