// Searches: all of them, or one with its front, hypervolume and trials.

import { get } from "../api.js";
import { h, panel, put, stateMark, table } from "../dom.js";
import { counted, duration, number, time } from "../format.js";
import { drawCovered, drawScatter } from "../scatter.js";

/** At most so often a search is read again. */
const PACE = 1000;
/** The most rows of the table of trials. */
const MOST_ROWS = 500;

/** @param {any} value @param {string} name */
const tile = (value, name) => h("div", { class: "tile" }, h("b", { class: String(value).length > 11 ? "small" : undefined }, value), h("span", {}, name));

/**
 * Calls a function now, and again after each wish, but not more often than the pace allows and never twice at once.
 * @param {() => Promise<void>} load
 */
function paced(load) {
  let [busy, wished, timer] = [false, false, 0];
  const run = async () => {
    wished = false;
    busy = true;
    await load().finally(() => {
      timer = window.setTimeout(() => {
        busy = false;
        if (wished) run();
      }, PACE);
    });
  };
  const wish = () => {
    wished = true;
    if (!busy) run();
  };
  return { wish, close: () => window.clearTimeout(timer) };
}

async function all() {
  const place = h("section", { class: "panel" });
  const problem = h("p", { class: "note bad", role: "alert", hidden: true });
  const load = async () => {
    const { searches } = await get("searches");
    const row = (/** @type {any} */ search) => [
      h("a", { href: `#/search/${encodeURIComponent(search.id)}` }, search.id), search.name, stateMark(search.state), search.algorithm,
      `${number(search.proposed)} / ${number(search.trials)}`, number(search.with_results), number(search.front), time(search.started_ms)];
    put(place, table("Searches", ["search", "name", "state", "algorithm", "#trials", "#with results", "#on the front", "started"], searches.map(row),
      "No searches here yet. phalanx search run makes them in searches/, beside the runs."));
  };
  await load();
  const again = paced(() => load().then(() => { problem.hidden = true; }, (/** @type {Error} */ error) => {
    problem.hidden = false;
    problem.textContent = error.message;
  }));
  return {
    element: [h("div", { class: "head" }, h("h1", {}, "Searches")), problem, place],
    live: { searches: true },
    update: (/** @type {any} */ update) => {
      if (update.searches || update.reload) again.wish();
    },
    close: again.close,
  };
}

class SearchPage {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    /** @type {any} */
    this.search = null;
    /** @type {Map<number, any>} */
    this.trials = new Map();
    /** @type {[number, number]} */
    this.axes = [0, 1];
    this.state = "";
    this.sort = "-trial";
    this.head = h("div", { class: "head" });
    this.why = h("p", { class: "note bad", hidden: true });
    this.problem = h("p", { class: "note bad", role: "alert", hidden: true });
    this.tiles = h("div", { class: "tiles" });
    this.scatter = h("div", { id: "scatter" });
    this.compared = h("p", { class: "muted pad" });
    this.covered = h("div", { id: "covered" });
    this.rows = h("div", { id: "trials" });
    this.count = h("span", { class: "muted", role: "status" });
    this.states = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "State of trials", onchange: () => {
      this.state = this.states.value;
      this.drawTrials();
    } }));
    this.orders = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "Order of trials", onchange: () => {
      this.sort = this.orders.value;
      this.drawTrials();
    } }));
    this.choices = h("div", { class: "tools" });
  }

  /** Reads what is new. @returns {Promise<void>} */
  async load() {
    const search = await get(`searches/${encodeURIComponent(this.id)}`, { after: this.search?.events });
    const fresh = !this.search;
    // Records that were cut off: everything is read anew.
    if (this.search && search.events < this.search.events) {
      this.search = null;
      this.trials.clear();
      return this.load();
    }
    for (const trial of search.trials) this.trials.set(trial.trial, trial);
    this.search = search;
    if (fresh) this.drawChoices();
    this.draw();
  }

  drawChoices() {
    const names = this.search.objectives.map((/** @type {any} */ objective) => objective.name);
    const choice = (/** @type {0 | 1} */ axis, /** @type {string} */ label) => {
      const select = /** @type {HTMLSelectElement} */ (h("select", { onchange: () => {
        this.axes[axis] = Number(select.value);
        this.drawFront();
      } }, names.map((/** @type {string} */ name, /** @type {number} */ i) => h("option", { value: i, selected: i === this.axes[axis] }, name))));
      return h("label", {}, label, select);
    };
    if (names.length === 1) this.axes = [0, 0];
    put(this.choices, names.length > 2 && [choice(0, "across"), choice(1, "up")]);
    const orders = ["-trial", "trial", ...names.flatMap((/** @type {string} */ _name, /** @type {number} */ i) => [`-${i}`, `${i}`]), "-budget"];
    const word = (/** @type {string} */ order) => {
      const name = order.replace("-", "");
      const shown = names[Number(name)] ?? name;
      return order.startsWith("-") ? `${shown}, largest first` : `${shown}, smallest first`;
    };
    put(this.orders, orders.map((order) => h("option", { value: order, selected: order === this.sort }, word(order))));
  }

  draw() {
    const { summary, counts, rungs, budget_unit, hypervolume } = this.search;
    put(this.head, h("h1", {}, `Search ${summary.name}`), stateMark(summary.state), h("span", { class: "muted" }, `${this.id}, ${summary.algorithm}, started ${time(summary.started_ms)}`));
    this.why.hidden = !summary.why;
    this.why.textContent = summary.why ?? "";
    const last = hypervolume.at(-1);
    put(this.tiles, tile(`${number(summary.proposed)} / ${number(summary.trials)}`, "trials"), tile(number(counts.running ?? 0), "running"), tile(number(summary.with_results), "with results"),
      tile(number((counts.failed ?? 0) + (counts.infeasible ?? 0)), "failed or infeasible"), tile(number(summary.front), "on the front"), tile(last ? number(last.share) : "–", "hypervolume"),
      tile(rungs.map(number).join(", ") || "–", budget_unit));
    this.compared.textContent = `The front ${this.search.compared}. Hollow dots are not trained in full.`;
    this.drawFront();
    put(this.covered, drawCovered(hypervolume, rungs.length > 1));
    const states = ["", ...Object.keys(counts)];
    put(this.states, states.map((state) => h("option", { value: state, selected: state === this.state }, state ? `${state} (${counts[state]})` : "all states")));
    this.drawTrials();
  }

  drawFront() {
    // A dot under the user's hands stays; the next change draws it.
    if (this.scatter.contains(document.activeElement)) return;
    put(this.scatter, drawScatter([...this.trials.values()], new Set(this.search.front), this.search.objectives, this.axes));
  }

  drawTrials() {
    const front = new Set(this.search.front);
    const name = this.sort.replace("-", "");
    const value = (/** @type {any} */ trial) => (name === "trial" || name === "budget" ? trial[name] : trial.objectives[Number(name)]);
    const sign = this.sort.startsWith("-") ? -1 : 1;
    const order = (/** @type {any} */ a, /** @type {any} */ b) => {
      const [x, y] = [value(a), value(b)];
      if (x === null || y === null) return Number(x === null) - Number(y === null) || a.trial - b.trial;
      return sign * (x - y) || a.trial - b.trial;
    };
    const chosen = [...this.trials.values()].filter((trial) => !this.state || trial.state === this.state).sort(order);
    this.count.textContent = chosen.length > MOST_ROWS ? `${MOST_ROWS} of ${number(chosen.length)} trials` : counted(chosen.length, "trial");
    const objectives = this.search.objectives.map((/** @type {any} */ objective) => `#${objective.name}`);
    const row = (/** @type {any} */ trial) => [
      trial.run ? h("a", { href: `#/run/${encodeURIComponent(trial.run)}` }, `t${trial.trial}`) : `t${trial.trial}`, trial.archid, stateMark(trial.state), front.has(trial.trial) ? "front" : "",
      ...trial.objectives.map(number), number(trial.budget), trial.node ?? "", trial.parents.map((/** @type {number} */ parent) => `t${parent}`).join(", "), duration(trial.seconds), trial.why ?? ""];
    const columns = ["trial", "candidate", "state", "front", ...objectives, "#budget", "node", "parents", "#trained", "~why"];
    put(this.rows, table("Trials", columns, chosen.slice(0, MOST_ROWS).map(row), this.state ? "No trial is in this state." : "No trials yet."));
  }

  elements() {
    return [this.head, this.problem, this.why, this.tiles,
      h("div", { class: "columns" }, panel("Front", [this.choices], this.scatter, this.compared), panel("Hypervolume", [], this.covered)),
      panel("Trials", [this.count, this.states, this.orders], this.rows)];
  }
}

/** @param {string} id */
async function one(id) {
  const page = new SearchPage(id);
  await page.load();
  const again = paced(() => page.load().then(() => { page.problem.hidden = true; }, (/** @type {Error} */ error) => {
    page.problem.hidden = false;
    page.problem.textContent = error.message;
  }));
  let first = true;
  return {
    element: page.elements(),
    live: { searches: true },
    update: (/** @type {any} */ update) => {
      // What came between reading and following is read with the first message.
      if (first || update.reload || update.searches?.includes(id)) again.wish();
      first = false;
    },
    close: again.close,
  };
}

/** @type {import("../views.js").View} */
export default {
  path: "search",
  title: "Searches",
  menu: true,
  open: ({ rest }) => (rest ? one(rest) : all()),
};
