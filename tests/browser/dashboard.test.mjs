// The dashboard in a real browser, over runs that real nodes trained.

import { after, before, test } from "node:test";
import assert from "node:assert/strict";
import { appendFileSync, cpSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Browser, Sandbox, drawn, picture, root, shows, sound, upload } from "./kit.mjs";

const digits = join(root, "examples/digits/run.toml");
/** A machine may be so many times slower than the one for which times are promised. */
const SLACK = Number(process.env.PHALANX_SLACK ?? 3);
/** @type {Sandbox} */
let sandbox;
/** @type {Browser} */
let browser;
/** The address of a dashboard over two finished runs. */
let finished;

before(async () => {
  sandbox = new Sandbox();
  browser = await Browser.open();
  await sandbox.run("train", digits, "--run-dir", "runs/first", "--steps", "120", "--set", "train.validate_every=\"40 steps\"");
  await sandbox.run("train", digits, "--run-dir", "runs/second", "--steps", "80", "--lr", "0.01");
  finished = await sandbox.dashboard("runs", "--no-domain");
});

after(async () => {
  await browser?.close();
  await sandbox?.close();
});

test("runs are listed, searched, sorted and compared", async () => {
  const page = await browser.page(`${finished}#/runs`);
  await page.waitForSelector("#runs tbody tr[data-run]");
  assert.equal(await page.locator("#runs tbody tr[data-run]").count(), 2);
  await page.fill("input[type=search]", "sec");
  await page.waitForFunction(() => document.querySelectorAll("#runs tbody tr[data-run]").length === 1);
  await page.fill("input[type=search]", "");
  await page.waitForFunction(() => document.querySelectorAll("#runs tbody tr[data-run]").length === 2);
  await page.fill("input[type=search]", "train.optimizer.lr = 0.01 and loss > 0");
  await page.waitForFunction(() => document.querySelector("#runs tbody tr")?.dataset.run === "second" && document.querySelectorAll("#runs tbody tr[data-run]").length === 1);
  await page.fill("input[type=search]", "los > 0");
  await shows(page, "[role=alert]", "did you mean `loss`?");
  page.wrong = page.wrong.filter((one) => !one.includes("400"));
  await page.fill("input[type=search]", "");
  await page.waitForFunction(() => document.querySelectorAll("#runs tbody tr[data-run]").length === 2);
  await page.getByRole("button", { name: "steps" }).click();
  await page.waitForFunction(() => document.querySelector("th[aria-sort]")?.textContent === "steps");
  await page.waitForFunction(() => document.querySelector("#runs tbody tr")?.dataset.run === "first");
  await picture(page, "runs");
  await sound(page, "runs");
  await page.getByLabel("Choose first").check();
  await page.getByLabel("Choose second").check();
  await page.getByRole("button", { name: "Compare 2 runs" }).click();
  await shows(page, "h1", "Compare 2 runs");
  await shows(page, "#differences", "train.optimizer.lr");
  assert.ok((await drawn(page)).some((colours) => colours > 5), "two curves are drawn");
  await picture(page, "compare", { fullPage: true });
  await sound(page, "compare");
});

test("a finished run shows curves, configuration, files, and replays", async () => {
  const page = await browser.page(`${finished}#/run/first`);
  await shows(page, "h1", "first");
  await page.waitForSelector("canvas.plot");
  assert.ok((await drawn(page))[0] > 4, "the loss is drawn");
  await shows(page, "main", "train.batch");
  await shows(page, "main", "run.toml:");
  await shows(page, "main", "model.onnx");
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "run.toml" }).click()]);
  assert.equal(readFileSync(await download.path(), "utf8"), readFileSync(join(sandbox.dir, "runs/first/run.toml"), "utf8"));
  await shows(page, "#log", "ended");
  await picture(page, "run");
  const before = await page.locator(".tile b").first().textContent();
  await page.getByLabel("Replay: place in time").fill("500");
  await page.waitForFunction((before) => document.querySelector(".tile b")?.textContent !== before, before);
  await picture(page, "replay", { fullPage: true });
  await page.getByRole("button", { name: "Now" }).click();
  await page.waitForFunction((before) => document.querySelector(".tile b")?.textContent === before, before);
  await page.getByRole("button", { name: "Log scale" }).click();
  await page.getByLabel("Horizontal axis").selectOption("samples");
  await page.getByRole("button", { name: "Table" }).first().click();
  await page.waitForSelector(".behind table");
  await sound(page, "run");
});

test("a chart is used with the keyboard alone, and zooms", async () => {
  const page = await browser.page(`${finished}#/run/first`);
  await page.waitForSelector("canvas.plot");
  const canvas = page.locator("canvas.plot").first();
  await canvas.focus();
  await page.keyboard.press("ArrowRight");
  await page.waitForFunction(() => /step .*: loss/.test(document.getElementById("announce")?.textContent ?? ""));
  await page.keyboard.press("+");
  await page.waitForFunction(() => [...document.querySelectorAll("button")].some((button) => button.textContent === "Show all" && !button.disabled));
  await page.keyboard.press("0");
  await page.waitForFunction(() => [...document.querySelectorAll("button")].some((button) => button.textContent === "Show all" && button.disabled));
  await sound(page, "keyboard");
});

test("every view is reached by keyboard alone", async () => {
  const page = await browser.page(`${finished}#/overview`);
  await shows(page, "h1", "Overview");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement?.className), "skip");
  for (let i = 0; i < 3; i += 1) await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Runs");
  await page.keyboard.press("Enter");
  await shows(page, "h1", "Runs");
  await page.waitForSelector("#runs tbody tr[data-run]");
  // On to the first run and into it.
  for (let i = 0; i < 40; i += 1) {
    await page.keyboard.press("Tab");
    if (await page.evaluate(() => document.activeElement?.getAttribute("href")?.startsWith("#/run/"))) break;
  }
  await page.keyboard.press("Enter");
  await page.waitForSelector("canvas.plot");
  await sound(page, "keyboard");
});

test("dark mode and a phone's width", async () => {
  const dark = await browser.page(`${finished}#/run/first`, { colorScheme: "dark" });
  await dark.waitForSelector("canvas.plot");
  const colour = () => dark.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(await colour(), "rgb(18, 22, 27)");
  await picture(dark, "run-dark", { fullPage: true });
  await sound(dark, "dark");
  await dark.getByRole("button", { name: /Theme/ }).click();
  assert.notEqual(await colour(), "rgb(18, 22, 27)", "the switch wins over the system");
  const phone = await browser.page(`${finished}#/run/first`, { viewport: { width: 390, height: 844 } });
  await phone.waitForSelector("canvas.plot");
  assert.ok(await phone.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), "nothing is wider than the screen");
  await picture(phone, "phone", { fullPage: true });
  await sound(phone, "phone");
});

test("a million points are drawn in a second, and the first paint comes after half of one", async (t) => {
  const own = new Sandbox();
  try {
    const run = join(own.dir, "runs/long");
    mkdirSync(join(run, "checkpoints"), { recursive: true });
    writeFileSync(join(run, "lock"), "");
    writeFileSync(join(run, "run.toml"), "[model]\nname = \"long\"\n");
    writeFileSync(join(run, "state.json"), JSON.stringify({ state: "finished", started: "2026-11-16T14:15:02Z", model: "long", steps: 1_000_000, total_steps: 1_000_000 }));
    for (let from = 0; from < 1_000_000; from += 10_000) {
      const line = (_, i) => `{"step":${from + i + 1},"pass":1,"loss":${2 / Math.sqrt(from + i + 1) + ((from + i) * 7919 % 1000) / 1e4},"unix_ms":${1763302502000 + from + i}}\n`;
      appendFileSync(join(run, "metrics.jsonl"), Array.from({ length: 10_000 }, line).join(""));
    }
    const url = await own.dashboard("runs", "--no-domain");
    // From then on curves come from the ledger.
    const until = Date.now() + 300_000;
    while ((await (await fetch(`${url}api/v1/about`)).json()).note !== null) assert.ok(Date.now() < until, "the ledger is not up to date");
    const page = await browser.page(`${url}#/run/long`);
    const measure = async () => {
      await page.reload();
      const drawn = await page.waitForFunction(() => {
        const canvas = /** @type {HTMLCanvasElement | null} */ (document.querySelector("canvas.plot"));
        if (!canvas || !document.querySelector("main")?.textContent?.includes("1,000,000")) return 0;
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        // The line has a colour; axes and their words have none.
        let coloured = 0;
        for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 127 && Math.abs(data[i] - data[i + 2]) > 60) coloured += 1;
        return coloured > 200 ? performance.now() : 0;
      }, null, { polling: 20 });
      const paint = await page.evaluate(() => performance.getEntriesByType("paint").find((one) => one.name === "first-contentful-paint")?.startTime);
      return { drawn: await drawn.jsonValue(), paint };
    };
    const times = [await measure(), await measure(), await measure()];
    const median = (name) => times.map((one) => one[name]).sort((a, b) => a - b)[1];
    t.diagnostic(`first paint after ${median("paint").toFixed(0)} ms, a million points drawn after ${median("drawn").toFixed(0)} ms`);
    assert.ok(median("paint") > 0 && median("paint") < 500 * SLACK, `first paint after ${median("paint")} ms`);
    assert.ok(median("drawn") < 1000 * SLACK, `drawn after ${median("drawn")} ms`);
    await picture(page, "long");
    await sound(page, "a long run");
    // What is measured is the drawing: it is late if the curve is.
    await page.route("**/curves*", async (route) => {
      await new Promise((later) => setTimeout(later, 1000 * SLACK));
      await route.continue();
    });
    assert.ok((await measure()).drawn > 1000 * SLACK, "a late curve is seen to be late");
  } finally {
    await own.close();
  }
});

test("a copied run directory replays with nothing else", async () => {
  cpSync(join(sandbox.dir, "runs/first"), join(sandbox.dir, "elsewhere/copied"), { recursive: true });
  const page = await browser.page(await sandbox.dashboard("elsewhere/copied", "--no-domain"));
  await shows(page, "h1", "copied");
  await shows(page, "#note", "read from its files alone");
  await page.waitForSelector("canvas.plot");
  await page.getByLabel("Replay: place in time").fill("250");
  await page.waitForFunction(() => !document.querySelector(".replay output")?.textContent.includes("120"));
  await sound(page, "copied");
});

test("a run that was pushed shows where its files are", async () => {
  await sandbox.run("train", digits, "--run-dir", "runs/pushed", "--steps", "20");
  const page = await browser.page(`${finished}#/run/pushed`);
  await shows(page, "#log", "ended");
  assert.ok(await page.locator("section.panel[aria-label=Artifacts]").isHidden(), "nothing was pushed yet");
  await sandbox.run("run", "push", "pushed", "--to", join(sandbox.dir, "shelf"));
  await shows(page, "#artifacts", "model.safetensors");
  await shows(page, "#artifacts", "/shelf/");
  await page.waitForFunction(() => /model.safetensors is at file:.*KiB/.test(document.getElementById("log")?.textContent ?? ""));
  assert.ok(!(await page.locator("#log").textContent())?.includes('{"'), "the log is not raw JSON");
  await sound(page, "a pushed run");
});

test("text of users stays text", async () => {
  const evil = `<img src=x onerror="alert(1)"><script>alert(2)</script><svg/onload=alert(3)>\u001b[31m\u001b]8;;http://evil.example\u0007,\u202e{{7*7}}`;
  const run = join(sandbox.dir, "runs/evil");
  mkdirSync(join(run, "checkpoints"), { recursive: true });
  writeFileSync(join(run, "lock"), "");
  writeFileSync(join(run, "run.toml"), `[model]\nname = "${evil.replaceAll("\"", "'")}" # from ${evil}\n`);
  writeFileSync(join(run, `${evil.replaceAll("/", "_")}.txt`), "x");
  writeFileSync(join(run, "state.json"), JSON.stringify({ state: "failed", reason: evil, started: "2026-11-16T14:15:02Z", model: evil, total_steps: 5 }));
  writeFileSync(join(run, "events.jsonl"), `${JSON.stringify({ seq: 0, unix_ms: 1763302502000, event: evil, value: evil })}\n${JSON.stringify({ seq: 1, unix_ms: 1763302502001, event: "lost", value: { node: evil, reason: evil } })}\n`);
  writeFileSync(join(run, "formation.json"), JSON.stringify({ epochs: [{ epoch: 0, from_step: 0, ended: evil, replicas: [{ replica: 0, stages: [{ stage: 0, node: evil, first: evil, last: evil, operators: 1, parameters: 1 }] }] }] }));
  const annotations = [{ unix_ms: 1, set: { [evil]: evil, "javascript:alert(4)": "\" onmouseover=alert(5) x=\"" } }, { unix_ms: 2, note: evil }];
  writeFileSync(join(run, "annotations.jsonl"), annotations.map((line) => `${JSON.stringify(line)}\n`).join(""));
  for (const step of [1, 2]) appendFileSync(join(run, "metrics.jsonl"), `${JSON.stringify({ step, loss: step, [evil]: 3 * step, epoch: 0, replicas: [{ node: evil, compute_ms: step, [evil]: 1 }] })}\n`);
  for (const view of ["runs", "run/evil", "compare/evil,first", "overview", `run/${encodeURIComponent(evil)}`, encodeURIComponent(evil), `runs?q=${encodeURIComponent(evil)}`]) {
    const page = await browser.page(`${finished}#/${view}`);
    if (!view.includes("%3C") || view.startsWith("run/")) await shows(page, "main", "onerror");
    else await page.waitForSelector("h1");
    assert.equal(await page.evaluate(() => document.querySelectorAll("main img, main script, main svg[onload], [onmouseover], [onerror]").length), 0, view);
    // A run or a filter that is not there is an answer, not a fault of the page.
    assert.deepEqual(page.wrong.filter((one) => !/status of 40[04]/.test(one)), [], view);
  }
  const page = await browser.page(`${finished}#/run/evil`);
  await shows(page, "#notes", evil);
  await shows(page, ".tags", evil);
  await page.waitForFunction((evil) => [...document.querySelectorAll("section.panel h2")].some((title) => title.textContent === evil), evil);
  assert.ok((await page.locator("canvas.plot").count()) >= 2, "a series of any name is drawn");
  await page.getByRole("button", { name: "Table" }).last().click();
  await sound(page, "hostile text");
});

test("a run is stopped, resumed, tagged and noted from the page by who may act", async () => {
  const own = new Sandbox();
  try {
    const [reading, acting] = [await own.dashboard("runs", "--no-domain"), await own.dashboard("runs", "--no-domain", "--control")];
    const training = own.start("train", digits, "--run-dir", "runs/live", "--epochs", "100000", "--set", "train.checkpoint_every=\"20 steps\"");
    const page = await browser.page(`${acting}#/runs`);
    await page.getByRole("link", { name: "live" }).click();
    await page.waitForFunction(() => Number(document.querySelector(".tile b")?.textContent.split("/")[0].replaceAll(",", "")) > 40);
    const looks = await browser.page(`${reading}#/run/live`);
    await shows(looks, "h1", "live");
    assert.equal(await looks.getByRole("button", { name: /^(Stop|Tag|Add note)$/ }).count(), 0, "a viewer who may not act has no button");
    await page.getByLabel("New tag").fill("owner: <b>ada</b>");
    await page.getByRole("button", { name: "Tag" }).click();
    await shows(page, ".tags", "owner: <b>ada</b>");
    await page.getByLabel("New note").fill("<i>looks</i> well");
    await page.getByRole("button", { name: "Add note" }).click();
    await shows(page, "#notes", "<i>looks</i> well");
    await page.getByRole("button", { name: "Stop" }).click();
    await shows(page, ".head .state", "interrupted");
    assert.equal(await training.done, 1, "it ended by itself, as after Ctrl-C");
    const step = () => page.evaluate(() => Number(document.querySelector(".tile b")?.textContent.split("/")[0].replaceAll(",", "")));
    const stopped = await step();
    await page.getByRole("button", { name: "Resume" }).click();
    await shows(page, ".head .state", "running");
    await page.waitForFunction((stopped) => Number(document.querySelector(".tile b")?.textContent.split("/")[0].replaceAll(",", "")) > stopped + 5, stopped);
    await picture(page, "run-control");
    await page.getByRole("button", { name: "Stop" }).click();
    await shows(page, ".head .state", "interrupted");
    await sound(page, "stopped");
    // What cannot be resumed says why.
    renameSync(join(own.dir, "runs/live/checkpoints"), join(own.dir, "runs/live/lost"));
    writeFileSync(join(own.dir, "runs/live/run.toml"), "[<b>model</b>]\n");
    await page.getByRole("button", { name: "Resume" }).click();
    await shows(page, "[role=alert]", "resuming ended with exit status");
    assert.equal(await page.locator("[role=alert] b").count(), 0);
    await sound(page, "not resumed");
  } finally {
    await own.close();
  }
});

test("three nodes train, one is killed, and the page says so within two seconds", async () => {
  const own = new Sandbox();
  try {
    const nodes = [await own.node("alpha"), await own.node("beta"), await own.node("gamma")];
    const url = await own.dashboard("runs");
    const page = await browser.page(`${url}#/overview`);
    await page.waitForFunction(() => ["alpha", "beta", "gamma"].every((name) => document.getElementById("nodes")?.textContent.includes(name)));
    own.start("train", digits, "--run-dir", "runs/live", "--replicas", "3", "--epochs", "100000", "--no-mdns", "--set", "formation.min_replicas=2");
    await page.waitForFunction(() => document.querySelector("#domain")?.textContent.includes("run"));
    await picture(page, "overview", { fullPage: true });
    await sound(page, "overview");
    const live = await browser.page(`${url}#/run/live`, { viewport: { width: 1360, height: 1180 } });
    await shows(live, "#formation", "gamma");
    const step = () => live.evaluate(() => Number(document.querySelector(".tile b")?.textContent.split("/")[0].replaceAll(",", "")));
    const first = await step();
    await live.waitForFunction((first) => Number(document.querySelector(".tile b")?.textContent.split("/")[0].replaceAll(",", "")) > first + 5, first);
    await picture(live, "run-live");
    const killed = Date.now();
    nodes[2].child.kill("SIGKILL");
    await live.waitForFunction(() => /lost/.test(document.querySelector("#formation .gone")?.parentElement.textContent ?? ""), null, { polling: 50 });
    const took = Date.now() - killed;
    const said = await live.locator("#formation").textContent();
    assert.ok(took < 2000, `the picture changed after ${took} ms`);
    assert.match(said, /lost: \S+/, "it says why");
    await picture(live, "run-node-lost");
    await sound(live, "live run");
    await shows(page, "#recent", "lost");
  } finally {
    await own.close();
  }
});

test("jobs are shown with their reasons, and cancelled by who may act", async () => {
  const own = new Sandbox();
  try {
    await own.node("solo", "--allow-exec");
    const [reading, acting] = [await own.dashboard("runs"), await own.dashboard("runs", "--control")];
    own.start("job", "submit", "--no-mdns", "--kind", "sleep", "--arg", "600s", "--count", "2", "--wait");
    const page = await browser.page(`${acting}#/jobs`);
    await page.waitForFunction(() => document.querySelector("#running .state.running"));
    const looks = await browser.page(`${reading}#/jobs`);
    await looks.waitForFunction(() => document.querySelector("#running .state.running"));
    assert.equal(await looks.getByRole("button", { name: /Cancel/ }).count(), 0, "a viewer who may not act has no button");
    await picture(page, "jobs");
    await sound(page, "jobs");
    await page.getByRole("button", { name: /Cancel/ }).first().click();
    await shows(page, "#ended", "cancelled");
    await page.getByRole("button", { name: /Cancel/ }).first().click();
    // One of two fails with what it printed; the other one keeps their main node there.
    const script = `mkdir ${join(own.dir, "first")} || exec sleep 600; printf '<img src=x onerror=alert(1)>\\033[31m' >&2; exit 3`;
    own.start("job", "submit", "--no-mdns", "--kind", "exec", "--count", "2", "--wait", "--", "sh", "-c", script);
    await shows(page, "#ended", "<img src=x onerror=alert(1)>");
    assert.equal(await page.locator("main img").count(), 0, "what a job printed is text");
    await sound(page, "a job's output");
    // A main node that is killed leaves its jobs, as far as they came.
    await own.node("helper");
    const main = own.start("job", "submit", "--no-mdns", "--kind", "upper", "--arg", "<i>x</i>", "--count", "3", "--name", "gone", "--journal", "gone.journal", "--wait");
    assert.equal(await main.done, 0, main.said);
    const killed = own.start("job", "submit", "--no-mdns", "--kind", "nobody", "--count", "2", "--name", "dead", "--journal", "dead.journal", "--wait");
    await shows(page, "#running", "@dead-");
    await shows(page, "#past", "3@gone");
    // The overview says what waits and why, and takes it away again.
    const overview = await browser.page(`${reading}#/overview`);
    await shows(overview, "#waits", "2 jobs");
    await shows(overview, "#waits", "no node of this domain handles \"nobody\"");
    await sound(overview, "overview with waiting jobs");
    killed.kill("SIGKILL");
    await shows(page, "#past", "2@dead");
    await overview.waitForFunction(() => !document.querySelector("#waits")?.textContent.includes("nobody"));
    await shows(page, "#past", "its main node dead is gone");
    assert.ok((await page.locator("#past tr", { hasText: "3@gone" }).textContent()).includes("helper-"), "it says who solved it");
    await picture(page, "jobs-past", { fullPage: true });
    await sound(page, "jobs of main nodes that are gone");
  } finally {
    await own.close();
  }
});

test("a store shows its memory, the streams, and why a trainer waits", async () => {
  const store = sandbox.start("store", "serve", "--bind", "127.0.0.1:0", "--memory", "64MiB");
  const { value } = await store.lines.next();
  assert.ok(value, store.said);
  const { address } = JSON.parse(value);
  const run = readFileSync(digits, "utf8").replace(/^train = .*$/m, `train = { stream = "<b>samples</b>", store = "${address}", x = "x", y = "y", mode = "grow", min_samples = 100 }`);
  assert.notEqual(run, readFileSync(digits, "utf8"));
  cpSync(join(root, "examples/digits"), join(sandbox.dir, "streaming"), { recursive: true });
  writeFileSync(join(sandbox.dir, "streaming/run.toml"), run);
  const url = await sandbox.dashboard("runs", "--no-domain", "--store", address);
  const page = await browser.page(`${url}#/stores`);
  await shows(page, "h1", "Stores");
  await shows(page, "#stores", "No streams.");
  await shows(page, "#stores", "of 64.0 MiB");
  const producer = await upload(address, "<b>samples</b>", 20);
  await shows(page, "#stores", "Stream <b>samples</b>");
  await shows(page, "#stores", "20 samples in 1 uploads");
  sandbox.start("train", "streaming/run.toml", "--run-dir", "runs/streaming");
  await shows(page, "#stores", "before its first pass");
  await shows(page, "#stores", "20 of 100 samples have arrived, 1 producer is open (sim)");
  assert.equal(await page.locator("#stores b b").count(), 0, "names are text");
  await picture(page, "stores", { fullPage: true });
  await sound(page, "stores");
  producer.destroy();
  await shows(page, "#stores", "producer sim is lost: its connection broke");
  store.kill("SIGKILL");
  await shows(page, "#stores", "Cannot be looked at");
  await sound(page, "a lost store");
});
