// Pictures. Each is a function of the numbers that returns traces and a layout for plotly.
"use strict";
const NUMBERS = JSON.parse(document.getElementById("numbers").textContent);
const BANDS = ["head", "torso", "tail"];
const NAMES = NUMBERS.candidates.map((one) => one.name);
const COLOURS = ["#3b7dc4", "#e08214", "#d1495b", "#2a9d8f", "#7fa832", "#b58900", "#9a6fc0",
  "#d4708b", "#a0714f", "#7d8794", "#1aa3c9", "#6c5ce0"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star"];
const DASHES = ["solid", "dash", "dot", "dashdot"];
const TICKS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50];
const hidden = new Set(); // candidates switched off in all pictures

const colour = (c) => COLOURS[c % COLOURS.length];
const symbol = (c) => SYMBOLS[c % SYMBOLS.length];
const dash = (c) => DASHES[Math.floor(c / COLOURS.length) % DASHES.length];
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const two = (value) => (value === null || value === undefined ? "–" : value.toFixed(2).replace("-", "−"));
const visible = () => NAMES.map((_, c) => c).filter((c) => !hidden.has(c));
// plotly reads tags such as <b> in texts; names are data.
const literal = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
const cut = (text, most) => literal(text.length > most ? text.slice(0, most - 1) + "…" : text);

function layout(more) {
  const axis = { gridcolor: style("--line"), linecolor: style("--line"), zeroline: false,
    automargin: true, fixedrange: true };
  const base = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    font: { family: "system-ui, sans-serif", size: 13, color: style("--ink") },
    margin: { l: 48, r: 12, t: 12, b: 44 }, hovermode: "closest", dragmode: false,
    hoverlabel: { bgcolor: style("--panel"), bordercolor: style("--line"),
      font: { color: style("--ink") } },
    height: 380,
  };
  const merged = { ...base, ...more };
  merged.xaxis = { ...axis, ...(more.xaxis || {}) };
  merged.yaxis = { ...axis, ...(more.yaxis || {}) };
  return merged;
}

const line = (c, x, y, more) => ({
  type: "scatter", mode: "lines+markers", name: literal(NAMES[c]), x, y,
  line: { color: colour(c), width: 2, dash: dash(c) },
  marker: { color: colour(c), symbol: symbol(c), size: 7 },
  hovertemplate: "%{x}: %{y:.2f}<extra>%{fullData.name}</extra>", ...more,
});

const CHARTS = {
  curve(narrow) {
    const curve = NUMBERS.curve;
    const traces = BANDS.map((band, b) => {
      const own = curve.rank.map((_, i) => i).filter((i) => curve.band[i] === b && curve.count[i] > 0);
      return { type: "scatter", mode: "markers", name: band, marker: { color: style(`--${band}`), size: 6 },
        x: own.map((i) => curve.rank[i]), y: own.map((i) => curve.count[i]),
        hovertemplate: "label %{x:,}: %{y:,} texts<extra>" + band + "</extra>" };
    });
    return [traces, layout({ height: 320, showlegend: true,
      legend: { x: 1, xanchor: "right", y: 1, bgcolor: "rgba(0,0,0,0)" },
      xaxis: { type: "log", dtick: 1, title: { text: "label, by frequency" } },
      yaxis: { type: "log", dtick: 1, title: { text: narrow ? "texts" : "texts in train and validation" } } })];
  },
  values(narrow) {
    const metric = NUMBERS.metrics[document.getElementById("metric-values").value];
    return forest(metric.values, metric.title, narrow, false);
  },
  real(narrow) {
    const metric = NUMBERS.metrics[document.getElementById("metric-real").value];
    const against = metric[document.getElementById("against").value];
    const heading = `${metric.title}: difference` + (narrow ? "" : ` from ${cut(NAMES[against.other], 40)}`);
    return forest(against.rows, heading, narrow, true, against.other);
  },
  bands(narrow) {
    const values = NUMBERS.bands.values[document.getElementById("measure-bands").value];
    const traces = visible().map((c) => ({ type: "bar", name: literal(NAMES[c]), x: BANDS, y: values[c],
      marker: { color: colour(c) }, hovertemplate: "%{x}: %{y:.2f}<extra>%{fullData.name}</extra>" }));
    return [traces, layout({ barmode: "group", bargap: narrow ? 0.1 : 0.2,
      yaxis: { title: { text: document.getElementById("measure-bands").selectedOptions[0].textContent }, rangemode: "tozero" } })];
  },
  bins(narrow) {
    const bins = NUMBERS.bins;
    const values = bins.values[`recall_at_${NUMBERS.k}`];
    return [visible().map((c) => line(c, bins.names, values[c])),
      layout({ yaxis: { title: { text: `recall@${NUMBERS.k}` }, rangemode: "tozero" },
        xaxis: { type: "category", tickangle: narrow ? -60 : 0, categoryorder: "array",
          categoryarray: bins.names, title: { text: "training texts of the label" } } })];
  },
  tail(narrow) {
    const shown = visible().filter((c) => NUMBERS.tail[c]);
    const traces = shown.map((c) => {
      const { points, mean, found } = NUMBERS.tail[c];
      return line(c, points.map((p) => p[0]), points.map((p) => p[1]), { mode: "lines",
        hovertemplate: `label %{x:,}: F1 %{y:.0f}; mean ${two(mean)}, ${found[0].toLocaleString("en")} of `
          + `${found[1].toLocaleString("en")} labels found<extra>%{fullData.name}</extra>` });
    });
    return [traces, layout({ xaxis: { title: { text: narrow ? "tail labels" : "tail labels with a test text, each candidate's best first" } },
      yaxis: { rangemode: "tozero", title: { text: "F1 of the label" } } })];
  },
  norms(narrow) {
    const shown = visible().filter((c) => NUMBERS.norms[c]);
    const traces = shown.map((c) => {
      const points = NUMBERS.norms[c];
      return line(c, points.map((p) => p[0]), points.map((p) => p[1]), {
        customdata: points.map((p) => [p[2], p[3]]),
        hovertemplate: "%{x}: norm %{customdata[0]:.2f}, %{customdata[1]:,} labels<extra>%{fullData.name}</extra>" });
    });
    return [traces, layout({ yaxis: { type: "log", tickvals: TICKS, ticktext: TICKS.map(String), title: { text: "norm / mean norm" } },
      xaxis: { type: "category", tickangle: narrow ? -60 : 0, categoryorder: "array",
        categoryarray: NUMBERS.bins.names, title: { text: "training texts of the label" } } })];
  },
  front(narrow, width) {
    const shown = visible();
    const k = NUMBERS.k;
    const traces = shown.map((c) => ({ type: "scatter", mode: "markers", name: literal(NAMES[c]),
      x: [NUMBERS.front[c][0]], y: [NUMBERS.front[c][1]],
      marker: { color: colour(c), symbol: symbol(c), size: 12,
        line: { color: style("--ink"), width: NUMBERS.front[c][2] ? 2 : 0 } },
      hovertemplate: `P@${k} %{x:.2f}, PSP@${k} %{y:.2f}<extra>%{fullData.name}</extra>` }));
    const ringed = shown.filter((c) => NUMBERS.front[c][2])
      .sort((a, b) => NUMBERS.front[a][0] - NUMBERS.front[b][0]);
    traces.unshift({ type: "scatter", mode: "lines", hoverinfo: "skip",
      x: ringed.map((c) => NUMBERS.front[c][0]), y: ringed.map((c) => NUMBERS.front[c][1]),
      line: { color: style("--muted"), width: 1.5, dash: "dot", shape: "vh" } });
    const points = shown.map((c) => NUMBERS.front[c]);
    const ranges = [0, 1].map((i) => padded(points.map((p) => p[i]), narrow && i === 0 ? 0.2 : 0.12));
    const height = 460;
    return [traces, layout({ height,
      xaxis: { title: { text: `P@${k}` }, range: ranges[0] },
      yaxis: { title: { text: `PSP@${k}` }, range: ranges[1] },
      annotations: placed(shown, ranges, width - 70, height - 60, narrow) })];
  },
  calibration(narrow) {
    const shown = visible().filter((c) => NUMBERS.calibration[c]);
    const traces = shown.map((c) => {
      const points = NUMBERS.calibration[c].points;
      return line(c, points.map((p) => p[0]), points.map((p) => p[1]), { customdata: points.map((p) => p[2]),
        hovertemplate: "probability %{x:.2f}, right %{y:.2f} of %{customdata:,}<extra>%{fullData.name}</extra>" });
    });
    traces.unshift({ type: "scatter", mode: "lines", x: [0, 100], y: [0, 100], hoverinfo: "skip",
      line: { color: style("--muted"), dash: "dot", width: 1.5 } });
    return [traces, layout({ height: 420,
      xaxis: { range: [-2, 102], title: { text: "probability, percent" } },
      yaxis: { range: [-2, 102], title: { text: narrow ? "right" : "answers that were right, percent" } } })];
  },
  training() {
    const shown = visible().filter((c) => NUMBERS.training[c]);
    const last = Math.max(1, ...shown.flatMap((c) => NUMBERS.training[c].map((p) => p[0])));
    return [shown.map((c) => line(c, NUMBERS.training[c].map((p) => p[0]), NUMBERS.training[c].map((p) => p[1]))),
      layout({ height: 320, xaxis: { title: { text: "epoch" }, tick0: 1, dtick: Math.ceil(last / 10) },
        yaxis: { title: { text: "nDCG@5" } } })];
  },
};

// Values with error bars, one row per candidate, the best on top.
function forest(rows, heading, narrow, zero, other) {
  const order = NAMES.map((_, c) => c).filter((c) => rows[c][0] !== null && c !== other)
    .sort((a, b) => rows[a][0] - rows[b][0]);
  const tint = (c) => (!zero ? colour(c) : !rows[c][3] ? style("--muted")
    : style(rows[c][0] > 0 ? "--good" : "--bad"));
  const trace = { type: "scatter", mode: "markers", x: order.map((c) => rows[c][0]),
    y: order.map((_, place) => place),
    customdata: order.map((c) => [literal(NAMES[c]), two(rows[c][1]), two(rows[c][2])]),
    marker: { color: order.map(tint), size: 9, symbol: order.map((c) => (zero ? "circle" : symbol(c))) },
    error_x: { type: "data", symmetric: false, thickness: 1.5, width: 4, color: style("--muted"),
      array: order.map((c) => rows[c][2] - rows[c][0]), arrayminus: order.map((c) => rows[c][0] - rows[c][1]) },
    hovertemplate: "%{customdata[0]}: %{x:.2f} (%{customdata[1]} to %{customdata[2]})<extra></extra>" };
  const shapes = zero ? [{ type: "line", x0: 0, x1: 0, y0: 0, y1: 1, yref: "paper",
    line: { color: style("--ink"), width: 1, dash: "dot" } }] : [];
  return [[trace], layout({ height: 84 + 26 * order.length, shapes,
    xaxis: { title: { text: heading } },
    yaxis: { tickvals: order.map((_, place) => place), range: [-0.7, order.length - 0.3],
      ticktext: order.map((c) => cut(NAMES[c], narrow ? 18 : 40)), showgrid: false } })];
}

function padded(values, share) {
  const low = Math.min(...values), high = Math.max(...values);
  const pad = Math.max(high - low, 1) * share;
  return [low - pad, high + pad];
}

// Names beside their points, each at the first place near it that no other name or point takes.
function placed(shown, ranges, width, height, narrow) {
  const pixel = (c) => [0, 1].map((i) => {
    const share = (NUMBERS.front[c][i] - ranges[i][0]) / (ranges[i][1] - ranges[i][0]);
    return i ? (1 - share) * height : share * width;
  });
  const taken = shown.map((c) => { const [x, y] = pixel(c); return [x - 8, y - 8, x + 8, y + 8]; });
  const collides = (box) => box[0] < 0 || box[2] > width || box[1] < 0 || box[3] > height
    || taken.some((o) => box[0] < o[2] && box[2] > o[0] && box[1] < o[3] && box[3] > o[1]);
  const notes = [];
  for (const c of shown) {
    const [x, y] = pixel(c);
    const text = cut(NAMES[c], narrow ? 16 : 32);
    const half = (NAMES[c].length > (narrow ? 16 : 32) ? (narrow ? 16 : 32) : NAMES[c].length) * 3.5 + 3;
    search: for (let radius = 18; radius < 140; radius += 14) {
      for (const turn of [-90, 90, -45, 45, -135, 135, 0, 180, -68, 68, -112, 112]) {
        const dx = Math.cos((turn * Math.PI) / 180) * (radius + (Math.abs(turn) % 180 < 60 ? half : 0));
        const dy = Math.sin((turn * Math.PI) / 180) * radius;
        const box = [x + dx - half, y + dy - 9, x + dx + half, y + dy + 9];
        if (collides(box)) continue;
        taken.push(box);
        notes.push({ x: NUMBERS.front[c][0], y: NUMBERS.front[c][1], ax: dx, ay: dy, text,
          font: { size: 12, color: style("--ink") }, showarrow: true, arrowhead: 0, arrowwidth: 1,
          arrowcolor: radius > 18 ? style("--muted") : "rgba(0,0,0,0)", standoff: 6 });
        break search;
      }
    }
  }
  return notes;
}
