"""A KRaft quorum keeps the metadata: its voters, its log, its feature levels."""
