"""Starts Spark or finds a session, and hands jobs to it. README.md in this folder is the map.

Here: sessions and our own JVM (`session`, `driver`), our code on the workers (`workers`), and jobs (`job`), which an
`Edge` runs over RDDs or over Spark Connect (`edges`). Not here: what a job does (audit, SQL). Importing this package
loads nothing.
"""
