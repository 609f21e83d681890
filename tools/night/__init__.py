"""The nightly run: its jobs, their distribution over shards, their results, and the page about them."""
