// Functions that the page's other files share. Texts of jobs are inserted as text only, never as HTML.
"use strict";

function make(name, text, className) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

// Makes an SVG element. `title` is its tooltip.
function draw(name, attributes, title) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (title !== undefined) {
    const text = document.createElementNS("http://www.w3.org/2000/svg", "title");
    text.textContent = title;
    element.append(text);
  }
  return element;
}

// Writes only if the text has changed, so that selections and tooltips stay.
function setText(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

// Elements that keep their place aren't touched, because a removed element loses the focus.
function setChildren(parent, children) {
  const kept = new Set(children);
  for (const child of [...parent.children]) {
    if (!kept.has(child)) child.remove();
  }
  let next = parent.firstElementChild;
  for (const child of children) {
    if (child === next) {
      next = next.nextElementSibling;
    } else {
      parent.insertBefore(child, next);
    }
  }
}

function duration(ms) {
  const s = ms / 1000;
  if (s < 1) return `${Math.round(ms)} ms`;
  if (s < 60) return `${s.toFixed(1)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

// Three significant digits: "0.988", "12.5", "4310".
function digits(value) {
  if (!Number.isFinite(value)) return String(value);
  return Math.abs(value) >= 100 ? String(Math.round(value)) : String(Number(value.toPrecision(3)));
}

// The least or largest of thousands of values, which are more than a call can take as arguments.
function minOf(values) {
  return values.reduce((least, value) => Math.min(least, value), Infinity);
}

function maxOf(values) {
  return values.reduce((most, value) => Math.max(most, value), -Infinity);
}

function rangeText(least, most) {
  return least === most ? String(least) : `${least} to ${most}`;
}

function gib(bytes) {
  return (Number(bytes) / 2 ** 30).toFixed(1);
}

// Older figures come from a driver, or a node, that no longer answers.
const FIGURES_FRESH_MS = 5000;

function gpusOf(node) {
  return Number(node.gpus_age_ms) <= FIGURES_FRESH_MS ? node.gpus : [];
}

function isMarked(worker) {
  return worker.phase !== "unmarked";
}

// Planned ends of a generation: a node joins, is drained or preempted, or the job is done.
const PLANNED = / joined$| is preempted: | is drained| left: (?!its keeper)|succeeded| stopped by | was asked to stop/;

// Short forms of the service's reasons for the end of a generation: [pattern, words from its groups].
const SHORT_NAMES = [
  [/^worker rank (\d+) on (\S+) was killed by (\S+)/, (rank, host, signal) => `rank ${rank} on ${host}: ${signal}`],
  [/^worker rank (\d+) on (\S+) exited with code (\d+)/, (rank, host, code) => `rank ${rank} on ${host}: exit code ${code}`],
  [/^worker rank (\d+) on (\S+) hung/, (rank, host) => `rank ${rank} on ${host} hung`],
  [/^worker rank (\d+) on (\S+) couldn't/, (rank, host) => `rank ${rank} on ${host}: no start`],
  [/^the job hung/, () => "the job hung"],
  [/^node \S+ on (\S+) was lost/, host => `${host} lost`],
  [/^node \S+ on (\S+) left/, host => `${host} left`],
  [/^(\S+) is (preempted|drained)/, (host, how) => `${host} ${how}`],
  [/^(\d+) nodes? joined/, number => `+${count(Number(number), "node")}`],
];

function isPlanned(generation) {
  return PLANNED.test(generation.end_reason);
}

function shortName(reason) {
  for (const [pattern, words] of SHORT_NAMES) {
    const match = pattern.exec(reason);
    if (match) return words(...match.slice(1));
  }
  return reason;
}
