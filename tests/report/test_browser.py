"""The report in a real browser, opened from disk with the network off."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from coattail.pipeline.result_params import ReportParams
from coattail.report import page
from coattail.report.collect import collect
from tests.browser import chromium, complaints, requests, resize
from tests.reportable import HOSTILE_LABEL, shared_workspace

CHARTS = ("curve", "values", "real", "bands", "bins", "norms", "front", "calibration", "training")


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    folder = shared_workspace(tmp_path_factory)
    content = collect(ReportParams(examples=6), folder / "data", folder / "params.yaml")
    path = tmp_path_factory.mktemp("report") / "report.html"
    page.write(content, path)
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory, report):
    """One browser for all tests; each opens the page anew."""
    with chromium(tmp_path_factory.mktemp("profile"), network=False) as driver:
        yield driver


@pytest.fixture
def opened(browser, report) -> WebDriver:
    resize(browser, 1280, 900)
    dark(browser, False)
    browser.get("about:blank")
    requests(browser)
    complaints(browser)
    browser.get(report.as_uri())
    browser.execute_script("try { localStorage.clear() } catch {}")
    drawn(browser, "curve")
    return browser


def dark(driver: WebDriver, on: bool) -> None:
    scheme = {"name": "prefers-color-scheme", "value": "dark" if on else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def drawn(driver: WebDriver, chart: str) -> None:
    """Scroll to a picture and wait until it is there, as wide as its place."""
    script = """const place = document.getElementById(arguments[0]);
        const svg = place.querySelector('svg.main-svg');
        return svg && Math.abs(svg.getBoundingClientRect().width - place.clientWidth) < 2"""
    driver.execute_script(f"document.getElementById('chart-{chart}').scrollIntoView()")
    WebDriverWait(driver, 60).until(lambda d: d.execute_script(script, f"chart-{chart}"))


def column(driver: WebDriver, table: str, number: int) -> list[str]:
    cells = f"#{table} tbody tr > :nth-child({number})"
    script = (
        "return [...document.querySelectorAll(arguments[0])].map((c) => c.firstChild.textContent)"
    )
    return driver.execute_script(script, cells)


def test_it_opens_without_an_error_and_without_asking_the_network(opened, report):
    for chart in CHARTS:
        drawn(opened, chart)
    assert requests(opened) == [report.as_uri()]
    assert complaints(opened) == []
    assert opened.title == "tiny <corpus>: 7 candidates compared", "no script of the data ran"


def test_sorting_changes_the_order_and_turns_around(opened):
    heads = opened.find_elements(By.CSS_SELECTOR, "#board thead button")
    assert heads[5].text.startswith("PSP@5")
    assert heads[5].find_element(By.XPATH, "..").get_attribute("aria-sort") == "descending"
    heads[1].click()
    down = [float(value) for value in column(opened, "board", 2)]
    assert down == sorted(down, reverse=True)
    heads[1].click()
    up = [float(value) for value in column(opened, "board", 2)]
    assert up == sorted(up)
    assert up != down
    heads[0].click()
    names = column(opened, "board", 1)
    assert names == sorted(names)


def test_search_and_band_filter_the_table_of_labels(opened):
    place = opened.find_element(By.ID, "label-place")
    everything = int(place.text.split()[0])
    assert len(column(opened, "table-labels", 1)) == 25
    opened.find_element(By.ID, "label-next").click()
    assert "page 2 of" in place.text
    search = opened.find_element(By.ID, "label-search")
    search.send_keys("SCRIPT bold")
    assert column(opened, "table-labels", 1) == [HOSTILE_LABEL]
    assert place.text.startswith("1 label, page 1 of 1")
    search.clear()
    search.send_keys("no such label")
    assert column(opened, "table-labels", 1) == []
    search.clear()
    search.send_keys(" ")
    Select(opened.find_element(By.ID, "label-band")).select_by_value("2")
    assert set(column(opened, "table-labels", 2)) == {"tail"}
    assert 0 < int(place.text.split()[0]) < everything


def test_labels_sort_by_any_candidate_with_missing_figures_last(opened):
    Select(opened.find_element(By.ID, "label-measure")).select_by_value("precision")
    opened.find_elements(By.CSS_SELECTOR, "#table-labels thead button")[4].click()
    shown = column(opened, "table-labels", 5)
    figures = [float(value) for value in shown if value != "–"]
    assert figures == sorted(figures, reverse=True)
    assert shown[: len(figures)] == [value for value in shown if value != "–"]
    assert figures[0] > 0


def test_dark_follows_the_system_and_the_button(opened, report):
    ground = "return getComputedStyle(document.body).backgroundColor"
    theme = "return document.documentElement.dataset.theme"
    light = opened.execute_script(ground)
    assert opened.execute_script(theme) == "light"
    opened.find_element(By.ID, "theme").click()
    assert opened.execute_script(theme) == "dark"
    assert opened.execute_script(ground) != light
    opened.execute_script("localStorage.clear()")
    dark(opened, True)
    opened.get(report.as_uri())
    assert opened.execute_script(theme) == "dark"


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_the_page_never_scrolls_sideways(opened, width):
    resize(opened, width, 800)
    for chart in CHARTS:
        drawn(opened, chart)
    for example in opened.find_elements(By.CSS_SELECTOR, "details"):
        opened.execute_script("arguments[0].open = true", example)
    wide = opened.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width


def test_names_on_the_front_do_not_overlap(opened):
    for width in (1280, 390):
        resize(opened, width, 900)
        drawn(opened, "front")
        script = """return [...document.querySelectorAll('#chart-front .annotation-text-g')]
            .map((g) => g.getBoundingClientRect()).map((r) => [r.left, r.top, r.right, r.bottom])"""
        boxes = opened.execute_script(script)
        assert len(boxes) == 7
        for i, a in enumerate(boxes):
            for b in boxes[:i]:
                apart = a[0] >= b[2] or b[0] >= a[2] or a[1] >= b[3] or b[1] >= a[3]
                assert apart, f"{a} and {b} at {width} pixels"


def test_choices_redraw_pictures_and_tables(opened):
    drawn(opened, "real")
    before = column(opened, "table-real", 3)
    Select(opened.find_element(By.ID, "metric-real")).select_by_value("tail_recall_at_5")
    assert column(opened, "table-real", 3) != before
    Select(opened.find_element(By.ID, "against")).select_by_value("best")
    assert all(not value.startswith("+") for value in column(opened, "table-real", 3))
    drawn(opened, "bins")
    lines = "return document.querySelectorAll('#chart-bins .scatterlayer .trace').length"
    assert opened.execute_script(lines) == 7
    chip = opened.find_element(By.CSS_SELECTOR, "#bands .chips button[data-candidate='2']")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", chip)
    chip.click()
    assert opened.execute_script(lines) == 6


def test_printing_draws_every_picture_on_light_ground(opened):
    opened.execute_script("document.getElementById('theme').click()")
    printed = opened.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert len(printed["data"]) > 50_000
    script = "return document.querySelectorAll('.chart svg.main-svg').length"
    assert opened.execute_script(script) >= len(CHARTS)
    assert opened.execute_script("return document.documentElement.dataset.theme") == "dark"
