"""Who keeps a cluster's metadata: a KRaft quorum, or ZooKeeper.

Belongs here: all that depends on it, one folder each, behind the protocols of `protocol`; `choice` is the one place
that tells them apart. Does not belong here: what follows from the mode without a cluster (`ackproof.experiment.kafka`).
"""
