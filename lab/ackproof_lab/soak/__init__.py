"""Soaks: a load of hours, audited window by window while it goes on. See README.md in this folder.

`load` runs the load. `windows` closes each window and starts `window`, a process that audits it by `rolling`; `context`
computes the rows of earlier windows that this needs. `forgetting` deletes old windows (`--keep`).
"""
