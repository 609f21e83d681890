"""Reads the ledgers of a run as columns. README.md in this folder is the map.

Here: part files and their footers, reasons why a directory is incomplete, rows by bucket, fast lookup of
rows. Not here: what a row means for another (audit), who wrote it (clients).
"""
