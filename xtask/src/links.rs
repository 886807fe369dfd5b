//! Checks that relative links of the documentation point to files and headings that exist.

use crate::tool::root;
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

/// Pages at the root of the repository.
const PAGES: [&str; 5] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "BENCHMARKS.md"];

pub(crate) fn check() -> anyhow::Result<()> {
    let root = root();
    let mut pages: Vec<PathBuf> = PAGES.iter().map(|page| root.join(page)).collect();
    collect(&root.join("docs"), &mut pages, &|name| name.ends_with(".md"))?;
    collect(&root.join("examples"), &mut pages, &|name| name == "README.md")?;
    let mut texts = BTreeMap::new();
    for page in pages {
        let text = std::fs::read_to_string(&page);
        texts.insert(page.clone(), text.with_context(|| format!("could not read {}", page.display()))?);
    }
    let mut found = String::new();
    for (page, text) in &texts {
        for (line, target) in links(text) {
            let read = |path: &Path| texts.get(path).cloned().or_else(|| std::fs::read_to_string(path).ok());
            if let Some(why) = broken(page, &target, &|path| path.exists(), &read) {
                writeln!(found, "{}:{line}: {target}: {why}", page.display())?;
            }
        }
    }
    if found.is_empty() { Ok(()) } else { bail!("links that lead nowhere:\n{found}") }
}

fn collect(dir: &Path, pages: &mut Vec<PathBuf>, wanted: &dyn Fn(&str) -> bool) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| format!("could not list {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, pages, wanted)?;
        } else if path.file_name().and_then(|name| name.to_str()).is_some_and(wanted) {
            pages.push(path);
        }
    }
    Ok(())
}

/// Lines of a page outside blocks of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((number + 1, line))
    })
}

/// The line without what stands between backticks, which is no markup.
fn without_code(line: &str) -> String {
    line.split('`').enumerate().filter(|(at, _)| at % 2 == 0).map(|(_, part)| part).collect()
}

/// Targets of links on a page, each with its line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code(line);
        for part in line.split("](").skip(1) {
            if let Some((target, _)) = part.split_once(')') {
                links.push((number, target.trim().to_owned()));
            }
        }
    }
    links
}

/// What is wrong with a link of a page; nothing is said of other sites.
fn broken(
    page: &Path,
    target: &str,
    exists: &dyn Fn(&Path) -> bool,
    read: &dyn Fn(&Path) -> Option<String>,
) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let path = match file {
        "" => page.to_owned(),
        file => normal(&page.parent().unwrap_or(Path::new("")).join(file)),
    };
    if !exists(&path) {
        return Some("there is no such file".to_owned());
    }
    let anchor = anchor?;
    let Some(text) = read(&path).filter(|_| path.extension().is_some_and(|e| e == "md")) else {
        return Some("only pages have headings".to_owned());
    };
    let known = anchors(&text);
    (!known.iter().any(|heading| heading == anchor))
        .then(|| format!("there is no such heading; there are {}", known.join(", ")))
}

/// The path without `..`: a folder that is not there may be left again.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = normal.pop(),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

/// The anchors of a page's headings, as GitHub makes them; the second of two alike ends in `-1`.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    let mut seen = BTreeMap::<String, usize>::new();
    for (_, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let plain = |c: char| c.is_alphanumeric() || c == '-' || c == '_' || c == ' ';
        let slug = heading.trim().to_lowercase().chars().filter(|c| plain(*c)).collect::<String>();
        let slug = slug.replace(' ', "-");
        let times = seen.entry(slug.clone()).or_default();
        anchors.push(if *times == 0 { slug } else { format!("{slug}-{times}") });
        *times += 1;
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A page\n[one](other.md) and [two](#the-end), [`code`](src/lib.rs)\n\
                        `[no](link)` [site](https://example.org/x)\n```sh\n# no heading\n[no](link)\n```\n## The end\n";

    /// What is wrong with a link of `docs/a.md`, among these files.
    fn wrong(target: &str) -> Option<String> {
        let files = BTreeMap::from([
            (PathBuf::from("docs/a.md"), PAGE),
            (PathBuf::from("docs/b.md"), "## [data]\n## Life of a step\n## Life of a step"),
            (PathBuf::from("README.md"), ""),
            (PathBuf::from("docs/pool.toml"), "# no heading"),
        ]);
        let exists = |path: &Path| files.contains_key(path);
        broken(Path::new("docs/a.md"), target, &exists, &|path| {
            files.get(path).map(|text| (*text).to_owned())
        })
    }

    #[test]
    fn links_are_found_outside_code() {
        let found = [(2, "other.md"), (2, "#the-end"), (2, "src/lib.rs"), (3, "https://example.org/x")];
        assert_eq!(links(PAGE), found.map(|(line, target)| (line, target.to_owned())));
        assert_eq!(anchors(PAGE), ["a-page", "the-end"]);
    }

    #[test]
    fn links_to_what_is_there_are_fine() {
        for target in [
            "b.md",
            "../README.md",
            "./none/../b.md",
            "#the-end",
            "b.md#data",
            "b.md#life-of-a-step-1",
            "https://example.org/none",
        ] {
            assert_eq!(wrong(target), None, "{target}");
        }
    }

    #[test]
    fn links_to_what_is_not_there_are_named() {
        for (target, why) in [
            ("c.md", "no such file"),
            ("README.md", "no such file"),
            ("#begin", "no such heading; there are a-page, the-end"),
            ("#no-heading", "no such heading"),
            ("b.md#life-of-a-step-2", "no such heading"),
            ("c.md#data", "no such file"),
            ("pool.toml#no-heading", "only pages have headings"),
        ] {
            let said = wrong(target).unwrap_or_else(|| panic!("{target} is fine"));
            assert!(said.contains(why), "{target}: {said}");
        }
    }

    #[test]
    fn the_pages_of_this_repository_lead_somewhere() {
        check().unwrap();
    }
}
