"""The command line `ackproof`, built with click. Commands hold options and exit codes only; other packages do
the work."""
