"""What tests of faults share."""

from __future__ import annotations

import pytest

from ackproof.faults.links import breaking as links
from ackproof.faults.links import named
from ackproof.faults.links import witnesses as link_witnesses
from fake_links import Ground


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch) -> Ground:
    monkeypatch.setattr(links, "BITES_WITHIN_S", 0.3)
    monkeypatch.setattr(named, "BITES_WITHIN_S", 0.3)
    monkeypatch.setattr(links, "MENDED_WITHIN_S", 0.3)
    monkeypatch.setattr(link_witnesses, "STANDS_STILL_S", 0.01)
    return Ground()
