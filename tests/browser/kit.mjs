// Real processes and a real browser for the tests of the dashboard.

import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import assert from "node:assert/strict";

export const root = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const target = resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
const binary = process.env.PHALANX ?? join(target, "debug/phalanx");
const modules = process.env.PHALANX_NPM ?? join(target, "browser");
const require = createRequire(join(modules, "package.json"));
const { chromium } = require("playwright-core");
const axe = require.resolve("axe-core/axe.min.js");
/** Where pictures are kept. */
export const pictures = process.env.PHALANX_PICTURES ?? join(target, "browser/pictures");
const WAIT = 30_000;

/** A place of its own for processes and files, removed at the end with all that was started in it. */
export class Sandbox {
  constructor() {
    this.dir = mkdtempSync(join(tmpdir(), "phalanx-browser-"));
    this.children = new Set();
    mkdirSync(join(this.dir, "runs"));
  }

  start(...args) {
    const own = (name) => join(this.dir, name);
    const env = {
      ...process.env, PHALANX_RUNTIME_DIR: own("run"), PHALANX_CONFIG_DIR: own("config"), PHALANX_STATE_DIR: own("state"),
      PHALANX_CACHE_DIR: own("cache"), PHALANX_OUTPUT: "json",
    };
    const child = spawn(binary, args, { cwd: this.dir, env, stdio: ["ignore", "pipe", "pipe"] });
    child.said = "";
    child.stderr.on("data", (text) => (child.said += text));
    child.lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    child.done = new Promise((done) => child.on("exit", (code, signal) => done(code ?? signal)));
    this.children.add(child);
    child.on("exit", () => this.children.delete(child));
    return child;
  }

  /** Runs a command to its end. */
  async run(...args) {
    const child = this.start(...args);
    for await (const _line of { [Symbol.asyncIterator]: () => child.lines });
    assert.equal(await child.done, 0, child.said);
  }

  /** A dashboard; gives its address. */
  async dashboard(...args) {
    const child = this.start("dashboard", "--bind", "127.0.0.1:0", "--no-mdns", ...args);
    const { value } = await child.lines.next();
    assert.ok(value, child.said);
    return JSON.parse(value).url;
  }

  /** A computing node; gives its process and its id. */
  async node(name, ...args) {
    const child = this.start("node", "--name", name, "--cores", "1", "--no-mdns", ...args);
    const { value } = await child.lines.next();
    assert.ok(value, child.said);
    return { child, id: JSON.parse(value).id ?? name };
  }

  async close() {
    const ends = [...this.children].map((child) => {
      child.kill("SIGKILL");
      return child.done;
    });
    await Promise.all(ends);
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** A browser in which any error on the console, broken policy or foreign request fails the test. */
export class Browser {
  static async open() {
    const own = new Browser();
    own.browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-dev-shm-usage"] });
    return own;
  }

  async page(url, options = {}) {
    const context = await this.browser.newContext({ viewport: { width: 1360, height: 900 }, reducedMotion: "reduce", ...options });
    const page = await context.newPage();
    page.setDefaultTimeout(WAIT);
    page.wrong = [];
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && page.wrong.push(`console: ${message.text()}`));
    page.on("pageerror", (error) => page.wrong.push(`error: ${error.message}`));
    page.on("dialog", (dialog) => {
      page.wrong.push(`dialog: ${dialog.message()}`);
      dialog.dismiss();
    });
    page.on("request", (request) => {
      if (new URL(request.url()).host !== new URL(url).host) page.wrong.push(`foreign request: ${request.url()}`);
    });
    await page.addInitScript(() => {
      document.addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
    });
    await page.goto(url);
    return page;
  }

  close() {
    return this.browser.close();
  }
}

/** Waits until a page shows a text. */
export async function shows(page, selector, text) {
  await page.waitForFunction(([selector, text]) => document.querySelector(selector)?.textContent.includes(text), [selector, text], { timeout: WAIT, polling: 50 });
}

/** Nothing went wrong on the page, and the check of accessibility finds nothing serious. */
export async function sound(page, name) {
  // The policy forbids scripts of other origins, so the checker is evaluated by the debugger.
  const { readFileSync } = await import("node:fs");
  await page.evaluate(readFileSync(axe, "utf8"));
  const found = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"] }));
  const serious = found.violations.filter((one) => ["serious", "critical"].includes(one.impact));
  assert.deepEqual(serious.map((one) => `${one.id}: ${one.nodes.map((node) => `${node.target} ${node.failureSummary}`).slice(0, 3).join("; ")}`), [], `${name}: accessibility`);
  assert.deepEqual(page.wrong, [], name);
}

/** Keeps a picture, and fails if it is empty: a page of one colour has few different bytes. */
export async function picture(page, name, options = {}) {
  mkdirSync(pictures, { recursive: true });
  const path = join(pictures, `${name}.png`);
  const bytes = await page.screenshot({ path, ...options });
  assert.ok(statSync(path).size > 8_000, `${name} is empty: ${bytes.length} bytes`);
}

/** Whether a canvas has drawn lines: more than the colours of axes and background. */
export function drawn(page) {
  return page.evaluate(() => [...document.querySelectorAll("canvas.plot")].map((canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const colours = new Map();
    for (let i = 0; i < data.length; i += 4) {
      if (data[i + 3] < 128) continue;
      const key = `${data[i] >> 4},${data[i + 1] >> 4},${data[i + 2] >> 4}`;
      colours.set(key, (colours.get(key) ?? 0) + 1);
    }
    return colours.size;
  }));
}

/** Uploads samples of the digits to a stream, as a producer that stays open; gives its connection. */
export async function upload(address, stream, samples) {
  const [host, port] = address.split(":");
  const socket = connect(Number(port), host);
  let said = Buffer.alloc(0);
  let heard = () => {};
  socket.on("data", (bytes) => {
    said = Buffer.concat([said, bytes]);
    heard();
  });
  /** Sends a command and waits until its answer has a text. */
  const send = async (expected, ...words) => {
    said = Buffer.alloc(0);
    const parts = words.map((word) => Buffer.from(word)).flatMap((word) => [Buffer.from(`$${word.length}\r\n`), word, Buffer.from("\r\n")]);
    socket.write(Buffer.concat([Buffer.from(`*${words.length}\r\n`), ...parts]));
    while (!expected.test(said.toString())) {
      assert.ok(!said.toString().startsWith("-"), said.toString());
      await new Promise((next) => (heard = next));
    }
    return said.toString().match(expected)[1];
  };
  const ask = (expected, verb, ...words) => send(expected, "PHALANX.STREAM", verb, stream, "sim", ...words);
  await ask(/OPENED\r\n/, "PRODUCER", "-", "-");
  const bytes = samples * (64 * 4 + 8);
  const base = await ask(/ADMITTED\r\n\$\d+\r\n(.*)\r\n/, "BEGIN", "1", "0", `${samples}`, `${bytes}`, "-", "0", "x", "y");
  await send(/\+OK/, "AI.TENSORSET", `${base}.x`, "FLOAT", `${samples}`, "1", "8", "8", "BLOB", Buffer.alloc(samples * 64 * 4));
  await send(/\+OK/, "AI.TENSORSET", `${base}.y`, "INT64", `${samples}`, "VALUES", ...Array.from({ length: samples }, (_, i) => `${i % 10}`));
  await ask(/ACKNOWLEDGED/, "COMPLETE", "1", "0");
  return socket;
}
