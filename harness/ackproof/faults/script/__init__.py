"""Scripts: each step lets one thing through, and waits until its effect is seen.

`spec` has the grammar of steps and the kind of fault, `stage` the gates and what is seen, `acts` one method for each
action, `injection` takes step after step.
"""

from __future__ import annotations
