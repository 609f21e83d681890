"""ackproof's audit of one directory, as a process of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ackproof import audit

(result,) = audit.run([Path(sys.argv[1])])
if result.file is None:
    raise SystemExit("; ".join(result.reasons))
print(json.dumps(result.file.counts))
