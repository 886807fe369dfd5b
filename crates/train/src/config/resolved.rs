//! The resolved run file: every value with its source.

use super::source::Source;
use std::fmt::Write;

/// Values in the order in which they were read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resolved {
    lines: Vec<ResolvedLine>,
}

#[derive(Debug, Clone, PartialEq)]
struct ResolvedLine {
    section: String,
    key: String,
    /// As TOML.
    value: String,
    source: Source,
}

impl Resolved {
    /// Records a value; an earlier value under this name is replaced.
    pub(crate) fn add(&mut self, section: &str, key: &str, value: String, source: Source) {
        let line = ResolvedLine { section: section.to_owned(), key: key.to_owned(), value, source };
        match self.lines.iter_mut().find(|l| l.section == line.section && l.key == line.key) {
            Some(known) => *known = line,
            None => self.lines.push(line),
        }
    }

    /// The source of the value of a dotted key: `train.optimizer.lr`.
    pub(crate) fn source(&self, key: &str) -> Option<Source> {
        let (section, key) = key.rsplit_once('.').unwrap_or(("", key));
        let line = self.lines.iter().find(|line| line.section == section && line.key == key);
        line.map(|line| line.source.clone())
    }

    /// Whether a key was set explicitly.
    pub fn is_said(&self, section: &str, key: &str) -> bool {
        let line = self.lines.iter().find(|line| line.section == section && line.key == key);
        line.is_some_and(|line| line.source != Source::Default)
    }

    /// An equivalent run file.
    pub fn to_toml(&self) -> String {
        let mut text = "# The values of this run, each with its source.\n".to_owned();
        let mut sections: Vec<&str> = Vec::new();
        for line in &self.lines {
            if !sections.contains(&line.section.as_str()) {
                sections.push(&line.section);
            }
        }
        // A table before its subtables, otherwise in the order of reading.
        let first = |section: &str| {
            let root = section.split('.').next().unwrap_or_default();
            self.lines.iter().position(|line| line.section.split('.').next() == Some(root))
        };
        sections.sort_by_key(|section| (first(section), section.contains('.')));
        for section in sections {
            // Writing to a text does not fail.
            let header = if section.is_empty() { String::new() } else { format!("[{section}]\n") };
            let _written = write!(text, "\n{header}");
            for line in self.lines.iter().filter(|line| line.section == section) {
                let said = format!("{} = {}", line.key, line.value);
                let _written = writeln!(text, "{said:<40} # {}", line.source.comment());
            }
        }
        text
    }
}
