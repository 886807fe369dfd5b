// A chart on a canvas: lines with the range of each bucket behind them, zoom, a cursor, and the table behind it.

import { announce, h, put, s, table } from "./dom.js";
import { duration, number } from "./format.js";

/**
 * @typedef {{
 *   label: string, x: number[], mean: (number | null)[], min: (number | null)[], max: (number | null)[], style: number,
 * }} Line
 * @typedef {{
 *   title: string, lines: Line[], xLabel: "step" | "time" | "samples", log: boolean, smooth: number,
 *   until?: number, from?: number, to?: number, percent?: boolean,
 * }} Plot
 */

const LEFT = 58, RIGHT = 12, TOP = 10, BOTTOM = 24;
/** Lines differ by more than colour. */
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3], [], [6, 3], [2, 2], [8, 3, 2, 3]];

const colour = (/** @type {string} */ name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** An exponential moving average that begins without bias. @param {(number | null)[]} values @param {number} weight */
export function smoothed(values, weight) {
  if (weight <= 0) return values;
  let [sum, total] = [0, 0];
  return values.map((value) => {
    if (value === null) return null;
    sum = sum * weight + value * (1 - weight);
    total = total * weight + (1 - weight);
    return sum / total;
  });
}

/** Round numbers between two. @param {number} low @param {number} high @param {number} count */
export function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? power * 10;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return found;
}

export class Chart {
  /** @param {string} title @param {(range: [number, number] | null) => void} onZoom */
  constructor(title, onZoom) {
    this.onZoom = onZoom;
    /** The ranges of both axes; with a log scale the vertical one is in powers of ten. */
    this.low = 0;
    this.high = 1;
    this.bottom = 0;
    this.top = 1;
    /** @type {Plot} */
    this.plot = { title, lines: [], xLabel: "step", log: false, smooth: 0 };
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { class: "plot", tabindex: "0", role: "img" }));
    this.tip = h("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    this.legend = h("div", { class: "legend" });
    this.behind = h("div", { class: "behind", hidden: true });
    this.tableButton = h("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: () => this.toggleTable() }, "Table");
    this.element = h("section", { class: "panel", "aria-label": `Chart of ${title}` },
      h("header", {}, h("h2", {}, title), this.tableButton),
      h("div", { class: "chart" }, this.canvas, this.tip), this.legend, this.behind);
    /** @type {number | null} */
    this.hover = null;
    /** @type {number | null} */
    this.dragFrom = null;
    this.listen();
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.canvas);
    this.themed = () => this.draw();
    window.addEventListener("theme", this.themed);
  }

  close() {
    this.resized.disconnect();
    window.removeEventListener("theme", this.themed);
  }

  /** @param {Plot} plot */
  set(plot) {
    this.plot = plot;
    this.draw();
    this.drawLegend();
    if (!this.behind.hidden) this.drawTable();
  }

  listen() {
    const at = (/** @type {PointerEvent | MouseEvent} */ event) => this.toX(event.clientX - this.canvas.getBoundingClientRect().left);
    this.canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "mouse") this.dragFrom = at(event);
    });
    this.canvas.addEventListener("pointermove", (event) => this.point(at(event)));
    this.canvas.addEventListener("pointerleave", () => {
      this.dragFrom = null;
      this.point(null);
    });
    this.canvas.addEventListener("pointerup", (event) => {
      const [from, to] = [this.dragFrom, at(event)];
      this.dragFrom = null;
      if (from !== null && Math.abs(from - to) > (this.high - this.low) / 50) this.onZoom([Math.min(from, to), Math.max(from, to)]);
      else this.draw();
    });
    this.canvas.addEventListener("dblclick", () => this.onZoom(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => this.point(null));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const width = this.high - this.low;
    const middle = this.hover ?? (this.low + this.high) / 2;
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowLeft: () => this.point(Math.max(this.low, middle - width / 50), true),
      ArrowRight: () => this.point(Math.min(this.high, middle + width / 50), true),
      Home: () => this.point(this.low, true),
      End: () => this.point(this.high, true),
      "+": () => this.onZoom([middle - width / 4, middle + width / 4]),
      "-": () => this.onZoom([middle - width, middle + width]),
      0: () => this.onZoom(null),
      Escape: () => this.onZoom(null),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }

  /** Moves the cursor. @param {number | null} x @param {boolean} [aloud] */
  point(x, aloud = false) {
    this.hover = x;
    this.draw();
    const values = x === null ? [] : this.plot.lines.map((line) => ({ line, value: valueAt(line, x, this.plot) })).filter(({ value }) => value !== null);
    this.tip.hidden = values.length === 0;
    if (x === null || values.length === 0) return;
    put(this.tip, h("div", {}, h("b", {}, `${this.plot.xLabel} ${this.xText(x)}`)),
      values.map(({ line, value }) => h("div", {}, h("span", {}, line.label), h("b", {}, number(value)))));
    const left = this.fromX(x);
    this.tip.style.left = left > this.canvas.clientWidth / 2 ? "" : `${left + 12}px`;
    this.tip.style.right = left > this.canvas.clientWidth / 2 ? `${this.canvas.clientWidth - left + 12}px` : "";
    this.tip.style.top = "12px";
    if (aloud) announce(`${this.plot.xLabel} ${this.xText(x)}: ${values.map(({ line, value }) => `${line.label} ${number(value)}`).join(", ")}`);
  }

  /** @param {number} x */
  xText(x) {
    return this.plot.xLabel === "time" ? duration(x) : number(Math.round(x));
  }

  toggleTable() {
    this.behind.hidden = !this.behind.hidden;
    this.tableButton.setAttribute("aria-pressed", String(!this.behind.hidden));
    if (!this.behind.hidden) this.drawTable();
  }

  drawTable() {
    const rows = this.plot.lines.flatMap((line) => {
      const stride = Math.max(1, Math.ceil(line.x.length / 200));
      return line.x.map((x, i) => [line.label, this.xText(x), number(line.mean[i]), number(line.min[i]), number(line.max[i])]).filter((_, i) => i % stride === 0);
    });
    put(this.behind, table(`Values of ${this.plot.title}`, ["curve", `#${this.plot.xLabel}`, "#mean", "#least", "#greatest"], rows));
  }

  drawLegend() {
    put(this.legend, this.plot.lines.map((line) => {
      const style = line.style % 8;
      const last = line.mean.findLast((value) => value !== null);
      return h("span", {},
        s("svg", { width: 22, height: 8, "aria-hidden": "true" }, s("line", { x1: 0, y1: 4, x2: 22, y2: 4, stroke: `var(--c${style})`, "stroke-width": 2, "stroke-dasharray": DASHES[style].join(" ") || undefined })),
        line.label, h("b", {}, number(last)));
    }));
    const text = this.plot.lines.map((line) => `${line.label} ${number(line.mean.findLast((value) => value !== null))}`).join(", ");
    this.canvas.setAttribute("aria-label", `${this.plot.title} by ${this.plot.xLabel}. Last values: ${text || "none"}. Arrow keys read values, plus and minus zoom, 0 shows all.`);
  }

  /** @param {number} pixel */
  toX(pixel) {
    const width = this.canvas.clientWidth - LEFT - RIGHT;
    return this.low + (Math.min(Math.max(pixel - LEFT, 0), width) / width) * (this.high - this.low);
  }

  /** @param {number} x */
  fromX(x) {
    return LEFT + ((x - this.low) / (this.high - this.low || 1)) * (this.canvas.clientWidth - LEFT - RIGHT);
  }

  /** The ranges of both axes. */
  measure() {
    const { lines, log, from, to } = this.plot;
    const xs = lines.flatMap((line) => (line.x.length ? [line.x[0], line.x[line.x.length - 1]] : []));
    this.low = from ?? (xs.length ? Math.min(...xs) : 0);
    this.high = to ?? (xs.length ? Math.max(...xs) : 1);
    if (!(this.high > this.low)) this.high = this.low + 1;
    let [bottom, top] = [Infinity, -Infinity];
    for (const line of lines) {
      for (let i = 0; i < line.x.length; i += 1) {
        const [min, max] = [line.min[i], line.max[i]];
        if (min === null || max === null || line.x[i] < this.low || line.x[i] > this.high || (log && min <= 0)) continue;
        bottom = Math.min(bottom, min);
        top = Math.max(top, max);
      }
    }
    if (bottom > top) [bottom, top] = log ? [0.1, 1] : [0, 1];
    if (log) {
      this.bottom = Math.log10(bottom) - 0.05;
      this.top = Math.log10(top) + 0.05;
    } else {
      const room = (top - bottom) * 0.05 || Math.abs(top) * 0.1 || 1;
      this.bottom = bottom >= 0 && bottom < top * 0.3 ? 0 : bottom - room;
      this.top = top + room;
    }
    if (!(this.top > this.bottom)) this.top = this.bottom + 1;
  }

  draw() {
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (width === 0 || height === 0) return;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    const ink = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    ink.scale(scale, scale);
    ink.font = "11px system-ui, sans-serif";
    this.measure();
    const yOf = (/** @type {number} */ value) => {
      const at = this.plot.log ? Math.log10(value) : value;
      return height - BOTTOM - ((at - this.bottom) / (this.top - this.bottom)) * (height - TOP - BOTTOM);
    };
    this.drawAxes(ink, width, height, yOf);
    ink.save();
    ink.beginPath();
    ink.rect(LEFT, TOP, width - LEFT - RIGHT, height - TOP - BOTTOM);
    ink.clip();
    for (const line of this.plot.lines) this.drawLine(ink, line, yOf);
    ink.restore();
    ink.strokeStyle = colour("--text");
    ink.lineWidth = 1;
    for (const x of [this.plot.until, this.hover]) {
      if (x === undefined || x === null || x < this.low || x > this.high) continue;
      ink.beginPath();
      ink.moveTo(this.fromX(x), TOP);
      ink.lineTo(this.fromX(x), height - BOTTOM);
      ink.stroke();
    }
    if (this.dragFrom !== null && this.hover !== null) {
      ink.fillStyle = colour("--accent");
      ink.globalAlpha = 0.15;
      const [a, b] = [this.fromX(this.dragFrom), this.fromX(this.hover)];
      ink.fillRect(Math.min(a, b), TOP, Math.abs(a - b), height - TOP - BOTTOM);
      ink.globalAlpha = 1;
    }
    if (this.plot.lines.every((line) => line.x.length === 0)) {
      ink.fillStyle = colour("--muted");
      ink.textAlign = "center";
      ink.fillText("no values yet", width / 2, height / 2);
    }
  }

  /** @param {CanvasRenderingContext2D} ink @param {number} width @param {number} height @param {(v: number) => number} yOf */
  drawAxes(ink, width, height, yOf) {
    ink.strokeStyle = colour("--grid");
    ink.fillStyle = colour("--muted");
    ink.lineWidth = 1;
    ink.textAlign = "right";
    ink.textBaseline = "middle";
    const marks = this.plot.log
      ? ticks(this.bottom, this.top, 4).map((at) => 10 ** at)
      : ticks(this.bottom, this.top, 5);
    for (const value of marks) {
      const y = Math.round(yOf(value)) + 0.5;
      ink.beginPath();
      ink.moveTo(LEFT, y);
      ink.lineTo(width - RIGHT, y);
      ink.stroke();
      ink.fillText(axisText(value), LEFT - 6, y);
    }
    ink.textBaseline = "top";
    const count = Math.max(2, Math.floor(width / 70));
    for (const x of ticks(this.low, this.high, count)) {
      const text = this.plot.xLabel === "time" ? duration(x).replace(".0 s", " s") : axisText(x);
      const at = this.fromX(x);
      ink.textAlign = at > width - 40 ? "right" : "center";
      ink.fillText(text, Math.min(at, width - 4), height - BOTTOM + 7);
    }
  }

  /** @param {CanvasRenderingContext2D} ink @param {Line} line @param {(v: number) => number} yOf */
  drawLine(ink, line, yOf) {
    const { log, smooth, until } = this.plot;
    const style = line.style % 8;
    ink.strokeStyle = ink.fillStyle = colour(`--c${style}`);
    const shows = (/** @type {number} */ i, /** @type {(number | null)[]} */ of) =>
      of[i] !== null && !(log && /** @type {number} */ (of[i]) <= 0) && !(until !== undefined && line.x[i] > until);
    ink.globalAlpha = 0.16;
    ink.beginPath();
    for (let i = 0; i < line.x.length; i += 1) {
      if (!shows(i, line.min) || line.min[i] === line.max[i]) continue;
      const x = this.fromX(line.x[i]);
      const before = i > 0 ? this.fromX(line.x[i - 1]) : x - 1;
      const [y1, y2] = [yOf(/** @type {number} */ (line.max[i])), yOf(/** @type {number} */ (line.min[i]))];
      ink.rect(before, y1, Math.max(x - before, 1), Math.max(y2 - y1, 0.5));
    }
    ink.fill();
    const draw = (/** @type {(number | null)[]} */ values, /** @type {number} */ alpha, /** @type {number} */ width) => {
      ink.globalAlpha = alpha;
      ink.lineWidth = width;
      ink.setLineDash(DASHES[style]);
      ink.beginPath();
      let pen = false;
      for (let i = 0; i < line.x.length; i += 1) {
        if (!shows(i, values)) {
          pen = false;
          continue;
        }
        const [x, y] = [this.fromX(line.x[i]), yOf(/** @type {number} */ (values[i]))];
        if (pen) ink.lineTo(x, y);
        else ink.moveTo(x, y);
        pen = true;
      }
      ink.stroke();
      ink.setLineDash([]);
    };
    if (smooth > 0) {
      draw(line.mean, 0.3, 1);
      draw(smoothed(line.mean, smooth), 1, 1.8);
    } else {
      draw(line.mean, 1, 1.5);
    }
    // Few points would otherwise not be seen.
    if (line.x.length <= 60) {
      ink.globalAlpha = 1;
      for (let i = 0; i < line.x.length; i += 1) {
        if (shows(i, line.mean)) ink.fillRect(this.fromX(line.x[i]) - 2, yOf(/** @type {number} */ (line.mean[i])) - 2, 4, 4);
      }
    }
    ink.globalAlpha = 1;
  }
}

/** The value of a line at or before x. @param {Line} line @param {number} x @param {Plot} plot */
export function valueAt(line, x, plot) {
  if (line.x.length === 0 || (plot.until !== undefined && x > plot.until)) return null;
  let [low, high] = [0, line.x.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (line.x[middle] <= x) low = middle + 1;
    else high = middle;
  }
  const values = smoothed(line.mean, plot.smooth);
  return low === 0 ? null : values[low - 1];
}

/** @param {number} value */
function axisText(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${+(value / 1e9).toPrecision(3)}G`;
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
  if (size > 0 && size < 1e-3) return value.toExponential(0);
  return String(+value.toPrecision(3));
}
