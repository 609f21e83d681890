"""Programs of the user as clients: they print JSON lines (docs/clients.md), and the harness writes their ledgers."""
