"""Running cases: one through its phases (`case`), many in order (`batch`), and what dead runs left (`housekeeping`).

Belongs here: order, overlap and the ends of what was started. Does not belong here: judging, printing.
"""
