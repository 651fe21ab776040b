"""A headless Chromium for tests, with a record of everything it asked the network for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.chrome.webdriver import WebDriver

NETWORK_OFF = "--host-resolver-rules=MAP * ~NOTFOUND"


@contextmanager
def chromium(
    tmp_path: Path, size: tuple[int, int] = (1280, 900), network: bool = True
) -> Iterator[WebDriver]:
    """A driver of the system's chromium with a profile of its own; closed at the end.

    Without ``network`` no host name resolves. The calling test is skipped, with the reason, where
    the browser or its driver is not installed.
    """
    browser, driver_program = shutil.which("chromium"), shutil.which("chromedriver")
    if not browser or not driver_program:
        pytest.skip("needs chromium and chromedriver (Debian: apt install chromium-driver)")
    options = Options()
    options.binary_location = browser
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--disable-background-networking",  # updates of the browser itself are not the page's
        "--disable-component-update",
        "--no-first-run",
        "--hide-scrollbars",
        f"--user-data-dir={tmp_path / 'chromium'}",
        f"--window-size={size[0]},{size[1]}",
        *(() if network else (NETWORK_OFF,)),
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(driver_program))
    try:
        driver.set_page_load_timeout(300)
        yield driver
    finally:
        driver.quit()


def resize(driver: WebDriver, width: int, height: int) -> None:
    """The size of the page itself; windows cannot be as narrow as a phone."""
    numbers = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", numbers)


def requests(driver: WebDriver) -> list[str]:
    """Addresses asked for since the last call; the browser's own pages and data: are left out."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [event for event in events if event["method"] == "Network.requestWillBeSent"]
    addresses = [str(event["params"]["request"]["url"]) for event in sent]
    return [one for one in addresses if not one.startswith(("chrome:", "data:", "about:"))]


def complaints(driver: WebDriver) -> list[str]:
    """Errors and warnings of the console since the last call."""
    return [
        f"{entry['level']}: {entry['message']}"
        for entry in driver.get_log("browser")
        if entry["level"] in ("SEVERE", "WARNING")
    ]
