//! Feeds corrupted files to the reader of every format.
//!
//! Deterministic: an input depends on its seed and on the files in `tests/corpus/` alone, and a
//! failure names the seed. `PHALANX_FUZZ_ITERATIONS` asks for a longer run, `PHALANX_FUZZ_SEED` for
//! one that starts elsewhere.
//!
//! No input may cause a panic or take long, and the memory used must be in proportion to the file.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod memory;
mod mutation;

use phalanx_data::{Batch, Columns, Dataset, LabelCheck, SourceSpec};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest time for an input; on a busy machine most of it is waiting.
const LONGEST: Duration = Duration::from_secs(10);

/// One format under test.
struct Fuzz {
    corpus: &'static str,
    /// The name of the file that is opened, below the temporary folder.
    name: &'static str,
    /// The arrays that may be requested.
    arrays: &'static [(&'static str, &'static str)],
    iterations: u64,
    /// The bytes that may be used for any file, and for each of its bytes.
    memory: (usize, usize),
    /// Applied to some of the corrupted inputs, to get past checksums.
    wrap: fn(&mut Pcg32, Vec<u8>) -> Vec<u8>,
}

fn as_it_is(_: &mut Pcg32, bytes: Vec<u8>) -> Vec<u8> {
    bytes
}

fn files(dir: &str, keep: impl Fn(&Path) -> bool) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(dir);
    let mut paths: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| keep(path));
    paths.sort();
    assert!(!paths.is_empty(), "nothing in {}", dir.display());
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Everything that is done with a file.
fn feed(spec: &SourceSpec, dir: &Path) -> bool {
    let Ok(dataset) = Dataset::open(spec, dir) else { return false };
    let mut batch = Batch::new();
    let len = dataset.fixed_len().unwrap();
    let some: Vec<usize> = (0..len.min(8)).chain([len - 1]).collect();
    let read = dataset.read(&some, &mut batch).is_ok();
    if len < 10_000 && dataset.y_shape().is_some() {
        // Either answer will do; only a panic would not.
        drop(dataset.check_labels(LabelCheck::Classes(3), usize::MAX));
    }
    read
}

fn number(variable: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(variable) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}"))
}

impl Fuzz {
    fn run(&self) {
        self.run_with(files(self.corpus, |_| true));
    }

    fn run_with(&self, corpus: Vec<Vec<u8>>) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(self.name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let mut understood = 0;
        let first = number("PHALANX_FUZZ_SEED", 0);
        let count = number("PHALANX_FUZZ_ITERATIONS", self.iterations);
        for seed in first..first.saturating_add(count) {
            // One seed for one input, so that a failure does not depend on earlier inputs.
            let mut rng = Pcg32::seed_from_u64(seed);
            let spoilt = mutation::spoil(&mut rng, &corpus);
            let input = (self.wrap)(&mut rng, spoilt);
            // A new file: overwriting the old one would wait for the disk.
            drop(std::fs::remove_file(&file));
            std::fs::write(&file, &input).unwrap();
            let (x, y) = self.arrays[rng.random_range(0..self.arrays.len())];
            let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
            let root = if self.corpus == "images" { "" } else { self.name };
            let spec = SourceSpec { x: name(x).map(Columns::One), y: name(y), ..SourceSpec::file(root) };
            let start = Instant::now();
            let (result, peak) =
                memory::peak_of(|| catch_unwind(AssertUnwindSafe(|| feed(&spec, dir.path()))));
            let again = format!("again: PHALANX_FUZZ_SEED={seed} PHALANX_FUZZ_ITERATIONS=1");
            understood +=
                u64::from(result.unwrap_or_else(|_| panic!("panicked on {} bytes\n{again}", input.len())));
            let most = self.memory.0 + self.memory.1 * input.len();
            assert!(peak <= most, "{peak} bytes held for a file of {}\n{again}", input.len());
            assert!(start.elapsed() < LONGEST, "took {:?}\n{again}", start.elapsed());
        }
        assert!(count < 1000 || understood > count / 100, "only {understood} of {count} were understood");
    }
}

#[test]
fn npy() {
    let memory = (64 << 10, 80);
    let fuzz = Fuzz {
        corpus: "npy",
        name: "a.npy",
        arrays: &[("", "")],
        iterations: 20_000,
        memory,
        wrap: as_it_is,
    };
    fuzz.run();
}

#[test]
fn npz() {
    const NAMES: &[(&str, &str)] = &[("x_train", "y_train"), ("x_test", ""), ("", "")];
    let memory = (4 << 20, 2000);
    Fuzz { corpus: "npz", name: "a.npz", arrays: NAMES, iterations: 10_000, memory, wrap: as_it_is }.run();
}

/// Puts a corrupted npy file into a valid archive.
fn zipped(rng: &mut Pcg32, npy: Vec<u8>) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let method =
        if rng.random_bool(0.8) { zip::CompressionMethod::Deflated } else { zip::CompressionMethod::Stored };
    let options = zip::write::SimpleFileOptions::default().compression_method(method);
    archive.start_file("x.npy", options).unwrap();
    archive.write_all(&npy).unwrap();
    archive.finish().unwrap().into_inner()
}

#[test]
fn npy_in_npz() {
    let memory = (4 << 20, 2000);
    let corpus = files("npy", |_| true);
    Fuzz { corpus: "npy", name: "a.npz", arrays: &[("x", "")], iterations: 10_000, memory, wrap: zipped }
        .run_with(corpus);
}

#[test]
fn idx() {
    let memory = (256 << 10, 2000);
    Fuzz { corpus: "idx", name: "a.idx", arrays: &[("", "")], iterations: 20_000, memory, wrap: as_it_is }
        .run();
}

/// Compresses a corrupted file.
fn gzipped(_: &mut Pcg32, bytes: Vec<u8>) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn idx_in_gzip() {
    let memory = (256 << 10, 2000);
    let corpus = files("idx", |path| path.extension().is_none_or(|e| e != "gz"));
    Fuzz { corpus: "idx", name: "a.gz", arrays: &[("", "")], iterations: 10_000, memory, wrap: gzipped }
        .run_with(corpus);
}

#[test]
fn safetensors() {
    const NAMES: &[(&str, &str)] = &[("x", "y"), ("float32", "y"), ("int64", ""), ("bool", "float16")];
    let memory = (64 << 10, 200);
    let name = "a.safetensors";
    Fuzz { corpus: "safetensors", name, arrays: NAMES, iterations: 10_000, memory, wrap: as_it_is }.run();
}

#[test]
fn csv() {
    const NAMES: &[(&str, &str)] = &[("", ""), ("", "label"), ("c0", "number"), ("0", "6"), ("c1", "c2")];
    let memory = (256 << 10, 200);
    Fuzz { corpus: "csv", name: "a.csv", arrays: NAMES, iterations: 20_000, memory, wrap: as_it_is }.run();
}

#[cfg(feature = "parquet")]
#[test]
fn parquet() {
    const NAMES: &[(&str, &str)] =
        &[("c0", "label"), ("", "number"), ("v", "label"), ("int64", "bool"), ("", "a"), ("fixed", "")];
    // A page declares its size in 31 bits; that much may be reserved, though not used.
    let memory = (3 << 30, 2000);
    let name = "a.parquet";
    Fuzz { corpus: "parquet", name, arrays: NAMES, iterations: 3_000, memory, wrap: as_it_is }.run();
}

#[test]
fn images() {
    // The decoder of PNG stops at 64 MiB besides the image itself.
    let memory = (80 << 20, 40_000);
    let name = "class/a.png";
    Fuzz { corpus: "images", name, arrays: &[("", "")], iterations: 5_000, memory, wrap: as_it_is }.run();
}
