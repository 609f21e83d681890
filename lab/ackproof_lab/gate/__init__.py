"""`ackproof gate`: experiments as a step of CI."""
