"""Write docs/reference from the code: params, metrics, commands and stages.

`make docs` (or `python scripts/reference.py`) writes the pages; a test asks that nothing changes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "scripts")]

import architecture  # noqa: E402
import reference_params as params  # noqa: E402
from pages import MADE, table, wrapped  # noqa: E402

from coattail.cli.contents import FORMER, leaves  # noqa: E402
from coattail.cli.main import main as coattail  # noqa: E402
from coattail.evaluation import definitions, leaderboard, metrics, scoring  # noqa: E402
from coattail.labels.frequency import BANDS  # noqa: E402

FOLDER = ROOT / "docs" / "reference"


def main() -> None:
    """Write every page, and remove those of sections that are gone."""
    made = pages()
    for path in set((FOLDER / "params").glob("*.md")) - {FOLDER / name for name in made}:
        path.unlink()
    for name, text in made.items():
        (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Path under docs/reference -> text."""
    return {
        **params.pages(),
        "metrics.md": metrics_page(),
        "commands.md": commands_page(),
        "stages.md": stages_page(),
    }


# --- metrics -------------------------------------------------------------------------------------


def metrics_page() -> str:
    ks = metrics.KS
    check_metrics()
    at_k = [
        (", ".join(f"`{name}_at_{k}`" for k in ks), meaning)
        for name, meaning in definitions.AT_K.items()
    ]
    of_all = [(f"`{name}`", meaning) for name, meaning in definitions.OF_ALL.items()]
    columns = [
        (f"`{name}`", heading.replace("\n", " "))
        for name, heading in leaderboard.columns(ks).items()
    ]
    complete = [
        (", ".join(f"`{name}_at_{k}`" for k in ks), meaning)
        for name, meaning in definitions.COMPLETE.items()
    ]
    changes = "; ".join(
        f"`{name}` is over {', '.join(f'`{one}`' for one in over)}"
        for name, over in metrics.CHANGES.items()
    )
    kept = ", ".join(f"`{name}`" for name in scoring.headline(ks))
    bands = ", ".join(f"`{band}_`" for band in BANDS)
    return f"""{MADE}
# Metrics

The names are the same in code, JSON, DVC and MLflow, and all values are percent. Ranks are those
of `evaluate.ks` ({", ".join(str(k) for k in ks)} if not said).
[The explanation](../explanation/metrics.md) has the borders, thresholds and kinds of scores.

Text i of n has the true labels y_i; r(1), r(2), ... are its ranked labels; y_r(j) is 1 if the label
at rank j is true; q_l is the inverse propensity of label l; b(1), b(2), ... are the true labels
sorted by q, largest first; d_j = 1/log2(j + 1).

## At a rank

{table("name | definition", at_k)}
## Of the whole ranking

{table("name | definition", of_all)}
{wrapped(f"{changes}. At rank 1 nDCG is P and PSnDCG is PSP, so that figure counts twice.")}

## Of head, torso and tail

Every name also stands with {bands} in front. What the number means then:

{table("name | meaning", list(definitions.OF_BAND.items()))}
## Where the complete labels are known

{table("name | definition", complete)}
## Where they are shown

{wrapped(f"In git, under `metrics/`: {kept}.")}

{table("metric | column of the leaderboard", columns)}"""


def check_metrics() -> None:
    """Every metric has a definition, and every definition a metric."""
    named = {name for name in metrics.names() if not name.startswith(tuple(f"{b}_" for b in BANDS))}
    told = {f"{name}_at_{k}" for name in definitions.AT_K for k in metrics.KS}
    told |= set(definitions.OF_ALL)
    complete = {f"complete_{name}" for name in scoring.COMPLETE} | {"missing_recall"}
    if complete != set(definitions.COMPLETE):
        raise SystemExit("evaluation/definitions.py lacks a metric of the complete labels")
    if named != told:
        raise SystemExit(f"evaluation/definitions.py and metrics.names differ: {named ^ told}")


# --- commands ------------------------------------------------------------------------------------


def commands_page() -> str:
    found = dict(leaves(coattail))
    parts = [f"{MADE}\n# Commands\n\n`coattail --help` lists them; every command has `--help`."]
    parts.append("`make help` lists those of the project as a whole.\n")
    for title, names in coattail.headings.items():
        rows = [row for name in names for row in contents_rows(name, found)]
        parts.append(f"## {title}\n\n{table('command | what it does', rows)}")
    former = [(f"`{then}`", f"[`{now}`](#{anchor(now)})") for then, now in FORMER.items()]
    parts.append(f"## Former names\n\nThey still work.\n\n{table('then | now', former)}")
    return "\n".join([*parts, *(command_section(*one) for one in found.items())])


def contents_rows(name: str, found: dict[str, click.Command]) -> list[tuple[str, str]]:
    """The line of a command; of a group its own sentence and the lines of its commands."""
    command = coattail.commands[name]
    own = [(f"**{name}**", sentence(command))] if isinstance(command, click.Group) else []
    paths = [path for path in found if path.split()[0] == name]
    return own + [(f"[`{path}`](#{anchor(path)})", sentence(found[path])) for path in paths]


def anchor(path: str) -> str:
    return f"coattail-{path}".replace(" ", "-")


def sentence(command: click.Command) -> str:
    return (command.help or "").split("\n\n")[0]


def command_section(path: str, command: click.Command) -> str:
    """Usage, help, options and the example of a command."""
    context = click.Context(command, info_name=f"coattail {path}")
    usage = " ".join([f"coattail {path}", *command.collect_usage_pieces(context)])
    help_ = "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    options = [one for one in command.params if isinstance(one, click.Option)]
    records = [one.get_help_record(context) for one in options]
    rows = [(f"`{record[0]}`", record[1]) for record in records if record]
    parts = [f"## coattail {path}", f"```\n{usage}\n```", wrapped(help_)]
    parts += [table("option | meaning", rows).rstrip()] if rows else []
    return "\n\n".join([*parts, f"```\n{command.example}\n```\n"])


# --- stages --------------------------------------------------------------------------------------


def stages_page() -> str:
    rows = [
        (f"[`{name}`](#{name})", entry["desc"]) for name, entry in architecture.stages().items()
    ]
    parts = [
        f"""{MADE}
# Stages

`dvc.yaml` has them, `dvc dag` draws them; a stage runs again when what it depends on has changed.
`<v>` is the name of a variant, an entry of the section of that name in `params.yaml`.
[How the pipeline runs](../explanation/pipeline.md) explains the rest.

{table("stage | what it does", rows)}
Beside what is listed here, every stage depends on the digest of the code it reaches
(`data/code/<stage>.txt`) and leaves its result in `data/runs`.
"""
    ]
    return "\n".join([*parts, *(stage_section(*one) for one in architecture.stages().items())])


def stage_section(name: str, entry: dict[str, Any]) -> str:
    read = [one for one in architecture.paths(entry, "deps") if not one.startswith("data/code/")]
    wrote = [*architecture.paths(entry, "outs"), *architecture.paths(entry, "metrics")]
    wrote = [one for one in wrote if not one.startswith(architecture.RESULTS)]
    wrote = list(architecture.DIGESTS) if name == "code" else wrote
    given = [str(one).replace("${key}", "<v>") for one in entry.get("params", [])]
    rows = [("command", f"`{entry['cmd'].replace('${key}', '<v>')}`")]
    for title, names in (("params", given), ("reads", read), ("writes", wrote)):
        rows += [(title, ", ".join(f"`{one}`" for one in names))] if names else []
    if entry.get("always_changed"):
        rows.append(("runs", "every time, to look"))
    if entry.get("meta", {}).get("resources", {}).get("gpu"):
        rows.append(("uses", "a GPU, if there is one"))
    if name in params.sections():
        rows.append(("reference", f"[params](params/{name}.md)"))
    return f"## {name}\n\n{entry['desc']}\n\n{table('what | which', rows)}"


if __name__ == "__main__":
    main()
