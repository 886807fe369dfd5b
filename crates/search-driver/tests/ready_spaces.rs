//! The candidates of the spaces that come with Phalanx make runs that train, and models that others read.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use flate2::Compression;
use flate2::write::GzEncoder;
use phalanx_rank::Trainer;
use phalanx_records::run_dir::RunDir;
use phalanx_search::core::dice::Dice;
use phalanx_search::core::space::Genes;
use phalanx_search::core::template::{Expanded, READY, SearchFile, ready};
use phalanx_train::config::{Override, RunFile};
use phalanx_train::{Compute, LoadOptions, Task, TrainedModel};
use phalanx_types::Seed;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Candidates of each space that are trained for a step and exported. `PHALANX_READY_CANDIDATES` asks for more.
const TRAINED: usize = 6;
/// Candidates of each space of which the run file is read.
const READ: usize = 200;
const IMAGES: u32 = 8;

fn idx(path: &Path, head: &[u32], bytes: usize) {
    let mut file = GzEncoder::new(std::fs::File::create(path).unwrap(), Compression::fast());
    head.iter().for_each(|word| file.write_all(&word.to_be_bytes()).unwrap());
    let noise: Vec<u8> = (0..bytes).map(|i| (i * 31 % 251) as u8).collect();
    file.write_all(
        &noise.iter().map(|byte| if head.len() == 2 { byte % 10 } else { *byte }).collect::<Vec<_>>(),
    )
    .unwrap();
    file.finish().unwrap();
}

/// Files of the names and forms of MNIST.
fn write_data(dir: &Path) {
    for set in ["train", "t10k"] {
        let images = dir.join(format!("{set}-images-idx3-ubyte.gz"));
        idx(&images, &[0x803, IMAGES, 28, 28], IMAGES as usize * 784);
        idx(&dir.join(format!("{set}-labels-idx1-ubyte.gz")), &[0x801, IMAGES], IMAGES as usize);
    }
}

/// Different candidates in the order of the dice, as many as there are if they are fewer.
fn sample(file: &SearchFile, count: usize) -> Vec<Genes> {
    let mut dice = Dice::new(Seed(7));
    let mut seen = BTreeSet::new();
    let drawn = (0..count * 40).map(|_| file.space().sample(&mut dice));
    drawn.filter(|genes| seen.insert(genes.clone())).take(count).collect()
}

/// Trains a candidate for a step, exports it, and reads it back.
fn train_and_export(expanded: &Expanded, dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join("model.toml"), expanded.model.as_deref().unwrap()).unwrap();
    let said = [("train.steps", 1), ("train.batch", 4), ("train.threads", 1)];
    let said = said.map(|(key, number)| Override::flag("the test", key, number));
    let file = RunFile::parse(&dir.join("run.toml"), &expanded.run, &said).unwrap();
    let run = RunDir::create(dir.join("run")).unwrap();
    run.write("run.toml", file.resolved.to_toml().as_bytes()).unwrap();
    let compute = Compute::cpu(Some(1));
    let task = Task::new(file.config, &compute.threads).unwrap();
    let valid = task.valid.clone().unwrap();
    let trainer = Trainer::new(task, compute.clone(), run, &mut ()).unwrap();
    let summary = trainer.run(&AtomicBool::new(false), &mut ()).unwrap();
    assert_eq!(summary.steps, 1);
    let model = TrainedModel::load(&dir.join("run"), LoadOptions::default()).unwrap();
    let onnx = dir.join("model.onnx");
    model.save_onnx(&onnx).unwrap();
    let options = LoadOptions { config: model.config.clone(), model: None };
    let exported = TrainedModel::load(&onnx, options).unwrap();
    let [ours, theirs] = [&model, &exported].map(|model| model.evaluate(&valid, &compute).unwrap());
    assert_eq!(ours.samples, u64::from(IMAGES));
    assert!((ours.loss - theirs.loss).abs() < 1e-4 * ours.loss.abs().max(1.0), "{ours:?} {theirs:?}");
}

fn check(name: &str) {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let file = SearchFile::parse(&dir.path().join("search.toml"), ready(name).unwrap()).unwrap();
    for genes in sample(&file, READ) {
        let expanded = file.expand(&genes).unwrap();
        let run = RunFile::parse(&dir.path().join("trials/t1/run.toml"), &expanded.run, &[]);
        assert!(run.is_ok(), "{:?}: {run:?}", file.space().archid(&genes));
    }
    let more = std::env::var("PHALANX_READY_CANDIDATES").ok().and_then(|count| count.parse().ok());
    for (number, genes) in sample(&file, more.unwrap_or(TRAINED)).iter().enumerate() {
        train_and_export(&file.expand(genes).unwrap(), &dir.path().join(format!("t{number}")));
    }
}

#[test]
fn the_network_of_the_sample_trains_and_exports() {
    check("cnn");
}

#[test]
fn networks_like_mobilenet_train_and_export() {
    check("mobilenet");
}

#[test]
fn small_transformers_train_and_export() {
    check("transformer");
}

#[test]
fn every_ready_space_is_checked_here() {
    assert_eq!(READY, ["cnn", "mobilenet", "transformer"]);
}
