// Shows /api/v1/status, asked for once a second. Texts of jobs go in as text only, never as HTML.
"use strict";

const PAUSE_MS = 1000;
const RANKS_SHOWN = 64;

function make(name, text, className) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

function duration(ms) {
  const s = ms / 1000;
  if (s < 1) return `${Math.round(ms)} ms`;
  if (s < 60) return `${s.toFixed(1)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

function rate(node) {
  return node.step_us > 0 ? (1e6 / node.step_us).toPrecision(3) : "–";
}

function kindOf(state) {
  if (["running", "succeeded"].includes(state)) return "good";
  if (["unreachable", "quarantined", "closing", "stopping", "stopped"].includes(state)) return "bad";
  return "wait";
}

// "closing for" is since its generation ended; "running for" is the job's age.
function phaseAndTime(job) {
  const last = job.history[job.history.length - 1];
  const between = job.phase !== "running" && last && last.ended_ms_ago !== undefined;
  return [`${job.phase} for`, duration(Number(between ? last.ended_ms_ago : job.age_ms))];
}

function figures(job) {
  const steps = job.nodes.flatMap(node => node.workers.filter(w => w.phase !== "unmarked").map(w => Number(w.step)));
  const slowest = Math.max(0, ...job.nodes.map(node => node.step_us));
  const live = job.history[job.history.length - 1];
  return [
    phaseAndTime(job),
    ["generation", job.generation],
    ["ranks", live && job.phase === "running" ? live.world_size : "–"],
    ["step", steps.length ? Math.min(...steps) : "–"],
    ["steps/s", slowest > 0 ? (1e6 / slowest).toPrecision(3) : "–"],
    ["restarts", `${job.restart_count} of ${job.max_restarts}`],
    ["goodput", goodput(job)],
  ];
}

// What the time went into, as docs/GOODPUT.md has it: good, needed, lost.
const CAUSE_KINDS = {
  training: "good", evaluation: "good",
  data_wait: "wait", checkpoint: "wait", start_up: "wait", idle: "wait", ending: "wait", unmarked: "wait",
};

function drawLedger(svg, list, ledger) {
  const total = Math.max(1, ledger.reduce((sum, time) => sum + Number(time.us), 0));
  svg.setAttribute("viewBox", "0 0 1000 14");
  svg.setAttribute("preserveAspectRatio", "none");
  const shares = ledger.map(time => [time.cause.replaceAll("_", " "), Number(time.us), CAUSE_KINDS[time.cause] || "bad"])
    .sort((a, b) => b[1] - a[1]);
  let x = 0;
  svg.replaceChildren(...shares.map(([name, us, kind], i) => {
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    rect.setAttribute("x", x);
    rect.setAttribute("width", 1000 * us / total);
    rect.setAttribute("height", 14);
    rect.setAttribute("class", `${kind} ${i % 2 ? "odd" : ""}`);
    const text = document.createElementNS("http://www.w3.org/2000/svg", "title");
    text.textContent = name;
    rect.append(text);
    x += 1000 * us / total;
    return rect;
  }));
  list.replaceChildren(...shares.map(([name, us, kind]) => {
    const item = make("li");
    item.append(make("span", name, kind), ` ${(100 * us / total).toFixed(1)} % (${duration(us / 1000)})`);
    return item;
  }));
}

function goodput(job) {
  const good = job.ledger.filter(time => ["training", "evaluation"].includes(time.cause));
  if (!good.length) return "–";
  const sum = times => times.reduce((total, time) => total + Number(time.us), 0);
  return `${(100 * sum(good) / Math.max(1, sum(job.ledger))).toFixed(1)} %`;
}

// One bar for each generation, what lies between them is lost time.
function drawTimeline(svg, job) {
  const age = Math.max(1, Number(job.age_ms));
  svg.setAttribute("viewBox", "0 0 1000 34");
  svg.setAttribute("preserveAspectRatio", "none");
  const bar = (from, to, kind, title) => {
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    rect.setAttribute("x", 1000 * (1 - from / age));
    rect.setAttribute("width", Math.max(1, 1000 * (from - to) / age));
    rect.setAttribute("height", 34);
    rect.setAttribute("class", kind);
    const text = document.createElementNS("http://www.w3.org/2000/svg", "title");
    text.textContent = title;
    rect.append(text);
    return rect;
  };
  const bars = [];
  job.history.forEach((generation, i) => {
    const ended = generation.ended_ms_ago === undefined ? 0 : Number(generation.ended_ms_ago);
    bars.push(bar(Number(generation.began_ms_ago), ended, "run", `generation ${generation.generation}: ${generation.reason}`));
    const next = job.history[i + 1];
    if (next) bars.push(bar(ended, Number(next.began_ms_ago), "gap", generation.end_reason));
  });
  svg.replaceChildren(...bars);
}

function describe(generation) {
  const began = Number(generation.began_ms_ago);
  const ended = generation.ended_ms_ago === undefined ? null : Number(generation.ended_ms_ago);
  const steps = generation.last_step === undefined ? "" : `, steps ${generation.first_step} to ${generation.last_step}`;
  const item = make("li");
  item.append(make("strong", `${generation.generation} `),
    `${generation.world_size} ranks on ${generation.group_world_size} nodes, ` +
    `${ended === null ? "runs for" : "lasted"} ${duration(began - (ended || 0))}${steps}. `,
    make("span", `Began: ${generation.reason} (${generation.rule}). `, "faint"));
  if (ended !== null) item.append(make("span", `Ended ${duration(ended)} ago: ${generation.end_reason}`, "bad"));
  return item;
}

function describeRanks(node) {
  const shown = node.workers.slice(0, RANKS_SHOWN).map(w => `${w.rank}: ${w.phase === "unmarked" ? "–" : w.step}` +
    (["train", "unmarked"].includes(w.phase) ? "" : ` (${w.phase})`));
  if (node.workers.length > RANKS_SHOWN) shown.push("…");
  return shown.join("  ");
}

// Figures that are older are those of a driver, or a node, that doesn't answer any more.
const GPUS_FRESH_MS = 5000;

function gpusOf(node) {
  return Number(node.gpus_age_ms) <= GPUS_FRESH_MS ? node.gpus : [];
}

function describeGpus(node) {
  const gib = bytes => (Number(bytes) / 2 ** 30).toFixed(1);
  return gpusOf(node).map(gpu => {
    if (gpu.lost) return `${gpu.index}: lost`;
    const busy = gpu.utilization_percent === undefined ? "–" : `${gpu.utilization_percent} %`;
    return `${gpu.index}: ${busy}, ${gib(gpu.memory_used_bytes)} of ${gib(gpu.memory_total_bytes)} GiB`;
  }).join("; ");
}

function rowOf(node) {
  const row = make("tr");
  // On a narrow screen each cell has its column's name in front (page.css).
  const cell = (label, text, kind) => {
    const made = make("td", text, kind);
    made.dataset.label = label;
    return made;
  };
  const state = cell("state");
  state.append(make("span", node.state, `badge ${kindOf(node.state)}`));
  row.append(cell("rank", node.group_rank === undefined ? "–" : node.group_rank), cell("node", node.node_id), state,
    cell("ranks: step", describeRanks(node)), cell("steps/s", rate(node)), cell("GPUs", describeGpus(node), "gpus"),
    cell("silent", duration(Number(node.silent_ms))), cell("address", node.address));
  return row;
}

function sectionOf(job) {
  const section = document.getElementById("job").content.cloneNode(true).firstElementChild;
  const set = (selector, text) => { section.querySelector(selector).textContent = text; };
  set(".run-id", job.run_id);
  set(".phase", job.phase);
  section.querySelector(".phase").classList.add(kindOf(job.phase));
  set(".description", job.description);
  set(".reason", job.reason);
  section.querySelector(".figures").append(...figures(job).map(([name, value]) => {
    const pair = make("div");
    pair.append(make("dt", name), make("dd", value));
    return pair;
  }));
  drawLedger(section.querySelector(".ledger"), section.querySelector(".causes"), job.ledger);
  drawTimeline(section.querySelector(".timeline"), job);
  section.querySelector(".generations").append(...job.history.slice().reverse().map(describe));
  section.querySelector(".nodes").classList.toggle("no-gpus", !job.nodes.some(node => gpusOf(node).length));
  section.querySelector("tbody").append(...job.nodes.map(rowOf));
  return section;
}

async function look() {
  const service = document.getElementById("service");
  try {
    const response = await fetch("api/v1/status");
    if (!response.ok) throw new Error(await response.text());
    const status = await response.json();
    const count = status.jobs.length;
    service.textContent = `rendezvous service ${status.release}, ${count} ${count === 1 ? "job" : "jobs"}`;
    service.className = "";
    document.title = count === 1 ? `${status.jobs[0].run_id}: ${status.jobs[0].phase} – ddprun` : "ddprun";
    document.getElementById("jobs").replaceChildren(...status.jobs.map(sectionOf));
  } catch (error) {
    service.textContent = `the service is gone, or can't be reached: ${error.message}; what is below is old`;
    service.className = "gone";
  }
  setTimeout(look, PAUSE_MS);
}

look();
