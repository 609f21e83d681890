"""The tables of runs, for questions in SQL. README.md beside this file is the map.

Belongs here: which files are which view, and how their rows come to Spark. Does not belong here: the schemas (rundir),
sessions (spark), how an answer looks (cli).
"""
