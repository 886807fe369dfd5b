// All runs: search, sort, and choose some to compare.

import { get } from "../api.js";
import { h, put, stateMark } from "../dom.js";
import { duration, number, percent, time } from "../format.js";

const PAGE = 200;

/** @type {[string, string, string][]} title, column, kind */
const COLUMNS = [
  ["run", "name", ""], ["state", "state", ""], ["model", "model", ""], ["steps", "steps", "num"], ["loss", "loss", "num"],
  ["val. loss", "val_loss", "num"], ["accuracy", "val_acc", "num"], ["samples/s", "samples_per_s", "num"], ["wall", "wall", "num"], ["started", "started", ""],
];

/** How far a run is. @param {any} run */
export function progressOf(run) {
  const text = run.total_steps ? `${number(run.steps)} / ${number(run.total_steps)}` : number(run.steps);
  if (run.state !== "running" || !run.total_steps) return h("span", {}, text);
  const label = `${Math.round((100 * run.steps) / run.total_steps)} percent`;
  return h("span", {}, h("progress", { max: run.total_steps, value: run.steps, "aria-label": label }), " ", text);
}

/** @type {import("../views.js").View} */
export default {
  path: "runs",
  title: "Runs",
  menu: true,
  async open({ search }) {
    let [words, sort] = [search.get("q") ?? "", search.get("sort") ?? "-started"];
    let limit = PAGE;
    /** @type {{total: number, runs: any[], note: string | null}} */
    let page = { total: 0, runs: [], note: null };
    /** @type {Set<string>} */
    const chosen = new Set();

    const body = h("tbody");
    const count = h("span", { class: "muted", role: "status" });
    const problem = h("p", { class: "note bad", role: "alert", hidden: true });
    const source = h("p", { class: "muted", id: "source", hidden: true });
    const compare = /** @type {HTMLButtonElement} */ (h("button", { type: "button", class: "main", disabled: true, onclick: () => {
      location.hash = `#/compare/${[...chosen].map(encodeURIComponent).join(",")}`;
    } }, "Compare"));
    const more = h("button", { type: "button", hidden: true, onclick: () => {
      limit += PAGE;
      load();
    } }, "Show more");

    const headers = COLUMNS.map(([title, column, kind]) => {
      const cell = h("th", { scope: "col", class: kind || undefined }, h("button", { type: "button", onclick: () => {
        sort = sort === `-${column}` ? column : `-${column}`;
        load();
      } }, title));
      return { cell, column };
    });

    const row = (/** @type {any} */ run) => {
      const box = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", "aria-label": `Choose ${run.name}` }));
      box.checked = chosen.has(run.id);
      box.addEventListener("change", () => {
        if (box.checked) chosen.add(run.id);
        else chosen.delete(run.id);
        compare.disabled = chosen.size < 2;
        compare.textContent = chosen.size > 1 ? `Compare ${chosen.size} runs` : "Compare";
      });
      const why = run.reason ?? run.waiting;
      const last = run.last;
      return h("tr", { "data-run": run.id }, h("td", {}, box),
        h("th", { scope: "row" }, h("a", { href: `#/run/${encodeURIComponent(run.id)}` }, run.name), run.elsewhere && h("span", { class: "muted" }, ` at ${run.elsewhere}`)),
        h("td", { title: why ?? undefined }, stateMark(run.waiting ? "waiting" : run.state)),
        h("td", {}, run.model), h("td", { class: "num" }, progressOf(run)), h("td", { class: "num" }, number(last.loss)),
        h("td", { class: "num" }, number(last.val_loss)), h("td", { class: "num" }, percent(last.val_acc)),
        h("td", { class: "num" }, number(last.samples_per_s)), h("td", { class: "num" }, duration(run.wall_s)), h("td", {}, time(run.started_ms)));
    };

    const draw = () => {
      for (const { cell, column } of headers) {
        const direction = sort === column ? "ascending" : sort === `-${column}` ? "descending" : null;
        if (direction) cell.setAttribute("aria-sort", direction);
        else cell.removeAttribute("aria-sort");
      }
      put(body, page.runs.length ? page.runs.map(row) : h("tr", {}, h("td", { colspan: COLUMNS.length + 1, class: "muted" }, words ? "No run matches." : "No runs here yet.")));
      source.hidden = !page.note;
      source.textContent = page.note ?? "";
      count.textContent = page.runs.length < page.total ? `${page.runs.length} of ${page.total} runs` : `${page.total} runs`;
      more.hidden = page.runs.length >= page.total;
    };

    let asked = 0;
    const load = async () => {
      const own = (asked += 1);
      try {
        const answer = await get("runs", { q: words, sort, limit });
        if (own !== asked) return;
        problem.hidden = true;
        page = answer;
        draw();
      } catch (error) {
        problem.hidden = false;
        problem.textContent = /** @type {Error} */ (error).message;
      }
    };

    const input = /** @type {HTMLInputElement} */ (h("input", { type: "search", placeholder: "Words, or val_acc > 0.97 and tag.owner = ada", "aria-label": "Search runs", value: words }));
    let typing = 0;
    input.addEventListener("input", () => {
      words = input.value;
      window.clearTimeout(typing);
      typing = window.setTimeout(load, 150);
    });
    await load();
    return {
      element: [
        h("div", { class: "head" }, h("h1", {}, "Runs"), count, h("span", { class: "grow" }), input, compare), problem, source,
        h("section", { class: "panel" }, h("div", { class: "scroll whole", tabindex: "0", role: "group", "aria-label": "Runs" }, h("table", { id: "runs" },
          h("caption", { class: "hidden" }, "Runs"),
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span", { class: "hidden" }, "Choose")), headers.map(({ cell }) => cell))), body)), more),
      ],
      live: {},
      update(update) {
        if (update.reload) return void load();
        let unknown = false;
        for (const run of update.runs ?? []) {
          const at = page.runs.findIndex((known) => known.id === run.id);
          if (at >= 0) {
            page.runs[at] = run;
            const old = [...body.children].find((element) => /** @type {HTMLElement} */ (element).dataset.run === run.id);
            // A row under the user's hands stays.
            if (old && !old.contains(document.activeElement)) old.replaceWith(row(run));
          } else unknown = true;
        }
        if (unknown) load();
      },
    };
  },
};
