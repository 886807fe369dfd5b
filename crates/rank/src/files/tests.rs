//! Files that a peer lists, and what it may find out or reach with them.

use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};

fn wanted<'a>(path: &'a str, bytes: &[u8], sha256: &'a FileHash) -> WantedFile<'a> {
    WantedFile { key: "data.train.file", path, bytes: bytes.len() as u64, sha256 }
}

#[test]
fn a_file_comes_once_and_is_kept_for_its_user_only() {
    let dir = tempfile::tempdir().unwrap();
    let mut cache = FileCache::new(dir.path().join("kept"));
    let hash = hash_of(b"there");
    let file = wanted("/nowhere/../there.npz", b"there", &hash);
    let path = cache.bring(file, || Ok(Bytes::from_static(b"there"))).unwrap();
    assert!(path.starts_with(dir.path().join("kept")) && path.ends_with("there.npz"), "{}", path.display());
    assert_eq!(cache.bring(file, || panic!("it is here")).unwrap(), path);
    let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert_eq!(mode(&dir.path().join("kept")), 0o700);
    // A file that was changed is fetched again.
    std::fs::write(&path, b"other").unwrap();
    cache.bring(file, || Ok(Bytes::from_static(b"there"))).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"there");
}

#[test]
fn a_path_of_the_peer_is_never_opened() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().join("here.npz");
    std::fs::write(&here, b"here").unwrap();
    let mut cache = FileCache::new(dir.path().join("kept"));
    let (hash, mut asked) = (hash_of(b"here"), false);
    // Whether the node has the file makes no difference: it asks for it.
    let file = wanted(here.to_str().unwrap(), b"here", &hash);
    let path = cache.bring(file, || {
        asked = true;
        Ok(Bytes::from_static(b"here"))
    });
    assert!(asked && path.unwrap() != here);
}

#[test]
fn what_comes_must_be_what_was_listed() {
    let dir = tempfile::tempdir().unwrap();
    let mut cache = FileCache::new(dir.path()).with_limit(5);
    let hash = hash_of(b"there");
    let problem = |result: Result<PathBuf, RankError>| match result {
        Err(RankError::File { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    let other = cache.bring(wanted("a", b"there", &hash), || Ok(Bytes::from_static(b"where")));
    assert!(matches!(problem(other), FileProblem::OtherBytes));
    let long = cache.bring(wanted("a", b"longer", &hash), || panic!("too long to be fetched"));
    assert!(matches!(problem(long), FileProblem::TooLong { bytes: 6, limit: 5 }));
    for name in ["..", "/", "", ".hidden", "line\nbreak"] {
        let named = cache.bring(wanted(name, b"there", &hash), || panic!("it has no name"));
        assert!(matches!(problem(named), FileProblem::Name), "{name:?}");
    }
}

#[test]
fn links_in_the_cache_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (victim, kept) = (dir.path().join("victim"), dir.path().join("kept"));
    std::fs::write(&victim, b"there").unwrap();
    let (hash, mut cache) = (hash_of(b"there"), FileCache::new(&kept));
    let of_hash = kept.join("files").join(hex(&hash));
    std::fs::create_dir_all(&of_hash).unwrap();
    symlink(&victim, of_hash.join("a")).unwrap();
    let path = cache.bring(wanted("a", b"there", &hash), || Ok(Bytes::from_static(b"there"))).unwrap();
    assert!(std::fs::symlink_metadata(&path).unwrap().is_file(), "the link was replaced");
    assert_eq!(std::fs::read(&victim).unwrap(), b"there");
}

#[test]
fn a_driver_of_the_same_user_shares_its_files_without_a_copy() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data.npz");
    std::fs::write(&data, b"there").unwrap();
    let (hash, mut cache) = (hash_of(b"there"), FileCache::new(dir.path().join("kept")));
    cache.share(&data, &hash);
    let path = cache.bring(wanted("/x/data.npz", b"there", &hash), || panic!("it is here")).unwrap();
    let inode = |path: &Path| std::fs::metadata(path).unwrap().ino();
    assert_eq!(inode(&path), inode(&data));
}

#[test]
fn files_in_a_root_are_used_in_place_if_they_are_the_listed_ones() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data.npz");
    std::fs::write(&data, b"there").unwrap();
    let roots = DataRoots::open([dir.path()]).unwrap();
    let mut cache = FileCache::new(dir.path().join("kept")).with_roots(roots);
    let (hash, other) = (hash_of(b"there"), hash_of(b"where"));
    let path = data.to_str().unwrap();
    assert_eq!(cache.bring(wanted(path, b"there", &hash), || panic!("it is here")).unwrap(), data);
    let fetched = cache.bring(wanted(path, b"where", &other), || Ok(Bytes::from_static(b"where"))).unwrap();
    assert_ne!(fetched, data);
}

#[test]
fn a_file_that_has_changed_has_another_hash() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let mut hashes = FileHashes::default();
    for bytes in [&b"first"[..], b"second"] {
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(hashes.of(&path).unwrap(), (hash_of(bytes), bytes.len() as u64));
    }
    assert!(hashes.of(&dir.path().join("nowhere")).is_err());
    assert!(hashes.of(Path::new("/dev/zero")).is_err(), "a device has no end");
}
