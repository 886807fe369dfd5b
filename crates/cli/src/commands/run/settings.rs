//! The settings of a run, each with its source, from its resolved run file.

use serde::Serialize;
use std::collections::BTreeMap;
use toml::de::DeTable;

/// A value of a run file, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Setting {
    pub(super) value: String,
    /// `from first.toml:7`, `default` or the flag; empty where the file does not say.
    pub(super) source: String,
}

/// The settings of a resolved run file by dotted key: one on each line, as `Resolved::to_toml` writes them.
pub(super) fn settings(text: &str) -> BTreeMap<String, Setting> {
    let mut section = String::new();
    let mut found = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_owned();
            continue;
        }
        let Some((setting, source)) = without_comment(line) else { continue };
        let Some((key, value)) = setting.split_once(" = ") else { continue };
        let key = if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") };
        found.insert(key, Setting { value: value.trim().to_owned(), source: source.trim().to_owned() });
    }
    found
}

/// Splits a line into its setting and its comment. A text may contain the sign of a comment.
fn without_comment(line: &str) -> Option<(&str, &str)> {
    let hashes = line.match_indices('#').map(|(at, _)| at);
    let is_whole = |at: &usize| DeTable::parse(&line[..*at]).is_ok();
    let end = hashes.chain([line.len()]).find(is_whole)?;
    Some((line[..end].trim_end(), line[end..].trim_start_matches('#')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_section_and_source_and_may_contain_hashes() {
        let text = "# The values of this run, each with its source.\n\nseed = 7 # default\n\n[data]\n\
                    train = \"a # b\"     # from first.toml:3\n[optimizer.adam]\nbetas = [0.9, 0.99] # --set\n";
        let found = settings(text);
        let of = |key: &str| (found[key].value.as_str(), found[key].source.as_str());
        assert_eq!(of("seed"), ("7", "default"));
        assert_eq!(of("data.train"), ("\"a # b\"", "from first.toml:3"));
        assert_eq!(of("optimizer.adam.betas"), ("[0.9, 0.99]", "--set"));
        assert_eq!(found.len(), 3);
    }
}
