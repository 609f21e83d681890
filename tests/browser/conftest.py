"""Headless Chromium for all browser tests, with a fresh profile.

Tests are skipped with a reason if Chromium or its driver is missing; with `CI` set they fail."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from types import ModuleType

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

import synthetic_batch
from report_page import screen

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
)


@pytest.fixture(scope="session")
def maker() -> ModuleType:
    return synthetic_batch


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        reason = "Chromium or chromedriver is missing; install them: apt-get install chromium chromium-driver"
        pytest.skip(reason)
    options = Options()
    options.binary_location = browser
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = Chrome(options=options, service=Service(driver))
    try:
        yield chrome
    finally:
        chrome.quit()


@pytest.fixture(autouse=True)
def plain_screen(chromium: Chrome) -> None:
    screen(chromium, 1280, 900)
