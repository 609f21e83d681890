"""One report in headless Chromium: its content, its requests and its errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from ackproof.base.wait import wait_until

CHART = "details[open] .chart svg.picture"
AXE = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")


class Page:
    """A report in the browser, with the requests and errors that the browser logged."""

    def __init__(self, chrome: Chrome, report: Path) -> None:
        self.chrome = chrome
        self.report = report
        chrome.get_log("browser")
        chrome.get_log("performance")
        chrome.get(report.as_uri())
        self.until(lambda: self.run("return document.readyState") == "complete", "the page")

    def run(self, script: str, *arguments: object) -> Any:
        return self.chrome.execute_script(script, *arguments)

    def all(self, css: str) -> list[WebElement]:
        return self.chrome.find_elements(By.CSS_SELECTOR, css)

    def one(self, css: str) -> WebElement:
        return self.until(lambda: next(iter(self.all(css)), None), css)

    def until(self, look: Callable[[], Any], what: str) -> Any:
        return wait_until(look, what=what, timeout_s=20)

    def show(self, css: str) -> WebElement:
        self.run(
            "document.querySelector(arguments[0]).scrollIntoView({behavior: 'instant', block: 'center'})", css
        )
        return self.one(css)

    def chart(self) -> WebElement:
        self.show("details[open] .chart")
        return self.one(CHART)

    def errors(self) -> list[str]:
        return [f"{entry['level']} {entry['message']}" for entry in self.chrome.get_log("browser")]

    def requests(self) -> list[str]:
        seen = [json.loads(entry["message"])["message"] for entry in self.chrome.get_log("performance")]
        urls = [m["params"]["request"]["url"] for m in seen if m["method"] == "Network.requestWillBeSent"]
        entries = self.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        return [url for url in [*urls, *entries] if url not in {self.report.as_uri(), "data:,"}]


def screen(chrome: Chrome, width: int, height: int, *, dark: bool = False) -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [
        {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": features})


def open_all(page: Page) -> None:
    for control in page.all("#open-all"):
        control.click()
    for at, chart in enumerate(page.all(".chart")):
        page.run("arguments[0].scrollIntoView({behavior: 'instant'})", chart)
        page.until(partial(chart.find_elements, By.CSS_SELECTOR, "svg.picture"), f"chart {at + 1}")


def violations(chrome: Chrome) -> list[str]:
    """Return the violations that axe-core finds on the page. The page's policy admits no other script, so axe is run by
    the debugger."""
    chrome.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE})
    asked = """axe.run(document, {resultTypes: ["violations"]}).then(({violations}) => violations.map(
      ({id, help, nodes}) => `${id}: ${help}: ${nodes.slice(0, 3).map((n) => n.html.slice(0, 160)).join(" | ")}`))"""
    said = chrome.execute_cdp_cmd(
        "Runtime.evaluate", {"expression": asked, "awaitPromise": True, "returnByValue": True}
    )
    found: list[str] = said["result"]["value"]
    return found
