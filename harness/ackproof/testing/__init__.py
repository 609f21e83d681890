"""What the pytest plugin does: experiment files as tests, a real cluster and an audited client as fixtures.

Belongs here: everything between pytest and the harness; how a verdict, a lost record or a swallowed error reads there.
Does not belong here: hooks (pytest_plugin), running, counting and judging (conductor, audit, judge), batches (batch).
"""

from __future__ import annotations
