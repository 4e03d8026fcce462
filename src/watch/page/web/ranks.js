// Per-run cards: heat map and breakdown of the ranks' times, measured and estimated memory, samples, timelines of traced
// steps, and the live status of the ranks.
"use strict";

const KINDS = ["parameters", "gradients", "optimizer", "activations", "gathered", "buffers", "other"];
const HEAT_WIDTH = 640, HEAT_LEFT = 46, MOST_ROWS = 64, MOST_RUNS = 4;
const VIEWS = {
  work: {title: "compute per step", unit: "s", of: (t, r, i) => Math.max(0, t.step_s[r][i] - t.data_wait_s[r][i] - t.communication_wait_s[r][i])},
  step_s: {title: "step time", unit: "s", of: (t, r, i) => t.step_s[r][i]},
  data: {title: "time waiting for data", unit: "%", of: (t, r, i) => 100 * t.data_wait_s[r][i] / (t.step_s[r][i] || 1)},
  communication: {title: "time waiting for other ranks", unit: "%", of: (t, r, i) => 100 * t.communication_wait_s[r][i] / (t.step_s[r][i] || 1)},
  checkpoint: {title: "checkpointing per step", unit: "s", of: (t, r, i) => t.checkpoint_s[r][i]},
  moving: {title: "communication per step, without waiting", unit: "s", of: (t, r, i) => t.moving_s[r][i]},
  memory: {title: "peak tensor memory", unit: "B", of: (t, r, i) => t.memory_bytes[r][i]},
};
const rankCards = new Map();  // by run id

const amount = (value, unit) => unit === "%" ? `${value.toFixed(1)}%` : unit === "B" ? bytes(value) : `${short(Number(value.toPrecision(3)))} ${unit}`;

function bytes(value) {
  const unit = value < 1 ? 0 : Math.min(4, Math.floor(Math.log2(value) / 10));
  return `${Number((value / 1024 ** unit).toPrecision(4))} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / (values.length || 1);
const svgText2 = (x, y, anchor, content) => element("svg:text", {x, y, "text-anchor": anchor, fill: "currentColor", "font-size": 11, opacity: 0.75}, content);

// ---- heat map: one column per logged interval, one row per rank (for many ranks, the maximum over neighbors)

function drawHeat(card) {
  const times = card.times, view = VIEWS[card.view.value], columns = times.steps.length;
  const together = Math.ceil(times.ranks / MOST_ROWS), rows = Math.ceil(times.ranks / together);
  const height = Math.max(4, Math.min(18, 220 / rows)), whole = rows * height + 22;
  const cells = [];
  for (let row = 0; row < rows; ++row) {
    for (let i = 0; i < columns; ++i) {
      let most = -Infinity;
      for (let r = row * together; r < Math.min(times.ranks, (row + 1) * together); ++r) most = Math.max(most, view.of(times, r, i));
      cells.push(most);
    }
  }
  // The color scale ignores the top 2 % of the values: slow first steps would hide the differences between the others.
  const sorted = [...cells].sort((a, b) => a - b);
  const low = sorted[0], high = sorted[Math.max(0, Math.ceil(sorted.length * 0.98) - 1)];
  const svg = card.heat, width = (HEAT_WIDTH - HEAT_LEFT) / columns;
  svg.setAttribute("viewBox", `0 0 ${HEAT_WIDTH} ${whole}`);
  svg.setAttribute("aria-label", `${view.title} of ${times.ranks} ranks: from ${amount(low, view.unit)} to ${amount(high, view.unit)}`);
  const drawn = cells.map((value, at) => {
    const share = high > low ? Math.min(1, (value - low) / (high - low)) : 0.5;
    return element("svg:rect", {
      class: "heat", x: (HEAT_LEFT + (at % columns) * width).toFixed(2), y: (Math.floor(at / columns) * height).toFixed(2),
      width: (width + 0.3).toFixed(2), height: Math.max(1, height - (height > 6 ? 1 : 0)).toFixed(2), "fill-opacity": (0.15 + 0.85 * share).toFixed(3),
    });
  });
  const every = Math.ceil(rows / 16);
  for (let row = 0; row < rows; row += every) drawn.push(svgText2(HEAT_LEFT - 5, row * height + Math.min(height, 12) - 1, "end", `${row * together}`));
  for (const i of new Set([0, columns >> 1, columns - 1])) {
    drawn.push(svgText2(HEAT_LEFT + (i + 0.5) * width, whole - 6, i === 0 ? "start" : i === columns - 1 ? "end" : "middle", `step ${times.steps[i]}`));
  }
  svg.replaceChildren(...drawn);
  card.cells = {columns, rows, height, width, whole, together, values: cells, view};
  card.scale.textContent = `${amount(low, view.unit)} (faint) to ${amount(high, view.unit)} (full)`;
}

function showCell(card, event) {
  const box = card.heat.getBoundingClientRect(), c = card.cells;
  const column = Math.floor(((event.clientX - box.left) / box.width * HEAT_WIDTH - HEAT_LEFT) / c.width);
  const row = Math.floor((event.clientY - box.top) / box.height * c.whole / c.height);
  if (column < 0 || column >= c.columns || row < 0 || row >= c.rows) return;
  const ranks = c.together > 1 ? `ranks ${row * c.together} to ${Math.min(card.times.ranks, (row + 1) * c.together) - 1} (maximum)` : `rank ${row}`;
  card.scale.textContent = `${ranks}, up to step ${card.times.steps[column]}: ${c.view.title} ${amount(c.values[row * c.columns + column], c.view.unit)}`;
}

// ---- breakdown of each rank's time over the steps shown

function sharesOf(times) {
  const from = times.steps.length > 4 ? 1 : 0;
  return times.step_s.map((steps, rank) => {
    const step = mean(steps.slice(from)) || 1e-12;
    const data = mean(times.data_wait_s[rank].slice(from)) / step, others = mean(times.communication_wait_s[rank].slice(from)) / step;
    return {rank, step, data, others, work: Math.max(0, 1 - data - others)};
  });
}

function sharesTable(shares) {
  const rows = (shares.length <= 64 ? shares : [...shares].sort((a, b) => b.work * b.step - a.work * a.step).slice(0, 64)).map((s) => {
    let x = 0;
    const bars = [["work", s.work], ["others", s.others], ["data", s.data]].map(([kind, share]) => {
      const bar = element("svg:rect", {class: `bar-${kind}`, x: x.toFixed(2), y: 0, width: (100 * share).toFixed(2), height: 8});
      x += 100 * share;
      return bar;
    });
    const picture = element("svg:svg", {viewBox: "0 0 100 8", preserveAspectRatio: "none", class: "shares", "aria-hidden": "true"}, ...bars);
    return element("tr", {}, element("th", {scope: "row"}, `${s.rank}`), element("td", {}, picture),
      ...[s.work, s.others, s.data].map((v) => element("td", {class: "number"}, `${(100 * v).toFixed(1)}%`)));
  });
  const key = (kind, text) => element("th", {scope: "col"}, element("span", {class: `swatch key-${kind}`}), ` ${text}`);
  return element("table", {class: "compact"}, element("thead", {}, element("tr", {}, element("th", {scope: "col"}, "rank"), element("th"),
    key("work", "compute"), key("others", "waiting for ranks"), key("data", "waiting for data"))), element("tbody", {}, ...rows));
}

// ---- memory by kind, measured and estimated

function memoryTable(events) {
  const last = (name) => events.filter((event) => event.event === name).at(-1);
  const measured = last("memory"), predicted = last("forecast");
  if (!measured && !predicted) return null;
  const kinds = KINDS.filter((kind) => kind in (predicted?.kinds || {}) || kind in (measured?.kinds || {}));
  const most = Math.max(1, ...kinds.flatMap((kind) => [predicted?.kinds?.[kind] || 0, measured?.kinds?.[kind] || 0]));
  const bar = (value, kind) => element("svg:svg", {viewBox: "0 0 100 8", preserveAspectRatio: "none", class: "shares", "aria-hidden": "true"},
    element("svg:rect", {class: `bar-${kind}`, x: 0, y: 0, height: 8, width: (100 * value / most).toFixed(2)}));
  const cells = (from, kind, color) => from ? [element("td", {class: "number"}, bytes(from.kinds?.[kind] || 0)), element("td", {}, bar(from.kinds?.[kind] || 0, color))] : [element("td", {}, "–"), element("td")];
  const rows = kinds.map((kind) => element("tr", {}, element("th", {scope: "row"}, kind), ...cells(predicted, kind, "others"), ...cells(measured, kind, "work")));
  const head = element("tr", {}, element("th"), element("th", {scope: "col", colspan: 2}, "estimate"),
    element("th", {scope: "col", colspan: 2}, measured ? `measured, rank ${measured.rank}` : "measured"));
  const table = element("table", {class: "compact", "data-part": "memory"}, element("thead", {}, head), element("tbody", {}, ...rows));
  const note = predicted ? `estimate: ${bytes(predicted.bytes)} of ${bytes(predicted.room)} available per rank, including code and libraries (other)` : "";
  return element("div", {}, element("h3", {}, "memory of the rank that uses most, by kind"), table, element("p", {}, note));
}

// ---- samples: generated continuations of each prompt, newest first

function samplesList(id, events) {
  const samples = events.filter((event) => event.event === "samples");
  if (!samples.length) return null;
  const entry = (event) => element("div", {class: "sample"}, element("h4", {}, `step ${event.step}`),
    ...event.samples.map((s) => element("p", {}, element("b", {}, s.prompt), s.text.trimEnd().replace(/\n\s*\n/g, "\n"))));
  const older = samples.slice(0, -1).reverse().slice(0, 100);
  const parts = [element("h3", {}, "samples"), entry(samples.at(-1))];
  if (older.length) parts.push(part(`samples-${id}`, `${older.length} earlier`, element("div", {}, ...older.map(entry))));
  return element("div", {"data-part": `sample-list-${id}`}, ...parts);
}

// ---- traced step: the measured passes and, below them, the predicted schedule with mean durations

function timelineSvg(trace) {
  const passes = trace.traceEvents.filter((e) => e.ph === "X" && (e.cat === "action" || e.cat === "compute"));
  const ranks = [...new Set(passes.map((e) => e.pid))].sort((a, b) => a - b).slice(0, MOST_ROWS);
  if (!ranks.length) return element("p", {}, "this trace has no passes");
  const zero = Math.min(...passes.map((e) => e.ts)), predicted = trace.lockstep?.predicted || [];
  const place = new Map((trace.lockstep?.pipeline || []).map((p, rank) => [rank, p]));
  const end = Math.max(...passes.map((e) => e.ts + e.dur - zero), ...predicted.flat().map((e) => e[2] * 1e6));
  const x = (us) => HEAT_LEFT + us / end * (HEAT_WIDTH - HEAT_LEFT), row = predicted.length ? 26 : 15;
  const svg = element("svg:svg", {viewBox: `0 0 ${HEAT_WIDTH} ${ranks.length * row + 20}`, role: "img", "aria-label": `timeline of ${ranks.length} ranks, ${short(end / 1e3)} ms`});
  const box = (name, from, to, y, height, faint) => {
    const kind = /B|I/.test(name) ? "others" : /W/.test(name) ? "data" : "work";
    svg.append(element("svg:rect", {class: `bar-${kind}`, x: x(from).toFixed(2), y, width: Math.max(0.4, x(to) - x(from) - 0.4).toFixed(2), height, "fill-opacity": faint ? 0.45 : 1},
      element("svg:title", {}, `${name}${faint ? ", predicted" : ""}: ${short((to - from) / 1e3)} ms`)));
  };
  ranks.forEach((rank, i) => {
    svg.append(svgText2(HEAT_LEFT - 5, i * row + 11, "end", `${rank}`));
    for (const e of passes) if (e.pid === rank) box(e.name, e.ts - zero, e.ts - zero + e.dur, i * row, 12, false);
    for (const [name, from, to] of predicted[place.get(rank) ?? 0] || []) box(name, from * 1e6, to * 1e6, i * row + 13, 8, true);
  });
  svg.append(svgText2(HEAT_LEFT, ranks.length * row + 14, "start", "0"), svgText2(HEAT_WIDTH, ranks.length * row + 14, "end", `${short(end / 1e3)} ms`));
  return svg;
}

async function showTrace(card, step) {
  try {
    const trace = await ask(`api/trace?id=${card.id}&step=${step}`);
    const key = (kind, text) => element("span", {}, element("span", {class: `swatch key-${kind}`}), ` ${text}  `);
    card.timeline.replaceChildren(element("p", {}, `step ${step}: `, key("work", "forward"), key("others", "backward"), key("data", "weights"),
      trace.lockstep?.predicted?.length ? "below, faint: the schedule with mean pass durations and without communication time" : ""), timelineSvg(trace));
  } catch (error) {
    card.timeline.replaceChildren(element("p", {}, error.message));
  }
}

// ---- live status

async function showLive(card, withStacks) {
  try {
    const {text} = await ask(`api/live?id=${card.id}${withStacks ? "&stacks=1" : ""}`);
    (withStacks ? card.stacks : card.live).textContent = text;
  } catch (error) {
    card.live.textContent = error.message;
  }
}

// ---- card of a run

function rankCardOf(run) {
  if (rankCards.has(run.id)) return rankCards.get(run.id);
  const card = {id: run.id, heat: element("svg:svg", {role: "img", tabindex: 0}), scale: element("p"), slow: element("p", {role: "status"}),
    shares: element("div"), memory: element("div"), samples: element("div"), timeline: element("div"), live: element("pre"), stacks: element("pre"), traces: element("span")};
  card.view = element("select", {"aria-label": "quantity shown in the heat map", onchange: () => drawHeat(card)},
    ...Object.entries(VIEWS).map(([key, view]) => element("option", {value: key}, view.title)));
  card.heat.addEventListener("pointermove", (event) => showCell(card, event));
  card.times_box = element("div", {}, element("div", {class: "row"}, element("h3", {}, "ranks"), card.view), card.heat, card.scale, card.slow, card.shares);
  card.live_box = element("div", {"data-part": `live-${run.id}`}, element("div", {class: "row"}, element("h3", {}, "now"),
    element("button", {type: "button", onclick: () => showLive(card, true)}, "stacks")), card.live, card.stacks);
  card.trace_box = element("div", {"data-part": `timeline-${run.id}`}, element("div", {class: "row"}, element("h3", {}, "timeline of a step"), card.traces), card.timeline);
  card.title = element("h2");
  card.box = element("article", {class: "chart run", "data-ranks": run.id}, card.title, element("div", {class: "columns"},
    element("section", {}, card.live_box, card.times_box, card.trace_box), element("section", {}, card.memory, card.samples)));
  rankCards.set(run.id, card);
  return card;
}

// Draws the cards of the shown runs; `details` are indexed by run id.
async function drawRanks(runs, details) {
  const cards = [];
  for (const run of runs.slice(0, MOST_RUNS)) {
    const card = rankCardOf(run), shown = details[run.id];
    if (!shown) continue;
    const times = await ask(`api/ranks?id=${run.id}`);
    card.title.textContent = nameOf(run);
    card.times_box.hidden = times.steps.length === 0;
    card.live_box.hidden = !shown.live;
    card.trace_box.hidden = shown.traces.length === 0;
    if (shown.live) await showLive(card, false);
    const key = JSON.stringify([times.steps.at(-1), times.ranks]);
    if (times.steps.length && key !== card.drawn) {
      card.drawn = key;
      card.times = times;
      drawHeat(card);
      const shares = sharesOf(times);
      card.slow.textContent = times.slow;
      card.shares.replaceChildren(sharesTable(shares));
    }
    const events = JSON.stringify([shown.events.length, shown.traces]);
    if (events !== card.events) {
      card.events = events;
      card.memory.replaceChildren(...[memoryTable(shown.events)].filter(Boolean));
      card.samples.replaceChildren(...[samplesList(run.id, shown.events)].filter(Boolean));
      card.traces.replaceChildren(...shown.traces.slice(-8).map((step) => element("button", {type: "button", onclick: () => showTrace(card, step)}, `step ${step}`)));
      if (shown.traces.length && !card.timeline.hasChildNodes()) await showTrace(card, shown.traces.at(-1));
    }
    if (!card.times_box.hidden || shown.live || card.memory.hasChildNodes() || card.samples.hasChildNodes() || shown.traces.length) cards.push(card.box);
  }
  const here = [...$("ranks").children];
  if (cards.length !== here.length || cards.some((box, i) => box !== here[i])) $("ranks").replaceChildren(...cards);
}
