//! Small files that imply large arrays, and paths that are no files: refused before memory is taken or time is lost.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod memory;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use phalanx_data::{Batch, DataError, Dataset, Fault, Format, SourceSpec};
use phalanx_types::ByteSize;
use std::io::{Cursor, Write};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// What the bombs become.
const LARGE: usize = 64 << 20;
const LIMIT: ByteSize = ByteSize(8 << 20);
/// The memory that opening a file may use besides its size and what it declares.
const ALLOWANCE: usize = 1 << 20;

fn npz(len: usize) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    archive.start_file("x.npy", options).unwrap();
    archive.write_all(&phalanx_data::npy_header("|u1", &[len / 16, 16])).unwrap();
    archive.write_all(&vec![0; len]).unwrap();
    archive.finish().unwrap().into_inner()
}

fn idx(len: usize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let sizes = [(len / 16) as u32, 16].map(u32::to_be_bytes);
    encoder.write_all(&[&[0, 0, 8, 2], &sizes[0][..], &sizes[1]].concat()).unwrap();
    encoder.write_all(&vec![0; len]).unwrap();
    encoder.finish().unwrap()
}

fn png(side: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, side, side);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&vec![0; (side * side) as usize]).unwrap();
    writer.finish().unwrap();
    out
}

/// Writes a file and opens it with this limit; returns what came of it, and the most memory that it took.
fn open(name: &str, bytes: &[u8], limit: ByteSize) -> (Result<Dataset, DataError>, usize) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(name);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, bytes).unwrap();
    let named = if name.contains('/') { "" } else { name };
    let spec = SourceSpec { limit: Some(limit), ..SourceSpec::file(named) };
    memory::peak_of(|| Dataset::open(&spec, dir.path()))
}

#[test]
fn what_a_file_implies_is_held_against_the_limit_before_it_is_inflated() {
    let csv = "1,2,3,4,5,6,7,8\n".repeat(1 << 20);
    let names = (0..1 << 18).fold("x,y\n".to_owned(), |csv, i| csv + &format!("1,n{i}\n"));
    for (name, bytes) in [
        ("a.npz", npz(LARGE)),
        ("a-ubyte.gz", idx(LARGE)),
        ("class/a.png", png(8192)),
        ("a.csv", csv.into_bytes()),
        ("names.csv", names.into_bytes()),
    ] {
        let y = (name == "names.csv").then(|| "y".to_owned());
        let (opened, peak) = if y.is_some() {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join(name), &bytes).unwrap();
            let spec = SourceSpec { y, limit: Some(LIMIT), ..SourceSpec::file(name) };
            memory::peak_of(|| Dataset::open(&spec, dir.path()))
        } else {
            open(name, &bytes, LIMIT)
        };
        let Err(error @ DataError::Malformed { fault: Fault::TooLarge { limit, implied }, .. }) = opened
        else {
            panic!("{name}: {opened:?}");
        };
        assert_eq!(limit, LIMIT, "{name}");
        assert!(implied > LIMIT, "{name}: {implied}");
        let (said, hint) = (error.to_string(), error.hint().unwrap());
        assert!(said.contains(name.trim_start_matches("class/")) && said.contains("8 MiB"), "{said}");
        assert!(!said.contains("not a good") && hint.contains("limit"), "{said}: {hint}");
        // A list that grows lies twice in memory while it does.
        assert!(peak < 3 * LIMIT.0 as usize + ALLOWANCE, "{name}: {peak} bytes held");
    }
}

#[test]
fn what_is_allowed_takes_its_size_and_no_more() {
    for (name, bytes) in [("a.npz", npz(LARGE)), ("a-ubyte.gz", idx(LARGE))] {
        let (opened, peak) = open(name, &bytes, ByteSize(LARGE as u64));
        assert_eq!(opened.unwrap().fixed_len().unwrap(), LARGE / 16);
        assert!(peak < LARGE + ALLOWANCE, "{name}: {peak} bytes held");
    }
}

#[test]
fn tensors_of_a_whole_file_share_one_limit() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.npz");
    let mut archive = ZipWriter::new(std::fs::File::create(&file).unwrap());
    let options = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    for name in ["a.npy", "b.npy", "c.npy"] {
        archive.start_file(name, options).unwrap();
        archive.write_all(&phalanx_data::npy_header("|u1", &[4 << 20])).unwrap();
        archive.write_all(&vec![0; 4 << 20]).unwrap();
    }
    archive.finish().unwrap();
    let limit = phalanx_data::Limit::new(LIMIT);
    let error = phalanx_data::read_tensors_within(&file, limit).unwrap_err();
    let fault = Fault::TooLarge { implied: ByteSize(12 << 20), limit: LIMIT };
    assert!(matches!(&error, DataError::Malformed { fault: found, .. } if *found == fault), "{error}");
    assert_eq!(phalanx_data::read_tensors(&file).unwrap().len(), 3);
}

#[cfg(feature = "parquet")]
#[test]
fn pages_of_parquet_are_held_against_the_limit() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/parquet/lists.parquet");
    let bytes = std::fs::read(corpus).unwrap();
    let (opened, _) = open("a.parquet", &bytes, ByteSize(16));
    assert!(matches!(opened, Err(DataError::Malformed { fault: Fault::TooLarge { .. }, .. })), "{opened:?}");
}

#[test]
fn a_line_without_an_end_is_refused() {
    let (opened, peak) = open("a.csv", &b"1,".repeat(16 << 20), LIMIT);
    assert!(matches!(opened, Err(DataError::Malformed { fault: Fault::Header { .. }, .. })), "{opened:?}");
    assert!(peak < 64 << 20, "{peak} bytes held");
}

#[test]
fn a_batch_that_no_memory_holds_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    // A file of 2 TiB without a block on disk, one sample.
    let header = phalanx_data::npy_header("|u1", &[1, 1 << 41]);
    let file = std::fs::File::create(dir.path().join("a.npy")).unwrap();
    (&file).write_all(&header).unwrap();
    if file.set_len(header.len() as u64 + (1 << 41)).is_err() {
        return;
    }
    let Ok(dataset) = Dataset::open(&SourceSpec::file("a.npy"), dir.path()) else { return };
    let error = dataset.read(&[0; 1 << 10], &mut Batch::new()).unwrap_err();
    assert!(matches!(error, DataError::BatchMemory { .. }), "{error}");
}

/// Runs on a thread, so that a call which hangs fails the test.
fn within<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    result.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("{what} hangs"))
}

#[cfg(unix)]
#[test]
fn devices_and_pipes_are_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::create_dir_all(dir.path().join("images/class")).unwrap();
    std::os::unix::fs::symlink(&pipe, dir.path().join("images/class/a.png")).unwrap();
    let formats =
        [Format::Npy, Format::Npz, Format::Idx, Format::Csv, Format::Safetensors, Format::Parquet].map(Some);
    let mut cases = vec![(dir.path().join("images"), None)];
    for file in [pipe.as_path(), Path::new("/dev/zero"), Path::new("/dev/null")] {
        cases.extend(formats.into_iter().chain([None]).map(|format| (file.to_owned(), format)));
    }
    for (file, format) in cases {
        let spec = SourceSpec { format, ..SourceSpec::file(&file) };
        let what = format!("{format:?} of {}", file.display());
        let opened = within(&what, move || Dataset::open(&spec, Path::new("")));
        assert!(matches!(opened, Err(DataError::NotRegular { .. })), "{what}: {opened:?}");
    }
}

/// The ratio that is believed is one that a compressor reaches.
#[test]
fn the_best_compression_is_believed() {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&vec![0; LARGE]).unwrap();
    let compressed = encoder.finish().unwrap().len();
    assert!(LARGE / compressed > 1000);
    assert!(open("a.npz", &npz(LARGE), ByteSize(1 << 30)).0.is_ok());
}
