"""Everything a run leaves behind: file names, schemas, record types, the payload codec, writers and readers.

Facts only, no judgement. Every other room (and the report, and tools outside the project) meets a run through
this one. README.md in this folder lists every file of a run directory.
"""
