"""ZooKeeper keeps the metadata (Kafka 3.9 and earlier): its servers, sessions, znodes and transaction logs."""
