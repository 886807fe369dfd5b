// Charts of one or several runs, with one set of controls.

import { get, runPath } from "./api.js";
import { Chart } from "./chart.js";
import { h, put } from "./dom.js";

/**
 * @typedef {{name: string, step: number[], unix_ms: (number | null)[], min: (number | null)[], max: (number | null)[], mean: (number | null)[], last: (number | null)[], count: number[]}} Curve
 * @typedef {{title: string, series: string[], short?: (name: string) => string}} Group
 * @typedef {{id: string, label: string, batch: number}} Shown
 */

const BUCKETS = 600;

/** Which names belong in one chart. @param {string[]} names @returns {Group[]} */
export function groupsOf(names) {
  const own = names.filter((name) => !name.startsWith("node/"));
  const named = (/** @type {string} */ title, /** @type {(name: string) => boolean} */ has) => ({ title, series: own.filter(has) });
  const groups = [
    named("loss", (name) => name === "loss" || name === "val_loss"),
    named("accuracy", (name) => /acc/.test(name)),
    named("samples per second", (name) => name === "samples_per_s"),
  ];
  const taken = new Set(groups.flatMap((group) => group.series));
  const hidden = ["pass", "sent_bytes"];
  const others = own.filter((name) => !taken.has(name) && !hidden.includes(name));
  return [...groups, ...others.map((name) => ({ title: name, series: [name] }))].filter((group) => group.series.length > 0);
}

/** Charts of what each node did. @param {string[]} names @returns {Group[]} */
export function nodeGroupsOf(names) {
  const of = (/** @type {string} */ field) => names.filter((name) => name.startsWith("node/") && name.endsWith(`/${field}`));
  const fields = [["compute_ms", "computing, ms"], ["exchange_ms", "exchange, ms"], ["wait_ms", "waiting, ms"], ["idle_ms", "idle in the pipeline, ms"], ["samples", "samples of a step"], ["memory_bytes", "memory, bytes"]];
  const short = (/** @type {string} */ name) => name.split("/")[1];
  return fields.map(([field, title]) => ({ title, series: of(field), short })).filter((group) => group.series.length > 0);
}

/** Adds points to a curve, except those that it has. @param {Curve} curve @param {any[]} points */
function extend(curve, points) {
  for (const { step, unix_ms, values } of points) {
    const value = values[curve.name];
    if (value === undefined || step <= (curve.step[curve.step.length - 1] ?? -1)) continue;
    curve.step.push(step);
    curve.unix_ms.push(unix_ms);
    for (const column of [curve.min, curve.max, curve.mean, curve.last]) column.push(/** @type {number | null} */ (value));
    curve.count.push(1);
  }
}

export class Curves {
  /** @param {Shown[]} runs @param {Group[]} groups */
  constructor(runs, groups) {
    this.runs = runs;
    this.groups = groups;
    /** @type {Map<string, Map<string, Curve>>} by run and name */
    this.data = new Map();
    /** When each run began. @type {Map<string, number>} */
    this.started = new Map();
    this.x = /** @type {"step" | "time" | "samples"} */ ("step");
    this.log = false;
    this.smooth = 0;
    /** @type {[number, number] | null} */
    this.zoom = null;
    /** A place of replay: shows what was known then. @type {{step: number, unix_ms: number | null} | null} */
    this.until = null;
    /** @type {Map<string, Chart>} */
    this.charts = new Map();
    this.grid = h("div", { class: "charts" });
    this.tools = this.makeTools();
    this.wanted = 0;
    /** What came live since curves were read. @type {{id: string, points: any[]}[]} */
    this.fresh = [];
    /** Ends when all charts are there. @type {Promise<void>} */
    this.whole = Promise.resolve();
  }

  makeTools() {
    const axis = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "Horizontal axis" },
      ["step", "time", "samples"].map((name) => h("option", { value: name }, name))));
    axis.addEventListener("change", () => {
      this.x = /** @type {any} */ (axis.value);
      this.zoomTo(null);
    });
    const smooth = /** @type {HTMLInputElement} */ (h("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: 0, "aria-label": "Smoothing" }));
    smooth.addEventListener("input", () => {
      this.smooth = Number(smooth.value);
      this.draw();
    });
    const log = h("button", { type: "button", "aria-pressed": "false" }, "Log scale");
    log.addEventListener("click", () => {
      this.log = !this.log;
      log.setAttribute("aria-pressed", String(this.log));
      this.draw();
    });
    this.all = /** @type {HTMLButtonElement} */ (h("button", { type: "button", disabled: true, onclick: () => this.zoomTo(null) }, "Show all"));
    return h("div", { class: "tools" }, h("label", {}, "x", axis), h("label", {}, "smoothing", smooth), log, this.all);
  }

  close() {
    for (const chart of this.charts.values()) chart.close();
  }

  /** The first point of a run, from which time is counted. @param {string} id */
  origin(id) {
    const first = [...(this.data.get(id)?.values() ?? [])].map((curve) => curve.unix_ms[0]).filter((ms) => ms !== null && ms !== undefined);
    return this.started.get(id) ?? (first.length ? Math.min(.../** @type {number[]} */ (first)) : 0);
  }

  /**
   * Reads all curves; with a zoom, only that part, finer. The first chart is drawn before the others are read.
   * @returns {Promise<string | undefined>} when the first chart is there: up to where the last run is known
   */
  async load() {
    const own = (this.wanted += 1);
    this.fresh = [];
    const first = this.groups[0]?.series ?? [];
    const rest = [...new Set(this.groups.flatMap((group) => group.series))].filter((name) => !first.includes(name));
    const position = first.length ? await this.read(own, first) : undefined;
    const others = async () => {
      for (let i = 0; i < rest.length && own === this.wanted; i += 16) await this.read(own, rest.slice(i, i + 16));
    };
    this.whole = others();
    this.whole.catch((error) => console.warn(error.message));
    return position;
  }

  /** Reads curves of these names. @param {number} own @param {string[]} series */
  async read(own, series) {
    let position;
    for (const run of this.runs) {
      const answer = await get(runPath(run.id, "/curves"), { series: JSON.stringify(series), buckets: BUCKETS, ...this.window(run) });
      if (own !== this.wanted) return position;
      position = answer.position;
      const curves = this.data.get(run.id) ?? new Map();
      this.data.set(run.id, curves);
      for (const curve of answer.curves) {
        curves.set(curve.name, curve);
        // What came live meanwhile.
        if (!this.zoom) for (const { id, points } of this.fresh) if (id === run.id) extend(curve, points);
      }
      if (!this.zoom && !this.started.has(run.id)) this.started.set(run.id, this.origin(run.id));
    }
    this.draw();
    return position;
  }

  /** What the server is asked for under a zoom. @param {Shown} run */
  window(run) {
    if (!this.zoom) return {};
    const [from, to] = this.zoom;
    const scale = (/** @type {number} */ x) => {
      if (this.x === "time") return Math.round(this.origin(run.id) + x * 1000);
      return Math.round(this.x === "samples" ? x / run.batch : x);
    };
    return { x: this.x === "time" ? "time" : "step", from: Math.max(0, scale(from)), to: Math.max(0, scale(to)) };
  }

  /** @param {[number, number] | null} range */
  zoomTo(range) {
    this.zoom = range;
    if (this.all) this.all.disabled = range === null;
    this.load().catch((error) => console.warn(error.message));
  }

  /** Adds points that came live. @param {string} id @param {any[]} points */
  append(id, points) {
    this.fresh.push({ id, points });
    const curves = this.data.get(id);
    if (!curves || this.zoom) return;
    for (const curve of curves.values()) extend(curve, points);
    const most = Math.max(0, ...[...curves.values()].map((curve) => curve.step.length));
    if (most > BUCKETS * 4) this.load().catch((error) => console.warn(error.message));
    else this.draw();
  }

  /** The x of a place. @param {Shown} run @param {number} step @param {number | null} unix_ms */
  along(run, step, unix_ms) {
    if (this.x === "time") return unix_ms === null ? step : (unix_ms - this.origin(run.id)) / 1000;
    return this.x === "samples" ? step * run.batch : step;
  }

  draw() {
    const several = this.runs.length > 1;
    for (const group of this.groups) {
      let chart = this.charts.get(group.title);
      if (!chart) {
        chart = new Chart(group.title, (range) => this.zoomTo(range));
        this.charts.set(group.title, chart);
      }
      /** @type {import("./chart.js").Line[]} */
      const lines = [];
      this.runs.forEach((run, i) => group.series.forEach((name, j) => {
        const curve = this.data.get(run.id)?.get(name);
        if (!curve) return;
        const short = group.short?.(name) ?? name;
        const label = several ? (group.series.length > 1 ? `${run.label} ${short}` : run.label) : short;
        const x = curve.step.map((step, k) => this.along(run, step, curve.unix_ms[k]));
        lines.push({ label, x, mean: curve.mean, min: curve.min, max: curve.max, style: several && group.series.length === 1 ? i : i * group.series.length + j });
      }));
      const until = this.until && this.runs[0] ? this.along(this.runs[0], this.until.step, this.until.unix_ms) : undefined;
      const [from, to] = this.zoom ?? [undefined, undefined];
      chart.set({ title: group.title, lines, xLabel: this.x, log: this.log, smooth: this.smooth, until, from, to });
      if (!chart.element.isConnected) this.grid.append(chart.element);
    }
  }

  /** The value of a series at a place of replay, or the last. @param {string} id @param {string} name */
  value(id, name) {
    const curve = this.data.get(id)?.get(name);
    if (!curve || curve.step.length === 0) return null;
    let at = curve.step.length - 1;
    if (this.until) while (at >= 0 && curve.step[at] > this.until.step) at -= 1;
    return at < 0 ? null : curve.last[at];
  }

  /** Replaces the groups, as when new names appear. @param {Group[]} groups */
  regroup(groups) {
    this.groups = groups;
    const names = groups.flatMap((group) => group.series);
    for (const curves of this.data.values()) for (const name of curves.keys()) if (!names.includes(name)) curves.delete(name);
    for (const [title, chart] of this.charts) {
      if (groups.some((group) => group.title === title)) continue;
      chart.close();
      chart.element.remove();
      this.charts.delete(title);
    }
    put(this.grid);
  }
}
