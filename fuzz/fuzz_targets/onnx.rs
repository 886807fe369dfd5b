//! Any bytes as an ONNX file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use phalanx_graph::onnx;

fuzz_target!(|data: &[u8]| {
    let imported = onnx::import_bytes(bytes::Bytes::copy_from_slice(data), &onnx::ImportOptions::default());
    if let Ok(imported) = imported {
        let _costs = imported.graph.cost();
    }
});
