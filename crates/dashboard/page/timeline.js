// The life of a run on one line: groups of nodes as bars, losses, joins and checkpoints as marks.

import { h, s } from "./dom.js";
import { counted, eventText, time } from "./format.js";
import { nodesOf } from "./formation.js";

/** @typedef {import("./formation.js").Epoch} Epoch */

const BAR = 24, TOP = 22;
/** Marks differ by shape, too. @type {Record<string, string>} */
const SHAPES = {
  lost: "M-6 -5 L6 -5 L0 6 Z",
  formed: "M-6 5 L6 5 L0 -6 Z",
  saved: "M-4 -4 H4 V4 H-4 Z",
  waiting: "M-5 -5 H-1.5 V5 H-5 Z M1.5 -5 H5 V5 H1.5 Z",
  warning: "M0 -6 L6 0 L0 6 L-6 0 Z",
  other: "M0 -4 L4 0 L0 4 L-4 0 Z",
};

/**
 * @param {Epoch[]} epochs
 * @param {{unix_ms: number, event: string, value: any}[]} events
 * @param {{low: number, high: number, at: number | null, ofStep: (step: number) => number, timed: boolean}} axis
 */
export function drawTimeline(epochs, events, axis) {
  // Marks keep their size on a narrow screen.
  const WIDTH = window.innerWidth < 640 ? 360 : 1300;
  const span = axis.high - axis.low || 1;
  const x = (/** @type {number} */ at) => Math.min(WIDTH, Math.max(0, ((at - axis.low) / span) * WIDTH));
  const bars = epochs.map((epoch, i) => {
    const from = x(axis.ofStep(epoch.from_step));
    const to = epochs[i + 1] ? x(axis.ofStep(epochs[i + 1].from_step)) : WIDTH;
    const nodes = nodesOf(epoch);
    const now = axis.at !== null && x(axis.at) >= from && x(axis.at) <= to;
    return s("g", {}, s("title", {}, `formation ${epoch.epoch} from step ${epoch.from_step}: ${nodes.join(", ")}${epoch.ended ? `; ended: ${epoch.ended}` : ""}`),
      s("rect", { class: now ? "epoch now" : "epoch", x: from, y: TOP, width: Math.max(to - from - 1, 1), height: BAR, rx: 3 }),
      to - from > 60 && s("text", { x: from + 6, y: TOP + 16, class: "small" }, counted(nodes.length, "node")));
  });
  // Without times of events, the changes of the formation are all that can be placed.
  const marks = axis.timed ? events.filter((event) => !["note", "opened", "started"].includes(event.event)) : [];
  const drawn = marks.map((event) => {
    const kind = SHAPES[event.event] ? event.event : "other";
    return s("g", { transform: `translate(${x(event.unix_ms)} 11)` }, s("title", {}, `${time(event.unix_ms)} ${event.event}: ${eventText(event)}`),
      s("path", { class: `m-${kind}`, d: SHAPES[kind] }));
  });
  const cursor = axis.at === null ? null : s("line", { class: "cursor", x1: x(axis.at), x2: x(axis.at), y1: 0, y2: TOP + BAR + 4 });
  const label = `Timeline: ${epochs.length} formations, ${marks.filter((event) => event.event === "lost").length} losses.`;
  return h("div", { class: "body" },
    s("svg", { class: "picture", viewBox: `-8 0 ${WIDTH + 16} ${TOP + BAR + 6}`, role: "img", "aria-label": label }, bars, drawn, cursor));
}
