"""A page per study in docs/results/studies, and what docs/results/README.md says of all of them.

They are generated from studies/*.yaml and .json. In the summary page only the part between two
marks is; the rest of it is written by hand.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from coattail.errors import DataError
from coattail.files import atomic_file
from coattail.studies import cells, current, picture, study_params
from coattail.studies.current import StudyStanding
from coattail.studies.verdicts import VERDICTS

FOLDER = Path("docs/results/studies")
SUMMARY = Path("docs/results/README.md")
BEGIN = "<!-- Written by `coattail study write` from studies/, down to the next such mark. -->"
END = "<!-- From here on written by hand. -->"
MARK = "<!-- Written by `coattail study write` from studies/: edits here are lost. -->"
WIDTH = 110
EFFECTS = (
    "What each factor changes, mean over all combinations of the others, and what two of them "
    "change together beyond that (half of what the one does more with the other than without)."
)

PAPERS = {
    "ReRank": "ReRank sorts a finished ranking again by inverse propensity; Taug trains the tail "
    "apart, on augmented texts.",
    "PW": "PW and PW-cb weigh the positive part of the loss by inverse propensity, PW-cb also by "
    "class balance.",
    "AttentionXML": "AttentionXML reads each text with one attention per label, level by level of "
    "a label tree.",
    "TailMix": "TailMix trains a label-wise attention network on mixtures of texts that share or "
    "neighbour rare labels.",
    "HTTN": "HTTN learns classifiers of rare labels from those of frequent labels.",
}


def pages() -> dict[Path, str]:
    """Every generated file with its content."""
    found: dict[Path, str] = {}
    standings = list(current.every())
    for one in standings:
        if one.found is not None:
            found[FOLDER / f"{one.label}.md"] = text(one)
            drawn = picture.draw(one)
            if drawn is not None:
                found[FOLDER / f"{one.label}.svg"] = drawn
    found[SUMMARY] = _with_summary(summary(standings))
    return found


def _with_summary(said: str) -> str:
    """The summary page as it stands, its generated part replaced."""
    page = SUMMARY.read_text(encoding="utf-8") if SUMMARY.exists() else ""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise DataError(f"{SUMMARY} lacks the line {END if begin else BEGIN!r}; take it from git")
    return f"{before}{BEGIN}\n\n{said}\n{END}{after}"


def differing() -> list[Path]:
    """Files that are not as they would be written, those that no study has any more first."""
    wanted = pages()
    gone = [path for path in _there() if path not in wanted]
    return gone + [
        path
        for path, content in wanted.items()
        if not path.exists() or path.read_text(encoding="utf-8") != content
    ]


def write() -> list[Path]:
    """Write what differs and remove pages of studies that are gone; return what was touched."""
    wanted, touched = pages(), differing()
    for path in touched:
        if path not in wanted:
            path.unlink()
            continue
        with atomic_file(path) as temporary:
            temporary.write_text(wanted[path], encoding="utf-8")
    return touched


def _there() -> list[Path]:
    return [path for path in sorted(FOLDER.glob("*")) if path.suffix in (".md", ".svg")]


def text(one: StudyStanding) -> str:
    """The page of a study."""
    parts = [f"# {one.study.title}", MARK, _setting(one), _claims(one), _figures(one), _made(one)]
    return "\n\n".join(parts) + "\n"


def _setting(one: StudyStanding) -> str:
    study, found = one.study, one.found
    assert found is not None
    tables = " and ".join(_table(name) for name in study.tables)
    paper = f" on {study.paper_dataset}" if study.paper_dataset else ""
    sizes = " / ".join(f"{found.texts[split]:,}" for split in ("train", "valid", "test"))
    seeds = f"{len(found.seeds)} seeds" if len(found.seeds) > 1 else "one seed"
    said = (
        f"Answers {tables} of {study.paper}{paper}. Ours: `{found.dataset}`, {sizes} training, "
        f"validation and test texts, {found.labels:,} labels, {found.labels_per_text:.2f} a text; "
        f"{seeds}. {study.regime.strip()}"
    )
    return _wrapped(said)


def _table(name: str) -> str:
    return f"Table {name}" if name[:1].isdigit() else name


def _claims(one: StudyStanding) -> str:
    return f"## Verdicts\n\n{cells.markdown(cells.claims(one)).rstrip()}"


def _figures(one: StudyStanding) -> str:
    assert one.found is not None
    told = (
        "Mean over the seeds, ± their standard deviation, and the 95 % interval over texts"
        f"{' and seeds' if len(one.found.seeds) > 1 else ''} (paired bootstrap, "
        f"{one.found.resamples:,} resamples). Processor seconds are user and system time of all "
        "stages behind a row but those of the data, per seed."
    )
    parts = ["## Figures", _wrapped(told), cells.markdown(cells.figures(one)).rstrip()]
    if len(gains := cells.gains(one)) > 1:
        parts.append(cells.markdown(gains).rstrip())
    if len(effects := cells.effects(one)) > 1:
        parts += [_wrapped(EFFECTS), cells.markdown(effects).rstrip()]
    if one.gains:
        parts.append(f"![Gains of {one.study.title}]({one.label}.svg)")
    return "\n\n".join(parts)


def _made(one: StudyStanding) -> str:
    assert one.circumstances is not None
    name, _, dataset = one.label.partition("@")
    data = f"{dataset}=FOLDER" if dataset else "FOLDER"
    differs = [
        f"- {row.title} differs from {one.study.rows[row.against].title} in "
        f"{', '.join(f'`{key}`' for key in row.differs)} alone."
        for row in one.study.rows.values()
        if row.against is not None
    ]
    controls = "\n".join(["Controls, compared key by key before a run:", "", *differs])
    said = (
        f"`coattail study run {name} --data {data}` makes the figures, `coattail study write` this "
        f"page. Made by commit {one.circumstances.commit[:10]} on {one.circumstances.processor}."
    )
    parts = ["## How it was made", _wrapped(said), *([controls] if differs else [])]
    return "\n\n".join(parts)


def summary(standings: list[StudyStanding]) -> str:
    """What held and what did not, paper by paper."""
    told = (
        "Every claim below was put to the test on data that can be had here, by a rule that was "
        "written down with it. *Holds*: beyond chance, as far as the paper's figure. *Holds "
        "weaker*: beyond chance, but less than in the paper, or not in all the figures. *Does not "
        "hold*: the opposite, or nothing, beyond chance. *Undecided*: chance is not ruled out, or "
        "a row is missing."
    )
    parts = [_wrapped(told)]
    for paper, what in PAPERS.items():
        mine = [one for one in standings if one.study.paper == paper]
        run = [one for one in mine if one.found is not None]
        if mine:
            parts += [f"### {paper}", _wrapped(f"{what} {_counted(run)}")]
        if run:
            parts.append(_summary_table(run))
        if later := [one for one in mine if one.found is None]:
            listed = "; ".join(f"`{one.label}` ({one.study.title})" for one in later)
            parts.append(_wrapped(f"Laid out and not run yet: {listed}."))
    return "\n\n".join(parts) + "\n"


def _counted(standings: list[StudyStanding]) -> str:
    """Of how many claims how many hold."""
    words = [verdict.word for one in standings for verdict in one.verdicts]
    listed = ", ".join(f"{words.count(word)} {word}" for word in VERDICTS if word in words)
    return f"Judged here: {listed}." if words else ""


def _summary_table(mine: list[StudyStanding]) -> str:
    table = [["claim", "verdict", "because", "on", "study"]]
    for one in mine:
        assert one.found is not None
        link, dataset = f"[{one.label}](studies/{one.label}.md)", one.found.dataset
        for claim, verdict in zip(one.study.claims, one.verdicts, strict=True):
            table.append([claim.says, f"**{verdict.word}**", verdict.why, dataset, link])
    return cells.markdown(table).rstrip()


def terminal(label: str) -> str:
    """What `coattail study show` prints."""
    one = current.standing(label)
    parts = [f"{one.label}: {one.study.title}\n", cells.aligned(cells.figures(one))]
    if len(gains := cells.gains(one)) > 1:
        parts.append(cells.aligned(gains))
    if len(effects := cells.effects(one)) > 1:
        parts.append(cells.aligned(effects))
    parts += [
        f"{verdict.word.upper()}: {claim.says}\n  {verdict.why}\n"
        for claim, verdict in zip(one.study.claims, one.verdicts, strict=True)
    ]
    return "\n".join(parts)


def listing() -> str:
    """What `coattail study list` prints."""
    table = [["study", "paper", "rows", "claims", "title"]]
    for one in current.every():
        words = [verdict.word for verdict in one.verdicts]
        counted = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
        rows = f"{len(one.rows)} of {len(one.study.rows)}"
        where = f"{one.study.paper} {', '.join(one.study.tables)}"
        table.append([one.label, where, rows, counted, one.study.title])
    if len(table) == 1:
        return f"{study_params.FOLDER}/ holds no study\n"
    return cells.aligned(table)


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH, break_on_hyphens=False)
