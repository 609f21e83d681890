"""Translates cases and runs into inputs of the reference implementation, and its results back.

Belongs here: which rules and scope a case means, what the reference says of it (prediction, replay, simulation). Does
not belong here: the protocol itself (`ackproof_reference`), verdicts (judge), counting (audit).
"""
