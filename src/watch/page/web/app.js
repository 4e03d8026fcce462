// Web page of runs. Requests as many points as the charts have pixels and draws them as SVG.
"use strict";

const COLORS = ["#1f77b4", "#e07b1a", "#2ca02c", "#d1403f", "#8e63c0", "#8c564b", "#d667b0", "#7f7f7f", "#a8a81d", "#17a3b8"];
const FIRST = ["loss", "learning_rate", "grad_norm", "tokens_per_s", "peak_share", "roofline_share", "step_s", "peak_memory_bytes"];
const HIDDEN = new Set(["epoch", "tokens", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second"]);
// Events without a mark in the charts.
const QUIET = new Set(["best", "samples", "memory", "forecast", "time", "measured", "compared replicas"]);
const MOST_LISTED = 6;  // maximum number of lines whose last values are listed below a chart
const MOST_EVENTS = 300;  // most recent events listed per run
const WIDTH = 640, HEIGHT = 260, LEFT = 62, RIGHT = 8, TOP = 8, BOTTOM = 24;
const SVG = "http://www.w3.org/2000/svg";
const REFRESH_MS = 2000, PARTIAL_MS = 300;  // PARTIAL_MS while a long file is being read

const state = {
  runs: [], shown: new Set(), known: new Set(), series: {}, details: {}, from: 0, to: null, smooth: 0, logy: false, logx: false,
};
const $ = (id) => document.getElementById(id);

function element(name, attributes = {}, ...children) {
  const made = name.startsWith("svg:") ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

async function ask(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

// ---- numbers

function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e4 && size < 1e15) {
    const unit = Math.min(4, Math.floor(Math.log10(size) / 3));
    return (value / 10 ** (3 * unit)).toPrecision(4).replace(/\.?0+$/, "") + ["", "k", "M", "G", "T"][unit];
  }
  return size !== 0 && size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(5)));
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.round(seconds), pad = (n) => String(n).padStart(2, "0");
  if (s >= 86400) return `${Math.floor(s / 86400)}d ${pad(Math.floor(s / 3600) % 24)}h`;
  return s >= 3600 ? `${Math.floor(s / 3600)}:${pad(Math.floor(s / 60) % 60)}:${pad(s % 60)}` : `${pad(Math.floor(s / 60))}:${pad(s % 60)}`;
}

const colorOf = (id) => COLORS[id % COLORS.length];
const nameOf = (run) => run.name.split("/").filter(Boolean).slice(-2).join("/") || run.name;
const shownRuns = () => state.runs.filter((run) => state.shown.has(run.id));
const lastStep = () => Math.max(1, ...shownRuns().map((run) => run.last_step));

// ---- table of runs

function drawRuns() {
  const titles = ["", "run", "model", "plan", "step", "loss", "best", "tokens/s", "left", "goodput", "end"];
  const wide = new Set(["model", "plan", "goodput", "tokens/s"]);
  const head = element("tr", {}, ...titles.map((t) => element("th", {class: wide.has(t) ? "wide" : null, scope: "col"}, t)));
  const rows = state.runs.map((run) => {
    const box = element("input", {type: "checkbox", "aria-label": `show ${run.name}`, onchange: () => toggle(run.id)});
    box.checked = state.shown.has(run.id);
    const swatch = element("span", {class: "swatch"});
    swatch.style.background = colorOf(run.id);
    const bad = ["failed", "ended", "cannot"].some((start) => run.end.startsWith(start));
    const cells = [
      element("td", {}, box, " ", swatch), element("td", {title: run.folder}, nameOf(run)),
      element("td", {class: "wide"}, run.model), element("td", {class: "wide"}, run.plan),
      element("td", {class: "number"}, run.steps ? `${run.step}/${run.steps}` : `${run.step}`),
      element("td", {class: "number"}, short(run.loss)),
      element("td", {class: "number"}, run.best ? `${run.best.metric} ${short(run.best.value)}` : "–"),
      element("td", {class: "number wide"}, short(run.tokens_per_s)),
      element("td", {class: "number"}, duration(run.seconds_left)),
      element("td", {class: "number wide"}, run.goodput === null ? "–" : `${Math.round(100 * run.goodput)}%`),
      element("td", {class: bad ? "bad" : null}, run.end),
    ];
    return element("tr", {"data-run": run.id}, ...cells);
  });
  const none = element("p", {}, "No runs yet. A run appears once it has written its first metrics.");
  $("runs").replaceChildren(rows.length ? element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)) : none);
}

function toggle(id) {
  if (!state.shown.delete(id)) state.shown.add(id);
  refresh();
}

// ---- charts

// Metrics of each chart. Training and evaluation loss share one.
function chartNames() {
  const all = new Set(shownRuns().flatMap((run) => run.metrics).filter((name) => !HIDDEN.has(name)));
  const order = [...FIRST.filter((name) => all.has(name)), ...[...all].filter((name) => !FIRST.includes(name)).sort()];
  if (all.has("loss") || all.has("eval_loss")) return [["loss", "eval_loss"], ...order.filter((n) => n !== "loss" && n !== "eval_loss").map((n) => [n])];
  return order.map((name) => [name]);
}

function linesOf(names) {
  const lines = [];
  for (const run of shownRuns()) {
    for (const name of names) {
      const points = (state.series[run.id] || {})[name];
      if (points && points[0].length) lines.push({run, name, steps: points[0], values: points[1], dashed: name.startsWith("eval_") && names.length > 1});
    }
  }
  return lines;
}

function scaleOf(low, high, begin, end, log) {
  const map = log ? Math.log10 : (x) => x;
  const a = map(low), span = map(high) - a || 1;
  const scale = (x) => begin + (map(x) - a) / span * (end - begin);
  scale.back = (p) => { const x = a + (p - begin) / (end - begin) * span; return log ? 10 ** x : x; };
  return scale;
}

function ticks(low, high, log) {
  if (log) {
    const found = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); ++e) {
      for (const m of Math.log10(high / low) > 3 ? [1] : [1, 2, 5]) {
        const x = m * 10 ** e;
        if (x >= low && x <= high) found.push(x);
      }
    }
    if (found.length > 1) return found;
  }
  const rough = (high - low) / 5 || 1, unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= rough) || unit;
  const found = [];
  for (let x = Math.ceil(low / step) * step; x <= high + step * 1e-9; x += step) found.push(Number(x.toPrecision(12)));
  return found;
}

function rangeOf(lines) {
  let low = Infinity, high = -Infinity;
  for (const line of lines) {
    for (const value of line.values) {
      if (value === null || (state.logy && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (low > high) return null;
  if (state.logy) return low === high ? [low / 2, high * 2] : [low / 1.05, high * 1.05];
  const room = (high - low) * 0.04 || Math.abs(high) * 0.04 || 1;
  return [low - room, high + room];
}

function pathOf(line, x, y) {
  let path = "", open = false;
  for (let i = 0; i < line.steps.length; ++i) {
    const value = line.values[i];
    if (value === null || (state.logy && value <= 0) || (state.logx && line.steps[i] <= 0)) { open = false; continue; }
    path += `${open ? "L" : "M"}${x(line.steps[i]).toFixed(1)} ${y(value).toFixed(1)}`;
    open = true;
  }
  return path;
}

function axes(svg, x, y, xs, ys) {
  const text = (at, anchor, content) => element("svg:text", {...at, "text-anchor": anchor, fill: "currentColor", "font-size": 11, opacity: 0.75}, content);
  for (const value of ticks(...ys, state.logy)) {
    svg.append(element("svg:line", {x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), stroke: "currentColor", opacity: 0.12}));
    svg.append(text({x: LEFT - 5, y: y(value) + 4}, "end", short(value)));
  }
  for (const value of ticks(...xs, state.logx)) {
    const label = short(value), half = 3.5 * label.length;  // approximate half width; keeps the last label inside the picture
    svg.append(text({x: Math.min(x(value), WIDTH - half), y: HEIGHT - 7}, "middle", label));
  }
  svg.append(element("svg:rect", {x: LEFT, y: TOP, width: WIDTH - LEFT - RIGHT, height: HEIGHT - TOP - BOTTOM, fill: "none", stroke: "currentColor", opacity: 0.3}));
}

// Draws checkpoints and events of the shown runs at the lower edge.
function marks(svg, x, xs) {
  for (const run of shownRuns()) {
    const details = state.details[run.id];
    for (const event of details ? details.events : []) {
      if (event.step < xs[0] || event.step > xs[1] || QUIET.has(event.event)) continue;
      const at = x(Math.max(event.step, xs[0])), y = HEIGHT - BOTTOM;
      const shape = event.event === "saved" ? `M${at} ${y}l-3 -6h6z` : `M${at} ${y}v-${HEIGHT - TOP - BOTTOM}`;
      const what = `${eventName(event)}: ${eventText(event)}`;
      svg.append(element("svg:path", {
        d: shape, fill: event.event === "saved" ? colorOf(run.id) : "none", stroke: colorOf(run.id), opacity: 0.6, "stroke-dasharray": "2 3",
      }, element("svg:title", {}, `${nameOf(run)}, step ${event.step}: ${what}`)));
    }
  }
}

// Text alternative for screen readers: last value and range of each line.
function describeChart(names, lines) {
  const parts = lines.map((line) => {
    const values = line.values.filter((value) => value !== null);
    return `${nameOf(line.run)}${names.length > 1 ? " " + line.name : ""} is ${short(values.at(-1))} at step ${line.steps.at(-1)}, between ${short(Math.min(...values))} and ${short(Math.max(...values))}`;
  });
  return `${names.join(" and ")}: ${parts.join("; ")}`;
}

function drawInto(card) {
  const lines = linesOf(card.names), ys = rangeOf(lines), svg = card.svg;
  svg.replaceChildren();
  if (!ys) {
    card.legend.textContent = state.logy && lines.length ? "no values above 0" : "no values in these steps";
    return;
  }
  if (!card.read) showLast(card, lines);
  svg.setAttribute("aria-label", describeChart(card.names, lines));
  const xs = [Math.max(state.from, state.logx ? 1 : 0), Math.max(state.to ?? lastStep(), state.from + 1)];
  const x = scaleOf(...xs, LEFT, WIDTH - RIGHT, state.logx), y = scaleOf(...ys, HEIGHT - BOTTOM, TOP, state.logy);
  card.x = x;
  card.xs = xs;
  axes(svg, x, y, xs, ys);
  marks(svg, x, xs);
  for (const line of lines) {
    svg.append(element("svg:path", {
      d: pathOf(line, x, y), fill: "none", stroke: colorOf(line.run.id), "stroke-width": 1.5, "stroke-linejoin": "round",
      "stroke-dasharray": line.dashed ? "6 3" : null, "data-series": `${line.run.id}:${line.name}`,
    }));
    if (line.dashed || line.steps.length === 1) {
      for (let i = 0; i < line.steps.length && line.steps.length < 100; ++i) {
        if (line.values[i] !== null && !(state.logy && line.values[i] <= 0)) svg.append(element("svg:circle", {cx: x(line.steps[i]), cy: y(line.values[i]), r: 2.5, fill: colorOf(line.run.id)}));
      }
    }
  }
  card.hair = element("svg:line", {y1: TOP, y2: HEIGHT - BOTTOM, stroke: "currentColor", opacity: 0});
  card.band = element("svg:rect", {y: TOP, height: HEIGHT - TOP - BOTTOM, fill: "currentColor", opacity: 0.15, width: 0});
  svg.append(card.hair, card.band);
}

function nearest(steps, step) {
  let low = 0, high = steps.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] < step) low = middle + 1; else high = middle;
  }
  return low > 0 && step - steps[low - 1] < steps[low] - step ? low - 1 : low;
}

function place(card, event) {
  const box = card.svg.getBoundingClientRect();
  return Math.min(WIDTH - RIGHT, Math.max(LEFT, (event.clientX - box.left) / box.width * WIDTH));
}

const lineName = (card, line) => `${nameOf(line.run)}${card.names.length > 1 ? " " + line.name : ""}`;

// Default legend of a chart. Not announced by screen readers, because the picture's label contains the same.
function showLast(card, lines) {
  card.read = false;
  card.legend.setAttribute("aria-live", "off");
  card.legend.textContent = lines.length > MOST_LISTED ? "" : lines.map((line) => `${lineName(card, line)} ${short(line.values.at(-1))}`).join(", ");
}

function showValues(card, at) {
  if (!card.hair) return;
  card.read = true;
  card.legend.setAttribute("aria-live", "polite");
  const step = card.x.back(at);
  card.hair.setAttribute("x1", at);
  card.hair.setAttribute("x2", at);
  card.hair.setAttribute("opacity", 0.5);
  card.legend.textContent = linesOf(card.names).map((line) => {
    const i = nearest(line.steps, step);
    return `${lineName(card, line)}: ${short(line.values[i])} at ${line.steps[i]}`;
  }).join(", ");
}

function listen(card) {
  let begin = null;
  card.svg.addEventListener("pointerdown", (event) => { begin = place(card, event); });
  card.svg.addEventListener("pointermove", (event) => {
    const at = place(card, event);
    showValues(card, at);
    if (begin !== null && card.band) {
      card.band.setAttribute("x", Math.min(begin, at));
      card.band.setAttribute("width", Math.abs(at - begin));
    }
  });
  card.svg.addEventListener("pointerup", (event) => {
    const at = place(card, event), first = begin;
    begin = null;
    if (first !== null && Math.abs(at - first) > 6 && card.x) {
      zoom(Math.floor(card.x.back(Math.min(first, at))), Math.ceil(card.x.back(Math.max(first, at))));
    } else if (card.band) card.band.setAttribute("width", 0);
  });
  card.svg.addEventListener("keydown", (event) => {
    const by = {ArrowLeft: -1, ArrowRight: 1, Home: -1000, End: 1000}[event.key], steps = linesOf(card.names)[0]?.steps;
    if (by === undefined || !card.hair || !steps?.length) return;
    event.preventDefault();
    event.stopPropagation();  // otherwise the page would move all charts
    const [low, high] = card.xs, wanted = (card.step ?? high) + by * Math.max(1, (high - low) / 50);
    card.step = steps[nearest(steps, Math.min(high, Math.max(low, wanted)))];
    showValues(card, Math.min(WIDTH - RIGHT, Math.max(LEFT, card.x(card.step))));
  });
  const leave = () => { begin = null; card.hair?.setAttribute("opacity", 0); showLast(card, linesOf(card.names)); };
  card.svg.addEventListener("pointerleave", leave);
  card.svg.addEventListener("blur", leave);
  card.svg.addEventListener("dblclick", () => zoom(0, null));
}

function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], {type}));
  element("a", {href: address, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

function svgText(card) {
  const copy = card.svg.cloneNode(true);
  copy.setAttribute("xmlns", SVG);
  copy.setAttribute("color", "#222");
  copy.setAttribute("font-family", "sans-serif");
  copy.prepend(element("svg:rect", {width: WIDTH, height: HEIGHT, fill: "#fff"}));
  return new XMLSerializer().serializeToString(copy);
}

// The downsampled points of a chart. The complete data of a run has its own CSV link.
function csvText(card) {
  const rows = ["run,metric,step,value"];
  for (const line of linesOf(card.names)) {
    line.steps.forEach((step, i) => rows.push(`"${line.run.name.replaceAll('"', '""')}",${line.name},${step},${line.values[i] ?? ""}`));
  }
  return rows.join("\n") + "\n";
}

const cards = new Map();

function cardOf(names) {
  const key = names.join("+");
  if (cards.has(key)) return cards.get(key);
  const svg = element("svg:svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": names.join(" and "), tabindex: 0});
  const card = {names, svg, legend: element("p")};
  card.box = element("article", {class: "chart", "data-chart": key},
    element("div", {}, element("h2", {}, names.join(" and ")), element("span", {},
      element("button", {type: "button", onclick: () => save(`${key}.svg`, "image/svg+xml", svgText(card))}, "SVG"), " ",
      element("button", {type: "button", onclick: () => save(`${key}.csv`, "text/csv", csvText(card))}, "CSV"))),
    svg, card.legend);
  listen(card);
  cards.set(key, card);
  return card;
}

function drawCharts() {
  const wanted = chartNames().map(cardOf);
  const boxes = wanted.map((card) => card.box);
  const here = [...$("charts").children];
  if (boxes.length !== here.length || boxes.some((box, i) => box !== here[i])) $("charts").replaceChildren(...boxes);
  wanted.forEach(drawInto);
}

// ---- details: configuration, events, differences

function tableOf(titles, rows) {
  return element("table", {}, element("thead", {}, element("tr", {}, ...titles.map((t) => element("th", {scope: "col"}, t)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell instanceof Node ? cell : String(cell)))))));
}

// Description of an event by name. Other events list their fields.
const EVENT_TEXT = {
  began: (e) => `${e.model} in ${e.precision}, ${e.plan}, ${e.ranks} rank${e.ranks === 1 ? "" : "s"} on ${e.host}, ${e.sequences_a_step} sequences per step`,
  saved: (e) => `${e.checkpoint}: training waited ${short(e.waited_s)} s${e.in_background ? ", written in the background" : ""}`,
  best: (e) => `${e.metric} ${short(e.value)}`,
  overflow: () => "step skipped: float16 gradients contain NaN or Inf",
  spike: (e) => `gradient norm ${short(e.grad_norm)}; 99th percentile of the last steps ${short(e.quantile_99)}`,
  "slow rank": (e) => e.rank === null ? "none" : `rank ${e.rank}, ${short(e.factor)} times the usual time, due to ${e.by}`,
  "compared replicas": (e) => `bit-identical (${short(e.seconds)} s)`,
  "computed twice": (e) => e.differed ? `the gradient norms differ: ${short(e.first_grad_norm)}, then ${short(e.grad_norm)}` : "both gradients are identical",
  memory: (e) => `rank ${e.rank}: ${bytes(e.bytes)}`,
  forecast: (e) => `${bytes(e.bytes)} of ${bytes(e.room)}`,
  measured: (e) => `${bytes(e.bytes)} per rank, predicted ${bytes(e.predicted_bytes)}; ${short(e.step_s)} s per step${e.predicted_step_s ? `, predicted ${short(e.predicted_step_s)} s` : ""}`,
  time: (e) => `goodput ${short(100 * e.goodput)}% of ${short(e.all_s)} s: steps ${short(e.steps_s)} s, of which waiting for data ${short(e.data_wait_s)} s and for other ranks ${short(e.communication_wait_s)} s; starting ${short(e.starting_s)} s, saving ${short(e.saving_s)} s, evaluating ${short(e.evaluating_s)} s`,
  samples: (e) => e.samples.map((s) => s.prompt + s.text).join(" | "),
  failed: (e) => e.error,
  stopped: (e) => `by ${e.by}`,
};
const BAD = new Set(["failed", "overflow", "spike", "computed twice", "restarted"]);

const eventName = (e) => e.event === "began" && (e.step > 0 || e.round > 0) ? "restarted" : e.event;

function eventText(event) {
  const {time, step, event: name, in_steps_s, ...rest} = event;
  return EVENT_TEXT[name] ? EVENT_TEXT[name](event) : Object.entries(rest).map(([k, v]) => `${k}: ${typeof v === "object" ? JSON.stringify(v) : typeof v === "number" ? short(v) : v}`).join(", ");
}

function eventRow(event) {
  const name = eventName(event), bad = BAD.has(name) || (name === "slow rank" && event.rank !== null);
  return [new Date(event.time * 1000).toLocaleString(), event.step, bad ? element("span", {class: "bad"}, name) : name, eventText(event)];
}

// Keeps a section open when it is redrawn.
function part(id, title, content) {
  const open = document.querySelector(`details[data-part="${id}"]`)?.open;
  const made = element("details", {"data-part": id}, element("summary", {}, title), element("div", {}, content));
  made.open = Boolean(open);
  return made;
}

async function drawDetails() {
  const parts = [];
  for (const run of shownRuns()) {
    const details = state.details[run.id];
    if (!details) continue;
    const changed = details.configuration.filter((row) => row[2] !== "default");
    parts.push(part(`events-${run.id}`, `${nameOf(run)}: ${details.events.length} events, checkpoints ${details.checkpoints.join(", ") || "none"}`,
      tableOf(["time", "step", "event", ""], details.events.slice(-MOST_EVENTS).map(eventRow))));
    parts.push(part(`configuration-${run.id}`, `${nameOf(run)}: configuration (${changed.length} non-default values)`,
      tableOf(["key", "value", "source"], [...changed, ...details.configuration.filter((row) => row[2] === "default")])));
    const csv = element("a", {href: `api/csv?id=${run.id}`, download: `${nameOf(run).replaceAll("/", "-")}.csv`}, "all metrics of this run as CSV");
    parts.push(part(`table-${run.id}`, `${nameOf(run)}: download`, csv));
  }
  const pair = shownRuns().slice(0, 2);
  if (pair.length === 2) {
    const found = await ask(`api/difference?first=${pair[0].id}&second=${pair[1].id}`);
    const rows = ["configuration", "data", "program", "curves"].flatMap((kind) => Object.entries(found[kind]).map(([name, [a, b]]) => [kind, name, a, b]));
    rows.push(["curves", "first step with a different loss", found.first_other_loss ?? "none", `of ${found.common_losses} common steps`]);
    parts.unshift(part("difference", `Differences between ${nameOf(pair[0])} and ${nameOf(pair[1])}: ${rows.length - 1} values`,
      tableOf(["", "", nameOf(pair[0]), nameOf(pair[1])], rows)));
  }
  $("details").replaceChildren(...parts);
}

// ---- view: zoom, refresh and keys

function zoom(from, to) {
  state.from = Math.max(0, from);
  state.to = to;
  refresh();
}

function move(share) {
  const to = state.to ?? lastStep(), by = Math.round((to - state.from) * share) || Math.sign(share);
  zoom(Math.max(0, state.from + by), Math.max(1, to + by));
}

let drawings = 0, drawing = false, again = false;
let drawnDetails = "";

// Requests during a redraw are coalesced into one further redraw.
async function refresh() {
  again = true;
  if (drawing) return;
  drawing = true;
  while (again) {
    again = false;
    await draw();
  }
  drawing = false;
}

// Returns the details of a run; reloads them if its version has changed.
async function detailsOf(run) {
  const known = state.details[run.id];
  return known?.version === run.version ? known : {...await ask(`api/run?id=${run.id}`), version: run.version};
}

async function draw() {
  try {
    const runs = await ask("api/runs");
    for (const run of runs) {
      if (!state.known.has(run.id) && state.known.size < 8) state.shown.add(run.id);
      state.known.add(run.id);
    }
    state.runs = runs;
    const shown = shownRuns(), names = chartNames().flat();
    const range = `&from=${state.from}${state.to === null ? "" : `&to=${state.to}`}`;
    state.series = shown.length === 0 ? {} : await ask(
      `api/series?ids=${shown.map((r) => r.id).join(",")}&names=${names.map(encodeURIComponent).join(",")}${range}&points=${WIDTH}&smooth=${state.smooth}`);
    const details = await Promise.all(shown.map(detailsOf));
    state.details = Object.fromEntries(shown.map((run, i) => [run.id, details[i]]));
    drawRuns();
    drawCharts();
    await drawRanks(shown, state.details);
    const key = JSON.stringify([shown.map((run) => [run.id, run.end]), details.map((d) => d.events.length)]);
    if (key !== drawnDetails) {
      drawnDetails = key;
      await drawDetails();
    }
    const going = runs.filter((run) => run.running), partial = shown.filter((run) => run.partial);
    $("state").textContent = partial.length ? `reading ${nameOf(partial[0])}: showing a sample of its steps`
      : going.length ? `${going.length} running` : `${runs.length} runs, none running`;
    if (partial.length) setTimeout(refresh, PARTIAL_MS);
    document.body.dataset.ready = String(++drawings);
  } catch (error) {
    $("state").textContent = `server not reachable: ${error.message}`;
  }
}

function listenToControls() {
  $("smooth").addEventListener("input", () => { state.smooth = Number($("smooth").value); refresh(); });
  for (const id of ["logy", "logx"]) $(id).addEventListener("change", () => { state[id] = $(id).checked; drawCharts(); });
  $("reset").addEventListener("click", () => zoom(0, null));
  const flip = (id) => { $(id).checked = !$(id).checked; $(id).dispatchEvent(new Event("change")); };
  const smooth = (by) => { $("smooth").value = Number($("smooth").value) + by; $("smooth").dispatchEvent(new Event("input")); };
  const keys = {
    l: () => flip("logy"), x: () => flip("logx"), "+": () => smooth(100), "-": () => smooth(-100), 0: () => zoom(0, null),
    Escape: () => zoom(0, null), ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input[type=range]")) return;
    if (keys[event.key]) keys[event.key]();
    else if (/^[1-9]$/.test(event.key) && state.runs[event.key - 1]) toggle(state.runs[event.key - 1].id);
  });
}

listenToControls();
refresh();
setInterval(() => { if ($("live").checked && !document.hidden) refresh(); }, REFRESH_MS);
