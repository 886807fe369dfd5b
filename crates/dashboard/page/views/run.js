// One run, live or replayed: curves, formation, timeline, log, configuration, files.

import { get, post, runPath } from "../api.js";
import { Curves, groupsOf, nodeGroupsOf } from "../curves.js";
import { announce, h, panel, put, stateMark, table } from "../dom.js";
import { bytes, duration, eventText, number, percent, pushedFiles, time, whyLost } from "../format.js";
import { drawFormation, epochAt, nodesOf } from "../formation.js";
import { drawTimeline } from "../timeline.js";

class RunPage {
  /** @param {string} id @param {any} run @param {any} parts */
  constructor(id, run, parts) {
    this.id = id;
    this.run = run;
    this.names = parts.series.map((/** @type {any} */ series) => series.name);
    /** @type {import("../formation.js").Epoch[]} */
    this.epochs = parts.formation.epochs ?? [];
    /** @type {any[]} */
    this.events = parts.events;
    this.config = parts.config;
    const batch = Number(this.config.find((/** @type {any} */ value) => value.key === "train.batch")?.value) || 1;
    const shown = [{ id, label: id, batch }];
    this.curves = new Curves(shown, groupsOf(this.names));
    this.nodes = new Curves(shown, nodeGroupsOf(this.names));
    /** Steps and times of recorded points, for replay. @type {{step: number, unix_ms: number | null}[]} */
    this.points = [];
    /** @type {Map<string, string>} */
    this.lost = new Map();
    this.playing = 0;
    /** @type {boolean} */
    this.control = parts.control && !run.elsewhere;
    /** @type {boolean} */
    this.resumes = parts.resumes;
    /** Whether this page has asked for the run to be resumed. */
    this.resuming = false;
    /** @type {any[]} */
    this.remarks = parts.notes;
    this.problem = h("p", { class: "note bad", role: "alert", hidden: true });
    this.elsewhere = run.elsewhere ? h("p", { class: "note" }, `The files of this run are at ${run.elsewhere}. What the ledger has of it is shown.`) : null;
    this.notes = h("div", { id: "notes" });
    this.tags = h("div", { class: "tags" });
    this.head = h("div", { class: "head" });
    this.tiles = h("div", { class: "tiles" });
    this.why = h("p", { class: "note warn", hidden: true });
    this.formation = h("div", { id: "formation" });
    this.timeline = h("div", { id: "timeline" });
    this.log = h("div", { class: "log", id: "log", tabindex: "0", role: "group", "aria-label": "Log" });
    this.files = h("div", {}, h("p", { class: "muted pad" }, "Loading."));
    this.checkpoints = h("div", {});
    /** Where files were pushed; shown when there are any. */
    this.pushed = h("div", { id: "artifacts" });
    this.artifacts = panel("Artifacts", [], this.pushed);
    /** The time or step of replay. @type {number | null} */
    this.at = null;
    this.slider = /** @type {HTMLInputElement} */ (h("input", { type: "range", min: 0, max: 1000, value: 1000, "aria-label": "Replay: place in time" }));
    this.slider.addEventListener("input", () => this.goTo(Number(this.slider.value) / 1000));
    this.place = h("output", {});
    this.play = h("button", { type: "button", onclick: () => this.togglePlay() }, "Play");
    this.now = /** @type {HTMLButtonElement} */ (h("button", { type: "button", disabled: true, onclick: () => this.goTo(null) }, "Now"));
    this.replay = h("div", { class: "replay" }, this.play, this.slider, this.place, this.now);
  }

  /** Where the run begins and ends: times, or steps if no times were recorded. */
  axis() {
    const timed = this.points.length > 0 && this.points.every((point) => point.unix_ms !== null);
    const first = this.points[0], last = this.points[this.points.length - 1];
    if (!timed) return { timed, low: 0, high: Math.max(last?.step ?? 0, this.run.steps, 1), ofStep: (/** @type {number} */ step) => step };
    const low = Math.min(this.run.started_ms ?? Infinity, /** @type {number} */ (first.unix_ms));
    const high = Math.max(/** @type {number} */ (last.unix_ms), ...this.events.map((event) => event.unix_ms), low + 1);
    const ofStep = (/** @type {number} */ step) => {
      const at = this.points.findLastIndex((point) => point.step <= step);
      return at < 0 ? low : /** @type {number} */ (this.points[at].unix_ms);
    };
    return { timed, low, high, ofStep };
  }

  /** Goes to a part of the run's time, or back to the present. @param {number | null} part */
  goTo(part) {
    const axis = this.axis();
    if (part === null) {
      this.curves.until = this.nodes.until = this.at = null;
      this.slider.value = "1000";
      this.stopPlay();
    } else {
      this.at = axis.low + part * (axis.high - axis.low);
      const known = this.points.findLast((point) => (axis.timed ? /** @type {number} */ (point.unix_ms) : point.step) <= /** @type {number} */ (this.at));
      const until = { step: known?.step ?? 0, unix_ms: axis.timed ? this.at : null };
      this.curves.until = this.nodes.until = until;
    }
    this.now.disabled = part === null;
    this.draw();
  }

  togglePlay() {
    if (this.playing) return this.stopPlay();
    this.play.textContent = "Pause";
    // With reduced motion the picture changes rarely, in large steps.
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    let at = this.at === null || Number(this.slider.value) >= 1000 ? 0 : Number(this.slider.value);
    this.playing = window.setInterval(() => {
      at += calm ? 100 : 5;
      if (at > 1000) return this.stopPlay();
      this.slider.value = String(at);
      this.goTo(at / 1000);
    }, calm ? 1000 : 50);
  }

  stopPlay() {
    window.clearInterval(this.playing);
    this.playing = 0;
    this.play.textContent = "Play";
  }

  /** The step that is shown. */
  step() {
    return this.curves.until ? this.curves.until.step : null;
  }

  /** What a node did in the step that is shown. @param {string} node */
  times(node) {
    const of = (/** @type {string} */ field) => this.nodes.value(this.id, `node/${node}/${field}`);
    const idle = of("idle_ms");
    const wait = of("wait_ms");
    return { busy: of("compute_ms"), exchange: of("exchange_ms"), wait: wait === null && idle === null ? null : (wait ?? 0) + (idle ?? 0) };
  }

  /** Why a node is gone at the time that is shown. @param {string} node */
  lostWhy(node) {
    const until = this.at ?? Infinity;
    const timed = this.axis().timed;
    const changes = this.events.filter((event) => (!timed || event.unix_ms <= until) && ["lost", "formed"].includes(event.event));
    const last = changes.findLast((event) => (event.event === "lost" ? event.value?.node === node : (event.value?.nodes ?? []).includes(node)));
    if (last?.event === "lost") return whyLost(node, last.value?.why ?? last.value?.reason ?? "lost");
    return this.at === null ? this.lost.get(node) ?? null : null;
  }

  draw() {
    const { run, id } = this;
    put(this.head, h("h1", {}, run.name), stateMark(run.waiting ? "waiting" : run.state), h("span", { class: "muted" }, run.model),
      run.state === "running" && run.total_steps && h("progress", { max: run.total_steps, value: run.steps, "aria-label": "Progress of the run" }),
      h("span", { class: "grow" }), this.actionButton(), this.curves.tools);
    this.drawTags();
    this.drawNotes();
    const why = run.reason ?? run.waiting;
    this.why.hidden = !why;
    this.why.textContent = why ? `${run.reason ? "Why" : "Waits"}: ${why}` : "";
    const value = (/** @type {string} */ name) => this.curves.value(id, name) ?? (this.curves.until ? null : run.last[name]);
    const step = this.step();
    const tile = (/** @type {any} */ content, /** @type {string} */ name) => h("div", { class: "tile" }, h("b", { class: String(content).length > 11 ? "small" : undefined }, content), h("span", {}, name));
    put(this.tiles, tile(number(step ?? run.steps), run.total_steps ? `of ${number(run.total_steps)} steps` : "steps"), tile(number(value("loss")), "loss"),
      tile(number(value("val_loss")), "validation loss"), tile(percent(value("val_acc")), "accuracy"),
      tile(number(value("samples_per_s")), "samples/s"), tile(duration(run.wall_s), "wall"), tile(time(run.started_ms), "started"));
    const axis = this.axis();
    const at = this.at ?? axis.high;
    const index = epochAt(this.epochs, step);
    put(this.formation, drawFormation(this.epochs, index, (node) => this.times(node), (node) => this.lostWhy(node)));
    put(this.timeline, drawTimeline(this.epochs, this.events, { ...axis, at }));
    const shownStep = step ?? run.steps;
    this.place.textContent = axis.timed ? `${time(at)}, step ${number(shownStep)}` : `step ${number(shownStep)}`;
    this.drawLog(axis.timed);
    this.drawArtifacts();
    this.curves.draw();
    this.nodes.draw();
  }

  /** Stops what runs, or resumes what does not, for who may. */
  actionButton() {
    const { control, resumes, run } = this;
    if (!control) return null;
    const act = (/** @type {string} */ verb) => h("button", { type: "button", onclick: () => this.act(verb) }, verb === "stop" ? "Stop" : "Resume");
    if (run.state === "running") return act("stop");
    return resumes && ["interrupted", "failed"].includes(run.state) ? act("resume") : null;
  }

  /** @param {string} verb */
  async act(verb) {
    try {
      await post(runPath(this.id, `/${verb}`), {});
      this.resuming = verb === "resume";
      this.say(null);
      announce(verb === "stop" ? "The run was told to stop" : "The run is being resumed");
    } catch (error) {
      this.say(/** @type {Error} */ (error).message);
    }
  }

  /** @param {string | null} problem */
  say(problem) {
    this.problem.hidden = problem === null;
    this.problem.textContent = problem ?? "";
  }

  drawNotes() {
    if (this.notes.contains(document.activeElement)) return;
    const input = /** @type {HTMLInputElement} */ (h("input", { type: "text", placeholder: "note", "aria-label": "New note" }));
    const add = (/** @type {Event} */ event) => {
      event.preventDefault();
      if (input.value.trim()) this.annotate({ note: input.value.trim() });
    };
    put(this.notes, this.remarks.map((note) => h("p", { class: "remark" }, h("span", { class: "muted" }, time(note.unix_ms)), " ", note.text)),
      this.control && h("form", { onsubmit: add }, input, " ", h("button", {}, "Add note")));
    this.notes.hidden = this.remarks.length === 0 && !this.control;
  }

  drawTags() {
    const entries = Object.entries(this.run.tags);
    const shown = entries.map(([key, value]) => h("span", { class: "tag" }, value ? `${key}: ${value}` : key,
      this.control && h("button", { type: "button", "aria-label": `Remove tag ${key}`, onclick: () => this.annotate({ remove: key }) }, "×")));
    // What is being typed stays.
    if (this.tags.contains(document.activeElement)) return;
    const input = /** @type {HTMLInputElement} */ (h("input", { type: "text", placeholder: "tag or key: value", "aria-label": "New tag" }));
    const add = (/** @type {Event} */ event) => {
      event.preventDefault();
      const [key, ...value] = input.value.split(":");
      if (key.trim()) this.annotate({ set: { [key.trim()]: value.join(":").trim() } });
    };
    put(this.tags, shown, this.control && h("form", { onsubmit: add }, input, " ", h("button", {}, "Tag")));
    this.tags.hidden = entries.length === 0 && !this.control;
  }

  /** @param {any} annotation */
  async annotate(annotation) {
    try {
      const { run, notes } = await post(runPath(this.id, "/annotations"), annotation);
      [this.run, this.remarks] = [run, notes];
      this.say(null);
      /** @type {HTMLElement | null} */ (document.activeElement)?.blur();
      this.draw();
    } catch (error) {
      this.say(/** @type {Error} */ (error).message);
    }
  }

  /** @param {boolean} timed */
  drawLog(timed) {
    const rows = this.events.map((event) => h("tr", { class: timed && this.at !== null && event.unix_ms > this.at ? "later" : undefined },
      h("td", {}, time(event.unix_ms)), h("td", {}, event.event), h("td", { class: "wrap" }, eventText(event))));
    // Runs of before events were recorded: what formation.json says.
    const old = this.events.length ? [] : this.epochs.map((epoch) => h("tr", {}, h("td", {}, `step ${epoch.from_step}`), h("td", {}, "formed"),
      h("td", { class: "wrap" }, `${nodesOf(epoch).join(", ")}${epoch.ended ? `; ended: ${epoch.ended}` : ""}`)));
    put(this.log, h("table", {}, h("caption", { class: "hidden" }, "Log: the events of the run"),
      h("thead", {}, h("tr", {}, ["when", "event", "what"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows.length ? rows.reverse() : old)));
  }

  /** Lists the files that were pushed, with the place of each. */
  drawArtifacts() {
    const pushed = pushedFiles(this.events);
    this.artifacts.hidden = pushed.length === 0;
    put(this.pushed, table("Artifacts", ["file", "~place", "#size", "SHA-256", "pushed"], pushed.map((file) => [
      file.path, h("code", {}, file.url), file.size === null ? "–" : bytes(file.size),
      h("code", { title: file.sha256 ?? undefined }, file.sha256?.slice(0, 12) ?? "–"), time(file.unix_ms)])));
  }

  async load() {
    const position = await this.curves.load();
    this.nodes.load().then(() => this.nodes.whole).then(() => this.draw()).catch((error) => console.warn(error.message));
    const loss = this.curves.data.get(this.id)?.values().next().value;
    this.points = loss ? loss.step.map((step, i) => ({ step, unix_ms: loss.unix_ms[i] })) : [];
    return position;
  }

  async loadFiles() {
    const [files, checkpoints] = await Promise.all([get(runPath(this.id, "/files")), get(runPath(this.id, "/checkpoints"))]);
    put(this.files, table("Files", ["file", "#size", "changed"], files.files.map((/** @type {any} */ file) => [
      h("a", { href: `/api/v1/${runPath(this.id, "/files/")}${file.path.split("/").map(encodeURIComponent).join("/")}`, download: "" }, file.path),
      bytes(file.bytes), time(file.modified_ms)]), "No files."));
    put(this.checkpoints, table("Checkpoints", ["#step", "#loss", "#val. loss", "#accuracy", "#size"], checkpoints.checkpoints.map((/** @type {any} */ c) => [
      number(c.step), number(c.loss), number(c.val_loss), percent(c.val_acc), bytes(c.bytes)]), "No checkpoints yet."));
  }

  /** @param {any} update */
  async update(update) {
    const summary = (update.runs ?? []).find((/** @type {any} */ run) => run.id === this.id);
    if (summary) {
      if (summary.state !== this.run.state) {
        announce(`The run is ${summary.state}`);
        this.loadFiles().catch((error) => console.warn(error.message));
      }
      this.run = summary;
      if (this.resuming) await this.watchResume();
    }
    for (const node of update.domain?.nodes ?? []) {
      if (node.state === "lost") this.lost.set(node.id, node.why ?? "lost");
      else this.lost.delete(node.id);
    }
    const run = update.run;
    if (run) {
      const last = this.events[this.events.length - 1]?.seq ?? -1;
      const news = run.events.filter((/** @type {any} */ event) => event.seq > last);
      this.events.push(...news);
      for (const event of news) if (["lost", "waiting", "formed"].includes(event.event)) announce(`${event.event}: ${eventText(event)}`);
      if (run.formation) this.epochs = run.formation.epochs ?? [];
      const fresh = run.points.some((/** @type {any} */ point) => Object.keys(point.values).some((name) => !this.names.includes(name)));
      if (run.reload || fresh || update.reload) await this.reload();
      else {
        this.curves.append(this.id, run.points);
        this.nodes.append(this.id, run.points);
        this.points.push(...run.points.map((/** @type {any} */ point) => ({ step: point.step, unix_ms: point.unix_ms })));
      }
    }
    if (run || summary || update.domain) this.draw();
  }

  /** Says why the run could not be resumed, if so. */
  async watchResume() {
    if (this.run.state === "running") {
      this.resuming = false;
      return;
    }
    const { resume_failed } = await get(runPath(this.id));
    if (resume_failed) {
      this.resuming = false;
      this.say(resume_failed);
    }
  }

  async reload() {
    const { series } = await get(runPath(this.id, "/series"));
    this.names = series.map((/** @type {any} */ one) => one.name);
    this.curves.regroup(groupsOf(this.names));
    this.nodes.regroup(nodeGroupsOf(this.names));
    await this.load();
  }
}

/** @type {import("../views.js").View} */
export default {
  path: "run",
  title: "Run",
  menu: false,
  async open({ about, rest: id }) {
    const [{ run, notes, resume_failed }, { series }, formation, { events, position: known }, { values }] = await Promise.all(
      ["", "/series", "/formation", "/events?limit=10000", "/config"].map((part) => get(runPath(id, part))));
    const page = new RunPage(id, run, { series, formation, events, config: values, notes, control: about.control, resumes: about.resumes });
    if (resume_failed) page.say(resume_failed);
    const position = await page.load();
    // Up to where metrics are known from the curves, and events from the events.
    const seen = [(position ?? known).split(".")[0], known.split(".")[1]];
    page.draw();
    page.loadFiles().catch((error) => put(page.files, h("p", { class: "note bad" }, error.message)));
    const config = table("Configuration", ["key", "~value", "source"], values.map((/** @type {any} */ value) => [value.key, h("code", {}, value.value), h("span", { class: "muted" }, value.source)]), "No run file.");
    return {
      element: [
        page.head, page.tags, page.problem, page.elsewhere, page.why, page.notes, page.tiles,
        panel("Replay and timeline", [], h("div", { class: "body" }, page.replay), page.timeline),
        page.curves.grid,
        panel("Formation", [], page.formation),
        page.nodes.groups.length ? h("div", { class: "head" }, h("h2", {}, "Nodes"), h("span", { class: "grow" }), page.nodes.tools) : h("span", { hidden: true }),
        page.nodes.grid,
        h("div", { class: "columns" },
          h("div", { class: "stack" }, panel("Log", [], page.log), panel("Configuration", [], config)),
          h("div", { class: "stack" }, panel("Checkpoints", [], page.checkpoints), panel("Files", [], page.files), page.artifacts)),
      ],
      live: { run: id, position: seen.join(".") },
      update: (update) => void page.update(update).catch((error) => console.warn(error.message)),
      close() {
        page.stopPlay();
        page.curves.close();
        page.nodes.close();
      },
    };
  },
};
