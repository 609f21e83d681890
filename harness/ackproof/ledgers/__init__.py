"""What stands in the ledgers of a run, and its rows as columns. README.md beside this file is the map.

Belongs here: part files and their footers, what makes a directory incomplete, row groups as rows by bucket, what tells
rows apart fast. Does not belong here: what a row means for another (audit), who wrote it (workload).
"""
