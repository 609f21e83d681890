"""Reads the ledgers of a run as columns. README.md in this folder is the map.

Here: part files and their footers, reasons why a directory is incomplete, rows by bucket (the rows of one partition),
fast lookup of rows. Not here: comparison of rows (audit), and writing them (clients).
"""
