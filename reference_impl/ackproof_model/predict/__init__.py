"""Prediction: the losses that the protocol allows a case under its planned faults, or a run under the observed ones."""
