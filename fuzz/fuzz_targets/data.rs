//! Any bytes as a file of samples; the first byte says which format.
#![no_main]

use libfuzzer_sys::fuzz_target;
use phalanx_data::{Batch, Dataset, Format, SourceSpec};
use std::io::Write;

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else { return };
    let formats = [Format::Npy, Format::Npz, Format::Idx, Format::Csv, Format::Safetensors, Format::Parquet];
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    file.write_all(data).expect("a temporary file can be written");
    let spec = SourceSpec { format: Some(formats[*kind as usize % formats.len()]), ..SourceSpec::file(file.path()) };
    if let Ok(dataset) = Dataset::open(&spec, std::path::Path::new(".")) {
        let some: Vec<usize> = (0..dataset.extent().available().min(4)).collect();
        let _read = dataset.read(&some, &mut Batch::new());
    }
});
