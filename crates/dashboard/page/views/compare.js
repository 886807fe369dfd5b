// Several runs side by side: curves and what differs in their configuration.

import { get, runPath } from "../api.js";
import { Curves, groupsOf } from "../curves.js";
import { h, panel, stateMark, table } from "../dom.js";
import { duration, number, percent } from "../format.js";

/** @type {import("../views.js").View} */
export default {
  path: "compare",
  title: "Compare",
  menu: false,
  async open({ rest }) {
    const ids = rest.split(",").filter(Boolean).slice(0, 16);
    const runs = await Promise.all(ids.map(async (id) => {
      const [{ run }, { series }, { values }] = await Promise.all(["", "/series", "/config"].map((part) => get(runPath(id, part))));
      return { id, run, names: series.map((/** @type {any} */ one) => one.name), config: new Map(values.map((/** @type {any} */ v) => [v.key, v.value])) };
    }));
    const names = [...new Set(runs.flatMap((run) => run.names))];
    // One name a chart: a line stands for a run.
    const groups = groupsOf(names).flatMap((group) => group.series.map((name) => ({ title: name, series: [name] })));
    const curves = new Curves(runs.map(({ id, run, config }) => ({ id, label: run.name, batch: Number(config.get("train.batch")) || 1 })), groups);
    await curves.load();
    const keys = [...new Set(runs.flatMap((run) => [...run.config.keys()]))];
    const differ = keys.filter((key) => new Set(runs.map((run) => run.config.get(key))).size > 1);
    const cells = (/** @type {string} */ key) => [key, ...runs.map((run) => h("code", {}, run.config.get(key) ?? "–"))];
    const heads = runs.map(({ run }) => `~${run.name}`);
    const same = keys.filter((key) => !differ.includes(key));
    return {
      element: [
        h("div", { class: "head" }, h("h1", {}, `Compare ${runs.length} runs`), h("span", { class: "grow" }), curves.tools),
        panel("Results", [], table("Results", ["run", "state", "model", "#steps", "#loss", "#val. loss", "#accuracy", "#samples/s", "#wall"], runs.map(({ id, run }) => [
          h("a", { href: `#/run/${encodeURIComponent(id)}` }, run.name), stateMark(run.state), run.model, number(run.steps), number(run.last.loss), number(run.last.val_loss),
          percent(run.last.val_acc), number(run.last.samples_per_s), duration(run.wall_s)]))),
        curves.grid,
        panel(`Configuration: ${differ.length} differences`, [], h("div", { id: "differences" }, table("Differences", ["key", ...heads], differ.map(cells), "The configurations are the same.")),
          h("details", {}, h("summary", {}, `${same.length} equal values`), table("Equal values", ["key", ...heads], same.map(cells)))),
      ],
      live: {},
      update(update) {
        const changed = (update.runs ?? []).some((/** @type {any} */ run) => ids.includes(run.id));
        if (changed && !curves.zoom) curves.load().catch((error) => console.warn(error.message));
      },
      close: () => curves.close(),
    };
  },
};
