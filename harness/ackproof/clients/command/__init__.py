"""Programs of the user as clients: they print events as JSON lines (docs/clients.md); the harness writes their
ledgers."""
