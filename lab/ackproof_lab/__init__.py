"""Commands outside the core: they read what batches left, or run them for a question of their own."""
