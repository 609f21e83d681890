"""Faults at a point of Kafka's code: the named points, and what happens to a thread that passes one of them."""
