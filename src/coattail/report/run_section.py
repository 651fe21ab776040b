"""The page's account of what was run: candidates with their params, and a place for the rest."""

from __future__ import annotations

from html import escape
from typing import Any

from coattail.pipeline.stage_result import StageResult, flatten
from coattail.report.collect import Content

PLACE = "<!-- executions -->"
"""Times, machines and commits are put here when somebody looks (coattail.tracking.executions)."""


def run_section(content: Content) -> str:
    return f"<h3>Candidates</h3>{_candidates(content)}{PLACE}"


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


def _full(record: StageResult) -> str:
    values = dict(flatten(record.params))
    return f'<p class="small"><b>{escape(record.address)}</b> {_pairs(values)}</p>'


def _pairs(values: dict[str, Any]) -> str:
    return " ".join(
        f"<code>{escape(str(key))}: {escape(_short(value))}</code>" for key, value in values.items()
    )


def _short(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
