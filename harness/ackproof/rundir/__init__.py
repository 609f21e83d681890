"""Everything that a run leaves behind: file names, schemas, record types, the payload codec, writers and readers.

This package states facts and judges nothing. The other packages and the reports read a run only through it. README.md
in this folder lists every file of a run directory.
"""
