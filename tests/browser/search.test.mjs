// The view of a search in a real browser, over records that a search left.

import { after, before, test } from "node:test";
import assert from "node:assert/strict";
import { appendFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Browser, Sandbox, picture, shows, sound } from "./kit.mjs";

/** @type {Sandbox} */
let sandbox;
/** @type {Browser} */
let browser;
/** The address of the dashboard, and the directory of the search. */
let address, search;

const line = (event, value) => `${JSON.stringify({ at: 1_763_302_502_000, event, value })}\n`;

/** Records of a trial up to a budget. */
function trial(number, accuracy, params, budget) {
  const proposed = { trial: number, genes: [], archid: `(${number}, <b>)`, model: `m${number}`, parents: number > 3 ? [1, 2] : [], known: { params, memory: params * 4 } };
  return line("trial_proposed", proposed) + line("trial_queued", { trial: number, rung: 0, from: 0, to: budget })
    + line("trial_started", { trial: number, node: "n1" }) + line("trial_reached", { trial: number, budget, values: { accuracy }, seconds: 2 });
}

before(async () => {
  sandbox = new Sandbox();
  browser = await Browser.open();
  search = join(sandbox.dir, "searches/s1");
  mkdirSync(search, { recursive: true });
  const objective = (name, goal, cheap) => ({ name, goal, cheap });
  writeFileSync(join(search, "search.json"), JSON.stringify({
    id: "s1", name: "digits <b>", algorithm: "guided", seed: 1, objectives: [objective("accuracy", "max", false), objective("params", "min", true), objective("memory", "min", true)],
    rungs: [1, 9], trials: 20, space: { genes: [] }, started: 1_763_302_500_000,
  }));
  const trials = [...Array(12).keys()].map((i) => trial(i + 1, 0.5 + ((i * 7) % 12) / 30, 1000 * (1 + ((i * 5) % 11)), 1));
  const failed = line("trial_ended", { trial: 4, end: { state: "failed", why: "out of memory <script>" } });
  writeFileSync(join(search, "events.jsonl"), trials.join("") + failed);
  address = await sandbox.dashboard("runs", "--no-domain");
});

after(async () => {
  await browser?.close();
  await sandbox?.close();
});

test("a search shows its front, its curve and its trials, live", async () => {
  const page = await browser.page(`${address}#/search`);
  await page.getByRole("link", { name: "s1" }).click();
  await shows(page, "h1", "digits <b>");
  await page.waitForSelector("#scatter circle.front");
  assert.equal(await page.locator("#scatter circle").count(), 11, "the one that failed is left out");
  assert.equal(await page.locator("#trials tbody tr").count(), 12);
  await page.locator("#scatter circle.front").first().hover();
  await page.waitForFunction(() => document.querySelector("#scatter .tip")?.textContent.includes("accuracy"));
  await page.getByLabel("State of trials").selectOption("failed");
  await page.waitForFunction(() => document.querySelectorAll("#trials tbody tr").length === 1);
  await shows(page, "#trials", "out of memory <script>");
  await page.getByLabel("State of trials").selectOption("");
  appendFileSync(join(search, "events.jsonl"), trial(13, 0.99, 10, 9));
  await shows(page, "#trials", "(13, <b>)");
  await page.waitForFunction(() => document.querySelectorAll("#scatter circle").length === 12);
  await page.getByLabel("up").selectOption("2");
  await page.waitForFunction(() => document.querySelector("#scatter svg")?.getAttribute("aria-label")?.startsWith("memory over accuracy"));
  await picture(page, "search", { fullPage: true });
  await sound(page, "search");
});

test("a search in dark mode, and one that is not there", async () => {
  const dark = await browser.page(`${address}#/search/s1`, { colorScheme: "dark" });
  await dark.waitForSelector("#scatter circle.front");
  await picture(dark, "search-dark", { fullPage: true });
  await sound(dark, "search in dark mode");
  await dark.evaluate(() => { location.hash = "#/search/other"; });
  await shows(dark, "[role=alert]", "there is no search");
  dark.wrong = dark.wrong.filter((one) => !one.includes("404"));
  assert.deepEqual(dark.wrong, []);
});
