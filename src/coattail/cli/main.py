"""The `coattail` command. Each command imports what it needs, so that --help is instant."""

from __future__ import annotations

import gc
import logging
import shlex
import signal
import sys
from pathlib import Path

import click

from coattail import __version__
from coattail.cli.contents import Contents
from coattail.cli.data import data
from coattail.cli.experiment import experiment
from coattail.cli.model import model
from coattail.cli.study import study
from coattail.cli.team_server import team

HEADINGS = {
    "Run": "use status doctor",
    "Look at the results": "leaderboard compare report",
    "Use and improve": "tag tune",
    "More, by what it acts on": "data experiment model study team",
}


@click.group(
    cls=Contents,
    headings=HEADINGS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__)
def main() -> None:
    """Long-tailed extreme multi-label text classification, as one reproducible pipeline."""
    from coattail.pipeline.runner import start_logging

    # Imports make objects by the hundred thousand and no garbage; MLflow's take a third longer
    # where the collector looks for some after every 700.
    gc.set_threshold(50_000, 20, 100)
    start_logging()
    logging.getLogger("coattail").setLevel(logging.WARNING)


for group in (data, experiment, model, study, team):
    main.add_command(group)


@main.command(example="coattail use jsonl --data FOLDER")
@click.argument("name")
@click.option("--data", metavar="PATH", help="Folder or address to take the files from.")
@click.option("--name", "own_name", metavar="NAME", help="Name of your data; else the folder's.")
@click.option("--text-column", metavar="COLUMN", help="Column of texts in a csv; else text.")
@click.option("--label-column", metavar="COLUMN", help="Column of labels in a csv; else labels.")
@click.option("--separator", metavar="S", help="Between two labels of a csv; else |.")
@click.option("--dry-run", is_flag=True, help="Show the change to params.yaml, write nothing.")
def use(
    name: str,
    data: str | None,
    own_name: str | None,
    text_column: str | None,
    label_column: str | None,
    separator: str | None,
    dry_run: bool,
) -> None:
    """Switch params.yaml to dataset or preset NAME.

    The change is shown, and refused if the files in PATH do not fit. `coattail data list` has the
    names; jsonl, csv, pairs and xmc stand for files of your own.
    """
    from coattail.pipeline import overlay
    from coattail.pipeline.pointing import Own

    own = Own(own_name, text_column, label_column, separator)
    difference = (overlay.diff if dry_run else overlay.use)(name, data, own)
    if not difference:
        again = "; make repro takes the folder in, if it has changed" if data else ""
        click.echo(f"params.yaml already uses {name}; nothing changed{again}")
        return
    for line in difference.split("\n"):
        colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        click.echo(click.style(line, fg=colour))
    click.echo(
        "nothing written (--dry-run)" if dry_run else "\nparams.yaml written; now: make repro"
    )


@main.command(example="coattail status")
def status() -> None:
    """Say what `make repro` would run.

    Edits of code and of your own files count too.
    """
    from coattail.cli import status as asking

    click.echo(asking.status(), nl=False)


@main.command(example="coattail doctor")
@click.option("--close", is_flag=True, help="Mark pipeline runs that were left open as killed.")
@click.option("--server", metavar="URL", help="Check the team's MLflow server at URL instead.")
def doctor(close: bool, server: str | None) -> None:
    """Look for what is wrong here and say what to do.

    Looks at params, your own data, git, the disk, locks, leftovers, the device, the processor and
    the MLflow store. Ends with status 1 if something must be mended.
    """
    from coattail.cli import doctor as checks

    if close:
        for name in checks.close_open_parents():
            click.echo(f"closed {name}")
    marks = {"ok": ("ok  ", "green"), "note": ("note", "yellow"), "problem": ("BAD ", "red")}
    problems = 0
    for finding in checks.examine_server(server) if server else checks.examine():
        mark, colour = marks[finding.level]
        problems += finding.level == "problem"
        for position, line in enumerate(finding.what.split("\n")):
            click.echo(f"{click.style(mark, fg=colour) if position == 0 else '    '}  {line}")
        if finding.remedy:
            click.echo(f"      -> {finding.remedy}")
    sys.exit(1 if problems else 0)


@main.command(example="coattail leaderboard --sort tail_recall_at_5")
@click.option("--sort", default=None, help="Metric to sort by, e.g. psp_at_5.")
def leaderboard(sort: str | None) -> None:
    """Show the figures of every candidate: all, head and tail."""
    from coattail.evaluation import leaderboard as board

    board.show(Path("data/evaluation"), **({"sort": sort} if sort else {}))


@main.command(example="coattail compare HEAD~1 --only dismec")
@click.argument("sources", nargs=-1)
@click.option("--only", multiple=True, metavar="CANDIDATE", help="Only this one (repeatable).")
@click.option("--changed", is_flag=True, help="Only candidates whose figures differ.")
@click.option("--sort", default=None, help="Metric to sort by, e.g. psp_at_5.")
@click.option("--metric", multiple=True, help="Column to show instead of the usual (repeatable).")
@click.option("--json", "as_json", is_flag=True, help="Every metric as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Every metric as CSV.")
def compare(
    sources: tuple[str, ...],
    only: tuple[str, ...],
    changed: bool,
    sort: str | None,
    metric: tuple[str, ...],
    as_json: bool,
    as_csv: bool,
) -> None:
    """Show candidates of several SOURCES in one leaderboard.

    A source is a git revision, the name of a DVC experiment, the id of an MLflow run (of a pipeline
    or of a candidate), or `workspace`. Without any: the workspace against HEAD.
    """
    from coattail.evaluation import leaderboard as board
    from coattail.experiments import compare as comparing

    found = comparing.compare(sources)
    for warning in found.warnings():
        click.echo(f"note: {warning}", err=True)
    found = found.only(only) if only else found
    found = found.changed() if changed else found
    if as_json or as_csv:
        found.check(metric)
        click.echo((comparing.as_json if as_json else comparing.as_csv)(found, metric), nl=False)
    elif not found.rows:
        click.echo("no figure differs")
    else:
        board.print_table(lambda plain: comparing.table(found, sort, metric, plain))


@main.command(example="coattail report --open")
@click.option("--open", "show", is_flag=True, help="Open the page in the browser.")
def report(show: bool) -> None:
    """Sum the run up, or open the page about it.

    The summary has the leaderboard, who is best at what, and which differences are real.
    """
    from coattail.report import terminal

    click.echo(terminal.summary(Path("data")), nl=False)
    if show:
        terminal.open_page(Path("data"))


@main.command(example="coattail tune dismec --over C=0.1..10:log --trials 20")
@click.argument("variant")
@click.option(
    "--over",
    multiple=True,
    metavar="NAME=RANGE",
    help="Try a param: C=0.1..10:log, mix=a,b (repeatable).",
)
@click.option(
    "--trials", default=20, show_default=True, type=click.IntRange(1), help="Trials in all."
)
@click.option("--maximise", default="psp_at_5", show_default=True, help="A metric on validation.")
@click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed of the draws."
)
@click.option("--no-prune", is_flag=True, help="Train every network to its end.")
@click.option("--no-run", is_flag=True, help="Only show the command that makes the experiment.")
def tune(
    variant: str,
    over: tuple[str, ...],
    trials: int,
    maximise: str,
    seed: int,
    no_prune: bool,
    no_run: bool,
) -> None:
    """Search the best params of VARIANT on validation.

    Optuna proposes, and the best values become a DVC experiment. Trials are trained beside the
    workspace and judged on the validation texts, never on test. The same command goes on after an
    interrupt, and a higher --trials adds to what is there.
    """
    from coattail.experiments import search_plan, search_table
    from coattail.experiments import tune as tuning

    logging.getLogger("coattail").setLevel(logging.INFO)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    plan = search_plan.plan(variant, over, maximise, trials, seed, not no_prune)
    try:
        outcome = tuning.tune(plan)
    except KeyboardInterrupt:
        click.echo("interrupted; the same command goes on from here", err=True)
        sys.exit(130)
    search_table.show(outcome)
    if no_run:
        click.echo(shlex.join(plan.command(outcome.best, tuning.free_name(plan))))
        return
    name, new = tuning.make_experiment(outcome)
    click.echo(f"{'made' if new else 'there is already'} experiment {name}; now look at:")
    click.echo(f"  coattail compare HEAD {name} --only {variant}")
    click.echo(f"  dvc exp apply {name}")


@main.command(example='coattail tag "some text"')
@click.argument("texts", nargs=-1)
@click.option("--candidate", help="Which candidate to ask; the champion if not given.")
@click.option("--model", metavar="FOLDER", help="Ask a bundle, as add-label writes, instead.")
@click.option("-k", default=5, show_default=True, help="Labels per text.")
def tag(texts: tuple[str, ...], candidate: str | None, model: str | None, k: int) -> None:
    """Tag TEXTS, or lines of standard input, by a trained model.

    The number before a label is its probability, or its margin where the candidate states no
    probabilities. Labels stand in the candidate's order, which a reranking takes from more than
    the probability.
    """
    from coattail import processor

    processor.settle(processor.read_wanted())  # the same scores as the pipeline's
    from coattail.serving.tagger import Tagger

    if candidate and model:
        raise click.UsageError("give --candidate or --model, not both")
    tagger = Tagger.of_bundle(model) if model else Tagger.of_workspace(candidate)
    lines = list(texts) or [line.rstrip("\n") for line in sys.stdin]
    tagged = tagger.tag(lines, k)
    for number, (text, found) in enumerate(zip(lines, tagged, strict=True), 1):
        click.echo(text if len(text) <= 90 else f"{text[:87]}...")
        for label, score, probability in found.tags:
            click.echo(f"  {score if probability is None else probability:6.3f}  {label}")
        if not found.known:
            click.echo(f"text {number}: {tagger.unknown_words}", err=True)
    if tagged and not any(found.known for found in tagged):
        sys.exit(1)
