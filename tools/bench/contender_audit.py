"""The contender `audit` of the benchmarks: ackproof's audit of one directory, as a process of its own. Arguments: the
directory, and options of `audit.run` as JSON."""

from __future__ import annotations

import json
import sys

from ackproof import audit
from ackproof.rundir.storage import locate

(result,) = audit.run([locate(sys.argv[1])], **json.loads(sys.argv[2] if sys.argv[2:] else "{}"))
if result.file is None:
    raise SystemExit("; ".join(result.reasons))
print(json.dumps(result.file.counts))
