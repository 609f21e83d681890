"""Where Spark runs, and how work is handed to it. README.md beside this file is the map.

Belongs here: sessions and the JVM that is ours, our code at the workers, a job over RDDs and over Spark Connect. Does
not belong here: what a job does (audit, sql). Importing this package loads nothing.
"""
