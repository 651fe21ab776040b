"""The `coattail` command. Each command imports what it needs, so that --help is instant."""

from __future__ import annotations

import gc
import logging
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import click

from coattail import __version__
from coattail.cli.sharing import COMMANDS
from coattail.cli.study import study
from coattail.cli.team_server import team
from coattail.errors import CoattailError


class _Group(click.Group):
    """Prints our own errors as one clear message instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CoattailError as error:
            for line in str(error).split("\n"):
                click.echo(f"error: {line}", err=True)
            sys.exit(1)


@click.group(
    cls=_Group,
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


for command in (team, study, *COMMANDS):
    main.add_command(command)


@main.command()
@click.argument("name")
@click.option(
    "--data", metavar="PATH", help="Local folder or mirror address to take the files from."
)
@click.option("--name", "own_name", metavar="NAME", help="Of data of your own; else the folder's.")
@click.option("--text-column", metavar="COLUMN", help="Of your csv; else text.")
@click.option("--label-column", metavar="COLUMN", help="Of your csv; else labels.")
@click.option("--separator", metavar="S", help="Between two labels in your csv; else |.")
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
    """Switch params.yaml to dataset (or preset) NAME and show what changes."""
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


@main.command()
def status() -> None:
    """Say what `make repro` would run, edits of code and of your own files included."""
    from coattail.cli import status as asking

    click.echo(asking.status(), nl=False)


@main.command()
def datasets() -> None:
    """List the datasets and presets that `coattail use` knows."""
    from coattail.pipeline import overlay

    rows = overlay.describe()
    width = max(len(name) for name, _ in rows)
    for name, title in rows:
        click.echo(f"{name:<{width}}  {title}")


@main.command()
@click.option("--close", is_flag=True, help="Mark pipeline runs that were left open as killed.")
@click.option("--server", metavar="URL", help="Check the team's MLflow server at URL instead.")
def doctor(close: bool, server: str | None) -> None:
    """Check params, git, disk, locks, device and the MLflow store; say what to do."""
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


@main.command()
@click.option("--sort", default=None, help="Metric to sort by, e.g. psp_at_5.")
def leaderboard(sort: str | None) -> None:
    """Show head, tail and overall figures of every candidate."""
    from coattail.evaluation import leaderboard as board

    board.show(Path("data/evaluation"), **({"sort": sort} if sort else {}))


@main.command()
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
    """Show candidates of SOURCES in one leaderboard.

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


@main.command()
@click.option("--open", "show", is_flag=True, help="Open the page in the browser.")
def report(show: bool) -> None:
    """Sum the run up: leaderboard, who is best at what, which differences are real."""
    from coattail.report import terminal

    click.echo(terminal.summary(Path("data")), nl=False)
    if show:
        terminal.open_page(Path("data"))


@main.command()
@click.argument("variant")
@click.option("--over", multiple=True, metavar="NAME=RANGE", help="C=0.1..10:log, or mix=a,b.")
@click.option("--trials", default=20, show_default=True, type=click.IntRange(1), help="In all.")
@click.option("--maximise", default="psp_at_5", show_default=True, help="Metric on validation.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Of the draws.")
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
    """Search params of VARIANT with Optuna; leave the best as a DVC experiment.

    Trials are trained beside the workspace and judged on the validation texts, never on test. The
    same command goes on after an interrupt, and a higher --trials adds to what is there.
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


@main.command()
def sync() -> None:
    """Show results that came from a cache or a colleague in this MLflow store too."""
    from coattail.tracking.publishing.gather import sync as synchronise

    click.echo(synchronise())


@main.command()
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
def clean(dry_run: bool) -> None:
    """Remove results in data/ of variants that params.yaml no longer has."""
    from coattail.config import read_yaml
    from coattail.pipeline.leftovers import leftovers, remove_leftovers

    removed = (leftovers if dry_run else remove_leftovers)(read_yaml("params.yaml"))
    for path in removed:
        click.echo(f"{'would remove' if dry_run else 'removed'} {path}")
    if not removed:
        click.echo("nothing to remove")


@main.command()
@click.argument("texts", nargs=-1)
@click.option("--candidate", help="Which candidate to ask; the champion if not given.")
@click.option("--model", metavar="FOLDER", help="Ask a bundle, as add-label writes, instead.")
@click.option("-k", default=5, show_default=True, help="Labels per text.")
def tag(texts: tuple[str, ...], candidate: str | None, model: str | None, k: int) -> None:
    """Tag TEXTS (or lines of standard input) with a trained candidate.

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


@main.command("add-label")
@click.argument("candidate")
@click.argument("label")
@click.option("--texts", required=True, metavar="FILE", help="One text per line, or .jsonl.")
@click.option("--to", metavar="FOLDER", help="Where to write; default: under data/added.")
def add_label(candidate: str, label: str, texts: str, to: str | None) -> None:
    """Give CANDIDATE the new LABEL from a few texts, without training it again.

    CANDIDATE is a transfer model (httn, imprinting), a one-vs-rest model, or the folder of a bundle
    that this command wrote. What DVC made stays as it is: the grown model is a folder of its own.
    """
    from coattail.serving import add_label as adding

    folder, number = adding.add_label(candidate, label, adding.read_texts(texts), to)
    click.echo(f"{folder}: {candidate} with label {label!r} (id {number}); now:")
    click.echo(f'  coattail tag --model {folder} "some text"')
