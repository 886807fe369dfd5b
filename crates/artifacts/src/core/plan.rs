//! What a push sends: nothing that is there already, and only the missing parts of what was begun.

use super::manifest::ManifestFile;
use super::path::FilePath;
use std::collections::BTreeMap;

/// Files up to this size are sent at once; larger ones in parts of this size or more.
pub(crate) const PART: u64 = 8 << 20;
/// Stores take 10,000 parts.
const MOST_PARTS: u64 = 9_000;

/// A file of the run as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalFile {
    pub(crate) path: FilePath,
    pub(crate) size: u64,
    pub(crate) sha256: String,
}

/// An object as the store lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) size: u64,
    pub(crate) e_tag: Option<String>,
}

/// An upload in parts that did not end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) size: u64,
    pub(crate) sha256: String,
    pub(crate) part_size: u64,
    /// What the store calls the upload.
    pub(crate) upload: String,
    /// What the store calls the parts that it has.
    pub(crate) parts: BTreeMap<u64, String>,
}

/// How a file gets to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum How {
    /// It is there already.
    Kept { e_tag: Option<String> },
    /// At once.
    Whole,
    /// In parts, of which some may be there.
    Parts { part_size: u64, begun: Option<Begun> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Action {
    pub(crate) file: LocalFile,
    pub(crate) how: How,
}

impl Action {
    /// The bytes that are left to send.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.how {
            How::Kept { .. } => 0,
            How::Whole | How::Parts { begun: None, .. } => self.file.size,
            How::Parts { begun: Some(begun), .. } => {
                let there = begun.parts.keys().map(|index| part_len(self.file.size, begun.part_size, *index));
                self.file.size.saturating_sub(there.sum())
            }
        }
    }
}

/// What a push does.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PushPlan {
    pub(crate) actions: Vec<Action>,
    /// Uploads of contents that are not wanted any more, to be ended.
    pub(crate) abandoned: Vec<(FilePath, String)>,
}

/// What is known of earlier pushes.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Files that were sent, by the newest manifest and by what was noted since.
    pub(crate) sent: BTreeMap<FilePath, ManifestFile>,
    /// Uploads in parts that did not end.
    pub(crate) begun: BTreeMap<FilePath, Begun>,
}

/// Decides what to send. `listed` is what the store has, by path.
pub(crate) fn plan(files: Vec<LocalFile>, known: &Known, listed: &BTreeMap<String, Listed>) -> PushPlan {
    let mut plan = PushPlan::default();
    for file in files {
        let begun = known.begun.get(&file.path);
        let fits = |begun: &&Begun| begun.size == file.size && begun.sha256 == file.sha256;
        let resumed = begun.filter(fits).cloned();
        let how = match kept(&file, known, listed) {
            Some(e_tag) => How::Kept { e_tag },
            None if file.size <= PART => How::Whole,
            None => How::Parts {
                part_size: resumed.as_ref().map_or_else(|| part_size(file.size), |begun| begun.part_size),
                begun: resumed.clone(),
            },
        };
        let goes_on = matches!(how, How::Parts { begun: Some(_), .. });
        if let Some(begun) = begun.filter(|_| !goes_on) {
            plan.abandoned.push((file.path.clone(), begun.upload.clone()));
        }
        plan.actions.push(Action { file, how });
    }
    plan
}

/// Whether the store has this content under this path: it was sent, and the object was not changed since.
fn kept(file: &LocalFile, known: &Known, listed: &BTreeMap<String, Listed>) -> Option<Option<String>> {
    let sent = known.sent.get(&file.path)?;
    let there = listed.get(file.path.as_str())?;
    (sent.size == file.size && sent.sha256 == file.sha256 && is_unchanged(sent, there))
        .then(|| there.e_tag.clone())
}

/// Whether an object is the one that was sent.
pub(crate) fn is_unchanged(sent: &ManifestFile, there: &Listed) -> bool {
    sent.size == there.size && sent.e_tag.is_some() && same_tag(sent.e_tag.as_deref(), there.e_tag.as_deref())
}

/// Some stores quote tags in some answers.
pub(crate) fn same_tag(a: Option<&str>, b: Option<&str>) -> bool {
    let bare = |tag: Option<&str>| tag.map(|tag| tag.trim_matches('"').to_owned());
    bare(a) == bare(b)
}

/// All parts but the last have one size, as some stores ask for.
fn part_size(size: u64) -> u64 {
    let least = size.div_ceil(MOST_PARTS);
    least.div_ceil(1 << 20).saturating_mul(1 << 20).max(PART)
}

/// How many parts a file has.
pub(crate) fn part_count(size: u64, part_size: u64) -> u64 {
    size.div_ceil(part_size.max(1)).max(1)
}

/// The length of a part.
pub(crate) fn part_len(size: u64, part_size: u64, index: u64) -> u64 {
    size.saturating_sub(index.saturating_mul(part_size)).min(part_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> FilePath {
        FilePath::new(text).unwrap()
    }

    fn file(name: &str, size: u64, sha256: &str) -> LocalFile {
        LocalFile { path: path(name), size, sha256: sha256.to_owned() }
    }

    fn sent(name: &str, size: u64, sha256: &str, e_tag: Option<&str>) -> (FilePath, ManifestFile) {
        let e_tag = e_tag.map(str::to_owned);
        (path(name), ManifestFile { path: path(name), size, sha256: sha256.to_owned(), e_tag })
    }

    fn listed(name: &str, size: u64, e_tag: Option<&str>) -> (String, Listed) {
        (name.to_owned(), Listed { size, e_tag: e_tag.map(str::to_owned) })
    }

    #[test]
    fn only_unchanged_content_in_an_unchanged_object_is_kept() {
        let files = vec![
            file("same", 1, "h"),
            file("quoted", 1, "h"),
            file("edited", 1, "h2"),
            file("grown", 2, "h"),
            file("overwritten", 1, "h"),
            file("deleted", 1, "h"),
            file("untagged", 1, "h"),
            file("new", 1, "h"),
        ];
        let names = ["same", "edited", "grown", "overwritten", "deleted"];
        let mut known = Known::default();
        known.sent.extend(names.map(|name| sent(name, 1, "h", Some("t"))));
        known.sent.extend([sent("quoted", 1, "h", Some("\"t\"")), sent("untagged", 1, "h", None)]);
        let objects = BTreeMap::from([
            listed("same", 1, Some("t")),
            listed("quoted", 1, Some("t")),
            listed("edited", 1, Some("t")),
            listed("grown", 1, Some("t")),
            listed("overwritten", 1, Some("other")),
            listed("untagged", 1, None),
            listed("new", 1, Some("t")),
        ]);
        let plan = plan(files, &known, &objects);
        let kept: Vec<&str> = plan
            .actions
            .iter()
            .filter(|action| matches!(action.how, How::Kept { .. }))
            .map(|action| action.file.path.as_str())
            .collect();
        assert_eq!(kept, ["same", "quoted"]);
        assert!(plan.abandoned.is_empty());
    }

    #[test]
    fn an_upload_of_the_same_content_goes_on_and_one_of_another_is_ended() {
        let size = 3 * PART + 5;
        let begun = |sha256: &str| Begun {
            size,
            sha256: sha256.to_owned(),
            part_size: PART,
            upload: "u".to_owned(),
            parts: BTreeMap::from([(0, "p0".to_owned()), (3, "p3".to_owned())]),
        };
        let mut known = Known::default();
        known.begun.extend([(path("a"), begun("h")), (path("b"), begun("old"))]);
        let plan = plan(vec![file("a", size, "h"), file("b", size, "h")], &known, &BTreeMap::new());
        assert_eq!(plan.actions[0].how, How::Parts { part_size: PART, begun: Some(begun("h")) });
        assert_eq!(plan.actions[0].bytes(), 2 * PART);
        assert_eq!(plan.actions[1].how, How::Parts { part_size: PART, begun: None });
        assert_eq!(plan.actions[1].bytes(), size);
        assert_eq!(plan.abandoned, [(path("b"), "u".to_owned())]);
    }

    #[test]
    fn parts_cover_a_file_of_any_size() {
        for size in [PART + 1, 10 * PART, 500 << 30, 5 << 40] {
            let part = part_size(size);
            let count = part_count(size, part);
            assert!(count <= 10_000 && part >= PART, "{size}");
            let lengths: u64 = (0..count).map(|index| part_len(size, part, index)).sum();
            assert_eq!(lengths, size);
        }
        assert_eq!((part_count(0, PART), part_len(0, PART, 0)), (1, 0));
    }
}
