"""The page's account of the run: params, seconds, git state, versions."""

from __future__ import annotations

from html import escape
from typing import Any

from coattail.report.collect import Content
from coattail.tracking.record import RunRecord, flatten

SHOWN = ("machine.platform", "machine.cores", "machine.memory_gib")


def run_section(content: Content) -> str:
    """Candidates with their params, stages with their time, the code and the machine."""
    return (
        f"<h3>Candidates</h3>{_candidates(content)}"
        f"<h3>Stages</h3>{_stages(content)}"
        f"<h3>Code and machine</h3>{_environment(content)}"
    )


def _candidates(content: Content) -> str:
    rows = []
    for name, candidate in content.candidates.items():
        written = dict(flatten(content.params[candidate.stage][name] or {}))
        made = [content.records[address] for address in candidate.made_by]
        everything = "".join(_full(record) for record in made)
        methods = ", ".join(candidate.tail_methods) or "–"
        rows.append(
            f'<tr><th scope="row">{escape(name)}<small>{escape(candidate.family)}</small></th>'
            f"<td>{escape(methods)}</td><td>{_pairs(written)}"
            f"<details><summary>all params on the way</summary>{everything}</details></td></tr>"
        )
    head = "<tr><th>candidate</th><th>tail methods</th><th>params.yaml</th></tr>"
    body = f"<thead>{head}</thead>{''.join(rows)}"
    return f'<div class="scroll"><table class="params">{body}</table></div>'


def _full(record: RunRecord) -> str:
    values = dict(flatten(record.params))
    return f'<p class="small"><b>{escape(record.address)}</b> {_pairs(values)}</p>'


def _pairs(values: dict[str, Any]) -> str:
    return " ".join(
        f"<code>{escape(str(key))}: {escape(_short(value))}</code>" for key, value in values.items()
    )


def _short(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _stages(content: Content) -> str:
    longest = max((record.seconds for record in content.records.values()), default=1.0) or 1.0
    total = sum(record.seconds for record in content.records.values())
    rows = []
    for address, record in content.records.items():
        share = 100 * record.seconds / longest
        device = record.tags.get("device", "")
        rows.append(
            f'<tr><th scope="row">{escape(address)}</th><td>{_time(record.seconds)}</td>'
            f'<td class="barcell"><i class="bar" style="width:{share:.0f}%"></i></td>'
            f"<td>{escape(device)}</td><td><code>{escape(_commit(record))}</code></td></tr>"
        )
    head = "<tr><th>stage</th><th>time</th><th></th><th>device</th><th>commit</th></tr>"
    return (
        f"<p>All together {_time(total)}. A star marks code that differed from its commit.</p>"
        f'<div class="scroll"><table><thead>{head}</thead>{"".join(rows)}</table></div>'
    )


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _commit(record: RunRecord) -> str:
    star = "*" if record.tags.get("git.dirty") == "true" else ""
    return record.tags.get("git.commit", "unknown")[:8] + star


def _environment(content: Content) -> str:
    """Facts that all stages share; where they differ, all values."""
    found: dict[str, dict[str, None]] = {}
    for record in content.records.values():
        for key, value in record.tags.items():
            if key.startswith("version.") or key in SHOWN or key == "git.branch":
                found.setdefault(key, {})[value] = None
    names = {"machine.memory_gib": "memory (GiB)", "git.branch": "git branch"}
    rows = "".join(
        f"<tr><th>{escape(names.get(key, key.split('.', 1)[1]))}</th>"
        f"<td>{escape(', '.join(values))}</td></tr>"
        for key, values in sorted(found.items())
    )
    return f'<div class="scroll"><table class="facts">{rows}</table></div>'
