//! The programs of all sides, installed where they are missing.

use super::super::release;
use super::Side;
use crate::python::Environment;
use crate::tool::{Tool, present, root, target, tool};
use anyhow::{Context, bail};
use clap::ValueEnum;
use std::path::PathBuf;

/// How long each side measures each size.
const MILLISECONDS: &str = "500";
/// What Debian calls what is needed to compile and run programs with OpenMPI.
const PACKAGES: [&str; 3] = ["openmpi-bin", "libopenmpi-dev", "gcc"];
const PROGRAMS: [&str; 3] = ["mpirun", "mpicc", "gcc"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Transport {
    /// Memory of one host; Gloo knows no other way than TCP.
    Shared,
    /// TCP over loopback.
    Tcp,
}

impl Transport {
    pub(super) fn word(self) -> &'static str {
        match self {
            Transport::Shared => "shared",
            Transport::Tcp => "tcp",
        }
    }
}

/// The programs of all sides.
pub(super) struct Sides {
    phalanx: PathBuf,
    /// `allreduce.c`, compiled.
    with_mpi: PathBuf,
    python: PathBuf,
}

impl Sides {
    pub(super) fn install() -> anyhow::Result<Self> {
        let installing = Environment::torch()?.begin()?;
        install_mpi()?;
        let phalanx = release()?;
        let dir = target().join("peers");
        std::fs::create_dir_all(&dir).with_context(|| format!("could not make {}", dir.display()))?;
        let with_mpi = dir.join("allreduce");
        let source = root().join("xtask/bench/allreduce.c");
        tool("mpicc", &["-O3".as_ref(), "-o".as_ref(), with_mpi.as_os_str(), source.as_os_str()]).run()?;
        Ok(Self { phalanx, with_mpi, python: installing.wait()? })
    }

    /// What measures these sizes and prints a list of JSON.
    pub(super) fn command(&self, side: Side, transport: Transport, ranks: u32, sizes: &[u64]) -> Tool {
        let (ranks, sizes) = (ranks.to_string(), sizes.iter().map(u64::to_string));
        match side {
            Side::Ours | Side::OursPrivate => {
                let mut words = vec!["bench", "allreduce", "--output", "json", "--ranks", &ranks];
                words.extend(["--transport", transport.word()]);
                let time = format!("{MILLISECONDS}ms");
                words.extend(["--time", &time]);
                words.extend((side == Side::OursPrivate).then_some("--private"));
                words.extend((side == Side::Ours && transport == Transport::Shared).then_some("--limit"));
                let sizes = sizes.flat_map(|size| ["--size".to_owned(), size]);
                tool(&self.phalanx, &words.into_iter().map(str::to_owned).chain(sizes).collect::<Vec<_>>())
            }
            Side::OpenMpi => {
                let mut words = vec!["--oversubscribe", "-np", &ranks];
                // It refuses root otherwise, and does not mind the word from others.
                words.push("--allow-run-as-root");
                if transport == Transport::Tcp {
                    words.extend(["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]);
                    words.extend(["--mca", "btl_tcp_if_include", "lo"]);
                }
                let program = self.with_mpi.to_string_lossy().into_owned();
                let words = words.into_iter().map(str::to_owned);
                let words = words.chain([program, MILLISECONDS.to_owned()]).chain(sizes);
                tool("mpirun", &words.collect::<Vec<_>>())
            }
            Side::Gloo => {
                let script = root().join("xtask/bench/allreduce.py").to_string_lossy().into_owned();
                let words = [script.as_str(), "--ranks", &ranks, "--time", MILLISECONDS].map(str::to_owned);
                tool(&self.python, &words.into_iter().chain(sizes).collect::<Vec<_>>())
            }
        }
    }

    /// Of the peers.
    pub(super) fn versions(&self) -> anyhow::Result<[String; 2]> {
        let mpi = tool("mpirun", &["--version"]).capture()?;
        let mpi = mpi.lines().next().unwrap_or_default().replace("mpirun (Open MPI)", "OpenMPI");
        let torch = tool(&self.python, &["-c", "import torch; print(torch.__version__)"]).capture()?;
        Ok([mpi, format!("Gloo of PyTorch {}", torch.trim())])
    }
}

fn install_mpi() -> anyhow::Result<()> {
    let missing: Vec<&str> = PROGRAMS.into_iter().filter(|program| !present(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let is_root = tool("id", &["-u"]).capture()?.trim() == "0";
    if !is_root || !present("apt-get") {
        let (missing, packages) = (missing.join(", "), PACKAGES.join(" "));
        bail!("not installed: {missing}; on Debian, root gets them by `apt-get install {packages}`");
    }
    let words = ["install", "--yes", "--no-install-recommends"];
    let install = || {
        let words: Vec<&str> = words.into_iter().chain(PACKAGES).collect();
        tool("apt-get", &words).env("DEBIAN_FRONTEND", "noninteractive").run()
    };
    // The list of packages may be missing or old.
    install().or_else(|_error| tool("apt-get", &["update"]).run().and_then(|()| install()))
}
