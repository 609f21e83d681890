"""Faults: every kind, and how it is injected, confirmed, healed, and confirmed to be healed.

A kind is one class in a file of its family: its fields in an experiment, its injection with witnesses, and its
incidents for a prediction. A family with several files has `spec` (fields), `injection`, and files of kinds. Other
modules: `injection` (the base of all injections, and claims on nodes), `life` (states of a fault), `driver` (runs all
faults of a case, and resolves roles) and `registry` (finds the kinds).

All of it is imported to read an experiment, so no module here imports a heavy library at load time. The meaning of a
fault for a verdict is in `judge`.
"""
