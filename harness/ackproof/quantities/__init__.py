"""From the facts of one run to numbers: the closed vocabulary of what a run can be asked, and how each is measured.

Belongs here: a file per family of quantities, with the definition, unit and source of each beside the function that
measures it from files; when it is unknown, and between which numbers it lies. Does not belong here: what is expected of
a number (experiment), what an unmet expectation means (judge), counting anomalies (audit).

A quantity that is not known exactly is a `Value` between two numbers: what the end of a run cut is open above, what
looks ten times a second have seen lies between two of them. Arrow and numpy are loaded where rows are read, and not
where a file is checked.
"""
