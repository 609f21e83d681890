"""Predicts the losses that the protocol allows: for a case under its planned faults, or a run under the observed
faults."""
