// Jobs: queues by kind and reason, what runs, what failed and why, and what earlier main nodes had done.

import { get, post } from "../api.js";
import { announce, h, panel, put, stateMark, table } from "../dom.js";
import { duration, number, time } from "../format.js";

/** @type {import("../views.js").View} */
export default {
  path: "jobs",
  title: "Jobs",
  menu: true,
  async open({ about }) {
    const queues = h("div", { id: "queues" }), running = h("div", { id: "running" }), ended = h("div", { id: "ended" }), past = h("div", { id: "past" }), tiles = h("div", { class: "tiles" });
    const problem = h("p", { class: "note bad", role: "alert", hidden: true });
    /** @type {[number, number] | null} time and number of jobs done */
    let before = null;
    let rate = 0;
    const cancel = (/** @type {string} */ job) => h("button", { type: "button", "aria-label": `Cancel job ${job}`, onclick: async () => {
      try {
        const { cancelled } = await post("jobs/cancel", { job });
        announce(cancelled ? `Job ${job} cancelled` : `Job ${job} had ended`);
        draw(await get("jobs", { all: 1 }));
      } catch (error) {
        problem.hidden = false;
        problem.textContent = /** @type {Error} */ (error).message;
      }
    } }, "Cancel");
    const draw = (/** @type {any} */ info) => {
      const now = performance.now();
      if (before && now - before[0] > 900) rate = Math.max(0, (info.done - before[1]) / ((now - before[0]) / 1000));
      if (!before || now - before[0] > 900) before = [now, info.done];
      const of = (/** @type {string[]} */ states) => info.jobs.filter((/** @type {any} */ job) => states.includes(job.state));
      const tile = (/** @type {any} */ value, /** @type {string} */ name) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, name));
      put(tiles, tile(number(of(["waiting"]).length), "waiting"), tile(number(of(["leased", "running"]).length), "running or next"),
        tile(number(of(["failed", "expired"]).length), "failed"), tile(number(info.done), "solved by all nodes"), tile(`${number(rate)}/s`, "rate"));
      put(queues, table("Queues", ["kind", "state", "#jobs", "~why"], info.queues.map((/** @type {any} */ queue) => [queue.kind, stateMark(queue.state), number(queue.jobs), queue.why]), "No jobs."));
      const act = about.control ? ["action"] : [];
      const progress = (/** @type {any} */ job) => job.progress === null ? "" : h("progress", { max: 1, value: job.progress, "aria-label": `Progress of ${job.job}` });
      put(running, table("Unfinished jobs", ["job", "kind", "state", "~why", "progress", "#age", ...act], of(["running", "leased", "waiting"]).slice(0, 200).map((/** @type {any} */ job) => [
        job.job, job.kind, stateMark(job.state), job.why, progress(job), duration(job.age_ms / 1000), ...(about.control ? [cancel(job.job)] : [])]), "No unfinished jobs."));
      put(ended, table("Failed jobs", ["job", "kind", "state", "~why", "#attempts"], of(["failed", "expired", "cancelled"]).slice(-200).reverse().map((/** @type {any} */ job) => [
        job.job, job.kind, stateMark(job.state), job.why, job.attempts]), "No failed jobs."));
      put(past, table("Jobs of main nodes that are gone", ["job", "kind", "state", "~why", "node", "submitted", "#took"], info.past.slice(0, 200).map((/** @type {any} */ job) => [
        job.job, job.kind, stateMark(job.state), job.why, job.node ?? "", job.submitted_ms === null ? "" : time(job.submitted_ms),
        job.submitted_ms === null || job.ended_ms === null ? "" : duration((job.ended_ms - job.submitted_ms) / 1000)]), "No earlier jobs."));
    };
    draw(await get("jobs", { all: 1 }));
    return {
      element: [h("div", { class: "head" }, h("h1", {}, "Jobs"), h("span", { class: "muted" }, about.domain ? `domain ${about.domain}` : "no domain")), problem, tiles,
        panel("Queues", [], queues), panel("Unfinished", [], running), panel("Failed and cancelled", [], ended), panel("Earlier", [], past)],
      live: { jobs: "all" },
      update(update) {
        if (update.jobs) draw(update.jobs);
      },
    };
  },
};
