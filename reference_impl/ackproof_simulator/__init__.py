"""Simulated runs: one case in virtual time, seeded, on the steps of the reference implementation.

What belongs here: virtual clock, network, brokers, controller, clients and faults, and sweeps over many seeds.
What a step of the protocol does stands in `ackproof_reference`; here stands only *when* it happens.
"""
