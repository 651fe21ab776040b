"""How large a report is and how soon it is on the screen: python -m benchmarks.report_page FILE

Main-thread seconds are CPU time, so they hold on a busy machine too; the others are wall time.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.browser import chromium, complaints, requests, resize

PICTURE = "return document.querySelector('#chart-curve svg.main-svg') ? performance.now() : 0"
TIMES = """const load = performance.getEntriesByType('navigation')[0].loadEventEnd;
return [performance.getEntriesByType('paint')[0]?.startTime ?? NaN, load]"""


def measure(path: Path) -> None:
    """Open the page in a fresh browser and print what it took."""
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder), network=False) as driver:
        driver.get("about:blank")
        resize(driver, 1280, 900)
        requests(driver)
        driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        before = _busy(driver)
        driver.get(path.resolve().as_uri())
        while not (picture := driver.execute_script(PICTURE)):
            time.sleep(0.02)
        paint, load = driver.execute_script(TIMES)
        print(
            f"{path}: {path.stat().st_size / 1e6:.2f} MB; first paint {paint / 1000:.2f} s, "
            f"loaded {load / 1000:.2f} s, first picture {picture / 1000:.2f} s; "
            f"main thread {_busy(driver) - before:.2f} s; "
            f"{len(requests(driver))} request, {len(complaints(driver))} complaints"
        )


def _busy(driver) -> float:
    found = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return {metric["name"]: metric["value"] for metric in found}["TaskDuration"]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        measure(Path(name))
