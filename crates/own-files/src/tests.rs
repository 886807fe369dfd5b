//! What another user of the host may have placed there before.

use super::*;
use std::os::unix::fs::{chown, symlink};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o777
}

#[test]
fn directories_are_made_for_their_user_only_and_open_ones_are_closed() {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("state/jobs");
    own_dir(&own).unwrap();
    assert_eq!((mode(&own), mode(own.parent().unwrap())), (0o700, 0o700));
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    own_dir(&own).unwrap();
    assert_eq!(mode(&own), 0o700);
}

#[test]
fn what_belongs_to_another_user_is_refused() {
    // Only root can give files away.
    if me() != 0 {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (theirs, link, file) = (dir.path().join("theirs"), dir.path().join("link"), dir.path().join("file"));
    fs::create_dir(&theirs).unwrap();
    chown(&theirs, Some(1234), None).unwrap();
    symlink(dir.path().join("own"), &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(1234), None).unwrap();
    fs::create_dir(dir.path().join("own")).unwrap();
    fs::write(&file, b"theirs").unwrap();
    chown(&file, Some(1234), None).unwrap();
    for path in [&theirs, &link] {
        assert_eq!(own_dir(path).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{}", path.display());
    }
    assert!(create_private(&file).is_err() && open_private(dir.path(), Path::new("file")).is_err());
    assert_eq!(fs::read(&file).unwrap(), b"theirs");
}

#[test]
fn links_are_replaced_and_not_written_through() {
    let dir = tempfile::tempdir().unwrap();
    let (victim, link) = (dir.path().join("victim"), dir.path().join("link"));
    fs::write(&victim, b"precious").unwrap();
    symlink(&victim, &link).unwrap();
    assert!(create_private(&link).is_err() && open_private(dir.path(), Path::new("link")).is_err());
    write_private(&link, b"new").unwrap();
    assert_eq!(
        (fs::read(&victim).unwrap(), fs::read(&link).unwrap()),
        (b"precious".to_vec(), b"new".to_vec())
    );
    assert_eq!(mode(&link), 0o600);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no temporary file is left");
}

#[test]
fn pipes_and_devices_are_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, PRIVATE, 0).unwrap();
    assert!(open_regular(&pipe).is_err() && open_regular(Path::new("/dev/zero")).is_err());
    assert!(open_private(dir.path(), Path::new("pipe")).is_err() && create_private(&pipe).is_err());
}

#[test]
fn a_file_gets_a_second_name_once() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("data"), dir.path().join("kept"));
    fs::write(&from, b"data").unwrap();
    link_private(&from, &to).unwrap();
    assert_eq!(fs::metadata(&from).unwrap().ino(), fs::metadata(&to).unwrap().ino());
    assert_eq!(link_private(&from, &to).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
}

#[test]
fn names_of_other_nodes_are_only_used_where_they_are_plain() {
    assert_eq!(plain_name(Path::new("/a/b/data.npz")), Some(Path::new("data.npz")));
    for name in ["..", "/", "", "a/.hidden", "a/line\nbreak", &"x".repeat(201)] {
        assert_eq!(plain_name(Path::new(name)), None, "{name:?}");
    }
}
