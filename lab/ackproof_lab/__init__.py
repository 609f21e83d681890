"""Commands that the core does not need: `ackproof claims`, `compare`, `trend`, `gate` and `sql`, and the load of
soaks (`--soak`)."""
