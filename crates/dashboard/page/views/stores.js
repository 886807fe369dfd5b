// Stores and their streams: memory, rates, lag of every reader, who waits and why.

import { get } from "../api.js";
import { h, panel, put, stateMark, table } from "../dom.js";
import { bytes, duration, number } from "../format.js";

/** @param {any} value @param {string} name */
const tile = (value, name) => h("div", { class: "tile" }, h("b", { class: String(value).length > 11 ? "small" : undefined }, value), h("span", {}, name));

/** A number of bytes, and the limit if there is one. @param {number} used @param {number | null} limit */
const share = (used, limit) => (limit ? `${bytes(used)} of ${bytes(limit)}` : bytes(used));

/** @param {any} summary */
function tiles(summary) {
  const disk = summary.spilled_bytes + summary.persisted_bytes;
  return h("div", { class: "tiles" }, tile(number(summary.keys), "keys"), tile(share(summary.resident_bytes, summary.memory_bytes), "in memory"),
    disk > 0 && tile(bytes(disk), "on disk"), tile(number(summary.clients), "clients"), tile(number(summary.commands), "commands"),
    tile(number(summary.refused_for_memory), "refused for memory"), tile(duration(summary.uptime_seconds), "up"), tile(summary.version, summary.nodes > 1 ? `version, ${summary.nodes} nodes` : "version"));
}

/** How far a reader is. @param {any} reader */
const place = (reader) => (reader.pass === null ? "before its first pass" : `pass ${number(reader.pass)}, step ${number(reader.step)} of ${number(reader.steps)}`);

/** @param {any} stream */
function drawStream(stream) {
  const samples = `${number(stream.samples)} samples in ${number(stream.uploads)} uploads, ${number(stream.samples_per_s)} a second, ${share(stream.stored_bytes, stream.budget_bytes)} kept`;
  const pending = stream.pending_datasets > 0 && h("p", { class: "pad" }, `${number(stream.pending_datasets)} datasets of the list do not count yet`);
  const trainers = stream.readers.flatMap((/** @type {any} */ reader) => reader.trainers.map((/** @type {any} */ trainer) => [`${trainer.id} of ${reader.id}`, number(trainer.rank), number(trainer.uncommitted)]));
  return panel(`Stream ${stream.name}`, [stateMark(stream.ended ? "finished" : "running")],
    h("p", { class: "pad" }, samples), pending,
    stream.waits.length > 0 && table(`What waits at ${stream.name}`, ["client", "~why"], stream.waits.map((/** @type {any} */ wait) => [wait.client, wait.why]), ""),
    table(`Producers of ${stream.name}`, ["producer", "state", "#uploads", "#held back"], stream.producers.map((/** @type {any} */ producer) => [producer.id, stateMark(producer.state), number(producer.uploads), number(producer.held)]), "No producers."),
    table(`Readers of ${stream.name}`, ["reader", "place", "#samples behind", "state"], stream.readers.map((/** @type {any} */ reader) => [reader.id, place(reader), number(reader.lag), stateMark(reader.ended ? "finished" : "running")]), "No readers."),
    trainers.length > 0 && table(`Trainers of ${stream.name}`, ["trainer", "#rank", "#steps not committed"], trainers, ""),
    stream.reports.length > 0 && h("ul", { class: "pad" }, stream.reports.slice(-8).map((/** @type {string} */ report) => h("li", {}, report))));
}

/** @param {any} store */
function drawStore(store) {
  const why = store.why ?? store.summary?.refuses_writes;
  return [h("h2", {}, `Store ${store.address}`), why && h("p", { class: "note warn" }, store.why ? `Cannot be looked at: ${why}` : `Refuses writes: ${why}`),
    store.summary && tiles(store.summary), ...store.streams.map(drawStream), store.summary && store.streams.length === 0 && h("p", { class: "muted" }, "No streams.")];
}

/** @type {import("../views.js").View} */
export default {
  path: "stores",
  title: "Stores",
  menu: true,
  async open() {
    const stores = h("div", { id: "stores" });
    const draw = (/** @type {any[]} */ infos) => {
      const none = h("p", { class: "muted" }, "No store is followed. phalanx dashboard --store ADDRESS follows one; the store of the domain is found by itself.");
      put(stores, infos.length === 0 ? none : infos.flatMap(drawStore));
    };
    draw((await get("stores")).stores);
    return {
      element: [h("div", { class: "head" }, h("h1", {}, "Stores")), stores],
      live: { stores: true },
      update(update) {
        if (update.stores) draw(update.stores);
      },
    };
  },
};
