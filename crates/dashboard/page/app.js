// The frame of the page: which view is open, the theme, the stream of changes.

import { follow, get } from "./api.js";
import { announce, h, put } from "./dom.js";
import { views } from "./views.js";

/** @typedef {import("./views.js").Shown} Shown */

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const link = /** @type {HTMLElement} */ (document.getElementById("link"));
/** @type {import("./views.js").About} */
let about;
/** @type {Shown | undefined} */
let shown;
/** @type {(() => void) | undefined} */
let unfollow;
let visit = 0;

function setLink(/** @type {boolean} */ on) {
  link.textContent = on ? "live" : "reconnecting";
  link.className = `link ${on ? "on" : "off"}`;
}

/** The address in parts: #/run/NAME?x=1 */
function place() {
  const [path, search] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const home = about.one_run ? { name: "run", rest: encodeURIComponent(about.one_run) } : { name: "overview", rest: "" };
  return name ? { name, rest: rest.join("/"), search } : { ...home, search };
}

async function open() {
  const { name, rest, search } = place();
  const view = views.find((view) => view.path === name);
  const own = (visit += 1);
  unfollow?.();
  shown?.close?.();
  unfollow = shown = undefined;
  drawMenu(name);
  if (!view) {
    put(main, h("h1", {}, "Not found"), h("p", {}, "There is no such view. ", h("a", { href: "#/runs" }, "All runs")));
    return;
  }
  document.title = `${view.title} · Phalanx`;
  try {
    const opened = await view.open({ about, rest: decodeURIComponent(rest), search: new URLSearchParams(search) });
    if (own !== visit) {
      opened.close?.();
      return;
    }
    shown = opened;
    put(main, opened.element);
    const title = main.querySelector("h1")?.textContent;
    if (title) document.title = `${title} · Phalanx`;
    announce(title ?? view.title);
    unfollow = follow(opened.live, (update) => opened.update?.(update), setLink);
  } catch (error) {
    put(main, h("h1", {}, view.title), h("p", { class: "note bad", role: "alert" }, /** @type {Error} */ (error).message));
  }
}

function drawMenu(/** @type {string} */ current) {
  const parent = { run: "runs", compare: "runs" }[current] ?? current;
  const entries = views.filter((view) => view.menu && !(about.one_run && ["runs", "search"].includes(view.path)));
  put(/** @type {HTMLElement} */ (document.getElementById("views")), entries.map((view) =>
    h("a", { href: `#/${view.path}`, "aria-current": view.path === parent ? "page" : undefined }, view.title)));
}

function themes() {
  const button = /** @type {HTMLElement} */ (document.getElementById("theme"));
  const root = document.documentElement;
  const names = ["auto", "light", "dark"];
  const apply = (/** @type {string} */ name) => {
    if (name === "auto") delete root.dataset.theme;
    else root.dataset.theme = name;
    button.textContent = `Theme: ${name}`;
    window.dispatchEvent(new Event("theme"));
  };
  let name = "auto";
  try {
    name = localStorage.getItem("theme") ?? "auto";
  } catch {
    // Without storage the choice lasts as long as the page.
  }
  if (!names.includes(name)) name = "auto";
  apply(name);
  button.addEventListener("click", () => {
    name = names[(names.indexOf(name) + 1) % names.length];
    try {
      localStorage.setItem("theme", name);
    } catch {
      // As above.
    }
    apply(name);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => window.dispatchEvent(new Event("theme")));
}

// The address names the view, so the link to the content cannot use it.
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

themes();
try {
  about = await get("about");
  // A listing says by itself where it comes from.
  const note = /** @type {HTMLElement} */ (document.getElementById("note"));
  note.textContent = about.one_run ? about.note : "";
  window.addEventListener("hashchange", open);
  await open();
} catch (error) {
  put(main, h("p", { class: "note bad", role: "alert" }, `The server cannot be reached: ${/** @type {Error} */ (error).message}`));
}
