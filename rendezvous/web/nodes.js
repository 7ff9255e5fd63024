// The table of a job's nodes: nodes that need attention come first, with their ranks; large jobs fold the others into one line.
"use strict";

const NODES_SHOWN = 16;     // up to this number all nodes are shown
const LOOKS_SHOWN = 64;     // at most this many nodes that need attention, while the others are folded
const LOOKS_UNFOLDED = 8;   // how many of them show their ranks unasked, if the ranks differ
const RANKS_UNFOLDED = 16;  // up to this number all ranks of a node are shown; beyond, only those that lag, unless asked for

// How much a node needs attention, and why: larger is worse.
function troubleOf(node) {
  if (["unreachable", "quarantined"].includes(node.state)) return [5, node.state];
  if (gpusOf(node).some(gpu => gpu.lost)) return [4, "GPU lost"];
  if (node.lag === "silent") return [3, "silent"];
  if (node.lag === "holds up") return [3, "holds up"];
  if (node.workers.some(worker => worker.lag === "behind")) return [2, "behind"];
  if (node.lag === "slow") return [1, "slow"];
  return [0, ""];
}

function behindOf(node) {
  return maxOf([0, ...node.workers.map(worker => Number(worker.behind))]);
}

// [nodes that need attention, the worst first; the others, by rank].
function sortNodes(nodes) {
  const rank = node => node.group_rank === undefined ? Infinity : Number(node.group_rank);
  const looks = nodes.map(node => ({node, trouble: troubleOf(node)[0], behind: behindOf(node)})).filter(each => each.trouble > 0);
  looks.sort((a, b) => b.trouble - a.trouble || b.behind - a.behind || rank(a.node) - rank(b.node));
  const rest = nodes.filter(node => troubleOf(node)[0] === 0);
  rest.sort((a, b) => rank(a) - rank(b) || 0);
  return [looks.map(each => each.node), rest];
}

// The same columns as in `ddprun top`. Params: gpu: the rank's own, or undefined.
function rankState(node, worker, gpu) {
  if (gpu && gpu.lost) return "GPU lost";
  if (node.lag === "silent") return "silent";
  return worker.lag || (node.lag === "slow" ? node.lag : worker.phase);
}

function kindOfState(state) {
  if (["running", "succeeded", "train", "evaluation", "checkpoint", "done"].includes(state)) return "good";
  if (["unreachable", "quarantined", "silent", "GPU lost", "holds up"].includes(state)) return "bad";
  return "wait";
}

function ranksText(node) {
  const ranks = node.workers.map(worker => Number(worker.rank));
  if (!ranks.length) return "–";
  const least = Math.min(...ranks);
  const most = Math.max(...ranks);
  return least === most ? String(least) : `${least}–${most}`;
}

function stepText(workers) {
  const steps = workers.filter(isMarked).map(worker => Number(worker.step));
  if (!steps.length) return "–";
  const phases = [...new Set(workers.map(worker => worker.phase))].filter(phase => !["train", "unmarked"].includes(phase));
  return rangeText(Math.min(...steps), Math.max(...steps)) + (phases.length ? ` (${phases.join(", ")})` : "");
}

function rateText(node) {
  return node.step_us > 0 ? digits(1e6 / node.step_us) : "–";
}

function gpuText(gpu) {
  if (gpu.lost) return "lost";
  const busy = gpu.utilization_percent === undefined ? "–" : `${gpu.utilization_percent} %`;
  return `${busy}, ${gib(gpu.memory_used_bytes)} of ${gib(gpu.memory_total_bytes)} GiB`;
}

// "8: 97 %, 488.1 of 640.0 GiB", "1 lost".
function gpusText(gpus) {
  if (!gpus.length) return "";
  const live = gpus.filter(gpu => !gpu.lost);
  const told = live.filter(gpu => gpu.utilization_percent !== undefined);
  const mean = told.length ? `${Math.round(told.reduce((sum, gpu) => sum + gpu.utilization_percent, 0) / told.length)} %` : "–";
  const sum = name => live.reduce((total, gpu) => total + Number(gpu[name]), 0);
  const lost = gpus.length - live.length;
  const texts = live.length ? [`${mean}, ${gib(sum("memory_used_bytes"))} of ${gib(sum("memory_total_bytes"))} GiB`] : [];
  return [...texts, ...(lost ? [gpus.length === 1 ? "lost" : `${lost} of ${gpus.length} lost`] : [])].join("; ");
}

function warmText(warm) {
  const all = warm.warm_workers + warm.cold_workers;
  const parts = all ? [`${warm.warm_workers} of ${count(all, "worker")}`] : [];
  if (all && warm.saved_ms > 0) parts.push(`${duration(warm.saved_ms)} saved`);
  const parked = warm.parked_bytes > 0 ? `${gib(warm.parked_bytes)} GiB parked` : "none parked";
  return `warm start: ${[...parts, parked].join(", ")}${warm.why_cold ? ` (${warm.why_cold})` : ""}`;
}

const COLUMNS = ["ranks", "node", "state", "step", "steps/s", "GPUs", "silent", "address"];

function makeRow(className) {
  const row = make("tr", undefined, className);
  // On a narrow screen each cell has its column's name in front (page.css).
  for (const column of COLUMNS) {
    const cell = make("td", undefined, column === "GPUs" ? "gpus" : "");
    cell.dataset.label = column;
    row.append(cell);
  }
  return row;
}

function badgeIn(cell, text) {
  if (!cell.firstChild) cell.append(make("span"));
  setText(cell.firstChild, text);
  cell.firstChild.className = `badge ${kindOfState(text)}`;
}

// The rows of one job's table. Rows stay the same elements from one status to the next.
class NodeTable {
  constructor(section) {
    this._table = section.querySelector(".nodes");
    this._body = this._table.querySelector("tbody");
    this._others = section.querySelector(".others");
    this._rows = new Map();
    this._chosen = new Map();  // node id: whether the reader wants its ranks
    this._all = false;         // whether the reader wants all nodes
    this._others.querySelector("button").addEventListener("click", () => {
      this._all = !this._all;
      this.show(this._job);
    });
  }

  show(job) {
    this._job = job;
    const [looks, rest] = sortNodes(job.nodes);
    const folds = job.nodes.length > NODES_SHOWN;
    const first = folds && !this._all ? looks.slice(0, LOOKS_SHOWN) : looks;
    const shown = folds && !this._all ? first : [...looks, ...rest];
    const fastest = maxOf(job.nodes.map(node => node.step_us > 0 ? 1e6 / node.step_us : 0));
    this._table.classList.toggle("no-gpus", !job.nodes.some(node => gpusOf(node).length));
    const used = new Map();
    const rows = shown.flatMap((node, i) => this._rowsOf(node, i < Math.min(first.length, LOOKS_UNFOLDED), fastest, used));
    this._rows = used;
    setChildren(this._body, rows);
    this._table.hidden = !rows.length;
    this._showOthers(folds, job.nodes.filter(node => !shown.includes(node)), looks.length);
  }

  _row(key, used, className) {
    const row = this._rows.get(key) || makeRow(className);
    used.set(key, row);
    return row;
  }

  _rowsOf(node, unfolds, fastest, used) {
    const row = this._row(node.node_id, used, "node");
    const many = node.workers.length > 1;
    const [trouble, why] = troubleOf(node);
    const open = many && (this._chosen.get(node.node_id) ?? (unfolds && ["behind", "holds up", "GPU lost"].includes(why)));
    const [ranks, name, state, step, rate, gpus, silent, address] = row.children;
    row.classList.toggle("look", trouble > 0);
    this._showRanks(ranks, node, many, open);
    setText(name, node.node_id);
    name.title = node.warm ? warmText(node.warm) : "";
    const lone = node.workers.length === 1 && node.state === "running" && isMarked(node.workers[0]);
    badgeIn(state, why || (lone && node.workers[0].phase !== "train" ? node.workers[0].phase : node.state));
    const behind = behindOf(node);
    const lags = node.workers.some(worker => worker.lag === "behind");
    setText(step, stepText(node.workers) + (lags ? `, ${behind} behind` : ""));
    step.classList.toggle("lags", lags);
    this._showRate(rate, node, fastest);
    setText(gpus, gpusText(gpusOf(node)));
    setText(silent, duration(Number(node.silent_ms)));
    setText(address, node.address);
    if (!open) return [row];
    const chosen = this._chosen.has(node.node_id);
    const listed = node.workers.length <= RANKS_UNFOLDED || chosen ? node.workers : node.workers.filter(worker => worker.lag);
    return [row, ...listed.map(worker => this._rankRow(node, worker, used))];
  }

  _showRanks(cell, node, many, open) {
    if (!many) return setText(cell, ranksText(node));
    let button = cell.querySelector("button");
    if (!button) {
      button = make("button", undefined, "fold");
      button.type = "button";
      button.addEventListener("click", () => {
        this._chosen.set(node.node_id, button.getAttribute("aria-expanded") !== "true");
        this.show(this._job);
      });
      cell.replaceChildren(button);
    }
    button.setAttribute("aria-expanded", open);
    return setText(button, ranksText(node));
  }

  // The bar shows the node's speed relative to the fastest node.
  _showRate(cell, node, fastest) {
    if (!cell.firstChild) cell.append(make("span"), make("meter"));
    const [text, meter] = cell.children;
    setText(text, rateText(node));
    meter.hidden = !(node.step_us > 0 && fastest > 0);
    if (!meter.hidden) meter.value = 1e6 / node.step_us / fastest;
    cell.classList.toggle("lags", node.lag === "slow");
  }

  _rankRow(node, worker, used) {
    const row = this._row(`${node.node_id} ${worker.rank}`, used, "rank");
    const [rank, , state, step, , gpus] = row.children;
    setText(rank, worker.rank);
    setText(step, isMarked(worker) ? worker.step + (worker.lag === "behind" ? `, ${worker.behind} behind` : "") : "–");
    step.classList.toggle("lags", worker.lag === "behind");
    // GPUs are shown with ranks if there are equally many of both.
    const own = gpusOf(node).length === node.worker_count ? gpusOf(node)[node.workers.indexOf(worker)] : undefined;
    setText(gpus, own ? gpuText(own) : "");
    badgeIn(state, rankState(node, worker, own));
    return row;
  }

  _showOthers(folds, hidden, looks) {
    this._others.hidden = !folds;
    if (!folds) return;
    const workers = hidden.flatMap(node => node.workers);
    const steps = workers.filter(isMarked).map(worker => Number(worker.step));
    const rates = hidden.filter(node => node.step_us > 0).map(node => 1e6 / node.step_us).sort((a, b) => a - b);
    const parts = [`${count(hidden.length, looks ? "more node" : "node")}, ${count(workers.length, "rank")}`];
    if (steps.length) parts.push(`step ${rangeText(minOf(steps), maxOf(steps))}`);
    if (rates.length) parts.push(`${digits(rates[Math.floor(rates.length / 2)])} steps/s`);
    const gpus = gpusText(hidden.flatMap(gpusOf));
    if (gpus) parts.push(`GPUs ${gpus}`);
    const [text, button] = this._others.children;
    setText(text, hidden.length ? `${parts.join("; ")}.` : "");
    setText(button, this._all ? "fold those that need no look" : looks ? "show them" : "show all");
  }
}
