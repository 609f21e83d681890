"""Scripts: faults of many steps. Each step lets one request or event through, and waits until its effect is observed.

`spec` has the grammar of steps and the kind of fault, `stage` the gates and the observations. `acts` has one method per
action, and `injection` runs the steps.
"""

from __future__ import annotations
