"""Simulates runs: a case in virtual time, seeded, on the steps of the reference implementation.

Belongs here: virtual clock, network, brokers, controller, clients and faults, and sweeps over many seeds. The effect of
a protocol step is defined in `ackproof_reference`; this package only decides *when* it happens.
"""
