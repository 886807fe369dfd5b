// Numbers and times for people.

/** @param {number | null | undefined} value */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (Number.isInteger(value) && size < 1e9) return value.toLocaleString("en");
  if (size >= 1e6 || size < 1e-3) return value.toExponential(2);
  return size >= 1000 ? Math.round(value).toLocaleString("en") : value.toPrecision(4);
}

/** @param {number | null | undefined} value a part of 1 */
export function percent(value) {
  return value === null || value === undefined ? "–" : `${(value * 100).toFixed(2)} %`;
}

/** @param {number} bytes */
export function bytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? bytes : bytes.toFixed(1)} ${units[unit]}`;
}

/** @param {number} seconds */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return hours > 0 ? `${hours} h ${minutes} min` : `${minutes} min ${rest} s`;
}

/** A number of things. @param {number} count @param {string} thing */
export function counted(count, thing) {
  return `${number(count)} ${thing}${count === 1 ? "" : "s"}`;
}

/** Why a node is gone, without its name, which stands beside. @param {string} node @param {string} why */
export function whyLost(node, why) {
  return why.replace(`${node} is lost: `, "").replace(`${node} is lost`, "lost");
}

/** @param {number | null | undefined} ms since 1970 */
export function time(ms) {
  if (!ms) return "–";
  const at = new Date(ms);
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const today = new Date().toDateString() === at.toDateString();
  return today ? clock : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock}`;
}

/** The size that an event tells of. @param {any} value */
function bytesOf(value) {
  const size = value.size ?? value.bytes;
  return typeof size === "number" ? bytes(size) : "";
}

/**
 * What the events say about where files were pushed: of each file the place of the last push.
 * @param {{event: string, value: any, unix_ms: number}[]} events
 * @returns {{path: string, url: string, size: number | null, sha256: string | null, unix_ms: number}[]}
 */
export function pushedFiles(events) {
  const text = (/** @type {any} */ value) => (typeof value === "string" ? value : null);
  /** @type {Map<string, any>} */
  const pushed = new Map();
  for (const { event, value, unix_ms } of events) {
    if (event !== "artifact" || value === null || typeof value !== "object") continue;
    const [path, url, size] = [text(value.path), text(value.url), value.size ?? value.bytes];
    if (path && url) pushed.set(path, { path, url, size: typeof size === "number" ? size : null, sha256: text(value.sha256), unix_ms });
  }
  return [...pushed.values()].sort((a, b) => (a.path < b.path ? -1 : 1));
}

/** One line about an event of a run. @param {{event: string, value: any}} event */
export function eventText({ event, value }) {
  if (typeof value === "string") return value;
  if (value === null || typeof value !== "object") return value === null ? "" : String(value);
  switch (event) {
    case "formed":
      return `${(value.nodes ?? []).join(", ")} from step ${value.step ?? 0}`;
    case "lost":
      return [value.node, whyLost(value.node, value.why ?? value.reason ?? "")].filter(Boolean).join(": ");
    case "saved":
      return `step ${value.step}`;
    case "artifact":
      return [value.path && value.url ? `${value.path} is at ${value.url}` : (value.path ?? value.url), bytesOf(value)].filter(Boolean).join(", ");
    case "ended":
      return [value.state, value.reason].filter(Boolean).join(": ");
    case "opened":
      return [`at step ${value.step ?? 0}`, value.host && `on ${value.host}`].filter(Boolean).join(" ");
    case "started":
      return [value.model, value.total_steps && `${value.total_steps} steps`].filter(Boolean).join(", ");
    default: {
      const text = value.text ?? value.reason ?? value.why;
      return typeof text === "string" ? text : JSON.stringify(value);
    }
  }
}
