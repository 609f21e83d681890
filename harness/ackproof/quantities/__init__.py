"""Quantities: numbers that are measured from the files of one run, such as `longest_gap(produce)`; the list is closed.

Belongs here: a file per family of quantities; each has its definition, unit and source next to the function that
measures it, says when it is unknown, and gives its bounds. Does not belong here: what is expected of a number
(experiment), what an unmet expectation means (judge), counting anomalies (audit).

A quantity that is not known exactly is a `Value` between two numbers. It has no upper bound if the end of the run cut
it. If only samples (ten a second) show an event, the samples before and after it are the bounds. Arrow and numpy are
loaded when rows are read, not when an experiment file is checked.
"""
