"""Starts Spark or finds a session, and hands jobs to it. README.md in this folder is the map.

Here: sessions and our own JVM, our code at the workers, jobs over RDDs and over Spark Connect. Not here: what
a job does (audit, SQL). Importing this package loads nothing.
"""
