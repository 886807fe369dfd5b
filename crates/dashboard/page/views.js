// The views of the page. A new one is a module in views/ and a line here.

import overview from "./views/overview.js";
import runs from "./views/runs.js";
import run from "./views/run.js";
import compare from "./views/compare.js";
import jobs from "./views/jobs.js";
import stores from "./views/stores.js";
import search from "./views/search.js";

/**
 * @typedef {{version: string, directory: string, domain: string | null, one_run: string | null, note: string | null, resumes: boolean, control: boolean}} About
 * @typedef {{about: About, rest: string, search: URLSearchParams}} Context
 * @typedef {{
 *   element: (HTMLElement | null)[],
 *   live: {run?: string, position?: string, jobs?: "all" | "unfinished", stores?: boolean, searches?: boolean},
 *   update?: (update: any) => void,
 *   close?: () => void,
 * }} Shown
 * @typedef {{path: string, title: string, menu: boolean, open: (context: Context) => Promise<Shown>}} View
 */

/** @type {View[]} */
export const views = [overview, runs, search, jobs, stores, run, compare];
