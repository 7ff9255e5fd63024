// Shows /api/v1/status, asked for once a second, and /api/v1/curves.
"use strict";

const PAUSE_MS = 1000;
const CURVES_PAUSE_MS = 2000;  // for each job

function kindOfPhase(job) {
  const last = job.history[job.history.length - 1];
  if (job.phase === "running") return "good";
  const ended = last && last.ended_ms_ago !== undefined && last.end_reason;
  return ended && !isPlanned(last) ? "bad" : "wait";
}

// "closing for" is since its generation ended; "running for" is the job's age.
function phaseAndTime(job) {
  const last = job.history[job.history.length - 1];
  const between = job.phase !== "running" && last && last.ended_ms_ago !== undefined;
  return [`${job.phase} for`, duration(Number(between ? last.ended_ms_ago : job.age_ms))];
}

// "7 of 8 warm, 1.8 s saved", over all nodes of the running generation; null if none can start warm.
function warmFigure(job) {
  const told = job.nodes.filter(node => node.warm && node.warm.warm_workers + node.warm.cold_workers > 0).map(node => node.warm);
  if (!told.length) return null;
  const warm = told.reduce((sum, each) => sum + each.warm_workers, 0);
  const all = told.reduce((sum, each) => sum + each.warm_workers + each.cold_workers, 0);
  const saved = maxOf(told.map(each => each.saved_ms));
  return `${warm} of ${all}${saved > 0 ? `, ${duration(saved)} saved` : ""}`;
}

// The latest value of a curve, or null.
function latestOf(curves, name) {
  const values = curves ? curves.latest[name] : [];
  const last = values.length ? values[values.length - 1] : null;
  return typeof last === "number" ? digits(last) : last;
}

function figures(job, curves) {
  const steps = job.nodes.flatMap(node => node.workers.filter(isMarked).map(worker => Number(worker.step)));
  const slowest = maxOf(job.nodes.map(node => node.step_us));
  const live = job.history[job.history.length - 1];
  const shown = [
    phaseAndTime(job),
    ["generation", job.generation],
    ["ranks", live && job.phase === "running" ? live.world_size : "–"],
    ["step", steps.length ? minOf(steps) : "–"],
    ["steps/s", slowest > 0 ? digits(1e6 / slowest) : "–"],
    ["restarts", restarts(job)],
    ["goodput", goodput(job)],
  ];
  const more = [["loss", latestOf(curves, "loss")], ["samples/s", latestOf(curves, "samples_per_second")],
    ["warm starts", warmFigure(job)]];
  return [...shown, ...more.filter(([, value]) => value !== null)];
}

// Changes of membership restart workers, too, and no limit applies to them.
function restarts(job) {
  const charged = `${job.restarts_charged} of ${job.max_restarts}`;
  if (job.restart_count <= job.restarts_charged) return charged;
  return job.max_restarts === 0 ? job.restart_count : `${job.restart_count}, ${charged} charged`;
}

// How the time was spent, as in docs/GOODPUT.md: good, needed, lost. A planned change costs a rendezvous and a restart, too.
const CAUSE_KINDS = {
  training: "good", evaluation: "good",
  data_wait: "wait", checkpoint: "wait", start_up: "wait", idle: "wait", ending: "wait", unmarked: "wait",
  rendezvous: "wait", restart: "wait",
};

function drawLedger(svg, list, ledger) {
  const total = Math.max(1, ledger.reduce((sum, time) => sum + Number(time.us), 0));
  svg.setAttribute("viewBox", "0 0 1000 14");
  svg.setAttribute("preserveAspectRatio", "none");
  const shares = ledger.map(time => [time.cause.replaceAll("_", " "), Number(time.us), CAUSE_KINDS[time.cause] || "bad"])
    .sort((a, b) => b[1] - a[1]);
  let x = 0;
  svg.replaceChildren(...shares.map(([name, us, kind], i) => {
    const width = 1000 * us / total;
    x += width;
    return draw("rect", {x: x - width, width, height: 14, class: `${kind} ${i % 2 ? "odd" : ""}`}, name);
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

function describe(generation) {
  const began = Number(generation.began_ms_ago);
  const ended = generation.ended_ms_ago === undefined ? null : Number(generation.ended_ms_ago);
  const steps = generation.last_step === undefined ? "" : `, steps ${rangeText(generation.first_step, generation.last_step)}`;
  const warm = generation.warm;
  const began_warm = !warm ? "" : `, ${warm.warm_workers} of ${warm.warm_workers + warm.cold_workers} warm` +
    (warm.saved_ms > 0 ? ` (${duration(warm.saved_ms)} saved)` : "");
  const item = make("li");
  item.append(make("strong", `${generation.generation} `),
    `${count(generation.world_size, "rank")} on ${count(generation.group_world_size, "node")}, ` +
    `${ended === null ? "runs for" : "lasted"} ${duration(began - (ended || 0))}${steps}${began_warm}. `,
    make("span", `Began: ${generation.reason} (${generation.rule}). `, "faint"));
  if (ended !== null) {
    const kind = isPlanned(generation) ? "plan" : "bad";
    item.append(make("span", `Ended ${duration(ended)} ago: ${generation.end_reason}`, kind));
  }
  return item;
}

// A job's part of the page, which exists as long as the job.
class JobSection {
  constructor() {
    this.element = document.getElementById("job").content.cloneNode(true).firstElementChild;
    this._nodes = new NodeTable(this.element);
    this._range = "whole";
    this._buttons = [...this.element.querySelectorAll(".ranges button")];
    for (const button of this._buttons) {
      button.addEventListener("click", () => {
        this._range = button.dataset.range;
        this._drawCourse();
      });
    }
  }

  // Requires: the element is in the document, because its width is measured.
  show(job, curves, shift) {
    this._told = [job, curves, shift];
    const find = selector => this.element.querySelector(selector);
    setText(find(".run-id"), job.run_id);
    setText(find(".phase"), job.phase);
    find(".phase").className = `badge phase ${kindOfPhase(job)}`;
    setText(find(".description"), job.description);
    setText(find(".reason"), job.reason);
    find(".figures").replaceChildren(...figures(job, curves).map(([name, value]) => {
      const pair = make("div");
      pair.append(make("dt", name), make("dd", value));
      return pair;
    }));
    this._drawCourse();
    drawLedger(find(".ledger"), find(".causes"), job.ledger);
    this._nodes.show(job);
    const generations = find(".generations");
    const scrolled = generations.scrollTop;
    generations.replaceChildren(...job.history.slice().reverse().map(describe));
    generations.scrollTop = scrolled;
  }

  _drawCourse() {
    const [job, curves, shift] = this._told;
    const young = Number(job.age_ms) <= LATEST_MS;
    this.element.querySelector(".ranges").hidden = young;
    const range = young ? "latest" : this._range;
    for (const button of this._buttons) button.setAttribute("aria-pressed", button.dataset.range === range);
    drawCourse(this.element.querySelector(".course"), job, curves, shift, range);
  }
}

const sections = new Map();    // by run id
let curvesOfJobs = new Map();  // by run id
let curvesAt = -Infinity;      // when they were asked for
let last = null;               // the status that is shown

// fetch() refuses an address with a user and a password, as in a page opened as
// http://user:password@host. The browser keeps both, and sends them on its own.
function ask(path) {
  const page = new URL(location.href);
  page.username = page.password = "";
  return fetch(new URL(path, page));
}

async function askForCurves(jobs) {
  if (performance.now() - curvesAt < CURVES_PAUSE_MS * Math.max(1, jobs)) return;
  const at = performance.now();
  const response = await ask("api/v1/curves");
  if (!response.ok) return;  // the service has no curves
  curvesOfJobs = new Map((await response.json()).jobs.map(job => [job.run_id, job]));
  curvesAt = at;
}

function showJobs(jobs) {
  last = jobs;
  for (const id of sections.keys()) {
    if (!jobs.some(job => job.run_id === id)) sections.delete(id);
  }
  for (const job of jobs) {
    if (!sections.has(job.run_id)) sections.set(job.run_id, new JobSection());
  }
  setChildren(document.getElementById("jobs"), jobs.map(job => sections.get(job.run_id).element));
  for (const job of jobs) sections.get(job.run_id).show(job, curvesOfJobs.get(job.run_id), performance.now() - curvesAt);
}

async function look() {
  const service = document.getElementById("service");
  try {
    const [response] = await Promise.all([ask("api/v1/status"), askForCurves(sections.size)]);
    if (!response.ok) throw new Error(await response.text());
    const status = await response.json();
    setText(service, `rendezvous service ${status.release}, ${count(status.jobs.length, "job")}`);
    service.className = "";
    document.title = status.jobs.length === 1 ? `${status.jobs[0].run_id}: ${status.jobs[0].phase} – ddprun` : "ddprun";
    showJobs(status.jobs);
  } catch (error) {
    setText(service, `the service is gone, or can't be reached: ${error.message}; what is below is old`);
    service.className = "gone";
  }
  setTimeout(look, PAUSE_MS);
}

window.addEventListener("resize", () => last && showJobs(last));
look();
