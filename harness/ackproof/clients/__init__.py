"""The load of a run: producers, live readers and the final reader, each a process of its own. See README.md."""
