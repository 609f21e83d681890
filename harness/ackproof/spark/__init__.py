"""Starts Spark or finds a session, and runs jobs on it. README.md in this folder is the overview.

Belongs here: sessions and the JVM that ackproof starts (`session`, `driver`), ackproof's code on the workers
(`workers`), and jobs (`job`), which an `Edge` runs over RDDs or over Spark Connect (`edges`). Does not belong here:
what a job does (audit, SQL). Importing this package loads nothing.
"""
