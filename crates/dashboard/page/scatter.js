// Trials of a search as dots over two objectives, with the front as a step line; and a curve that only rises.

import { h, put, s } from "./dom.js";
import { number } from "./format.js";

/**
 * @typedef {{trial: number, archid: string, state: string, budget: number, full: boolean, objectives: (number | null)[], values: Record<string, number | null>, run: string | null}} Trial
 * @typedef {{name: string, goal: "min" | "max"}} Objective
 */

const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT] = [860, 420, 70, 44, 12, 16];

/**
 * Ticks at round numbers.
 * @param {number} low
 * @param {number} high
 * @param {number} most
 */
export function ticks(low, high, most) {
  const raw = (high - low) / most;
  if (!(raw > 0) || !Number.isFinite(raw)) return [low];
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * size).find((step) => step >= raw) ?? raw;
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high + step * 1e-9 && found.length < 50; at += 1) found.push(at * step);
  return found;
}

/** A number at an axis, without digits that say nothing. @param {number} value */
const tick = (value) => (Math.abs(value) >= 1e6 ? number(value) : String(Number(value.toPrecision(4))));

/** The range of values, with some room. @param {number[]} values @returns {[number, number]} */
function range(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  if (!(high > low)) return [low - (Math.abs(low) || 1) * 0.05, low + (Math.abs(low) || 1) * 0.05];
  const room = (high - low) * 0.04;
  return [low - room, high + room];
}

/**
 * Axes with names and ticks.
 * @param {[number, number]} x
 * @param {[number, number]} y
 * @param {string} xName
 * @param {string} yName
 */
function frame(x, y, xName, yName) {
  const [right, bottom] = [WIDTH - RIGHT, HEIGHT - BOTTOM];
  const atX = (/** @type {number} */ value) => LEFT + ((value - x[0]) / (x[1] - x[0])) * (right - LEFT);
  const atY = (/** @type {number} */ value) => bottom - ((value - y[0]) / (y[1] - y[0])) * (bottom - TOP);
  const across = ticks(x[0], x[1], 8).map((value) => [
    s("line", { class: "grid", x1: atX(value), x2: atX(value), y1: TOP, y2: bottom }),
    s("text", { class: "small", x: atX(value), y: bottom + 16, "text-anchor": "middle" }, tick(value))]);
  const up = ticks(y[0], y[1], 6).map((value) => [
    s("line", { class: "grid", x1: LEFT, x2: right, y1: atY(value), y2: atY(value) }),
    s("text", { class: "small", x: LEFT - 6, y: atY(value) + 4, "text-anchor": "end" }, tick(value))]);
  const names = [
    s("text", { x: (LEFT + right) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, xName),
    s("text", { x: 14, y: (TOP + bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${(TOP + bottom) / 2})` }, yName)];
  return { atX, atY, marks: [...across.flat(), ...up.flat(), ...names] };
}

/**
 * Corners of the front: level to the next worse point in x, then up or down.
 * @param {[number, number][]} points
 * @param {Objective} x
 */
export function stairs(points, x) {
  const worse = x.goal === "max" ? -1 : 1;
  const sorted = [...points].sort((a, b) => worse * (a[0] - b[0]));
  return sorted.flatMap((point, i) => (i + 1 < sorted.length ? [point, /** @type {[number, number]} */ ([sorted[i + 1][0], point[1]])] : [point]));
}

/** Which of these no other is better than. @param {[number, number][]} points @param {Objective[]} objectives */
export function best(points, objectives) {
  const signs = objectives.map((objective) => (objective.goal === "max" ? -1 : 1));
  const order = points.map((point, i) => ({ i, a: signs[0] * point[0], b: signs[1] * point[1] })).sort((p, q) => p.a - q.a || p.b - q.b);
  let least = Infinity;
  return order.filter(({ b }) => b < least && ((least = b), true)).map(({ i }) => i);
}

/**
 * The dots. One that is pointed at or focused shows its values; one with a run leads to it.
 * @param {Trial[]} trials
 * @param {Set<number>} front
 * @param {Objective[]} objectives
 * @param {[number, number]} axes which objectives are shown
 */
export function drawScatter(trials, front, objectives, axes) {
  const value = (/** @type {Trial} */ trial, /** @type {number} */ axis) => trial.objectives[axes[axis]];
  const shown = trials.filter((trial) => !["failed", "infeasible"].includes(trial.state) && Number.isFinite(value(trial, 0)) && Number.isFinite(value(trial, 1)));
  if (shown.length === 0) return h("p", { class: "muted pad" }, "No trial has results yet.");
  const point = (/** @type {Trial} */ trial) => /** @type {[number, number]} */ ([value(trial, 0), value(trial, 1)]);
  const pair = axes.map((axis) => objectives[axis]);
  const { atX, atY, marks } = frame(range(shown.map((trial) => point(trial)[0])), range(shown.map((trial) => point(trial)[1])), pair[0].name, pair[1].name);
  const members = shown.filter((trial) => front.has(trial.trial));
  const edge = best(members.map(point), pair).map((i) => point(members[i]));
  const line = stairs(edge, pair[0]).map(([x, y]) => `${atX(x).toFixed(1)},${atY(y).toFixed(1)}`).join(" ");

  const tip = h("div", { class: "tip", hidden: true });
  const show = (/** @type {Trial} */ trial) => {
    const rows = Object.entries(trial.values).map(([name, value]) => h("div", {}, h("span", {}, name), h("span", {}, number(value))));
    put(tip, h("div", {}, h("b", {}, trial.archid), h("span", {}, `t${trial.trial}`)), h("div", {}, h("span", {}, trial.state), h("span", {}, `budget ${number(trial.budget)}`)), rows);
    tip.hidden = false;
    const [x, y] = [(atX(point(trial)[0]) / WIDTH) * 100, (atY(point(trial)[1]) / HEIGHT) * 100];
    // The policy allows styles that scripts set.
    tip.style.left = x > 60 ? "" : `calc(${x}% + 12px)`;
    tip.style.right = x > 60 ? `calc(${100 - x}% + 12px)` : "";
    tip.style.top = y > 60 ? "" : `${y}%`;
    tip.style.bottom = y > 60 ? `${100 - y}%` : "";
  };
  const hide = () => {
    tip.hidden = true;
  };
  const dot = (/** @type {Trial} */ trial) => {
    const [x, y] = point(trial);
    const kind = front.has(trial.trial) ? "dot front" : trial.full ? "dot" : "dot partial";
    const circle = s("circle", { class: kind, cx: atX(x).toFixed(1), cy: atY(y).toFixed(1), r: front.has(trial.trial) ? 5.5 : 4, onmouseenter: () => show(trial), onmouseleave: hide });
    if (!trial.run) return circle;
    // The front is reached with the keyboard; all others are in the table.
    const name = `${trial.archid}: ${pair[0].name} ${number(x)}, ${pair[1].name} ${number(y)}`;
    const tabindex = front.has(trial.trial) ? undefined : -1;
    return s("a", { href: `#/run/${encodeURIComponent(trial.run)}`, "aria-label": name, tabindex, onfocus: () => show(trial), onblur: hide }, circle);
  };
  const order = [...shown].sort((a, b) => Number(front.has(a.trial)) - Number(front.has(b.trial)) || a.trial - b.trial);
  const label = `${pair[1].name} over ${pair[0].name} of ${shown.length} trials`;
  const picture = s("svg", { class: "picture", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": label }, marks, s("polyline", { class: "edge", points: line }), order.map(dot));
  return h("div", { class: "chart" }, picture, tip);
}

/**
 * How much of the space of objectives is covered.
 * @param {{results: number, share: number, full: number}[]} curve
 * @param {boolean} partial whether trials are trained partially, too
 */
export function drawCovered(curve, partial) {
  if (curve.length === 0) return h("p", { class: "muted pad" }, "No trial has results yet.");
  const last = curve[curve.length - 1];
  const { atX, atY, marks } = frame(range([1, last.results]), range([0, Math.max(...curve.map((point) => point.share))]), "results", "hypervolume");
  const line = (/** @type {"share" | "full"} */ what, /** @type {string} */ kind) =>
    s("polyline", { class: kind, points: curve.map((point) => `${atX(point.results).toFixed(1)},${atY(point[what]).toFixed(1)}`).join(" ") });
  const label = `The hypervolume after ${last.results} results is ${number(last.share)}`;
  const keys = partial && h("p", { class: "keys pad" }, h("span", {}, h("i", { class: "k-busy" }), "all results"), h("span", {}, h("i", { class: "k-exchange" }), "trained in full"));
  return h("div", { class: "chart" }, s("svg", { class: "picture", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label }, marks, partial && line("full", "covered full"), line("share", "covered")), keys);
}
