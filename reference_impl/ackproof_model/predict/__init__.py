"""Prediction: what the protocol allows a case to lose under its faults, before it runs and as a run showed them."""
