"""When and where the stages of a report ran, as HTML put into the page when somebody looks at it.

The page itself is an output that DVC hashes, so it holds a place for this instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from coattail.tracking.record import RunRecord

PLACE = "<!-- executions -->"
FACTS = ("machine.platform", "machine.cores", "machine.memory_gib", "git.branch")
NAMES = {"machine.memory_gib": "memory (GiB)", "git.branch": "git branch"}
UNKNOWN = (
    "<p>When and where this ran is not known here: neither the journal of this project nor its "
    "MLflow store could tell.</p>"
)


def fill(page: str, records: Mapping[str, RunRecord]) -> str:
    """The page with an account of the runs in its place."""
    known = {address: record for address, record in records.items() if record.known}
    unknown = [address for address in records if address not in known]
    account = _stages(known, unknown) + _environment(known) if known else UNKNOWN
    return page.replace(PLACE, account, 1)


def _stages(records: Mapping[str, RunRecord], unknown: list[str]) -> str:
    longest = max(record.seconds for record in records.values()) or 1.0
    total = sum(record.seconds for record in records.values())
    rows = [
        f'<tr><th scope="row">{escape(address)}</th><td>{_time(record.seconds)}</td>'
        f'<td class="barcell"><i class="bar" style="width:{100 * record.seconds / longest:.0f}%">'
        f"</i></td><td>{escape(record.tags.get('device', ''))}</td>"
        f"<td>{escape(record.tags.get('machine.host', ''))}</td>"
        f"<td><code>{escape(_commit(record))}</code></td></tr>"
        for address, record in records.items()
    ]
    without = f", without {escape(', '.join(unknown))}, of which nobody here knows" * bool(unknown)
    head = "".join(f"<th>{name}</th>" for name in ("stage", "time", "", "device", "host", "commit"))
    return (
        f"<h3>Stages</h3><p>All together {_time(total)}{without}. "
        "A star marks code that differed from its commit.</p>"
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>{"".join(rows)}</table></div>'
    )


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _commit(record: RunRecord) -> str:
    star = "*" if record.tags.get("git.dirty") == "true" else ""
    return record.tags.get("git.commit", "unknown")[:8] + star


def _environment(records: Mapping[str, RunRecord]) -> str:
    """Facts that all stages share; where they differ, all values."""
    found: dict[str, dict[str, None]] = {}
    for record in records.values():
        for key, value in record.tags.items():
            if key.startswith("version.") or key in FACTS:
                found.setdefault(key, {})[value] = None
    rows = "".join(
        f"<tr><th>{escape(NAMES.get(key, key.split('.', 1)[1]))}</th>"
        f"<td>{escape(', '.join(values))}</td></tr>"
        for key, values in sorted(found.items())
    )
    return f'<h3>Code and machine</h3><div class="scroll"><table class="facts">{rows}</table></div>'
