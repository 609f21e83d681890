"""Comparison of batches, case by case (`ackproof compare`, `trend`). Intervals are computed in `repeats`."""
