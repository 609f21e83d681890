"""Cases and runs, translated to and from the reference implementation.

Belongs here: which rules and scope a case means, what the reference says of it (prediction, replay, simulation).
Does not belong here: the protocol itself (`ackproof_reference`), verdicts (judge), counting (audit).
"""
