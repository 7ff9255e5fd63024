// The history of a job: its curves, generations and events above one time axis.
"use strict";

const LATEST_MS = 10 * 60 * 1000;
const LANE = 64;          // pixels of a curve
const LANE_HEAD = 18;     // above the curve, for its name and value
const BARS = 22;          // of the generations
const NAME_ROW = 15;      // of the names of events
const SCALE = 48;         // at the right, for the ends of the axes
const CHARACTER = 7.4;    // upper bound of a character's width, at 12 pixels
const PHONE = 480;        // pixels of width, and less, with shorter names in fewer rows

// The figures that have curves. `from`: where the axis begins; if unset, at the curve's least value.
const CURVES = [
  {name: "steps_per_second", title: "steps/s", from: 0},
  {name: "loss", title: "loss"},
  {name: "samples_per_second", title: "samples/s", from: 0},
  {name: "gpu_busy", title: "GPUs busy", from: 0, to: 1, text: value => `${Math.round(100 * value)} %`},
];

// Why each ended generation ended.
function marksOf(job) {
  return job.history.filter(generation => generation.ended_ms_ago !== undefined && generation.end_reason).map(generation => ({
    ago: Number(generation.ended_ms_ago),
    kind: isPlanned(generation) ? "plan" : "bad",
    name: shortName(generation.end_reason),
    title: `${isPlanned(generation) ? "planned" : "fault"}, ${duration(Number(generation.ended_ms_ago))} ago: ` +
      `${generation.end_reason} (generation ${generation.generation})`,
  }));
}

function drawFlag(x, mark) {
  // A fault is a triangle and a planned end a diamond, so the two differ without colours, too.
  const points = mark.kind === "bad" ? `${x - 5},0 ${x + 5},0 ${x},9` : `${x},0 ${x + 4.5},4.5 ${x},9 ${x - 4.5},4.5`;
  return draw("polygon", {points, class: mark.kind});
}

// Lines through all curves, each with a flag and, if there is room, a name; the others are counted.
function drawMarks(marks, x, width, rows, height) {
  const ends = Array(rows).fill(-Infinity);
  const longest = width <= PHONE ? 24 : 36;
  const shapes = [];
  let hidden = [];
  for (const mark of marks) {
    const at = x(mark.ago);
    const group = draw("g", {class: `mark ${mark.kind}`}, mark.title);
    group.append(draw("line", {x1: at, x2: at, y1: rows * NAME_ROW, y2: height, class: mark.kind}));
    const flag = drawFlag(at, mark);
    flag.setAttribute("transform", `translate(0 ${rows * NAME_ROW})`);
    group.append(flag);
    const name = mark.name.length > longest ? `${mark.name.slice(0, longest - 1)}…` : mark.name;
    const wide = name.length * CHARACTER;
    const left = Math.max(0, Math.min(at - 5, width - wide));
    const row = ends.findIndex(end => end + 8 < left);
    if (row < 0) {
      hidden.push(mark);
    } else {
      ends[row] = left + wide;
      const atEnd = left + wide >= width;
      const place = {x: atEnd ? width : left, "text-anchor": atEnd ? "end" : "start"};
      const text = draw("text", {...place, y: (row + 1) * NAME_ROW - 3, class: mark.kind});
      text.append(name);
      group.append(text);
    }
    shapes.push(group);
  }
  return [shapes, hidden];
}

// [values as numbers, null if not reported; whether one was NaN or infinite].
function valuesOf(values) {
  return [values.map(value => typeof value === "number" ? value : null), values.some(value => typeof value === "string")];
}

function scaleOf(curve, shown) {
  const most = curve.to ?? Math.max(...shown);
  const least = curve.from ?? Math.min(...shown);
  return most > least ? [least, most] : [least, least + (Math.abs(least) || 1)];
}

// Joins consecutive points to a line, with a gap where nothing was reported for a while.
function pathOf(points) {
  const steps = points.slice(1).map((point, i) => points[i].ago - point.ago).sort((a, b) => a - b);
  const gap = 4 * Math.max(2500, steps[Math.floor(steps.length / 2)] || 0);
  let path = "";
  let before = null;
  for (const point of points) {
    if (point.y === null) {
      before = null;
      continue;
    }
    const begins = before === null || before.ago - point.ago > gap;
    path += `${begins ? "M" : "L"}${point.x.toFixed(1)} ${point.y.toFixed(1)}`;
    if (begins) path += "h0.1";  // makes a single point visible
    before = point;
  }
  return path;
}

// One curve in its lane, or null if nothing was reported in this time.
function drawCurve(curve, series, span, shift, x, width, top) {
  const [values, broken] = valuesOf(series[curve.name]);
  const inside = series.ms_ago.map((ago, i) => ({ago: ago + shift, value: values[i], told: series[curve.name][i]}))
    .filter(point => point.ago <= span);
  const shown = inside.map(point => point.value).filter(value => value !== null);
  if (!shown.length && !(broken && inside.some(point => point.told !== null))) return null;
  const [least, most] = scaleOf(curve, shown.length ? shown : [0]);
  const bottom = top + LANE_HEAD + LANE;
  const y = value => bottom - 2 - (LANE - 4) * (value - least) / (most - least);
  const text = curve.text || digits;
  const group = draw("g", {class: "curve"});
  const word = (at, line, anchor, className, content) => {
    const element = draw("text", {x: at, y: line, class: className, "text-anchor": anchor});
    element.append(content);
    group.append(element);
  };
  group.append(draw("rect", {x: 0, y: top + LANE_HEAD, width, height: LANE, class: "lane"}));
  const points = inside.map(point => ({ago: point.ago, x: x(point.ago), y: point.value === null ? null : y(point.value)}));
  group.append(draw("path", {d: pathOf(points), class: "line"}));
  for (const point of inside.filter(each => typeof each.told === "string")) {
    group.append(draw("circle", {cx: x(point.ago), cy: top + LANE_HEAD + 5, r: 4, class: "bad"}, `${curve.title} was ${point.told}`));
  }
  const last = inside.filter(point => point.told !== null).pop();
  const isNumber = typeof last.told === "number";
  word(0, top + 13, "start", "name", curve.title);
  word(curve.title.length * CHARACTER + 12, top + 13, "start", isNumber ? "value" : "value bad", isNumber ? text(last.told) : last.told);
  word(width + 5, top + LANE_HEAD + 10, "start", "scale", text(most));
  word(width + 5, bottom - 1, "start", "scale", text(least));
  return group;
}

// A bar for each generation; the gap between two bars is the time that the change took.
function drawGenerations(job, x, span, top) {
  const shapes = [];
  const bar = (from, to, className, title) => {
    if (to > span) return 0;
    const left = x(Math.min(from, span));
    const wide = Math.max(3, x(to) - left);
    shapes.push(draw("rect", {x: left, y: top, width: wide, height: BARS, class: className}, title));
    return wide;
  };
  // Gaps are drawn last, on top, because they may be the narrowest.
  job.history.forEach(generation => {
    const ended = generation.ended_ms_ago === undefined ? 0 : Number(generation.ended_ms_ago);
    const began = Number(generation.began_ms_ago);
    const wide = bar(began, ended, "run", `generation ${generation.generation}, ${duration(began - ended)}: ${generation.reason}`);
    if (wide > 12 + 8 * String(generation.generation).length) {
      const text = draw("text", {x: x(Math.min(began, span)) + 6, y: top + 15, class: "number"});
      text.append(generation.generation);
      shapes.push(text);
    }
  });
  job.history.forEach((generation, i) => {
    if (generation.ended_ms_ago === undefined) return;
    const next = job.history[i + 1];
    if (!next && job.phase === "ended") return;
    const ended = Number(generation.ended_ms_ago);
    bar(ended, next ? Number(next.began_ms_ago) : 0, `gap ${isPlanned(generation) ? "plan" : "bad"}`, generation.end_reason);
  });
  return shapes;
}

function courseLabel(job, marks) {
  const faults = marks.filter(mark => mark.kind === "bad").map(mark => mark.name);
  const plans = marks.filter(mark => mark.kind === "plan").map(mark => mark.name);
  const list = names => names.length > 5 ? `${names.slice(-5).join(", ")} and ${names.length - 5} before` : names.join(", ");
  return `How job ${job.run_id} went. ${count(faults.length, "fault")}${faults.length ? `: ${list(faults)}` : ""}. ` +
    `${count(plans.length, "planned change")}${plans.length ? `: ${list(plans)}` : ""}.`;
}

// Params: curves: of /api/v1/curves, or undefined; shift: milliseconds since they were asked for; range: "latest", "whole".
function drawCourse(svg, job, curves, shift, range) {
  const whole = Math.max(200, Math.floor(svg.getBoundingClientRect().width));
  const width = whole - SCALE;
  const age = Math.max(1, Number(job.age_ms));
  const span = range === "latest" ? Math.min(age, LATEST_MS) : age;
  const x = ago => width * (1 - Math.min(Math.max(ago, 0), span) / span);
  const marks = marksOf(job);
  const shown = marks.filter(mark => mark.ago <= span);
  const rows = shown.length ? (width <= PHONE ? 3 : 2) : 0;
  let top = rows * NAME_ROW + (rows ? 12 : 0);
  const lanes = [];
  for (const curve of curves ? CURVES : []) {
    const lane = drawCurve(curve, curves[range], span, shift, x, width, top);
    if (lane === null) continue;
    lanes.push(lane);
    top += LANE_HEAD + LANE + 4;
  }
  top += 4;
  const generations = drawGenerations(job, x, span, top);
  const bottom = top + BARS;
  const [flags, hidden] = drawMarks(shown, x, whole, rows, bottom);
  const axis = [[0, "start", `${duration(span)} ago`], [width, "end", "now"]];
  if (hidden.length) axis.push([width / 2, "middle", `${count(hidden.length, "more mark")}: see Generations`]);
  const words = axis.map(([at, anchor, content]) => {
    const text = draw("text", {x: at, y: bottom + 14, class: "scale", "text-anchor": anchor});
    text.append(content);
    return text;
  });
  svg.setAttribute("height", bottom + 18);
  svg.setAttribute("viewBox", `0 0 ${whole} ${bottom + 18}`);
  svg.setAttribute("aria-label", courseLabel(job, marks));
  svg.replaceChildren(...lanes, ...generations, ...flags, ...words);
}
