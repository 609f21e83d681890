"""Test that `kafka_settings.tsv` has the settings of the newest release, as its jars define them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ackproof.experiment.kafka import RELEASES
from ackproof.experiment.setting_effects import kafka_settings

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]
TOOLS = Path(__file__).parents[2] / "tools"


def test_the_listed_settings_are_those_of_the_newest_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    sys.modules.pop("kafka_settings", None)
    from kafka_settings import ask  # type: ignore[import-not-found]

    newest = RELEASES[-1]
    listed = {
        (one.scope.value, one.name): one.default for one in kafka_settings().values() if one.is_in(newest)
    }
    assert listed == ask(newest)
