//! The bytes of every message, kept in `golden/v<version>/`.
//!
//! Nodes of one version talk to each other whatever build they run, so the bytes of a version never
//! change: a test that fails here asks for a new [`VERSION`], or for `UPDATE_GOLDEN=1` while the
//! version is not released. The samples they come from are in `samples`.

mod samples;
mod stable;
mod vectors;

use bytes::BytesMut;
use phalanx_wire::VERSION;
use phalanx_wire::frame::{self, FrameKind, HEADER_LEN};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

fn golden_dir() -> PathBuf {
    Path::new(CRATE).join("golden").join(format!("v{VERSION}"))
}

/// Everything with golden bytes: the samples, and what is not made of messages.
fn golden_bytes() -> BTreeMap<String, Vec<u8>> {
    let samples = samples::all().list;
    let mut all = BTreeMap::new();
    for (name, bytes) in samples.into_iter().map(|s| (s.name, s.frame.to_vec())).chain(samples::raw()) {
        assert!(all.insert(name.clone(), bytes).is_none(), "two samples are called {name}");
    }
    all
}

#[test]
fn messages_have_the_bytes_of_their_golden_files() {
    let expected = golden_bytes();
    let dir = golden_dir();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        write_golden(&dir, &expected);
    }
    let files = vectors::read_all(&dir);
    for (name, bytes) in &expected {
        let file = files.get(name).unwrap_or_else(|| panic!("{name} has no golden file; {HINT}"));
        assert_eq!(vectors::hex(bytes), vectors::hex(file), "{name} (left) is not as its file; {HINT}");
    }
    for name in files.keys() {
        assert!(expected.contains_key(name), "no sample for the golden file {name}; {HINT}");
    }
}

const HINT: &str = "UPDATE_GOLDEN=1 cargo test -p phalanx-wire --test golden writes the files";

fn write_golden(dir: &Path, all: &BTreeMap<String, Vec<u8>>) {
    fs::create_dir_all(dir).expect("golden folder can be made");
    for stale in vectors::read_all(dir).keys().filter(|name| !all.contains_key(*name)) {
        fs::remove_file(dir.join(format!("{stale}.hex"))).expect("stale file can be removed");
    }
    for (name, bytes) in all {
        // The header stands on a line of its own.
        let header_len = if name.starts_with("raw-") { 0 } else { HEADER_LEN };
        let (header, body) = bytes.split_at(bytes.len().min(header_len));
        let mut text = if header.is_empty() { String::new() } else { vectors::hex(header) + "\n" };
        for line in body.chunks(32) {
            text += &(vectors::hex(line) + "\n");
        }
        fs::write(dir.join(format!("{name}.hex")), text).expect("golden file can be written");
    }
}

/// Postcard cannot decode what was encoded under some of serde's attributes; this shows that the
/// messages use none of them.
#[test]
fn a_sample_decoded_and_encoded_again_has_the_same_bytes() {
    for sample in samples::all().list {
        let mut buffer = BytesMut::from(&sample.frame[..]);
        let frame = frame::take(&mut buffer).unwrap().unwrap();
        assert!(buffer.is_empty(), "{}", sample.name);
        assert_eq!(frame.kind, sample.kind, "{}", sample.name);
        let again = (sample.round_trip)(&frame.body).unwrap_or_else(|e| panic!("{}: {e}", sample.name));
        assert_eq!(again, frame.body, "{}", sample.name);
    }
}

#[test]
fn every_kind_of_frame_has_golden_bytes() {
    let kinds: BTreeSet<u8> = golden_bytes()
        .iter()
        .filter(|(name, _)| !name.starts_with("preface-") && !name.starts_with("raw-"))
        .filter_map(|(_, bytes)| bytes.get(HEADER_LEN - 1).copied())
        .collect();
    assert_eq!(kinds, FrameKind::ALL.map(|kind| kind as u8).into());
}

/// The sources of this crate and of the crate whose types its messages hold.
fn sources() -> Vec<String> {
    let dirs = [Path::new(CRATE).join("src"), Path::new(CRATE).join("../types/src")];
    let entries = dirs.into_iter().flat_map(|dir| fs::read_dir(dir).expect("sources can be listed"));
    let paths = entries.map(|entry| entry.expect("sources can be listed").path());
    paths.map(|path| fs::read_to_string(path).expect("sources are files of text")).collect()
}

#[test]
fn every_enum_that_can_be_decoded_has_a_sample_of_each_variant() {
    let covered = samples::all().covered;
    let sources = sources();
    let mut found = BTreeSet::new();
    for source in &sources {
        for (at, keyword) in source.match_indices("pub enum ") {
            let (before, after) = source.split_at(at);
            let own = before.rsplit("\n\n").next().and_then(|text| text.rsplit("\n}\n").next()).unwrap();
            if own.contains("Deserialize") {
                let name = after[keyword.len()..].split(|c: char| !c.is_alphanumeric()).next().unwrap();
                found.insert(name);
            }
        }
    }
    assert_eq!(covered, found);
}

#[test]
fn no_attribute_of_serde_changes_what_is_encoded() {
    for source in sources() {
        for attribute in source.split("#[serde(").skip(1) {
            let text = attribute.split(")]").next().unwrap();
            // A bounded text has the bytes of a plain one, which a test of it shows.
            let is_harmless = text.starts_with("rename_all = ") || text.starts_with("with = \"Bounded::<");
            assert!(is_harmless, "#[serde({text})] may not survive postcard");
        }
    }
}
