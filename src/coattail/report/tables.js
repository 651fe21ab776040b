// Tables that the page fills itself. Texts are set as text, never as HTML.
function element(kind, text, more) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  return Object.assign(made, more || {});
}

function table(heads, rows, sortable) {
  const made = element("table");
  const top = made.createTHead().insertRow();
  for (const head of heads) {
    const cell = element("th", sortable ? undefined : head);
    if (sortable) { cell.append(element("button", head, { type: "button" })); cell.setAttribute("aria-sort", "none"); }
    top.append(cell);
  }
  const body = made.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    row.forEach((cell, i) => {
      const value = cell && typeof cell === "object" ? cell : { text: cell };
      line.append(element(i ? "td" : "th", value.text, { className: value.style || "" }));
    });
  }
  return made;
}

const fill = (id, made) => document.getElementById(id).replaceChildren(made);

function realTable() {
  const metric = NUMBERS.metrics[document.getElementById("metric-real").value];
  const against = metric[document.getElementById("against").value];
  const order = NAMES.map((_, c) => c).filter((c) => c !== against.other)
    .sort((a, b) => against.rows[b][0] - against.rows[a][0]);
  const rows = order.map((c) => {
    const [difference, low, high, real, wins, ties, losses] = against.rows[c];
    const verdict = !real ? "not told apart" : difference > 0 ? "better" : "worse";
    const bouts = wins === undefined ? "–" : [wins, ties, losses].map((n) => n.toLocaleString("en")).join(" / ");
    return [NAMES[c], two(metric.values[c][0]), (difference > 0 ? "+" : "") + two(difference),
      `${two(low)} to ${two(high)}`, { text: verdict, style: real ? verdict : "muted" }, bouts];
  });
  const heads = ["candidate", metric.title, `against ${NAMES[against.other]}`, "interval", "verdict", "wins / ties / losses"];
  fill("table-real", table(heads, rows));
}

function groupTable(id, groups, measure, title) {
  const values = groups.values[measure];
  const best = groups.names.map((_, g) => Math.max(...values.map((row) => row[g] ?? -1)));
  const rows = NAMES.map((name, c) => [name, ...values[c].map((value, g) => (
    { text: two(value), style: value !== null && value === best[g] && value > 0 ? "best" : "" }))]);
  fill(id, table([title, ...groups.names], rows));
}

function calibrationTable() {
  const rows = NAMES.map((name, c) => [name, NUMBERS.calibration[c]]).filter((row) => row[1])
    .sort((a, b) => a[1].gap - b[1].gap)
    .map(([name, one]) => [name, two(one.gap), one.points.reduce((sum, p) => sum + p[2], 0).toLocaleString("en")]);
  fill("table-calibration", table(["candidate", "mean gap", "answers"], rows));
}

// --- any table with class "sortable": a press on a heading sorts, another one turns it around
function makeSortable(board) {
  board.tHead.addEventListener("click", (event) => {
    const head = event.target.closest("th");
    if (!head) return;
    const column = head.cellIndex;
    const down = head.getAttribute("aria-sort") === "descending";
    for (const other of board.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "ascending" : "descending");
    const value = (row) => row.cells[column].dataset.value;
    const rows = [...board.tBodies[0].rows];
    rows.sort((a, b) => compare(value(a), value(b), down ? 1 : -1, column === 0));
    board.tBodies[0].append(...rows);
  });
}

// An empty value is last whichever way one sorts; names start with A.
function compare(a, b, sign, text) {
  if (a === "" || b === "" || a === null || b === null) {
    return (a === "" || a === null) - (b === "" || b === null);
  }
  return text ? -sign * String(a).localeCompare(String(b)) : sign * (Number(a) - Number(b));
}

// --- the table of labels: all in memory, one page of it in the document
const LABELS = NUMBERS.labels;
const PAGE = 25;
const state = { page: 0, column: 2, sign: -1, rows: [] };

const share = (part, whole) => (whole ? (100 * part) / whole : null);
const MEASURES = {
  recall: (c, l) => share(LABELS.hit[c][l], LABELS.true[l]),
  precision: (c, l) => share(LABELS.hit[c][l], LABELS.predicted[c][l]),
  hits: (c, l) => LABELS.hit[c][l],
};

function labelValue(column, l) {
  if (column === 0) return LABELS.name[l];
  if (column === 1) return LABELS.band[l];
  if (column === 2) return LABELS.count[l];
  if (column === 3) return LABELS.true[l];
  return MEASURES[document.getElementById("label-measure").value](column - 4, l);
}

function filterLabels() {
  const wanted = document.getElementById("label-search").value.trim().toLocaleLowerCase().split(/\s+/);
  const band = document.getElementById("label-band").value;
  const { column, sign } = state;
  state.rows = [];
  for (let l = 0; l < LABELS.name.length; l++) {
    if (band !== "" && LABELS.band[l] !== Number(band)) continue;
    const name = LABELS.name[l].toLocaleLowerCase();
    if (wanted.every((word) => name.includes(word))) state.rows.push(l);
  }
  const keys = new Map(state.rows.map((l) => [l, labelValue(column, l)]));
  state.rows.sort((a, b) => compare(keys.get(a), keys.get(b), sign, column === 0) || a - b);
  state.page = 0;
  showLabels();
}

function showLabels() {
  const measure = document.getElementById("label-measure").value;
  const shown = state.rows.slice(state.page * PAGE, (state.page + 1) * PAGE);
  const rows = shown.map((l) => [LABELS.name[l],
    { text: BANDS[LABELS.band[l]] }, LABELS.count[l].toLocaleString("en"), LABELS.true[l].toLocaleString("en"),
    ...NAMES.map((_, c) => {
      const value = MEASURES[measure](c, l);
      return measure === "hits" ? `${LABELS.hit[c][l]} of ${LABELS.predicted[c][l]}` : two(value);
    })]);
  const made = table(["label", "band", "texts", "in test", ...NAMES], rows, true);
  made.className = "sortable";
  [...made.tBodies[0].rows].forEach((row, i) => {
    row.cells[1].replaceChildren(element("span", BANDS[LABELS.band[shown[i]]], { className: BANDS[LABELS.band[shown[i]]] }));
  });
  made.tHead.rows[0].cells[state.column].setAttribute("aria-sort", state.sign < 0 ? "descending" : "ascending");
  made.tHead.addEventListener("click", (event) => {
    const head = event.target.closest("th");
    if (!head) return;
    state.sign = state.column === head.cellIndex ? -state.sign : -1;
    state.column = head.cellIndex;
    filterLabels();
  });
  fill("table-labels", made);
  const pages = Math.max(1, Math.ceil(state.rows.length / PAGE));
  document.getElementById("label-place").textContent = `${state.rows.length.toLocaleString("en")} ${state.rows.length === 1 ? "label" : "labels"}, page ${state.page + 1} of ${pages}`;
  document.getElementById("label-back").disabled = state.page === 0;
  document.getElementById("label-next").disabled = state.page + 1 >= pages;
}
