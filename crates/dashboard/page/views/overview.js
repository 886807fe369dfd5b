// What happens now: nodes and what each does, what waits and why, recent events.

import { get } from "../api.js";
import { h, panel, put, s, stateMark, table } from "../dom.js";
import { bytes, counted, number, time } from "../format.js";
import { progressOf } from "./runs.js";

const WIDTH = 200, HEIGHT = 66, GAP = 16;

/** A line between two boxes, from edge to edge. @param {[number, number]} a @param {[number, number]} b */
function linkPath(a, b) {
  const [ax, bx] = [a[0] + WIDTH / 2, b[0] + WIDTH / 2];
  if (a[1] === b[1]) return `M${ax} ${a[1] + HEIGHT} C${ax} ${a[1] + HEIGHT + 14} ${bx} ${a[1] + HEIGHT + 14} ${bx} ${b[1] + HEIGHT}`;
  const [upper, lower] = a[1] < b[1] ? [a, b] : [b, a];
  const [ux, lx, from, to] = [upper[0] + WIDTH / 2, lower[0] + WIDTH / 2, upper[1] + HEIGHT, lower[1]];
  return `M${ux} ${from} C${ux} ${(from + to) / 2} ${lx} ${(from + to) / 2} ${lx} ${to}`;
}

/** @param {any[]} nodes */
function drawDomain(nodes) {
  if (nodes.length === 0) return h("p", { class: "muted pad" }, "No nodes here. `phalanx node` starts one.");
  /** @type {Map<string, any[]>} */
  const hosts = new Map();
  for (const node of nodes) {
    const host = node.host ?? "drivers and clients";
    hosts.set(host, [...(hosts.get(host) ?? []), node]);
  }
  /** @type {Map<string, [number, number]>} */
  const places = new Map();
  /** @type {SVGElement[]} */
  const drawn = [];
  const wide = Math.min(window.innerWidth < 640 ? 1 : 4, Math.max(...[...hosts.values()].map((of) => of.length)));
  let top = 0;
  for (const [host, of] of hosts) {
    const rows = Math.ceil(of.length / wide);
    const height = rows * (HEIGHT + GAP) + 24;
    drawn.push(s("rect", { class: "host", x: 0, y: top, width: wide * (WIDTH + GAP) + GAP, height, rx: 8 }), s("text", { x: GAP, y: top + 17, class: "small" }, host));
    of.forEach((node, i) => places.set(node.id, [GAP + (i % wide) * (WIDTH + GAP), top + 26 + Math.floor(i / wide) * (HEIGHT + GAP)]));
    top += height + GAP;
  }
  const links = [];
  const boxes = [];
  for (const node of nodes) {
    const [x, y] = /** @type {[number, number]} */ (places.get(node.id));
    const used = node.uses.reduce((/** @type {number} */ sum, /** @type {any} */ use) => sum + (use.kind.startsWith("waiting") ? 0 : use.cores), 0);
    const lost = node.state === "lost";
    const does = node.uses.map((/** @type {any} */ use) => use.text).join(", ") || (lost ? `lost: ${node.why ?? ""}` : node.kind === "main" ? "drives or asks" : "idle");
    for (const use of node.uses) {
      const driver = use.driver && places.get(use.driver);
      if (driver) links.push(s("path", { class: "arrow", d: linkPath(driver, [x, y]) }));
    }
    const cut = (/** @type {string} */ text) => (text.length > 33 ? `${text.slice(0, 32)}…` : text);
    boxes.push(s("g", {}, s("title", {}, `${node.id}: ${does}`), s("rect", { class: lost ? "box gone" : "box", x, y, width: WIDTH, height: HEIGHT, rx: 6 }),
      s("text", { x: x + 10, y: y + 18, class: "name" }, cut(node.id)), s("text", { x: x + 10, y: y + 34, class: lost ? "small bad" : "small" }, cut(does)),
      node.cores > 0 && s("rect", { class: "track", x: x + 10, y: y + 43, width: WIDTH - 20, height: 6 }),
      node.cores > 0 && s("rect", { class: "busy", x: x + 10, y: y + 43, width: ((WIDTH - 20) * Math.min(used, node.cores)) / node.cores, height: 6 }),
      s("text", { x: x + 10, y: y + 61, class: "small" }, node.cores > 0 ? `${used} of ${node.cores} cores, ${bytes(node.memory_bytes)}` : node.kind)));
  }
  const width = wide * (WIDTH + GAP) + GAP;
  const picture = s("svg", { class: "picture", viewBox: `-1 -1 ${width + 2} ${top - GAP + 2}`, role: "img", "aria-label": `The domain: ${nodes.map((node) => `${node.id} ${node.state}`).join(", ")}` }, drawn, links, boxes);
  picture.style.maxWidth = `${width}px`;
  return h("div", { class: "pad" }, picture);
}

/** @type {import("../views.js").View} */
export default {
  path: "overview",
  title: "Overview",
  menu: true,
  async open({ about }) {
    let domain = await get("nodes");
    let jobs = await get("jobs");
    let { runs, total } = await get("runs", { sort: "-started", limit: 20 });
    const tiles = h("div", { class: "tiles" }), picture = h("div", { id: "domain" }), nodes = h("div", { id: "nodes" }), waits = h("div", { id: "waits" }), recent = h("div", { id: "recent" }), active = h("div", {});
    const draw = () => {
      const live = domain.nodes.filter((/** @type {any} */ node) => ["running", "draining"].includes(node.state));
      const cores = live.reduce((/** @type {number} */ sum, /** @type {any} */ node) => sum + node.cores, 0);
      const used = live.flatMap((/** @type {any} */ node) => node.uses).reduce((/** @type {number} */ sum, /** @type {any} */ use) => sum + (use.kind.startsWith("waiting") ? 0 : use.cores), 0);
      const running = runs.filter((/** @type {any} */ run) => run.state === "running");
      const tile = (/** @type {any} */ value, /** @type {string} */ name) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, name));
      put(tiles, tile(number(live.length), "nodes"), tile(`${used} / ${cores}`, "cores in use"), tile(number(running.length), "runs now"), tile(number(total), "runs"),
        tile(number(live.reduce((/** @type {number} */ sum, /** @type {any} */ node) => sum + node.jobs_running, 0)), "jobs now"));
      put(picture, drawDomain(domain.nodes));
      put(nodes, table("Nodes", ["node", "kind", "state", "#cores", "#memory", "~does", "#jobs done", "since"], domain.nodes.map((/** @type {any} */ node) => [
        node.id, node.kind, stateMark(node.state), number(node.cores), bytes(node.memory_bytes), node.why ?? (node.uses.map((/** @type {any} */ use) => `${use.text}, ${counted(use.cores, "core")}`).join("; ") || "–"), number(node.jobs_done), time(node.since_ms)]), "No nodes."));
      const waiting = [
        ...runs.filter((/** @type {any} */ run) => run.waiting).map((/** @type {any} */ run) => ["run", run.name, run.waiting]),
        ...domain.nodes.flatMap((/** @type {any} */ node) => node.uses.filter((/** @type {any} */ use) => use.kind.startsWith("waiting")).map((/** @type {any} */ use) => [use.kind, node.id, use.text])),
        ...jobs.queues.filter((/** @type {any} */ queue) => queue.state === "waiting").map((/** @type {any} */ queue) => [
          h("a", { href: "#/jobs" }, `${counted(queue.jobs, "job")}${jobs.more ? " or more" : ""}`), `kind ${queue.kind}`, queue.why]),
      ];
      put(waits, table("What waits", ["what", "where", "~why"], waiting, "Nothing waits."));
      const events = [
        ...domain.events.map((/** @type {any} */ event) => ({ at: event.unix_ms, mark: event.event, text: `node ${event.node}${event.why ? `: ${event.why}` : ""}` })),
        ...runs.flatMap((/** @type {any} */ run) => [
          { at: run.started_ms, mark: "started", text: `run ${run.name}` },
          ...(run.ended_ms ? [{ at: run.ended_ms, mark: run.state, text: `run ${run.name}${run.reason ? `: ${run.reason}` : ""}` }] : [])]),
      ].filter((event) => event.at).sort((a, b) => b.at - a.at).slice(0, 30);
      put(recent, events.length ? h("ul", { class: "list" }, events.map((event) => h("li", {}, h("time", {}, time(event.at)), stateMark(event.mark), h("span", {}, event.text)))) : h("p", { class: "muted pad" }, "Nothing happened yet."));
      const shown = running.length ? running : runs.slice(0, 5);
      put(active, table("Runs", ["run", "state", "model", "#steps", "#loss"], shown.map((/** @type {any} */ run) => [
        h("a", { href: `#/run/${encodeURIComponent(run.id)}` }, run.name), stateMark(run.waiting ? "waiting" : run.state), run.model, progressOf(run), number(run.last.loss)]), "No runs yet. `phalanx train` starts one."));
    };
    draw();
    return {
      element: [h("div", { class: "head" }, h("h1", {}, "Overview"), h("span", { class: "muted" }, about.domain ? `domain ${about.domain}` : "no domain"), h("span", { class: "muted mono" }, about.directory)), tiles,
        h("div", { class: "columns even" }, panel("Domain", [], picture), panel("Runs", [h("a", { href: "#/runs" }, "all")], active)),
        h("div", { class: "columns" }, panel("Nodes", [], nodes), panel("What waits, and why", [], waits)),
        panel("Recent events", [], recent)],
      live: { jobs: "unfinished" },
      update(update) {
        if (update.domain) domain = update.domain;
        if (update.jobs) jobs = update.jobs;
        for (const run of update.runs ?? []) {
          const at = runs.findIndex((/** @type {any} */ known) => known.id === run.id);
          if (at >= 0) runs[at] = run;
          else {
            runs = [run, ...runs];
            total += 1;
          }
        }
        draw();
      },
    };
  },
};
