"""The audit of a soak, window by window, while its load goes on. README.md beside this file is the map.

Belongs here: what is new in a window, what is carried to the next, the process that audits one. Does not belong here:
the passes themselves (audit), when a window closes and what is deleted (run), what it means (judge).
"""
