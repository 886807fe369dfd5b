//! What compressed and rare exchange costs in accuracy, and saves in bytes, on Fashion-MNIST.

use super::Bench;
use crate::bench::{number, say};
use anyhow::Context;

const CASES: [(&str, &[&str]); 6] = [
    ("gradients", &[]),
    ("bf16", &["sync.compress=bf16"]),
    ("int8", &["sync.compress=int8"]),
    ("topk 1 %", &["sync.compress=topk"]),
    ("outer, every 20", &["sync.exchange=outer", "sync.every=20"]),
    ("outer, every 20, int8", &["sync.exchange=outer", "sync.every=20", "sync.compress=int8"]),
];

pub(super) fn run(bench: &Bench) -> anyhow::Result<()> {
    let data = crate::data::fashion_mnist()?;
    let file = |name: &str| data.join(name);
    let source = |set: &str| {
        let (x, y) =
            (file(&format!("{set}-images-idx3-ubyte.gz")), file(&format!("{set}-labels-idx1-ubyte.gz")));
        format!("{{ file = {x:?}, labels_file = {y:?} }}")
    };
    let text = format!(
        "[model]\nzoo = \"cifar-cnn\"\ninput = [1, 28, 28]\ndropout = 0.0\n[data]\ntrain = {}\nvalid = {}\n\
         scale = 0.00392\nreshape = [1, 28, 28]\nshuffle = true\n[train]\nloss = \"cross_entropy\"\n\
         optimizer = \"adam\"\nepochs = 3\nbatch = 128\n",
        source("train"),
        source("t10k")
    );
    let run = bench.work.join("fashion.toml");
    std::fs::create_dir_all(&bench.work)?;
    std::fs::write(&run, text)?;
    let run = run.to_str().context("a path that is no text")?;
    let mut first: Option<(f64, f64)> = None;
    for (name, sets) in CASES {
        let dir = bench.fresh("exchange")?;
        let path = dir.to_string_lossy();
        let mut args = vec![run, "--local", "2", "--run-dir", &path];
        sets.iter().for_each(|set| args.extend(["--set", set]));
        let accuracy = number(&bench.train(&args)?, "val_acc")? * 100.0;
        let text = std::fs::read_to_string(dir.join("metrics.jsonl"))?;
        let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let bytes: f64 = lines.filter_map(|line| line["sent_bytes"].as_f64()).sum();
        let (exact, most) = *first.get_or_insert((accuracy, bytes));
        say(&format!(
            "{name}: accuracy {accuracy:.2} % ({:+.2}), {:.1} MB sent by a replica ({:.1} %)",
            accuracy - exact,
            bytes / 1e6,
            bytes / most * 100.0
        ));
    }
    Ok(())
}
