//! Any text as a list of layers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use phalanx_graph::layers;

fuzz_target!(|text: &str| {
    let _graph = layers::parse(text);
});
