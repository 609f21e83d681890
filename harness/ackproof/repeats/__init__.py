"""Statistics over the numbers of repeated runs: confidence intervals, and whether they meet an expectation.

Belongs here: what an expectation over repeats says (`demand`), confidence intervals from values of which some are cut
or unknown (`intervals`), contrasts of two groups, when an interval decides and how many repeats would (`decide`). Pure:
nothing is read, nothing is drawn. Does not belong here: the number of one run (quantities), which runs are asked
(experiment), what an unmet expectation does to a batch (judge).

scipy is loaded where something is computed, and not where a file is checked.
"""
