"""The command `ackproof`: options and exit codes. Each command calls what a notebook could call."""
