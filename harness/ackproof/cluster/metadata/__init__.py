"""Who keeps a cluster's metadata: the KRaft quorum, or ZooKeeper."""
