"""One fact, two witnesses: whether what bears on the same thing agrees. Where it does not, nothing can be built on it.

Belongs here: one file per kind of fact, with its rules as sentences that name both sides. Each reads `Facts` and writes
nothing. A rule that fires on a healthy run is wrong. Does not belong here: what Kafka may do (reference, checks).
"""
