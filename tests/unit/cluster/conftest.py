from __future__ import annotations

import sys
from pathlib import Path

# importlib mode knows no packages of tests: helpers beside the tests are imported by name.
sys.path.insert(0, str(Path(__file__).parent))
