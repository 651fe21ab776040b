"""What a person sees in MLflow's pages: candidates, their columns, a comparison, the report."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from coattail.pipeline.result_params import PublishParams, ReportParams
from coattail.report import page
from coattail.report.collect import collect
from coattail.tracking.publishing.gather import gather
from coattail.tracking.publishing.publish import publish
from coattail.tracking.store import Store
from tests.browser import chromium
from tests.mlflow_server import mlflow_server
from tests.reportable import shared_workspace

PATIENCE = 240  # seconds; the pages are large programs
ML = "workflowType=machine_learning"


@dataclass
class Window:
    """MLflow in a browser, with what was published to it."""

    driver: WebDriver
    address: str
    experiment: str
    published: dict

    def open(self, place: str, *texts: str) -> None:
        self.driver.get("about:blank")  # the pages change by their anchor alone otherwise
        self.driver.get(f"{self.address}/{place}")
        self.see(*texts)

    def see(self, *texts: str) -> None:
        """Wait until the page shows all the texts."""
        missing = list(texts)

        def found(_: WebDriver) -> bool:
            shown = self.text()
            missing[:] = [text for text in texts if text not in shown]
            return not missing

        try:
            WebDriverWait(self.driver, PATIENCE).until(found)
        except TimeoutException:
            self.keep(f"without-{missing[0]}".replace("/", "-"))
            pytest.fail(f"no {missing} in:\n{self.text()}")

    def scroll_to(self, text: str) -> None:
        """Move the long lists of the page on, step by step, until the text is drawn."""
        move = (
            "for (const one of document.querySelectorAll('div'))"
            " if (one.scrollHeight > one.clientHeight + 20) one.scrollTop += 150"
        )
        for _ in range(80):
            if text in self.text():
                return
            self.driver.execute_script(move)
            time.sleep(0.2)
        pytest.fail(f"no {text!r} in:\n{self.text()}")

    def text(self) -> str:
        return str(self.driver.execute_script("return document.body.innerText"))

    def names(self) -> list[str]:
        """Runs in the table, from above."""
        found = self.driver.find_elements(By.CSS_SELECTOR, "[col-id=runName] a, .ag-row a")
        return [one.text for one in found if "/runs/" in (one.get_attribute("href") or "")]

    def keep(self, name: str) -> None:
        """A picture for people, if COATTAIL_SCREENSHOTS names a folder."""
        folder = os.environ.get("COATTAIL_SCREENSHOTS")
        if folder:
            self.driver.save_screenshot(str(Path(folder) / f"{name}.png"))


@pytest.fixture(scope="module")
def window(tmp_path_factory) -> Iterator[Window]:
    folder = tmp_path_factory.mktemp("mlflow")
    workspace = shared_workspace(tmp_path_factory)
    with pytest.MonkeyPatch.context() as patch, chromium(folder, (1600, 1000)) as driver:
        for name in ("DVC_EXP_NAME", "DVC_EXP_BASELINE_REV", "MLFLOW_RUN_ID"):
            patch.delenv(name, raising=False)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
        patch.setenv("DVC_ROOT", str(folder))
        patch.chdir(workspace)
        page.write(collect(ReportParams(examples=8)), Path("data/report/report.html"))
        store = Store("tiny")
        published = publish(store, gather(PublishParams(models="none")))
        with mlflow_server(folder) as address:
            yield _window(driver, address, store.experiment_id, published)


def _window(driver: WebDriver, address: str, experiment: str, published: dict) -> Window:
    """The window with the panel closed that opens by itself on the first visit."""
    driver.get(address)
    driver.execute_script(
        "localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true');"
        "localStorage.setItem('mlflow.assistant.panelOpen_v1', 'false')"
    )
    return Window(driver, address, experiment, published)


def test_the_experiment_leads_to_its_candidates_and_their_columns(window):
    window.open(f"#/experiments/{window.experiment}/runs?{ML}", "Candidates of all runs", "repro-")
    window.keep("experiment")
    link = window.driver.find_element(By.PARTIAL_LINK_TEXT, "Candidates of all runs")
    window.open("#" + str(link.get_attribute("href")).partition("#")[2])
    window.see("p_at_1", "psp_at_5", f"{len(window.published['candidates'])} matching runs")
    window.keep("candidates")
    assert sorted(window.names()) == sorted(window.published["candidates"])
    assert_best_first(window.names())


def assert_best_first(names: list[str]) -> None:
    """By psp_at_5; two may be equal."""
    metrics = json.loads(Path("data/evaluation/metrics.json").read_text())
    found = [metrics[name]["psp_at_5"] for name in names]
    assert found == sorted(found, reverse=True)


def test_a_filter_leaves_one_family_still_sorted(window):
    everyone = len(window.published["candidates"])
    view = f"#/experiments/{window.experiment}/runs?viewStateShareKey=candidates&{ML}"
    window.open(view, f"{everyone} matching runs")
    families = {"deep": ["attention", "cnn"], "linear": ["again", "branches", "forest", "lines"]}
    field = window.driver.find_element(By.CSS_SELECTOR, "input[value*='coattail.kind']")
    for family, names in families.items():
        field.send_keys(Keys.CONTROL + "a")
        field.send_keys(f"tags.family = '{family}'" + Keys.ENTER)
        window.see(f"{len(names)} matching runs", *names)
        window.keep(family)
        assert sorted(window.names()) == names
        assert_best_first(window.names())


def test_two_candidates_are_compared_by_params_and_metrics(window):
    runs = [window.published["candidates"][name] for name in ("lines", "attention")]
    place = f"#/compare-runs?runs={json.dumps(runs)}&experiments=[%22{window.experiment}%22]&{ML}"
    window.open(place, "Comparing 2 Runs", "lines", "attention", "Metrics", "Parameters")
    window.see("train_deep.epochs", "Show diff only")
    window.keep("compare")
    window.scroll_to("psp_at_5")


def test_the_report_is_shown_inside_the_page(window):
    parent = window.published["parent_run_id"]
    place = f"#/experiments/{window.experiment}/runs/{parent}/artifacts/report/report.html?{ML}"
    window.open(place, "report.html")
    wait = WebDriverWait(window.driver, PATIENCE)
    frame = wait.until(lambda driver: driver.find_element(By.TAG_NAME, "iframe"))
    window.driver.switch_to.frame(frame)
    try:
        window.see("lines", "attention", "PSP@5")
    finally:
        window.driver.switch_to.default_content()
    window.keep("report")


def test_a_candidate_tells_how_it_stands_and_shows_its_picture(window):
    run = window.published["candidates"]["attention"]
    window.open(f"#/experiments/{window.experiment}/runs/{run}?{ML}", "may be chance", "psp_at_5")
    window.keep("candidate")
    place = f"#/experiments/{window.experiment}/runs/{run}/artifacts/pictures/candidate.png?{ML}"
    window.open(place, "candidate.png")
    wait = WebDriverWait(window.driver, PATIENCE)
    image = wait.until(
        lambda d: d.find_element(By.CSS_SELECTOR, "img[src^='blob:'], img[src*='artifact']")
    )
    wait.until(lambda _: image.get_property("naturalWidth"))
    window.keep("picture")
