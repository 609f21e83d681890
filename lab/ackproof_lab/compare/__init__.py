"""Batches on disk → one document that holds them side by side, case by case (`ackproof compare`).

Belongs here: which cases and quantities of several batches belong together, and by how much they differ. Does not
belong here: measuring (quantities), intervals (repeats), how it looks (reports, console).
"""
