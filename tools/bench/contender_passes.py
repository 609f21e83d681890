"""The contender `passes` of the benchmarks: the audit of a directory in this process, without Spark. It audits the
plain ledgers, or with the argument `groups` only the consumer groups."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.audit.local import audited

from ackproof.audit import pipeline
from ackproof.audit.planning import Plan

if sys.argv[2:] == ["groups"]:
    pipeline.plan_units = lambda *_: Plan(None, (), {})
(result,) = audited([Path(sys.argv[1])])
if result.file is None:
    raise SystemExit("; ".join(result.reasons))
print(json.dumps(+Counter(result.file.counts)))
