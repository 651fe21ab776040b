"""Write the page about the run.  data/evaluation, data/ranked, data/models ... -> data/report"""

from pathlib import Path

from coattail.pipeline import runner
from coattail.pipeline.result_params import ReportParams
from coattail.report import page
from coattail.report.collect import collect, write_plots


def main() -> None:
    params = runner.section("report", None, ReportParams)
    content = collect(params, Path("data"))
    page.write(content, Path("data/report/report.html"))
    write_plots(content, Path("plots/models"))
    runner.log.info("report: look at it with: coattail report --open")


if __name__ == "__main__":
    runner.run(main)
