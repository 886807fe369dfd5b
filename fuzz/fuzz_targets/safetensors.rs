//! Any bytes as a file of weights.
#![no_main]

use libfuzzer_sys::fuzz_target;
use phalanx_graph::weights;

fuzz_target!(|data: &[u8]| {
    let _weights = weights::from_bytes(bytes::Bytes::copy_from_slice(data));
});
