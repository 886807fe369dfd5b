// What the server knows, and what changes there.

/** @param {string} path @param {Record<string, string | number | undefined | null>} [query] */
export async function get(path, query = {}) {
  const asked = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(asked.map(([name, value]) => [name, String(value)])).toString();
  const response = await fetch(`/api/v1/${path}${search ? `?${search}` : ""}`);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error ?? response.statusText);
  return answer;
}

/** @param {string} path @param {any} body */
export async function post(path, body) {
  const headers = { "content-type": "application/json", "x-phalanx": "1" };
  const response = await fetch(`/api/v1/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error ?? response.statusText);
  return answer;
}

/** A path below a run. @param {string} id @param {string} [rest] */
export function runPath(id, rest = "") {
  return `runs/${encodeURIComponent(id)}${rest}`;
}

/**
 * Follows changes: one stream for each tab.
 * @param {{run?: string, position?: string, jobs?: "all" | "unfinished", stores?: boolean, searches?: boolean}} wish
 * @param {(update: any) => void} onUpdate
 * @param {(on: boolean) => void} onLink
 * @returns {() => void} ends it
 */
export function follow(wish, onUpdate, onLink) {
  const search = new URLSearchParams();
  if (wish.run) search.set("run", wish.run);
  if (wish.position) search.set("position", wish.position);
  if (wish.jobs) search.set("jobs", wish.jobs === "all" ? "1" : wish.jobs);
  if (wish.stores) search.set("stores", "1");
  if (wish.searches) search.set("searches", "1");
  /** @type {EventSource | undefined} */
  let source;
  let retry = 0;
  const open = () => {
    source = new EventSource(`/api/v1/live?${search}`);
    source.addEventListener("open", () => onLink(true));
    source.addEventListener("update", (event) => onUpdate(JSON.parse(/** @type {MessageEvent} */ (event).data)));
    source.addEventListener("error", () => {
      onLink(false);
      // The browser comes back by itself, unless the server refused.
      if (source?.readyState === EventSource.CLOSED) retry = window.setTimeout(open, 3000);
    });
  };
  open();
  return () => {
    window.clearTimeout(retry);
    source?.close();
  };
}
