"""A cluster that someone else runs, reached through the protocol alone."""
