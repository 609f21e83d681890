"""What a night does: which jobs there are, how they are spread over shards, what came of them, the page about it."""
