"""Faults at a point of Kafka's code: the named points, and what is done where a thread passes one."""
