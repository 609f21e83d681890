"""Runs cases: one case through its phases (`case`), many in order (`batch`); cleans up after dead runs
(`housekeeping`).

`recovery` and `client_recovery` watch the cluster and the clients after the last healing; `conclude` calls the audit,
the judge and the reports. Belongs here: the order of steps, and ending all that was started. Does not belong here:
judging, printing.
"""
