"""Further faults of processes: crash loop, death during start-up, out of memory, CPU starvation, quorum loss."""
