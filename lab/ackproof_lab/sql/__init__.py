"""The tables of runs, for questions in SQL. See README.md in this folder.

Belongs here: which files are which view, and how their rows come to Spark. Does not belong here: the schemas (rundir),
sessions (spark), how an answer looks (cli).
"""
