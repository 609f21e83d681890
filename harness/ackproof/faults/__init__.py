"""Faults: every kind, and how it is injected, confirmed, healed, and confirmed to be healed.

A kind has two classes. One has its fields in an experiment, and its incidents for a prediction. The other injects it,
with witnesses. Families of kinds are folders or single files. Other modules:

* `injection`: the base of all injections; `context`: what injections act on, and claims on nodes
* `life`: states of a fault; `driver`: runs all faults of a case
* `holders`: resolves roles; `registry`: finds the kinds

Modules of kinds are imported to read an experiment, so none of them imports a heavy library at load time. The meaning
of a fault for a verdict is in `judge`.
"""
