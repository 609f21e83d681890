"""From the numbers of repeats to statistics with an interval, and what is expected of these.

Belongs here: what an expectation over repeats says (`demand`), confidence intervals from values of which some are cut
or unknown (`intervals`), what one group of repeats is beside another (`beside`), when an interval decides and how many
repeats would (`decide`). Pure: nothing is read, nothing is drawn. Does not belong here: the number of one run
(quantities), which runs are asked (plan), what an unmet expectation does to a batch (judge).

scipy is loaded where something is computed, and not where a file is checked.
"""
