"""What nodes keep their data on: file systems of their own, log dirs, and logs as they lie on disk."""
