// Elements from data. Text is always set as text: nothing from users becomes markup.

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * @param {Element} element
 * @param {Record<string, any>} properties
 * @param {(Child | Child[])[]} children
 */
function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/**
 * An HTML element.
 * @param {string} tag
 * @param {Record<string, any>} [properties]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  fill(element, properties, children);
  return element;
}

/**
 * An SVG element.
 * @param {string} tag
 * @param {Record<string, any>} [properties]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function s(tag, properties = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(element, properties, children);
  return element;
}

/**
 * Replaces all children.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function put(element, ...children) {
  element.replaceChildren();
  fill(element, {}, children);
  return element;
}

/**
 * A titled box.
 * @param {string} title
 * @param {Child[]} tools
 * @param {...(Child | Child[])} children
 */
export function panel(title, tools, ...children) {
  return h("section", { class: "panel", "aria-label": title }, h("header", {}, h("h2", {}, title), tools), ...children);
}

/**
 * A table. Columns whose name begins with # hold numbers.
 * @param {string} caption
 * @param {string[]} columns
 * @param {Child[][]} rows
 * @param {string} [empty] what is said instead of no rows
 */
export function table(caption, columns, rows, empty = "Nothing.") {
  if (rows.length === 0) return h("p", { class: "muted pad" }, empty);
  const kinds = columns.map((column) => (column.startsWith("#") ? "num" : column.startsWith("~") ? "wrap" : undefined));
  const head = columns.map((column, i) =>
    h("th", { scope: "col", class: kinds[i] === "num" ? "num" : undefined }, column.replace(/^[#~]/, "")));
  const cells = (/** @type {Child[]} */ row) => row.map((cell, i) => h("td", { class: kinds[i] }, cell));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    h("table", {}, h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows.map((row) => h("tr", {}, cells(row))))));
}

/**
 * A word for a state, with a colour and a shape.
 * @param {string} state
 */
export function stateMark(state) {
  const known = ["running", "finished", "completed", "solved", "failed", "lost", "interrupted", "waiting", "draining"];
  return h("span", { class: `state ${known.includes(state) ? state : "other"}` }, state);
}

/** Says something to a screen reader. @param {string} text */
export function announce(text) {
  const place = document.getElementById("announce");
  if (place) place.textContent = text;
}
