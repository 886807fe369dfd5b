// The picture of a formation: which node holds which part of the model, and what it does with its time.

import { h, s, table } from "./dom.js";
import { bytes, counted, number, whyLost } from "./format.js";

/**
 * @typedef {{node: string, stage: number, first: string, last: string, operators: number, parameters: number, measured_memory_bytes: number | null, predicted_memory_bytes: number | null}} Stage
 * @typedef {{epoch: number, from_step: number, ended: string | null, replicas: {replica: number, stages: Stage[]}[], measured_step_ms: number | null, predicted_step_ms: number | null}} Epoch
 * @typedef {{busy: number | null, exchange: number | null, wait: number | null}} Times
 */

const WIDTH = 210, HEIGHT = 92, GAP = 34, ROW = 14;

/** The nodes of an epoch. @param {Epoch | undefined} epoch */
export function nodesOf(epoch) {
  return [...new Set((epoch?.replicas ?? []).flatMap((replica) => replica.stages.map((stage) => stage.node)))];
}

/** The epoch that a step belongs to. @param {Epoch[]} epochs @param {number | null} step */
export function epochAt(epochs, step) {
  if (step === null) return epochs.length - 1;
  return epochs.findLastIndex((epoch) => epoch.from_step <= step);
}

/** @param {string} text @param {number} length */
const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

/**
 * @param {Epoch[]} epochs
 * @param {number} index the epoch that is shown
 * @param {(node: string) => Times} times
 * @param {(node: string) => string | null} lostWhy why a node is gone, if it is
 */
export function drawFormation(epochs, index, times, lostWhy) {
  const epoch = epochs[index];
  if (!epoch) return h("p", { class: "muted pad" }, "No group of nodes was recorded yet.");
  const before = epochs[index - 1];
  const here = nodesOf(epoch);
  const gone = nodesOf(before).filter((node) => !here.includes(node));
  const columns = Math.max(1, ...epoch.replicas.map((replica) => replica.stages.length));
  // Replicas of one stage fill rows; pipelines have a row each.
  const room = window.innerWidth < 640 ? 1 : 5;
  const wide = columns === 1 ? Math.min(room, epoch.replicas.length + gone.length) : Math.max(columns, Math.min(gone.length, 4));
  /** @type {SVGElement[]} */
  const boxes = [];
  let cell = 0;
  let rows = 0;
  epoch.replicas.forEach((replica, i) => replica.stages.forEach((stage, j) => {
    const [column, row] = columns === 1 ? [cell % wide, Math.floor(cell / wide)] : [j, i];
    cell += 1;
    rows = Math.max(rows, row + 1);
    const [x, y] = [column * (WIDTH + GAP), row * (HEIGHT + ROW)];
    if (columns > 1 && j > 0) boxes.push(s("path", { class: "arrow", d: `M${x - GAP + 3} ${y + 40} H${x - 5} m-6 -4 l6 4 l-6 4` }));
    boxes.push(stageBox(x, y, stage, epoch, times(stage.node), lostWhy(stage.node)));
  }));
  gone.forEach((node, i) => {
    const at = columns === 1 ? cell + i : i;
    const [column, row] = columns === 1 ? [at % wide, Math.floor(at / wide)] : [i % wide, rows + Math.floor(i / wide)];
    boxes.push(goneBox(column * (WIDTH + GAP), row * (HEIGHT + ROW), node, lostWhy(node) ?? whyLost(node, before.ended ?? "left the group")));
  });
  const goneRows = columns === 1 ? Math.ceil((cell + gone.length) / wide) : rows + Math.ceil(gone.length / wide);
  const [width, height] = [wide * (WIDTH + GAP) - GAP + 2, goneRows * (HEIGHT + ROW) - ROW + 2];
  const label = `Formation ${epoch.epoch}: ${counted(here.length, "node")}, ${counted(epoch.replicas.length, "replica")} of ${counted(columns, "stage")}.${gone.length ? ` Gone: ${gone.join(", ")}.` : ""}`;
  const picture = s("svg", { class: "picture", viewBox: `-1 -1 ${width} ${height}`, role: "img", "aria-label": label }, boxes);
  picture.style.maxWidth = `${width}px`;
  return h("div", {}, h("div", { class: "pad" }, picture), h("p", { class: "keys pad" },
    h("span", {}, h("i", { class: "k-busy" }), "computing"), h("span", {}, h("i", { class: "k-exchange" }), "exchange"),
    h("span", {}, h("i", { class: "k-wait" }), "waiting")), h("details", {}, h("summary", {}, "Table"), formationTable(epoch, times)));
}

/** @param {number} x @param {number} y @param {Stage} stage @param {Epoch} epoch @param {Times} times @param {string | null} lost */
function stageBox(x, y, stage, epoch, times, lost) {
  const whole = (times.busy ?? 0) + (times.exchange ?? 0) + (times.wait ?? 0);
  const part = (/** @type {number | null} */ ms) => (whole > 0 ? ((ms ?? 0) / whole) * (WIDTH - 20) : 0);
  let at = x + 10;
  const bar = /** @type {[string, number | null][]} */ ([["busy", times.busy], ["exchange", times.exchange], ["wait", times.wait]]).map(([name, ms]) => {
    const rect = s("rect", { class: name, x: at, y: y + HEIGHT - 32, width: part(ms), height: 9 });
    at += part(ms);
    return rect;
  });
  const memory = stage.measured_memory_bytes ?? stage.predicted_memory_bytes;
  const range = stage.first === stage.last ? stage.first : `${stage.first} … ${stage.last}`;
  const times_text = whole > 0 ? `${number(times.busy)} · ${number(times.exchange)} · ${number(times.wait)} ms` : "no times recorded";
  return s("g", {}, s("title", {}, `${stage.node}: ${range}, ${stage.operators} operators, ${number(stage.parameters)} parameters`),
    s("rect", { class: lost ? "box gone" : "box", x, y, width: WIDTH, height: HEIGHT, rx: 6 }),
    s("text", { x: x + 10, y: y + 19, class: "name" }, cut(stage.node, 27)),
    s("text", { x: x + 10, y: y + 35, class: lost ? "small bad" : "small" }, cut(lost ? `lost: ${lost}` : `${range}`, 34)),
    s("text", { x: x + 10, y: y + 50, class: "small" }, cut(`${number(stage.parameters)} parameters${memory ? `, ${bytes(memory)}` : ""}`, 34)),
    s("rect", { class: "track", x: x + 10, y: y + HEIGHT - 32, width: WIDTH - 20, height: 9 }), bar,
    s("text", { x: x + 10, y: y + HEIGHT - 9, class: "small" }, times_text));
}

/** @param {number} x @param {number} y @param {string} node @param {string} why */
function goneBox(x, y, node, why) {
  /** @type {string[]} */
  const lines = [];
  for (const word of `lost: ${why}`.split(" ")) {
    const last = lines[lines.length - 1];
    if (last !== undefined && last.length + word.length < 32) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(cut(word, 34));
  }
  return s("g", {}, s("title", {}, `${node}: ${why}`), s("rect", { class: "box gone", x, y, width: WIDTH, height: HEIGHT, rx: 6 }),
    s("text", { x: x + 10, y: y + 19, class: "name" }, cut(node, 27)),
    lines.slice(0, 4).map((line, i) => s("text", { x: x + 10, y: y + 36 + i * 14, class: "small bad" }, line)));
}

/** @param {Epoch} epoch @param {(node: string) => Times} times */
function formationTable(epoch, times) {
  const rows = epoch.replicas.flatMap((replica) => replica.stages.map((stage) => {
    const of = times(stage.node);
    return [stage.node, replica.replica, stage.stage, `${stage.first} … ${stage.last}`, number(stage.parameters), number(of.busy), number(of.exchange), number(of.wait)];
  }));
  return table("Who holds which part", ["node", "#replica", "#stage", "operators", "#parameters", "#computing ms", "#exchange ms", "#waiting ms"], rows);
}
