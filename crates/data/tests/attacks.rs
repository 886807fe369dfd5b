//! Malicious files: each is refused for the right reason and uses next to no memory.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod memory;

use flate2::{Compression, write::GzEncoder};
use phalanx_data::{Columns, DataError, Dataset, Fault, Format, SourceSpec};
use std::io::{Cursor, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// The memory that refusing a file may use, besides a few times its size.
const ALLOWANCE: usize = 1 << 20;

/// Opens a file with these bytes and returns why it was refused.
fn refused(name: &str, bytes: &[u8]) -> DataError {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(name);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, bytes).unwrap();
    let image = name.contains('/');
    let x = (name.ends_with("npz") || name.ends_with("tensors")).then(|| Columns::One("x".to_owned()));
    let spec = SourceSpec { x, ..SourceSpec::file(if image { "" } else { name }) };
    let read = |dataset: Dataset| dataset.read(&[0], &mut phalanx_data::Batch::new());
    let (result, peak) = memory::peak_of(|| Dataset::open(&spec, dir.path()).and_then(read));
    assert!(peak < ALLOWANCE + 4 * bytes.len(), "{peak} bytes held for {} of {name}", bytes.len());
    match result {
        Ok(()) => panic!("{} bytes of {name} were read", bytes.len()),
        Err(error) => error,
    }
}

fn fault(name: &str, bytes: &[u8]) -> Fault {
    match refused(name, bytes) {
        DataError::Malformed { fault, .. } => fault,
        other => panic!("{other:?}"),
    }
}

fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n");
    let len = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &len[..], header.as_bytes(), data].concat()
}

#[test]
fn npy_that_declares_what_it_has_not() {
    for shape in ["(1099511627776,)", "(1152921504606846975,)", "(1000, 1000, 1000)", "(3,)"] {
        assert!(matches!(fault("a.npy", &npy("'<f8'", shape, &[0; 16])), Fault::Short { .. }), "{shape}");
    }
    for shape in ["(18446744073709551615,)", "(4294967296, 4294967296)", "(9223372036854775807, 4)"] {
        assert!(matches!(fault("a.npy", &npy("'<f8'", shape, &[0; 16])), Fault::Overflow { .. }), "{shape}");
    }
    assert_eq!(fault("a.npy", &npy("'<f8'", "(1,)", &[0; 16])), Fault::Trailing { extra: 8 });
    // No elements at all, whatever the other dimensions are.
    assert!(matches!(refused("a.npy", &npy("'<f8'", "(1099511627776, 0)", &[])), DataError::Empty { .. }));
    assert!(matches!(refused("a.npy", &npy("'<f8'", "()", &[0; 8])), DataError::NoSampleAxis { .. }));
}

#[test]
fn npy_with_a_bad_header() {
    assert_eq!(fault("a.npy", b""), Fault::Magic);
    assert_eq!(fault("a.npy", b"\x93NUMPZ\x01\x00\x10\x00"), Fault::Magic);
    assert!(matches!(fault("a.npy", b"\x93NUMPY\x09\x00\x10\x00"), Fault::Version { major: 9, .. }));
    for bytes in [
        &b"\x93NUMPY"[..],
        b"\x93NUMPY\x01\x00",
        b"\x93NUMPY\x01\x00\xff\xff{}",
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}",
        b"\x93NUMPY\x01\x00\x02\x00{}",
    ] {
        assert!(matches!(fault("a.npy", bytes), Fault::Header { .. }), "{bytes:?}");
    }
    let deep = format!("({})", "1, ".repeat(65));
    assert!(matches!(fault("a.npy", &npy("'<f4'", &deep, &[0; 4])), Fault::Header { .. }));
    // Pickled objects would run code.
    for descr in ["'|O'", "'<U4'", "'<c8'", "[('a', '<f4')]"] {
        let error = refused("a.npy", &npy(descr, "(1,)", &[0; 16]));
        assert!(matches!(error, DataError::UnsupportedType { .. }), "{error:?}");
    }
}

fn npz(method: CompressionMethod, entry: &[u8]) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    archive.start_file("x.npy", SimpleFileOptions::default().compression_method(method)).unwrap();
    archive.write_all(entry).unwrap();
    archive.finish().unwrap().into_inner()
}

#[test]
fn npz_that_inflates_to_more_or_less_than_it_declares() {
    let deflated = |entry: &[u8]| npz(CompressionMethod::Deflated, entry);
    let bomb = npy("'|u1'", "(10,)", &vec![0; 64 << 20]);
    assert!(matches!(fault("a.npz", &deflated(&bomb)), Fault::Trailing { .. }));
    let huge = npy("'|u1'", "(1099511627776,)", &vec![0; 1 << 20]);
    assert!(matches!(fault("a.npz", &deflated(&huge)), Fault::Short { .. }));
    // The archive itself lies about the size too.
    let mut lies = deflated(&npy("'|u1'", "(1000000000,)", &[0; 100]));
    let central = lies.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    lies[central + 24..central + 28].copy_from_slice(&1_000_000_100u32.to_le_bytes());
    let error = refused("a.npz", &lies);
    assert!(matches!(error, DataError::Malformed { .. }), "{error:?}");
}

#[test]
fn npz_with_wrong_offsets() {
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let good = npz(method, &npy("'|u1'", "(100,)", &[1; 100]));
        let central = good.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
        let end = good.windows(4).rposition(|w| w == b"PK\x05\x06").unwrap();
        // The size and place of the data, the place of the directory and its size.
        for (at, value) in [
            (central + 20, u32::MAX - 1),
            (central + 24, u32::MAX - 1),
            (central + 20, 1),
            (central + 42, 40),
            (central + 42, u32::MAX - 1),
            (end + 16, 7),
            (end + 16, u32::MAX - 1),
            (end + 12, u32::MAX - 1),
        ] {
            let mut bad = good.clone();
            bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("a.npz"), &bad).unwrap();
            let spec = SourceSpec::file("a.npz");
            let (opened, peak) = memory::peak_of(|| Dataset::open(&spec, dir.path()));
            assert!(peak < ALLOWANCE, "{peak} bytes held");
            // The size of the directory is not needed to find it, and some read past its wrong place.
            match opened {
                Err(DataError::Malformed { format: Format::Npz, .. }) => {}
                Err(other) => panic!("{at} {value}: {other:?}"),
                Ok(_) => assert!(at >= end, "{at} {value} {central} {method}"),
            }
        }
        for cut in 0..good.len() {
            let error = refused("a.npz", &good[..cut]);
            assert!(matches!(error, DataError::Malformed { format: Format::Npz, .. }), "{cut}: {error:?}");
        }
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn idx_that_declares_what_it_has_not() {
    let header = |dimensions: &[u32]| {
        let mut bytes = vec![0, 0, 8, dimensions.len() as u8];
        bytes.extend(dimensions.iter().flat_map(|d| d.to_be_bytes()));
        bytes
    };
    let many = [u32::MAX; 3];
    assert!(matches!(fault("a.idx", &header(&many)), Fault::Overflow { .. }));
    assert!(matches!(fault("a.gz", &gzip(&header(&many))), Fault::Overflow { .. }));
    assert!(matches!(fault("a.idx", &header(&[u32::MAX])), Fault::Short { .. }));
    assert!(matches!(fault("a.gz", &gzip(&header(&[u32::MAX]))), Fault::Short { .. }));
    // So few that they could be there, but they are not.
    assert_eq!(fault("a.gz", &gzip(&header(&[20_000]))), Fault::Compressed);
    let bomb = gzip(&[header(&[10]), vec![0; 64 << 20]].concat());
    assert!(matches!(fault("a.gz", &bomb), Fault::Trailing { .. }));
    assert_eq!(fault("a.idx", &[0, 0, 8, 255, 0]), Fault::Header { what: "it ends early" });
    for magic in [&[0, 0, 7, 1][..], &[0, 1, 8, 1], &[0, 0, 8], &[]] {
        assert_eq!(fault("a.idx", magic), Fault::Magic, "{magic:?}");
    }
    let good = gzip(&[header(&[100]), vec![3; 100]].concat());
    for cut in 2..good.len() {
        assert_eq!(fault("a.gz", &good[..cut]), Fault::Compressed, "{cut}");
    }
}

fn tensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

#[test]
fn safetensors_that_lie() {
    for bytes in [
        vec![],
        vec![0xff; 8],
        (1u64 << 40).to_le_bytes().to_vec(),
        tensors("", &[]),
        tensors("{", &[]),
        tensors("[]", &[]),
        tensors(r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}}"#, &[0; 8]),
        tensors(r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#, &[0; 3]),
        tensors(r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}"#, &[0; 4]),
        tensors(r#"{"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}}"#, &[0; 4]),
        tensors(r#"{"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#, &[0; 4]),
        tensors(r#"{"x":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}"#, &[0; 4]),
        tensors(
            r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"y":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#,
            &[0; 4],
        ),
    ] {
        assert!(matches!(fault("a.safetensors", &bytes), Fault::Decoder { .. }), "{bytes:?}");
    }
    let small = tensors(r#"{"x":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}}"#, &[0; 4]);
    assert!(matches!(refused("a.safetensors", &small), DataError::UnsupportedType { .. }));
    let deep = "[".repeat(100_000);
    assert!(matches!(fault("a.safetensors", &tensors(&deep, &[])), Fault::Decoder { .. }));
}

#[test]
fn csv_that_is_no_table() {
    let long = [b"1,".repeat(1 << 20), b"x".to_vec()].concat();
    for (bytes, named) in [
        (&b"a\n\"1"[..], false),
        (b"a,b\n1,2\n\"\n", true),
        (b"a\n\0\n", true),
        (b"1\n\xff\xfe\n", true),
        (&long, true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.csv"), bytes).unwrap();
        let (opened, peak) = memory::peak_of(|| Dataset::open(&SourceSpec::file("a.csv"), dir.path()));
        assert!(peak < ALLOWANCE + 80 * bytes.len(), "{peak} bytes held for {}", bytes.len());
        let refused = matches!(opened, Err(DataError::NotANumber { .. } | DataError::Ragged { .. }));
        assert_eq!(refused, named, "{opened:?}");
    }
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_cut_at_every_byte() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/parquet/lists.parquet");
    let good = std::fs::read(corpus).unwrap();
    for cut in (0..good.len()).step_by(7) {
        assert!(matches!(fault("a.parquet", &good[..cut]), Fault::Decoder { .. }), "{cut}");
    }
    // A footer longer than the file.
    let mut footer = good.clone();
    let at = good.len() - 8;
    for len in [0, 1, good.len() as u32, i32::MAX as u32, u32::MAX] {
        footer[at..at + 4].copy_from_slice(&len.to_le_bytes());
        assert!(matches!(fault("a.parquet", &footer), Fault::Decoder { .. }), "{len}");
    }
}

fn png(width: u32, height: u32) -> Vec<u8> {
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 2, 0, 0, 0]].concat();
    let mut chunk = |name: &[u8], data: &[u8]| {
        out.extend((data.len() as u32).to_be_bytes());
        let mut crc = flate2::Crc::new();
        crc.update(name);
        crc.update(data);
        out.extend([name, data].concat());
        out.extend(crc.sum().to_be_bytes());
    };
    chunk(b"IHDR", &header);
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), Compression::best());
    zlib.write_all(&[0; 1000]).unwrap();
    chunk(b"IDAT", &zlib.finish().unwrap());
    chunk(b"IEND", &[]);
    out
}

#[test]
fn images_that_declare_what_they_have_not() {
    for (width, height) in
        [(0, 1), (1, 0), (i32::MAX as u32, i32::MAX as u32), (60_000, 60_000), (1, 1 << 30)]
    {
        let error = refused("class/a.png", &png(width, height));
        assert!(matches!(error, DataError::Image { .. }), "{width} {height}: {error:?}");
    }
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/images/colour.jpg");
    let good = std::fs::read(corpus).unwrap();
    let frame = good.windows(2).position(|w| w == [0xff, 0xc0]).unwrap();
    for side in [0, 4000, u16::MAX] {
        let mut bad = good.clone();
        bad[frame + 5..frame + 7].copy_from_slice(&side.to_be_bytes());
        bad[frame + 7..frame + 9].copy_from_slice(&side.to_be_bytes());
        assert!(matches!(refused("class/a.jpg", &bad), DataError::Image { .. }), "{side}");
    }
    for cut in 0..good.len() - 2 {
        let error = refused("class/a.jpg", &good[..cut]);
        assert!(matches!(error, DataError::Image { .. }), "{cut}: {error:?}");
    }
}

#[test]
fn what_is_not_a_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for format in [Format::Npy, Format::Npz, Format::Idx, Format::Csv, Format::Safetensors] {
        let spec = SourceSpec { format: Some(format), ..SourceSpec::file("") };
        let error = Dataset::open(&spec, dir.path()).unwrap_err();
        assert!(matches!(error, DataError::Read { .. } | DataError::Open { .. }), "{error:?}");
    }
    std::fs::write(dir.path().join("file"), "neither").unwrap();
    let error = Dataset::open(&SourceSpec::file("file"), dir.path()).unwrap_err();
    assert!(matches!(error, DataError::UnknownFormat { .. }), "{error:?}");
    let error = Dataset::open(&SourceSpec::file("nothing"), dir.path()).unwrap_err();
    assert!(matches!(error, DataError::Open { .. }), "{error:?}");
    let spec = SourceSpec { format: Some(Format::Images), ..SourceSpec::file("file") };
    let error = Dataset::open(&spec, dir.path()).unwrap_err();
    assert!(matches!(error, DataError::Open { .. }), "{error:?}");
}
