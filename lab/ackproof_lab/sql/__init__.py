"""The tables of runs, for queries in SQL. See README.md in this folder.

Belongs here: which files form a view, and how their rows reach Spark. Does not belong here: the schemas (rundir),
sessions (spark), how results are printed (cli).
"""
