// What moves: the theme, the choices above pictures, and drawing what comes into view.
const by = (id) => document.getElementById(id);
const drawn = new Set();
let ready = false;

function startTheme() {
  let kept = null;
  try { kept = localStorage.getItem("coattail-theme"); } catch { /* a page in a sandbox has none */ }
  const system = matchMedia("(prefers-color-scheme: dark)");
  const set = (theme) => { document.documentElement.dataset.theme = theme; redraw(); };
  set(kept || (system.matches ? "dark" : "light"));
  system.addEventListener("change", () => { if (!kept) set(system.matches ? "dark" : "light"); });
  by("theme").addEventListener("click", () => {
    kept = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("coattail-theme", kept); } catch { /* the choice lasts as long as the page */ }
    set(kept);
  });
  let before = null;
  addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.theme;
    for (const name of Object.keys(CHARTS)) drawn.add(name);
    set("light");
  });
  addEventListener("afterprint", () => set(before || "light"));
}

function draw(name) {
  const place = by(`chart-${name}`);
  drawn.add(name);
  if (!ready || !place.offsetParent) return;
  const width = place.clientWidth;
  const [traces, shape] = CHARTS[name](width < 520, width);
  place.classList.remove("waiting");
  Plotly.react(place, traces, { ...shape, width }, { displayModeBar: false, responsive: false });
}

const redraw = () => drawn.forEach(draw);

function startChips() {
  const shapes = { circle: "●", square: "■", diamond: "◆", "triangle-up": "▲", cross: "✚", x: "✖", star: "★" };
  const relevant = (chart) => NAMES.map((_, c) => c).filter((c) => {
    const part = { tail: "tail", norms: "norms", calibration: "calibration", training: "training" }[chart];
    return !part || NUMBERS[part][c];
  });
  for (const box of document.querySelectorAll(".chips")) {
    const chart = box.nextElementSibling.id.slice("chart-".length);
    for (const c of relevant(chart)) {
      const chip = element("button", undefined, { type: "button", title: "show or hide in all pictures" });
      const mark = element("span", chart === "bands" ? "■" : shapes[symbol(c)]);
      mark.style.color = colour(c);
      chip.append(mark, element("span", NAMES[c] + (c === NUMBERS.base ? " (base)" : "")));
      chip.dataset.candidate = c;
      chip.setAttribute("aria-pressed", "true");
      box.append(chip);
    }
    box.addEventListener("click", (event) => {
      const chip = event.target.closest("button");
      if (!chip) return;
      const c = Number(chip.dataset.candidate);
      if (hidden.has(c)) hidden.delete(c); else hidden.add(c);
      for (const twin of document.querySelectorAll(`[data-candidate="${c}"]`)) {
        twin.setAttribute("aria-pressed", String(!hidden.has(c)));
      }
      redraw();
    });
  }
}

function options(id, pairs, chosen, change) {
  for (const [value, text] of pairs) by(id).append(element("option", text, { value, selected: value === chosen }));
  by(id).addEventListener("change", change);
}

function startChoices() {
  const metrics = Object.entries(NUMBERS.metrics).map(([name, one]) => [name, one.title]);
  options("metric-values", metrics, NUMBERS.chosen, () => draw("values"));
  options("metric-real", metrics, NUMBERS.chosen, () => { draw("real"); realTable(); });
  by("against").addEventListener("change", () => { draw("real"); realTable(); });
  const k = NUMBERS.k;
  const measures = [[`recall_at_${k}`, `recall@${k}`], [`coverage_at_${k}`, `coverage@${k}`],
    [`macro_f1_at_${k}`, `macro F1@${k}`], [`psp_at_${k}`, `share of PSP@${k}`]];
  const bands = () => groupTable("table-bands", NUMBERS.bands, by("measure-bands").value,
    by("measure-bands").selectedOptions[0].textContent);
  options("measure-bands", measures, measures[0][0], () => { draw("bands"); bands(); });
  realTable(); bands(); groupTable("table-bins", NUMBERS.bins, `recall_at_${k}`, `recall@${k}`);
  calibrationTable();
}

function startLabels() {
  by("label-search").addEventListener("input", filterLabels);
  by("label-band").addEventListener("change", filterLabels);
  by("label-measure").addEventListener("change", filterLabels);
  by("label-back").addEventListener("click", () => { state.page -= 1; showLabels(); });
  by("label-next").addEventListener("click", () => { state.page += 1; showLabels(); });
  filterLabels();
}

async function startPictures() {
  for (const place of document.querySelectorAll(".chart")) place.classList.add("waiting");
  try {
    const letters = atob(by("plotly").textContent);
    const packed = new Uint8Array(letters.length);
    for (let i = 0; i < letters.length; i++) packed[i] = letters.charCodeAt(i);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const code = element("script", await new Response(stream).text());
    document.head.append(code);
    code.remove();
  } catch (error) {
    for (const place of document.querySelectorAll(".chart")) place.textContent = "Pictures need a browser of 2023 or later.";
    return;
  }
  ready = true;
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watch.unobserve(entry.target);
      draw(entry.target.id.slice("chart-".length));
    }
  }, { rootMargin: "300px" });
  for (const place of document.querySelectorAll(".chart")) watch.observe(place);
  let timer = 0, width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return; // a phone's address bar changes the height alone
    width = innerWidth;
    clearTimeout(timer);
    timer = setTimeout(redraw, 150);
  });
}

for (const part of ["tail", "norms", "calibration", "training"]) {
  if (!Object.keys(NUMBERS[part]).length) by(`with-${part}`).hidden = true;
}
startTheme();
for (const board of document.querySelectorAll("#board")) makeSortable(board);
startChips();
startChoices();
startLabels();
startPictures();
document.documentElement.dataset.ready = "tables";
