//! Broken files of all kinds: reading them gives an error or a model, never a panic.
//!
//! `PHALANX_FUZZ_ITERATIONS` sets the number of mutations per kind of file.

use phalanx_graph::onnx::{self, ImportOptions};
use phalanx_graph::zoo::{self, ZooOptions};
use phalanx_graph::{layers, weights};
use phalanx_types::Seed;
use std::path::Path;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below.max(1) as u64) as usize
    }
}

fn iterations() -> usize {
    std::env::var("PHALANX_FUZZ_ITERATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(15_000)
}

/// Flips, replaces, removes, repeats and cuts bytes.
fn mutate(dice: &mut Dice, original: &[u8], other: &[u8]) -> Vec<u8> {
    let mut data = original.to_vec();
    for _ in 0..=dice.roll(4) {
        if data.is_empty() {
            break;
        }
        let at = dice.roll(data.len());
        let len = 1 + dice.roll(16.min(data.len() - at));
        match dice.roll(7) {
            0 => data[at] ^= 1 << dice.roll(8),
            1 => data[at] = [0, 1, 0x7f, 0x80, 0xff][dice.roll(5)],
            2 => drop(data.drain(at..at + len)),
            3 => data.truncate(at),
            4 => {
                let piece = data[at..at + len].to_vec();
                data.splice(at..at, piece);
            }
            5 => {
                let from = dice.roll(other.len());
                data.splice(at..at + len, other[from..(from + len).min(other.len())].iter().copied());
            }
            _ => {
                let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
                data.splice(at..at, huge[..1 + dice.roll(8)].iter().copied());
            }
        }
    }
    data
}

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reference/ops");
    let folder = std::fs::read_dir(folder).expect("the reference files are there");
    let mut files: Vec<_> = folder.filter_map(|e| Some(e.ok()?.path())).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "onnx"));
    files.sort();
    let small = files.iter().filter_map(|p| std::fs::read(p).ok()).filter(|d| d.len() < 20_000);
    small.step_by(7).collect()
}

#[test]
fn broken_onnx_files_are_refused() {
    let (corpus, mut dice, mut good) = (corpus(), Dice(1), 0);
    for i in 0..iterations() {
        let (a, b) = (&corpus[i % corpus.len()], &corpus[dice.roll(corpus.len())]);
        let data = mutate(&mut dice, a, b);
        if let Ok(imported) = onnx::import_bytes(data.into(), &ImportOptions::default()) {
            good += 1;
            weights::check(&imported.graph, &imported.weights).unwrap();
            let _ = onnx::export_bytes(&imported.graph, &imported.weights);
        }
    }
    assert!(good > 0);
}

#[test]
fn broken_weights_are_refused() {
    let graph = zoo::build("digits-cnn", &ZooOptions::default()).unwrap();
    let original = weights::to_bytes(&graph.initialise(Seed(1))).unwrap();
    // Only the header can be wrong in interesting ways.
    let header = 8 + u64::from_le_bytes(original[..8].try_into().unwrap()) as usize;
    let mut dice = Dice(2);
    for _ in 0..iterations() {
        let mut data = mutate(&mut dice, &original[..header], &original[..header]);
        data.extend_from_slice(&original[header..]);
        if let Ok(found) = weights::from_bytes(data.into()) {
            let _ = weights::check(&graph, &found);
        }
    }
}

#[test]
fn broken_lists_of_layers_are_refused() {
    let original = "name = \"n\"\ninput = [3, 8, 8]\n[[layer]]\ntype = \"conv2d\"\nname = \"a\"\nout = 4\nkernel = 3\n\
        padding = \"same\"\n[[layer]]\ntype = \"residual\"\nfrom = \"a\"\n[[layer]]\ntype = \"max_pool\"\nkernel = 2\n\
        [[layer]]\ntype = \"reshape\"\nshape = [16, 4]\n[[layer]]\ntype = \"lstm\"\nhidden = 5\nlayers = 2\n\
        [[layer]]\ntype = \"group_norm\"\ngroups = 4\n[[layer]]\ntype = \"attention\"\nheads = 1\n[[layer]]\n\
        type = \"transpose\"\norder = [0, 2, 1]\n";
    let mut dice = Dice(3);
    for _ in 0..iterations() {
        let data = mutate(&mut dice, original.as_bytes(), original.as_bytes());
        let text = String::from_utf8_lossy(&data).into_owned();
        if let Ok(graph) = layers::parse(&text) {
            let _ = graph.cost();
        }
    }
}
