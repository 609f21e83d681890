"""Disks of nodes: their own file systems, their log dirs, and Kafka's logs on disk."""
