//! What a run file names, and what its driver lists.

use super::*;
use crate::data_roots::DataRoots;
use ring::digest::{SHA256, digest};

const KEY: &str = "data.train.file";

fn config(file: &str) -> RunConfig {
    let text = format!(
        "[model]\nzoo = \"mlp\"\ninput = [1, 8, 8]\n[data]\ntrain = {{ file = \"{file}\" }}\n[train]\nloss = \"mse\"\n\
         epochs = 1\n"
    );
    parse_of_peer(&text, &[]).unwrap().config
}

fn hash(bytes: &[u8]) -> FileHash {
    digest(&SHA256, bytes).as_ref().try_into().unwrap()
}

fn problem<T: std::fmt::Debug>(result: Result<T, RankError>) -> FileProblem {
    match result {
        Err(RankError::File { problem, .. }) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_key_that_is_not_listed_is_refused_unless_it_is_in_a_root() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.csv"), b"1,2\n").unwrap();
    let path = dir.path().join("a.csv");
    let bring = |config: &RunConfig, cache: &mut FileCache| {
        bring_all(config, &[], None, cache, |_| panic!("nothing is listed"))
    };
    let mut cache = FileCache::new(dir.path().join("kept"));
    for named in [path.to_str().unwrap(), "/dev/zero", "a.csv"] {
        let refused = problem(bring(&config(named), &mut cache));
        assert!(matches!(refused, FileProblem::NotListed), "{named}: {refused}");
    }
    let mut cache = cache.with_roots(DataRoots::open([dir.path()]).unwrap());
    assert_eq!(bring(&config(path.to_str().unwrap()), &mut cache).unwrap(), []);
    assert_eq!(bring(&config("a.csv"), &mut cache).unwrap(), [(KEY, path)]);
    assert!(matches!(problem(bring(&config("../a.csv"), &mut cache)), FileProblem::NotListed));
    assert!(matches!(problem(bring(&config("/dev/zero"), &mut cache)), FileProblem::NotListed));
}

#[test]
fn folders_come_file_by_file() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = there.path().join("images");
    for (name, bytes) in [("cat/1.png", b"one"), ("dog/1.png", b"two"), (".hidden/2.png", b"not")] {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    let config = config(folder.to_str().unwrap());
    let FilesOfRun { files, left_out } = files_of(&config).unwrap();
    assert_eq!(files, [(KEY, folder.join("cat/1.png")), (KEY, folder.join("dog/1.png"))]);
    assert!(left_out.is_empty());
    let bytes: Vec<Vec<u8>> = files.iter().map(|(_, path)| std::fs::read(path).unwrap()).collect();
    let hashes: Vec<FileHash> = bytes.iter().map(|bytes| hash(bytes)).collect();
    let listed = |at: usize| {
        let path = files[at].1.to_str().unwrap();
        WantedFile { key: KEY, path, bytes: 3, sha256: &hashes[at] }
    };
    let mut cache = FileCache::new(here.path());
    let mut fetched = 0;
    for _ in 0..2 {
        let names = bring_all(&config, &[listed(0), listed(1)], None, &mut cache, |at| {
            fetched += 1;
            Ok(bytes[at].clone().into())
        });
        let names = names.unwrap();
        let [(KEY, path)] = names.as_slice() else { panic!("{names:?}") };
        assert_eq!(std::fs::read(path.join("cat/1.png")).unwrap(), b"one");
        assert_eq!(std::fs::read(path.join("dog/1.png")).unwrap(), b"two");
    }
    assert_eq!(fetched, 2, "each comes once");
    // A file that is not in the folder has no place in it.
    let out = format!("{}/../../x.png", folder.display());
    let stray = WantedFile { path: &out, ..listed(0) };
    let refused = bring_all(&config, &[listed(1), stray], None, &mut cache, |_| Ok(bytes[0].clone().into()));
    assert!(matches!(problem(refused), FileProblem::Name));
}

#[test]
fn files_of_tensors_are_listed_with_their_model() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("m.onnx");
    let entry = |name: &str| [b"\x0a\x08location\x12", &[name.len() as u8][..], name.as_bytes()].concat();
    let bytes =
        [entry("w.bin"), b"..".to_vec(), entry("../secret"), entry("nowhere"), b"\x0a".to_vec()].concat();
    std::fs::write(&model, bytes).unwrap();
    std::fs::write(dir.path().join("w.bin"), b"w").unwrap();
    assert_eq!(tensors_beside(&model).unwrap().into_iter().collect::<Vec<_>>(), [dir.path().join("w.bin")]);
}
