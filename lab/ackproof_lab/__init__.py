"""Commands outside the core: they read the files of finished batches, or run batches to answer a question."""
