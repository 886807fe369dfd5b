//! What comes from npm: the tests of the dashboard in a real browser, and a server of Azure's.

use crate::tool::{present, root, target, tool};
use anyhow::Context;
use std::path::{Path, PathBuf};

/// What is installed from npm, below the target directory: the driver of the browser, the check of accessibility, and
/// the checker of types.
const MODULES: [&str; 3] = ["playwright-core@1", "axe-core@4", "typescript@5"];
/// Microsoft's emulator of Azure's storage, for tests of artifacts.
const AZURITE: &str = "azurite@3.35.0";
const BROWSER: &str = "/usr/bin/chromium";

fn modules() -> PathBuf {
    target().join("browser")
}

/// Packages of the system that are missing.
pub(crate) fn missing_packages() -> Vec<&'static str> {
    let browser = (!std::path::Path::new(BROWSER).exists()).then_some("chromium");
    let node = (!present("node")).then_some("nodejs");
    let npm = (!present("npm")).then_some("npm");
    browser.into_iter().chain(node).chain(npm).collect()
}

/// Checks the types of the page and tests it in a browser; the `phalanx` binary is built already.
pub(crate) fn check(no_install: bool) -> anyhow::Result<()> {
    let modules = modules();
    if !no_install && !modules.join("node_modules/axe-core").is_dir() {
        install(&modules, &MODULES).context(
            "could not install the browser's driver; --no-browser leaves out the tests that need it",
        )?;
    }
    let checker = modules.join("node_modules/typescript/bin/tsc").to_string_lossy().into_owned();
    let project = root().join("crates/dashboard/jsconfig.json").to_string_lossy().into_owned();
    tool("node", &[checker, "--project".to_owned(), project]).run()?;
    tool(
        "node",
        &[
            "--test",
            "--test-reporter=spec",
            "tests/browser/dashboard.test.mjs",
            "tests/browser/search.test.mjs",
        ],
    )
    .env("PHALANX_NPM", &modules)
    .run()
}

/// Installs Azurite, if it may; gives the directory of its modules.
pub(crate) fn azurite(no_install: bool) -> anyhow::Result<PathBuf> {
    let modules = target().join("azurite");
    if !no_install && !modules.join("node_modules/azurite").is_dir() {
        install(&modules, &[AZURITE])
            .context("could not install Azurite; --no-browser leaves out the tests that need it")?;
    }
    Ok(modules)
}

fn install(place: &Path, packages: &[&str]) -> anyhow::Result<()> {
    std::fs::create_dir_all(place)?;
    std::fs::write(place.join("package.json"), "{\"private\": true}\n")?;
    let place = place.to_string_lossy();
    let words = ["install", "--no-audit", "--no-fund", "--prefix", &place];
    tool("npm", &[&words[..], packages].concat()).run()
}
